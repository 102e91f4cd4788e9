"""Commands on the head node."""

from __future__ import annotations

import shlex
from pathlib import Path

from cli.pulumi.deployment import Deployment
from lab.identity import container_name


def on_head(deployment: Deployment, command: str, head: str) -> list[str]:
    """Return the argv that runs a command on a stack's head node: on this machine, or in its lab container.

    head   its name; a pool's config does not contain it
    """
    shell = ["bash", "-c", command]
    in_container = ["docker", "exec", container_name(deployment.lab, head), *shell]
    return shell if deployment.written.head_is_here else in_container


def ssh_to_head(deployment: Deployment) -> str:
    """Return the ssh command that connects to the head node; empty if the config alone does not determine it."""
    host = None if deployment.written.cluster_stack else deployment.written.host(deployment.written.head_name)
    if host is None or "bastion" in host or not all(isinstance(host.get(key), str) for key in ("address", "user")):
        return ""
    ssh = ["ssh"]
    if (port := host.get("port", 22)) != 22:
        ssh += ["-p", str(port)]
    if isinstance(key := host.get("private_key_file"), str):
        ssh += ["-i", str(deployment.workspace.config_file.parent / Path(key).expanduser())]
    return shlex.join([*ssh, f"{host['user']}@{host['address']}"])
