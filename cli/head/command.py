"""Commands on the head node: on this machine, in its lab container, or by SSH with the config's connection."""

from __future__ import annotations

import shlex
from pathlib import Path

from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from lab.identity import container_name

_NEEDED = ("address", "user", "private_key_file", "host_key")


def on_head(deployment: Deployment, command: str, head: str = "") -> list[str]:
    """Return the argv that runs a command on a stack's head node. Raises CliError if the config lacks a value.

    head   its name, for a pool, whose config does not contain it
    """
    written = deployment.written
    name = head or written.head_name
    if written.head_is_here:
        return ["bash", "-c", command]
    if written.head_in_lab:
        return ["docker", "exec", container_name(deployment.lab, name), "bash", "-c", command]
    host = written.head_host
    if host is None:
        raise CliError(f"run {command!r} on the head node {name} yourself: the config does not list it individually")
    missing = [key for key in _NEEDED if not isinstance(host.get(key), str)]
    if missing:
        raise CliError(f"the head node {written.head_name} has no {' and no '.join(missing)} in the config")
    workspace, port = deployment.workspace, host.get("port", 22)
    known_hosts = workspace.folder / "known_hosts"
    # HostKeyAlias makes the lookup independent of port and address.
    known_hosts.write_text(f"{written.head_name} {host['host_key']}\n", encoding="utf-8")
    key = workspace.config_file.parent / Path(host["private_key_file"]).expanduser()
    options = ["StrictHostKeyChecking=yes", f"UserKnownHostsFile={known_hosts}", f"HostKeyAlias={written.head_name}"]
    ssh = ["ssh", "-p", str(port), "-i", str(key), *(part for option in options for part in ("-o", option))]
    return [*ssh, "-o", "BatchMode=yes", f"{host['user']}@{host['address']}", command]


def ssh_to_head(deployment: Deployment) -> str:
    """Return the ssh command that connects to the head node; empty if the config alone does not determine it."""
    host = None if deployment.written.cluster_stack else deployment.written.head_host
    if host is None or "bastion" in host or not all(isinstance(host.get(key), str) for key in ("address", "user")):
        return ""
    ssh = ["ssh"]
    if (port := host.get("port", 22)) != 22:
        ssh += ["-p", str(port)]
    if isinstance(key := host.get("private_key_file"), str):
        ssh += ["-i", str(deployment.workspace.config_file.parent / Path(key).expanduser())]
    return shlex.join([*ssh, f"{host['user']}@{host['address']}"])
