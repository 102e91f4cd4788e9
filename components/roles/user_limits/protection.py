"""Protect the daemons of a head node from its users: they keep their memory, and the kernel ends other processes first.

MemoryMin is the memory that the kernel leaves to a unit while others want more. A unit has it only up to the amount
that the slice above it has.
"""

from __future__ import annotations

from components.node import kernel
from components.node.run import run

# The kernel would first end any process with a greater value; users' processes have 0 to 200.
OOM_SCORE = -900
# Percent of the machine's memory.
_LEAST = 3
# sshd sets its own value, which is -1000. A value of its unit would be that of every log-in, so of users' processes.
# slurmd's would be that of jobs.
SSHD = "ssh.service"
PROTECTED = (
    *("slurmctld.service", "slurmdbd.service", "tailrack-database.service", "munge.service", "tailscaled.service"),
    *("nfs-ganesha.service", "nfs-mountd.service", SSHD),
)
# Slices with protected units, and their least memory: daemons; log-ins of root.
PARENTS = (("system.slice", 25), ("user.slice", _LEAST))

SLICE = """# Written by tailrack: protect daemons from users' processes.
[Slice]
MemoryMin={percent}%"""

# Nothing of the general user-.slice.d/tailrack.conf: systemd reads the most specific file of a name.
UNLIMITED_SLICE = f"""# Written by tailrack: no limits for this account.
[Slice]
CPUWeight=1000
MemoryMin={_LEAST}%"""


def daemon_text(unit: str) -> str:
    """Return the drop-in of a daemon's unit."""
    score = "" if unit == SSHD else f"\nOOMScoreAdjust={OOM_SCORE}"
    return f"# Written by tailrack: protect it from users' processes.\n[Service]\nMemoryMin={_LEAST}%{score}"


def protect_running() -> None:
    """Give running daemons the value that systemd sets only when it starts one. A restart would interrupt users."""
    for unit in PROTECTED:
        if unit == SSHD:
            continue
        process = run("systemctl", "show", "-P", "MainPID", unit).strip()
        if process not in ("", "0"):
            kernel.write(f"/proc/{process}/oom_score_adj", str(OOM_SCORE))
