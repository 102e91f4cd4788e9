"""A command on the head node, for people: here, in its container of the lab, or by SSH as the config says."""

from __future__ import annotations

from pathlib import Path

from driver.deployment import Deployment
from driver.workspace import DriverError
from lab.identity import container_name


def on_head(deployment: Deployment, command: str) -> list[str]:
    """Return the words that run a command on a stack's head node. Raises DriverError where the config lacks a word."""
    if deployment.head_is_here:
        return ["bash", "-c", command]
    host = deployment.head_host
    if host is None:
        return ["docker", "exec", container_name(deployment.lab, deployment.head_name), "bash", "-c", command]
    lacking = [key for key in ("address", "user", "private_key_file", "host_key") if not isinstance(host.get(key), str)]
    if lacking:
        raise DriverError(f"the head node {deployment.head_name} has no {' and no '.join(lacking)} in the config")
    workspace, port = deployment.workspace, host.get("port", 22)
    known = workspace.folder / "known_hosts"
    # Under a name of its own, so that neither a port nor an address changes what is looked up.
    known.write_text(f"{deployment.head_name} {host['host_key']}\n", encoding="utf-8")
    key = workspace.config_file.parent / Path(host["private_key_file"]).expanduser()
    options = ["StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", f"HostKeyAlias={deployment.head_name}"]
    words = ["ssh", "-p", str(port), "-i", str(key), *(word for option in options for word in ("-o", option))]
    return [*words, "-o", "BatchMode=yes", f"{host['user']}@{host['address']}", command]
