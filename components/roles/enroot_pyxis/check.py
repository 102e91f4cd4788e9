"""Check that this machine can run containers, before anything is changed."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import kernel
from components.node.distribution import architecture
from components.node.failure import Failure
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.enroot_pyxis.artifacts import ContainerFile

# Settings that let users create namespaces, and the values to set.
_NAMESPACES = {"user/max_user_namespaces": "65536", "kernel/unprivileged_userns_clone": "1"}


@dataclass(frozen=True)
class CheckValues:
    """The files of Enroot and Pyxis."""

    enroot_pyxis_artifacts: list[ContainerFile]


def check(step: Step, values: CheckValues) -> None:
    """Check the architecture and the kernel."""
    kind = architecture()
    if not any(file.name.endswith(f"_{kind}.deb") for file in values.enroot_pyxis_artifacts):
        raise Failure(
            f"this machine is {kind}, and tailrack:containers has no Enroot packages for it",
            f"add Enroot's two packages that end in _{kind}.deb there (their checksums, or the files and their "
            f"SHA256SUMS in your folder; upstream has amd64 and arm64), or leave {step.host} out of this stack",
        )
    for path, value in _NAMESPACES.items():
        if kernel.read(f"/proc/sys/{path}").strip() == "0":
            name = path.replace("/", ".")
            raise Failure(
                f"users cannot create namespaces on this machine ({name} is 0), so no container starts",
                f"allow it on {step.host} (sysctl -w {name}={value}, and in /etc/sysctl.d), then run up again",
            )
    if not kernel.exists("/dev/fuse") and not attempt("modprobe", "-n", "fuse").ok:
        raise Failure(
            "this machine has no /dev/fuse, which Enroot needs to mount images",
            f"load the kernel module fuse on {step.host}, then run up again",
        )
