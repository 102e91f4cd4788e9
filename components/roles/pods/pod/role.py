"""A pod: a container without systemd, a TUN device and mounts, on the host of a stranger (docs/pods.md).

Other roles have their own phases for pods, `pod_check`, `pod_join`, `pod` and so on, or name those that run there as on
every machine (Role.on_pods).
"""

from components.node.install import FOLDER as INSTALLED
from components.roles.cluster_settings import ClusterSettings
from components.roles.pods.pod.library import library_path
from components.roles.pods.pod.saved import SAVED
from components.roles.program import command_line
from components.roles.role import Role, template


def role(_settings: ClusterSettings) -> Role:
    """Return the role. Only machines of sites with `pods: true` have its phases."""
    source = template("pod", "tailnet.c")
    python, program = command_line("pod-boot").rsplit(f" {INSTALLED}/", 1)
    return Role(
        "pod",
        after=("munge", "names", "users", "user_groups", "ssh_trust"),
        texts={
            "library": source,
            "task_prolog": template("pod", "task-prolog").replace("LIBRARY", library_path(source)),
            "boot": template("pod", "boot").replace("PROGRAM", f"{python} {SAVED}{INSTALLED}/{program}"),
        },
        packages={"pod": ("gcc", "libc6-dev")},
    )
