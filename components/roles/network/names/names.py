"""The command `names`: set the host name, and write the cluster's names from the head node's list into /etc/hosts.

tailrack-names          once; tailrack-names.service runs it at every start of tailscaled, after cloud-init
tailrack-names follow   whenever the head node's list changes; by tailrack-names-follow.service
tailrack-names forget   restores the earlier state
"""

import os
import re
import select
from collections.abc import Sequence
from os import uname
from socket import sethostname
from threading import Thread
from typing import IO, NamedTuple

from components.node import files, waiting
from components.node.failure import Failure, run_program
from components.node.locks import lock_of_program
from components.node.log import STATE_DIR
from components.node.run import reading, run
from components.validation.this_node import address_of

_MARK = "# tailrack"
_WORD = re.compile(r"[^ \t]+")
_BYTE = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
# A tailnet address, and a name that has no special meaning in any network.
_MEMBER = re.compile(
    rf"(100\.(?:6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.{_BYTE}\.{_BYTE}) "
    r"(?P<name>(?!(?:localhost[46]?|broadcasthost|ip6-.*)$)[a-z]([a-z0-9-]{0,61}[a-z0-9])?)"
)
HOSTS, HOST_NAME = "/etc/hosts", "/etc/hostname"
# Address and name of each machine as it joined. On the head node the original; elsewhere a copy of the published list.
LIST = f"{STATE_DIR}/names"
NODE_NAME = f"{STATE_DIR}/node-name"
NAME_BEFORE = f"{STATE_DIR}/host-name-before"
_HOSTS_BEFORE = f"{STATE_DIR}/hosts-before"
# The file that contains the path of the published list. The head node has none.
SOURCE = f"{STATE_DIR}/names-from"
# The list's largest size in bytes, enough for tens of thousands of machines.
_MOST_BYTES = 4194304
_LIMIT_SECONDS = 20
# Seconds until the published list is read again: at first, and at most.
_SOON = 2
_LATE = 30
# A message has many lines, and more messages follow soon.
_PAUSE = 1
_MOST_MESSAGE = 65536


class Machine(NamedTuple):
    """A machine: its tailnet address and its name."""

    address: str
    name: str


def members(text: str) -> list[Machine]:
    """Return the machines in the lines that can be members, each name once."""
    by_name: dict[str, Machine] = {}
    for line in text.split("\n"):
        if match := _MEMBER.fullmatch(line):
            by_name.setdefault(match["name"], Machine(match[1], match["name"]))
    return list(by_name.values())


def listed(text: str) -> list[Machine]:
    """Return the machines in a list, which has one per line."""
    return [Machine(*words[:2]) for line in text.split("\n") if len(words := line.split()) >= 2]


def with_machines(text: str, machines: Sequence[Machine], own: str = "") -> str:
    """Return a hosts file without this program's lines, and with these machines, this one first.

    Remove this machine's name, `own`, from other lines. If a line of the owner has another machine's name, that line
    wins.
    """
    rest, taken = [], set()
    for line in _lines(text):
        if line.endswith(_MARK):
            continue
        words = _names(line)
        left = [word for word in words if word.lower() != own]
        taken |= {word.lower() for word in left}
        if len(left) == len(words):
            rest.append(line)
        elif left:
            everything = _WORD.findall(line)
            rest.append(" ".join([everything[0], *left, *everything[1 + len(words) :]]))
    given = [machine for machine in machines if machine.name == own or machine.name not in taken]
    return "\n".join([*(f"{machine.address} {machine.name} {_MARK}" for machine in given), *rest]).rstrip("\n")


def has_name(text: str, name: str) -> bool:
    """Return whether a hosts file has a name."""
    return any(name in _names(line) for line in _lines(text))


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _names(line: str) -> list[str]:
    """Return the names in a line, without its address and its comment."""
    words = _WORD.findall(line)
    if not words or words[0].startswith("#"):
        return []
    comment = next((at for at, word in enumerate(words) if at and word.startswith("#")), len(words))
    return words[1:comment]


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    work = {"follow": follow, "forget": restore_names}
    return run_program("tailrack-names", work.get(" ".join(arguments), write_names))


