"""Paths and names of role job_reports."""

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
