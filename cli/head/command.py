"""A command on the head node, for people: here, in its container of the lab, or by SSH as the config says."""

from __future__ import annotations

import shlex
from pathlib import Path

from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from lab.identity import container_name

_NEEDED = ("address", "user", "private_key_file", "host_key")


def on_head(deployment: Deployment, command: str, head: str = "") -> list[str]:
    """Return the words that run a command on a stack's head node. Raises CliError where the config lacks a word.

    head   its name, where the config does not say it: that of a pool
    """
    written = deployment.written
    name = head or written.head_name
    if written.head_is_here:
        return ["bash", "-c", command]
    if written.head_in_lab:
        return ["docker", "exec", container_name(deployment.lab, name), "bash", "-c", command]
    host = written.head_host
    if host is None:
        raise CliError(f"run {command!r} on the head node {name} yourself: the config does not list it by itself")
    lacking = [key for key in _NEEDED if not isinstance(host.get(key), str)]
    if lacking:
        raise CliError(f"the head node {written.head_name} has no {' and no '.join(lacking)} in the config")
    workspace, port = deployment.workspace, host.get("port", 22)
    known = workspace.folder / "known_hosts"
    # Under a name of its own, so that neither a port nor an address changes what is looked up.
    known.write_text(f"{written.head_name} {host['host_key']}\n", encoding="utf-8")
    key = workspace.config_file.parent / Path(host["private_key_file"]).expanduser()
    options = ["StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", f"HostKeyAlias={written.head_name}"]
    words = ["ssh", "-p", str(port), "-i", str(key), *(word for option in options for word in ("-o", option))]
    return [*words, "-o", "BatchMode=yes", f"{host['user']}@{host['address']}", command]


def way_to_head(deployment: Deployment) -> str:
    """Return the ssh command by which a person reaches the head node; empty where the config alone does not say it."""
    host = None if deployment.written.cluster_stack else deployment.written.head_host
    if host is None or "bastion" in host or not all(isinstance(host.get(key), str) for key in ("address", "user")):
        return ""
    words = ["ssh"]
    if (port := host.get("port", 22)) != 22:
        words += ["-p", str(port)]
    if isinstance(key := host.get("private_key_file"), str):
        words += ["-i", str(deployment.workspace.config_file.parent / Path(key).expanduser())]
    return shlex.join([*words, f"{host['user']}@{host['address']}"])
