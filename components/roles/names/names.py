"""The command `names`: set the host name, and write the cluster's names from the head node's list into /etc/hosts.

tailrack-names          once; tailrack-names.service runs it at every start of tailscaled, after cloud-init
tailrack-names follow   whenever the head node's list changes; by tailrack-names-follow.service
tailrack-names forget   restores the earlier state
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from fcntl import ioctl
from os import uname
from socket import sethostname

from components.node import files
from components.node.failure import Failure
from components.node.locks import lock_of_program
from components.node.program import run_program
from components.node.run import run
from components.node.state import STATE_DIR
from components.roles.names.hosts import Machine, has_name, is_marked, listed, with_machines

HOSTS, HOST_NAME = "/etc/hosts", "/etc/hostname"
# Address and name of each machine as it joined. On the head node the original; elsewhere a copy of the published list.
LIST = f"{STATE_DIR}/names"
NODE_NAME = f"{STATE_DIR}/node-name"
NAME_BEFORE = f"{STATE_DIR}/host-name-before"
_HOSTS_BEFORE = f"{STATE_DIR}/hosts-before"
_INTERFACE = b"tailscale0"
_SIOCGIFADDR = 0x8915


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    if list(arguments) == ["follow"]:
        from components.roles.names.follow import follow

        return run_program("tailrack-names", follow)
    return run_program("tailrack-names", forget if list(arguments) == ["forget"] else write_names)


def write_names() -> None:
    """Set the host name, and write the machines' names. Raises Failure."""
    with lock_of_program("names"):
        name = _required(NODE_NAME)
        _set_host_name(name)
        own = Machine(interface_address() or run("tailscale", "ip", "-4").strip(), name)
        others = [one for one in listed(files.read(LIST) or "") if one.address != own.address and one.name != name]
        hosts = read_hosts()
        # Keep the owner's file, including lines with this machine's name, for the day the machine leaves.
        if not is_marked(hosts):
            files.write(_HOSTS_BEFORE, hosts)
        files.rewrite(HOSTS, with_machines(hosts, [own, *others], name))


def forget() -> None:
    """Restore the earlier host name, and /etc/hosts without the cluster's names."""
    name, previous = _required(NODE_NAME), _required(NAME_BEFORE)
    hosts = with_machines(read_hosts(), [])
    # Restore the original file if no one has changed it since, with its lines in their order.
    before = files.read(_HOSTS_BEFORE)
    if before is not None and with_machines(before, [], name) == hosts:
        hosts = before.rstrip("\n")
    # A machine's own name must resolve without a network, as Debian's installer has it.
    if not has_name(hosts, previous):
        hosts += f"\n127.0.1.1 {previous}"
    files.rewrite(HOSTS, hosts)
    _set_host_name(previous)
    for path in (NAME_BEFORE, _HOSTS_BEFORE):
        files.remove(path)


def interface_address() -> str:
    """Return the address of this machine's interface in the tailnet; empty without one.

    Ask the kernel, because tailscale takes ten times as long.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        try:
            answer = ioctl(query.fileno(), _SIOCGIFADDR, struct.pack("256s", _INTERFACE))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def read_hosts() -> str:
    """Return the text of /etc/hosts."""
    return files.read(files.followed(HOSTS)) or ""


def first_line(path: str) -> str:
    """Return the first line of a file; empty without one."""
    return (files.read(path) or "").split("\n", 1)[0]


def _required(path: str) -> str:
    if line := first_line(path):
        return line
    raise Failure(f"{path} is missing or blank")


def _set_host_name(name: str) -> None:
    """Set the host name. Slurm's daemons compare it with slurm.conf, and bind to its address."""
    files.rewrite(HOST_NAME, name)
    if uname().nodename != name:
        sethostname(name)
