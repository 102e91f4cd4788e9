"""Run the service that sends reports about jobs, if the config has receivers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.daemons import record_used, used_as_they_are
from components.node.failure import Failure
from components.node.files import File
from components.node.parts import do_each
from components.node.passwd import make_daemon_account, remove_daemon_account
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import wait_until

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
_START_SECONDS = 20


@dataclass(frozen=True)
class JobReportsValues:
    """The service's settings as JSON, its program and unit.

    job_reports_secrets   secret: `file text`, one a line
    job_reports_version   changes with the program's modules, and restarts it
    """

    job_reports_enabled: bool
    job_reports_settings: str
    job_reports_secrets: str
    job_reports_program: str
    job_reports_version: str
    job_reports_unit: str


def services(step: Step, values: JobReportsValues) -> None:
    """Start or remove the service."""
    if not values.job_reports_enabled:
        remove_service()
        return
    make_daemon_account(ACCOUNT)
    # slurmctld's account writes events, and the service removes them. Files get the service's group.
    files.make_folder(SPOOL, 0o2770, _SLURM, ACCOUNT)
    read = _write(values)
    systemd.reload(UNIT)
    systemd.enable(UNIT)
    if not (systemd.is_active(UNIT) and used_as_they_are(UNIT, read)):
        attempt("systemctl", "reset-failed", UNIT, quiet=True)
        run("systemctl", "restart", UNIT)
        record_used(UNIT, read)
    if not wait_until(lambda: systemd.is_active(UNIT), _START_SECONDS):
        raise Failure(
            "the service that reports ends of jobs does not start",
            f"see 'journalctl -u {UNIT}' on {step.host}, then run up again",
        )


def _write(values: JobReportsValues) -> list[str]:
    """Write the service's files, and return those that it reads when it starts."""
    lines = (line.partition(" ") for line in values.job_reports_secrets.split("\n"))
    credentials = {name: text for name, _, text in lines if name} | {SETTINGS: values.job_reports_settings}
    load = "\n".join(f"LoadCredential={name}:{CREDENTIALS}/{name}" for name in sorted(credentials))
    unit = values.job_reports_unit.replace("@CREDENTIALS@", f"# Program {values.job_reports_version}\n{load}")
    files.make_folder(CREDENTIALS, 0o700)
    files.write_all(
        [
            *(File(f"{CREDENTIALS}/{name}", text, 0o600) for name, text in credentials.items()),
            File(PROGRAM, values.job_reports_program, 0o755),
            File(f"{systemd.UNITS}/{UNIT}", unit),
        ]
    )
    for name in files.names_in(CREDENTIALS):
        if name not in credentials:
            files.remove(f"{CREDENTIALS}/{name}")
    return [f"{systemd.UNITS}/{UNIT}", *(f"{CREDENTIALS}/{name}" for name in sorted(credentials))]


def remove_service() -> None:
    """Remove the service with its secrets. Reports that are not sent stay."""
    systemd.retire(UNIT)
    files.remove_folder(CREDENTIALS)
    for path in (MAIL_PROGRAM, PROGRAM):
        files.remove(path)


def leave(step: Step) -> None:
    """Remove the service, its account and reports that are not sent."""
    do_each(
        remove_service,
        *(partial(files.remove_folder, path) for path in (SPOOL, STATE)),
        partial(remove_daemon_account, ACCOUNT),
    )
