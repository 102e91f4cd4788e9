"""The command `tailrack` on the head node and on log-in nodes, and the programs on nodes that answer it."""

from components.roles.access.ssh_trust.ask import ANSWERS
from components.roles.cluster_settings import ClusterSettings
from components.roles.commands.tailrack.host import COMMAND
from components.roles.program import launcher
from components.roles.role import File, Role, template


def role(_settings: ClusterSettings) -> Role:
    """Return the role. All users can run the command: it shows only data that Slurm shows everybody."""
    answers = tuple(_answer(name) for name in ("checks", "last-failure"))
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


def _answer(name: str) -> File:
    return File(f"{ANSWERS}/{name}", template("tailrack", name), mode="0755")
