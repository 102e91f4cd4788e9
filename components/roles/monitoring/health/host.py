"""The scripts around jobs, the health check and the settings of the benchmark check."""

from __future__ import annotations

from components.node import files, systemd
from components.node.log import STATE_DIR
from components.node.run import attempt
from components.node.step.step import Step

RECORDS = f"{STATE_DIR}/deep-check"
LIB = "/usr/local/lib/tailrack"
SHARE_MOUNTED = "/etc/tailrack/share-mounted"
DEEP_CHECK_SETTINGS = "/etc/tailrack/deep-check.json"
CHECKS = "/usr/local/sbin/tailrack-checks"
HEALTH_CHECK = "/usr/local/sbin/tailrack-nhc"
BOOT_CHECK, BOOT_UNIT = "/usr/local/sbin/tailrack-boot-check", "tailrack-boot-check.service"
BOOT_UNIT_TEXT = f"""[Unit]
Description=Check this node before it takes jobs
Before=slurmd.service
Wants=remote-fs.target

[Service]
# slurmd waits for the first program only.
Type=exec
ExecStartPre={BOOT_CHECK} begin
ExecStart={BOOT_CHECK} {{arguments}}
TimeoutStartSec=60

[Install]
WantedBy=multi-user.target"""
PRIVATE_JOBS = "/run/tailrack-private/jobs"
# Files that the scripts and the check write.
MADE = (
    *(PRIVATE_JOBS, f"{PRIVATE_JOBS}.lock", f"{STATE_DIR}/health"),
    *(f"/run/tailrack/{name}" for name in ("unhealthy", "verdict.json", "last-failure.json")),
)


def compute(step: Step, health_enabled: bool, health_on_boot: str) -> None:
    """Load the units of the health checks, or clear the check's comment in Slurm before the check goes."""
    if health_enabled and health_on_boot:
        systemd.reload(BOOT_UNIT)
        systemd.enable(BOOT_UNIT)
    elif not health_enabled and files.exists(HEALTH_CHECK):
        # A controller that does not answer stops nothing.
        attempt(HEALTH_CHECK, "--clear")


def pod(step: Step, health_enabled: bool) -> None:
    """Clear the comment of a pod."""
    if not health_enabled and files.exists(HEALTH_CHECK):
        attempt(HEALTH_CHECK, "--clear")


def forget(step: Step, node_name: str) -> None:
    """Remove a leaving node's records of the benchmark check."""
    from components.roles.monitoring.health.gpu_records import GPUS

    files.remove(f"{RECORDS}/{node_name}.json")
    files.remove(f"{RECORDS}/{GPUS}/{node_name}.json")


def services(step: Step, head_deep_check: str) -> None:
    """Make the folder of the benchmark check's records, which stay where it is turned off."""
    if head_deep_check:
        files.make_folder(RECORDS, 0o700)
