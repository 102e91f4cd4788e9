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
ExecStop=/usr/local/sbin/tailrack-shutdown
TimeoutStopSec=25

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


def requeue_jobs_at_shutdown(host: str) -> None:
    """Write the units. The caller reloads tailrack-shutdown.service."""
    files.write(f"{UNITS}/tailrack-shutdown.service", _SHUTDOWN)
    scopes = ("slurmstepd.scope", f"{host}_slurmstepd.scope")
    # An active scope must read its files again. Naming it in a query would load it.
    if files.write_all([File(f"{UNITS}/{scope}.d/tailrack.conf", _SCOPE) for scope in scopes]) and is_active("slurmd"):
        run("systemctl", "daemon-reload")
