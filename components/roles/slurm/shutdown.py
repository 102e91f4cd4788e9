"""The units that requeue a node's jobs when its machine shuts down, and end the rest of jobs.

With cgroups, jobs run in a scope that slurmd creates without their dependencies; its name is one of two, by how Slurm
was built (MULTIPLE_SLURMD in src/plugins/cgroup/v2/cgroup_v2.c). No unit may refer to the scope: systemd would keep an
ended one loaded, and slurmd, which can only create it, would not start again before a reboot.
"""

from __future__ import annotations

from components.node import files
from components.node.files import File
from components.node.run import run
from components.node.systemd import UNITS, is_active

_SHUTDOWN = """[Unit]
Description=Requeue jobs when this machine shuts down
# Stops before the connection to the controller, the share and the jobs, which it needs.
After=slurmd.service slurmctld.service munge.service tailscaled.service tailrack-tailnet.service tailrack-names.service
After=remote-fs.target
Wants=remote-fs.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
{save}ExecStop=/usr/local/sbin/tailrack-shutdown
TimeoutStopSec={limit}

[Install]
WantedBy=multi-user.target"""
_SCOPE = """# Written by tailrack: how the rest of jobs ends.
[Unit]
Before=tailrack-shutdown.service
CollectMode=inactive-or-failed

[Scope]
TimeoutStopSec=5
# The kernel ends a job that exceeds its memory; systemd would end all jobs of the node too.
OOMPolicy=continue"""


SAVE_JOBS = "/usr/local/lib/tailrack/save-jobs"
# Seconds that tailrack-shutdown takes at most.
_LIMIT = 25
_GOOGLE = "gcp"  # the provider, in the words of the spot notice
# Google switches a machine off 30 s after it asks it to shut down.
_GOOGLE_SECONDS = 12


def seconds_to_save(save_seconds: int, spot: str) -> int:
    """Return how long a machine's shutdown waits for jobs that save.

    save_seconds   the config's; 0 without any
    spot           the provider that may take the machine back; empty if none does
    """
    return min(save_seconds or _GOOGLE_SECONDS, _GOOGLE_SECONDS) if spot == _GOOGLE else save_seconds


def requeue_jobs_at_shutdown(host: str, seconds: int = 0, program: str = "") -> None:
    """Write the units. The caller reloads tailrack-shutdown.service.

    seconds   how long to wait for jobs that save (save_jobs.py); 0 for no wait
    program   the program that does so
    """
    if seconds:
        files.write(SAVE_JOBS, program, 0o755)
    else:
        files.remove(SAVE_JOBS)
    save = f"ExecStop=-{SAVE_JOBS} {seconds}\n" if seconds else ""
    files.write(f"{UNITS}/tailrack-shutdown.service", _SHUTDOWN.format(save=save, limit=_LIMIT + seconds))
    scopes = ("slurmstepd.scope", f"{host}_slurmstepd.scope")
    # An active scope must read its files again. Naming it in a query would load it.
    if files.write_all([File(f"{UNITS}/{scope}.d/tailrack.conf", _SCOPE) for scope in scopes]) and is_active("slurmd"):
        run("systemctl", "daemon-reload")
