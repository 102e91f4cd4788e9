"""Reports about jobs: slurmctld's MailProg leaves a file, and a service on the head node sends why a job ended."""

import json

from components.node.declared import ACCOUNT as ACCOUNT_OF
from components.node.declared import DATA
from components.roles.cluster_settings import ClusterSettings
from components.roles.jobs.job_reports.host import ACCOUNT, MAIL_PASSWORD, MAIL_PROGRAM, PROGRAM, SPOOL, STATE, UNIT
from components.roles.jobs.job_reports.settings import JobReports
from components.roles.program import launcher, version
from components.roles.role import File, Role, SlurmKey, template


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None without job_reports in the config."""
    if not (reports := settings.job_reports):
        return None
    return Role(
        "job_reports",
        after=("users", "firewall", "tailrack"),
        values={"settings": service_settings(settings, reports)},
        secrets={"secrets": secret_lines(reports)},
        texts={"version": version("job-reports"), "unit": template("job_reports", UNIT)},
        files={
            # Before slurm.conf names it.
            "head": (File(MAIL_PROGRAM, template("job_reports", "report-job"), mode="0755"),),
            "services": (File(PROGRAM, launcher("job-reports"), mode="0755"),),
        },
        # Reports that are not sent stay where it is turned off.
        made={"services": tuple(f"{DATA}{item}" for item in (SPOOL, STATE, f"{ACCOUNT_OF}{ACCOUNT}"))},
        slurm_conf={"MailProg": SlurmKey(MAIL_PROGRAM, "tailrack:job_reports would send nothing")},
    )


def service_settings(settings: ClusterSettings, reports: JobReports) -> str:
    """Return the service's settings as JSON, without secrets."""
    mail = reports.mail
    return json.dumps(
        {
            "cluster": settings.cluster.name,
            "mail": mail and mail.model_dump(include={"sender", "smarthost", "user", "encrypted"}),
            "channels": {channel.name: channel.kind for channel in reports.channels},
            "notify": {user.name: list(user.notify) for user in settings.users if user.notify},
        },
        sort_keys=True,
    )


def secret_lines(reports: JobReports) -> str:
    """Return the secrets as lines `file text`."""
    lines = [f"channel-{channel.name} {channel.url.get_secret_value()}" for channel in reports.channels]
    if reports.mail and reports.mail.password:
        lines.append(f"{MAIL_PASSWORD} {reports.mail.password.get_secret_value()}")
    return "\n".join(lines)
