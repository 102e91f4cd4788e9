"""Set up a pod for jobs: the library for the tailnet, the users' homes, the network of its site, and the next start."""

import json
import stat
from dataclasses import dataclass

from components.node import files, folders
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.run import attempt
from components.node.step.main import PLANS
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.access.ssh_trust.certificate import AUTHORITIES
from components.roles.access.users.accounts import UsersValues
from components.roles.network.tailnet import tailscale
from components.roles.pods.pod.library import CONF, build_library, conf_text, use_library, without_library
from components.roles.pods.pod.saved import BOOT, HOMES, READY, SSHD_PORT, require_room, save
from components.settings.network_names import is_interface

# The name of its interface, for task-prolog.
NETWORK = "/etc/tailrack/pod-network"
# The cluster's authority for ssh: the list of the cluster's names is not here yet.
_KNOWN_HOSTS = f"{PRIVATE}/pod-neighbours"
# Seconds. A neighbour may be in the middle of its own step.
_NETWORK_SECONDS, _CONNECT_SECONDS = 60, 5
# Seconds between attempts. sshd refuses a client that comes too often without a key (PerSourcePenalties).
_PAUSE = 5
# sshd sends this to a client without a key. The client has then verified the neighbour's host key.
_REACHED = "Permission denied"


@dataclass(frozen=True)
class PodValues(UsersValues):
    """The texts of files.

    pod_library       the source of the library
    pod_task_prolog   Slurm's TaskProlog
    pod_boot          the program of the next start
    node_boot_plan, node_boot_values   its plan and values, as JSON
    node_fabric, node_neighbours   see use_network
    """

    pod_library: str
    pod_task_prolog: str
    pod_boot: str
    node_boot_plan: str
    node_boot_values: str
    node_fabric: str
    node_neighbours: str


def pod(step: Step, values: PodValues) -> None:
    """Write the files, and build the library."""
    require_room(step.host)
    build_library(values.pod_library, step.host)
    files.write(CONF, conf_text(tailscale.address()))
    files.write("/usr/local/lib/tailrack/task-prolog", values.pod_task_prolog, 0o755)
    use_network(values.node_fabric, values.node_neighbours, step.host)
    make_homes(values, step.host)
    files.write(f"{PLANS}/boot.json", f"{values.node_boot_plan}\n{values.node_boot_values}")
    files.write(READY, "")

    def save_all() -> None:
        save(step.host)
        # It runs a program that must be saved before.
        files.write(BOOT, values.pod_boot, 0o700)

    step.later.append(save_all)


def pod_boot(step: Step, values: UsersValues) -> None:
    """Make the homes, when the names and the accounts are there."""
    make_homes(values, step.host)
    files.write(READY, "")


def pod_leave(step: Step, share_mount: str) -> None:
    """Remove the link."""
    if folders.kind_of(share_mount) == stat.S_IFLNK:
        files.remove(share_mount)


def make_homes(values: UsersValues, host: str) -> None:
    """Make a home for each user. Raises Failure if the path of the share is taken."""
    mount = values.share_mount
    if folders.kind_of(mount) not in (0, stat.S_IFLNK) and not files.remove_if_empty(mount):
        raise Failure(
            f"{mount} is a folder with files on this pod, and homes must be there, at the same path as elsewhere",
            f"set tailrack:storage.mount to another folder, for all machines, or move {mount} away on {host}",
        )
    for path in (HOMES, f"{HOMES}/home"):
        files.make_folder(path)
    for user in values.users_lines:
        folders.give(user.name, 0o700, f"{HOMES}/home/{user.name}")
    files.link(mount, HOMES)


def use_network(fabric: str, neighbours: str, host: str) -> None:
    """Let jobs over several pods use the interface that the config names.

    neighbours   pods that joined before: a list of objects with `name`, `address` and `tailnet`, as JSON

    Raises Failure if this pod does not reach a neighbour there that answers over the tailnet. A neighbour that does not
    answer at all is off, and must not keep this pod out.
    """
    if not is_interface(fabric):
        files.remove(NETWORK)
        return
    keys = [line for line in files.lines(AUTHORITIES) if line.startswith("ssh-")]
    files.write(_KNOWN_HOSTS, "\n".join(f"@cert-authority * {key}" for key in keys))
    for neighbour in json.loads(neighbours):
        _prove(fabric, neighbour, host)
    files.write(NETWORK, fabric)


def _prove(fabric: str, neighbour: dict[str, str], host: str) -> None:
    name, address = neighbour["name"], neighbour["address"]
    if wait_until(lambda: _reaches(name, address, "-o", f"BindInterface={fabric}"), _NETWORK_SECONDS, _PAUSE):
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
