"""Reports about jobs: slurmctld's MailProg leaves a file, and a service on the head node sends why a job ended."""

from __future__ import annotations

import json

from components.roles.cluster_settings import ClusterSettings
from components.roles.job_reports.host import MAIL_PASSWORD, MAIL_PROGRAM, UNIT
from components.roles.job_reports.settings import JobReports
from components.roles.program import launcher, version
from components.roles.role import File, Role, SlurmKey, template


def role(settings: ClusterSettings) -> Role:
    """Return the role. Without job_reports in the config it removes the service."""
    reports = settings.job_reports
    secrets = {"JOB_REPORTS_SECRETS": secret_lines(reports) if reports else ""}
    return Role(
        "job_reports",
        after=("users", "firewall", "tailrack_command"),
        values={
            "JOB_REPORTS_ENABLED": reports is not None,
            "JOB_REPORTS_SETTINGS": service_settings(settings),
            **({} if reports else secrets),
        },
        secrets=secrets if reports else {},
        texts={
            "JOB_REPORTS_PROGRAM": launcher("job-reports") if reports else "",
            "JOB_REPORTS_VERSION": version("job-reports") if reports else "",
            "JOB_REPORTS_UNIT": template("job_reports", UNIT) if reports else "",
        },
        # Before slurm.conf names it.
        files={"head": (File(MAIL_PROGRAM, template("job_reports", "report-job"), mode="0755"),)} if reports else {},
        slurm_conf={"MailProg": SlurmKey(MAIL_PROGRAM, "tailrack:job_reports would send nothing")} if reports else {},
    )


def service_settings(settings: ClusterSettings) -> str:
    """Return the service's settings as JSON, without secrets; empty without job_reports in the config."""
    reports = settings.job_reports
    if reports is None:
        return ""
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
