"""The command `tailrack` on the head node and on log-in nodes, and the programs on nodes that answer it."""

from components.roles.access.ssh_trust.ask import ANSWERS
from components.roles.cluster_settings import ClusterSettings
from components.roles.commands.tailrack.host import COMMAND
from components.roles.monitoring.health.host import CHECKS
from components.roles.program import launcher
from components.roles.role import File, Role

_FAILURE = "/run/tailrack/last-failure.json"
# Answers of a node as JSON: the result of all its checks (127 if it has none), and the last failure of a prolog or
# epilog script, if there is one.
_ANSWERS = {
    "checks": f"[ -x {CHECKS} ] || exit 127\nexec timeout -k 5 120 {CHECKS} --json",
    "last-failure": f"[ ! -f {_FAILURE} ] || head -c 65536 {_FAILURE}",
}


def role(_settings: ClusterSettings) -> Role:
    """Return the role. All users can run the command: it shows only data that Slurm shows everybody."""
    start = "#!/bin/sh\n# Written by tailrack.\n"
    answers = tuple(File(f"{ANSWERS}/{name}", f"{start}{text}", mode="0755") for name, text in _ANSWERS.items())
    return Role(
        "tailrack",
        after=("ssh_trust",),
        # rsync: users and tools on their machines, such as SkyPilot, copy files to the head node with it.
        packages=dict.fromkeys(("services", "login"), ("python3", "rsync")),
        files={
            **dict.fromkeys(("services", "login"), (File(COMMAND, launcher("tailrack"), mode="0755"),)),
            "compute": answers,
            "pod": answers,
        },
    )
