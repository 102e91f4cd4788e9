"""Run the service that sends reports about jobs, if the config has receivers."""

from dataclasses import dataclass

from components.node import files, systemd
from components.node.daemons import run_service
from components.node.files import File
from components.node.passwd import make_daemon_account
from components.node.step.step import Step

ACCOUNT = "tailrack-reports"
UNIT = "tailrack-job-reports.service"
# slurmctld's program, and the service's.
MAIL_PROGRAM = "/usr/local/lib/tailrack/report-job"
PROGRAM = "/usr/local/lib/tailrack/job-reports"
# Events that the service has not read yet. Only slurmctld's account and the service can write there.
SPOOL = "/var/spool/tailrack-job-reports"
# The service's own folder: reports that are not sent yet.
STATE = "/var/lib/tailrack-job-reports"
# Root's files, which systemd passes to the service.
CREDENTIALS = "/etc/tailrack/job-reports"
SETTINGS = "settings"
MAIL_PASSWORD = "mail-password"  # noqa: S105 a file's name
# slurmctld's account.
_SLURM = "slurm"


@dataclass(frozen=True)
class JobReportsValues:
    """The service's settings as JSON, and its unit.

    job_reports_secrets   secret: `file text`, one a line
    job_reports_version   changes with the program's modules, and restarts it
    """

    job_reports_settings: str
    job_reports_secrets: str
    job_reports_version: str
    job_reports_unit: str


def services(step: Step, values: JobReportsValues) -> None:
    """Start the service."""
    make_daemon_account(ACCOUNT)
    # slurmctld's account writes events, and the service removes them. Files get the service's group.
    files.make_folder(SPOOL, 0o2770, _SLURM, ACCOUNT)
    lines = (line.partition(" ") for line in values.job_reports_secrets.split("\n"))
    credentials = {name: text for name, _, text in lines if name} | {SETTINGS: values.job_reports_settings}
    load = "\n".join(f"LoadCredential={name}:{CREDENTIALS}/{name}" for name in sorted(credentials))
    unit = values.job_reports_unit.replace("@CREDENTIALS@", f"# Program {values.job_reports_version}\n{load}")
    files.make_folder(CREDENTIALS, 0o700)
    read = [
        File(f"{systemd.UNITS}/{UNIT}", unit),
        *(File(f"{CREDENTIALS}/{name}", text, 0o600) for name, text in sorted(credentials.items())),
    ]
    step.declare(*read)
    run_service(step, UNIT, [file.path for file in read], "reports ends of jobs")
