"""Remove everything that role health installed on a machine."""

from __future__ import annotations

from components.node import files, systemd
from components.node.run import attempt
from components.node.step.step import STATE_DIR
from components.roles.health.gpu_findings import FINDINGS

LIB = "/usr/local/lib/tailrack"
SHARE_MOUNTED = "/etc/tailrack/share-mounted"
REASON = "tailrack-reason.service"
DEEP_CHECK_SETTINGS = "/etc/tailrack/deep-check.json"
GPU_FINDINGS = str(FINDINGS)
_HEALTH_CHECK = "/usr/local/sbin/tailrack-nhc"
_PRIVATE_JOBS = "/run/tailrack-private/jobs"


def clear_comment() -> None:
    """Remove the health check's comment from the node in Slurm. A controller that does not answer stops nothing."""
    if files.exists(_HEALTH_CHECK):
        attempt(_HEALTH_CHECK, "--clear")


def remove_health() -> None:
    """Remove tailrack's and the config's scripts, the health check, and their records."""
    systemd.retire(REASON)
    for folder in (f"{LIB}/prolog.d", f"{LIB}/epilog.d", _PRIVATE_JOBS, f"{STATE_DIR}/health"):
        files.remove_folder(folder)
    programs = (f"{LIB}/gpus-in-use", "/usr/local/sbin/tailrack-checks", _HEALTH_CHECK)
    records = (f"/run/tailrack/{name}" for name in ("unhealthy", "verdict.json", "last-failure.json"))
    for path in (*programs, *records, SHARE_MOUNTED, f"{_PRIVATE_JOBS}.lock"):
        files.remove(path)


def remove_deep_check() -> None:
    """Remove the benchmark check. Its records of nodes stay, in case the check is turned on again."""
    for path in ("/usr/local/sbin/tailrack-deep-check", DEEP_CHECK_SETTINGS, GPU_FINDINGS):
        files.remove(path)
