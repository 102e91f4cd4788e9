"""The network that the pods of a site share, for jobs over several of them."""

from __future__ import annotations

import json

from components.node import files
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.run import attempt
from components.node.waiting import wait_until
from components.roles.pod.library import use_library, without_library
from components.roles.pod.paths import SSHD_PORT
from components.roles.ssh_trust.certificate import AUTHORITIES
from components.settings.network_names import is_interface

# The name of its interface, for task-prolog.
NETWORK = "/etc/tailrack/pod-network"
# The cluster's authority for ssh: the list of the cluster's names is not here yet.
_KNOWN_HOSTS = f"{PRIVATE}/pod-neighbours"
# Seconds. A neighbour may be in the middle of its own step.
_LIMIT, _CONNECT_SECONDS = 60, 5
# Seconds between attempts. sshd refuses a client that comes too often without a key (PerSourcePenalties).
_PAUSE = 5
# sshd sends this to a client without a key. The client has then verified the neighbour's host key.
_REACHED = "Permission denied"


def use_network(fabric: str, neighbours: str, host: str) -> None:
    """Let jobs over several pods use the interface that the config names.

    neighbours   pods that joined before: a list of objects with `name`, `address` and `tailnet`, as JSON

    Raises Failure if this pod does not reach a neighbour there that answers over the tailnet. A neighbour that does not
    answer at all is off, and must not keep this pod out.
    """
    if not is_interface(fabric):
        files.remove(NETWORK)
        return
    files.make_folder(PRIVATE, 0o700)
    keys = [line for line in files.lines(AUTHORITIES) if line.startswith("ssh-")]
    files.write(_KNOWN_HOSTS, "\n".join(f"@cert-authority * {key}" for key in keys))
    for neighbour in json.loads(neighbours):
        _prove(fabric, neighbour, host)
    files.write(NETWORK, fabric)


def _prove(fabric: str, neighbour: dict[str, str], host: str) -> None:
    name, address = neighbour["name"], neighbour["address"]
    if wait_until(lambda: _reaches(name, address, "-o", f"BindInterface={fabric}"), _LIMIT, _PAUSE):
        note(f"{host} reaches {name} at {address} on {fabric}")
        return
    use_library()
    try:
        keys = attempt(
            "ssh-keyscan", "-T", "10", "-p", str(SSHD_PORT), neighbour["tailnet"], limit=20, quiet=True
        ).output.strip()
    finally:
        without_library()
    if not keys:
        note(f"{name} is off, so {host} cannot prove {fabric} with it")
        return
    # No job may start with a network that carries nothing.
    files.remove(NETWORK)
    raise Failure(
        f"{host} does not reach {name} at {address} on {fabric} (TCP port {SSHD_PORT})",
        f"correct fabric: of their site: write the interface of a network that all its pods share ('ip -brief address' "
        f"on {host} and {name}), or remove fabric: so that each job runs on one pod",
    )


def _reaches(name: str, address: str, *options: str) -> bool:
    settings = (
        *("BatchMode=yes", "PreferredAuthentications=none", f"ConnectTimeout={_CONNECT_SECONDS}"),
        *("StrictHostKeyChecking=yes", f"HostKeyAlias={name}", "KnownHostsCommand=none"),
        *("UserKnownHostsFile=/dev/null", f"GlobalKnownHostsFile={files.on_disk(_KNOWN_HOSTS)}"),
    )
    words = [word for setting in settings for word in ("-o", setting)]
    ended = attempt("ssh", "-p", str(SSHD_PORT), *words, *options, f"root@{address}", limit=20, keep_errors=True)
    return _REACHED in ended.errors
