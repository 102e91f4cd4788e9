"""Which roles there are, and in which order machines get them. A new role is a new folder and one line here."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import cast

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role

# The order in which a machine gets them; it leaves in the reverse one. A role may need what comes before it.
ORDER = (
    "machine",
    "clock",
    "tailnet",
    "firewall",
    "munge",
    "fabric",
    "names",
    "users",
    "ssh_trust",
    "nfs_exports",
    "gpu",
    "enroot_pyxis",
    "slurm",
    "pam_slurm_adopt",
    "container_smoke",
    "first_contact",
)


def roles(settings: ClusterSettings) -> tuple[Role, ...]:
    """Return every role that the cluster's settings ask for, as they have it, in order."""
    found = [cast(Role | None, import_module(f"components.roles.{name}.role").role(settings)) for name in ORDER]
    made = [role for role in found if role is not None]
    ports = ", ".join(port for role in made for port in role.ports)
    return tuple(
        replace(role, values={**role.values, "ports": ports}) if role.name == "firewall" else role for role in made
    )
