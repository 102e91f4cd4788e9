"""`down`: on every machine is what was there before, and nothing else."""

from collections.abc import Iterable, Sequence

import pytest

from tests.lab.machine_state import differences, state_of
from tests.machines.cluster import MachineCluster

# What may differ afterwards, and why.
ALLOWED = [
    # People's files; logs of what was done; the login's folder of scripts, and what sudo notes there.
    r"path: /export",
    r"/var/log/|/home/admin/\.(tailrack|sudo_as_admin)",
    # What the system's own daemons and tools keep for themselves.
    r"/var/lib/(tailscale|munge|nfs|apt|dpkg|private|systemd)\b",
    r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-",
    # Closed stays closed.
    r"path: /var/lib/slurm/slurmctld d ",
    # Whoever looks, and what comes and goes by itself, after a boot or at a time of day.
    r"process: ",
    r"unit: \S+\.(target|device|slice|scope) |unit file: session-\S+\.scope transient",
    r"unit: ldconfig\.service ",
    r"unit: (user|session|systemd-|apt-|dpkg-|e2scrub|fstrim|man-db|modprobe@)\S* ",
]


def leaves_as_they_were(cluster: MachineCluster, names: Iterable[str], allowed: Sequence[str]) -> None:
    """Take the stack down; hold what is on these machines against what was noted there, but for what is allowed."""
    summary = cluster.down()
    assert summary.ok, summary.failures
    left: dict[str, list[str]] = {}

    def as_before() -> bool:
        left.update({name: differences(cluster.state_before(name), state_of(cluster, name), allowed) for name in names})
        return not any(left.values())

    try:
        cluster.eventually(as_before, 40, "all are as they were")
    except AssertionError:
        pytest.fail("\n".join(f"{name}: {line}" for name, lines in left.items() for line in lines))
    assert cluster.run("head", "cat /export/shared/home/ada/results").strip() == "precious"


@pytest.mark.short
def test_down_leaves_all_machines_as_they_were(cluster: MachineCluster) -> None:
    leaves_as_they_were(cluster, [name for name, machine in cluster.machines.items() if machine.is_on], ALLOWED)
