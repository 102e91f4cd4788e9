"""munge: signs every message of Slurm with one key of the cluster (components/cluster/secrets.py makes it)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import matching
from components.roles.program import launcher
from components.roles.role import File, Role
from components.roles.ssh_trust.ask import ANSWERS


def role(settings: ClusterSettings) -> Role:
    """Return the role. The key is a secret value of the join step; the package is installed after the key."""
    release = File("/usr/local/sbin/tailrack-munge-release", launcher("munge-release"), mode="0755")
    answers = tuple(File(f"{ANSWERS}/{name}", launcher(name), mode="0755") for name in ("munge-next", "munge-switch"))
    return Role(
        "munge",
        after=("clock",),
        values={"cluster": settings.cluster.name, "generation": settings.cluster.munge_generation},
        files={"node": answers, "pod": answers, "head": (release,)},
        facts={"register": {"munge_digest": matching("[0-9a-f]{64}")}},
        state=("/etc/munge/munge.key", "/var/lib/tailrack/munge.digests"),
        on_pods=("check", "register", "leave"),
    )