def write_names() -> None:
    """Set the host name, and write the machines' names. Raises Failure."""
    with lock_of_program("names"):
        name = _required(NODE_NAME)
        _set_host_name(name)
        own = Machine(interface_address() or run("tailscale", "ip", "-4").strip(), name)
        others = [one for one in listed(files.read(LIST) or "") if one.address != own.address and one.name != name]
        hosts = read_hosts()
        # Keep the owner's file, including lines with this machine's name, for the day the machine leaves.
        if not any(line.endswith(_MARK) for line in hosts.split("\n")):
            files.write(_HOSTS_BEFORE, hosts)
        files.rewrite(HOSTS, with_machines(hosts, [own, *others], name))


def restore_names() -> None:
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
    try:
        return address_of("tailscale0")
    except OSError:
        return ""


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


class Published:
    """The published list.

    A read hangs while the share is away, so a thread reads it, and the process can end all the same.
    """

    def __init__(self) -> None:
        self._reader: Thread | None = None
        self._data: bytes | None = None
        # The last published list, if it contained no more valid lines than the list here.
        self._refused = b""

    def fetch(self) -> None:
        """Copy the published list to this machine. While the share is away, keep the last copy."""
        source = first_line(SOURCE)
        data = self._read(source) if source else None
        if data is None or data == self._refused:
            return
        present = files.read(LIST) or ""
        text = data.decode("utf-8", "surrogateescape").rstrip("\n")
        if f"{text}\n" == present:
            return
        fresh = "".join(f"{machine.address} {machine.name}\n" for machine in members(text))
        if fresh == present:
            # The rest of the list is invalid; remember that.
            self._refused = data
        elif fresh:
            files.write(LIST, fresh)

    def _read(self, path: str) -> bytes | None:
        if self._reader and self._reader.is_alive():
            return None
        self._data = None
        self._reader = Thread(target=self._take, args=(path,), daemon=True)
        self._reader.start()
        self._reader.join(_LIMIT_SECONDS)
        return None if self._reader.is_alive() else self._data

    def _take(self, path: str) -> None:
        # The text is checked (members). An NFS client may show another owner for root's file, which `files` refuses.
        try:
            with open(files.on_disk(path), "rb", opener=_open) as file:
                self._data = file.read(_MOST_BYTES)
        except OSError:
            pass


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def follow() -> int:
    """Write the names whenever something changes, until tailscaled's output ends.

    A message of tailscaled is only a reason to check: a new machine is in the head node's list some seconds later. So
    check again at growing intervals, and every two seconds while there is no list. Most checks find nothing new: a
    joining machine gets dozens of messages.
    """
    messages = reading("tailscale", "debug", "watch-ipn").stdout
    assert messages  # noqa: S101 for mypy: it is a pipe
    published, previous, wait = Published(), None, _SOON
    while True:
        published.fetch()
        inputs = _inputs()
        # This program's own changes appear in the next check, and changes by others in the meantime are not missed.
        if inputs != previous:
            previous = inputs
            write_names()
        if not inputs[1]:
            wait = _SOON
        if not _is_ready(messages, wait):
            wait = min(2 * wait, _LATE)
            continue
        if not os.read(messages.fileno(), _MOST_MESSAGE):
            return 1
        wait = _SOON
        waiting.sleep(_PAUSE)
        while _is_ready(messages, 0) and os.read(messages.fileno(), _MOST_MESSAGE):
            pass


def _inputs() -> tuple[str, ...]:
    """Return all inputs of `write_names`, and its results."""
    return interface_address(), files.read(LIST) or "", read_hosts(), files.read(HOST_NAME) or "", uname().nodename


def _is_ready(messages: IO[bytes], seconds: float) -> bool:
    return bool(select.select([messages], [], [], seconds)[0])
