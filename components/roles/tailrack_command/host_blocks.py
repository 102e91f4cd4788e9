"""Host blocks for ~/.ssh/config: the head node, and the nodes behind it, with the cluster's authority as known host.

All values come from machines, so each of them is checked: a line of this file can run any program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DEFAULT_PORT = 22
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-fA-F:.]{2,45}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,63}")
_KEY = re.compile(r"[a-z0-9@.-]{1,60} [A-Za-z0-9+/]{20,2000}={0,2}")
# A path in quotes. ssh would replace a % or $ in it.
_PATH = re.compile(r"[^\"%$\\\x00-\x1f\x7f]{1,4096}")


@dataclass(frozen=True)
class Login:
    """How one person logs in to a machine.

    address    for ssh; empty for a node, which the head node finds by its name
    identity   the private key's file; empty if ssh finds the key
    jump       the name of the block through which the connection goes; empty for none
    keys       for a machine outside the cluster, its host key; otherwise the authorities vouch for it
    """

    name: str
    user: str
    port: int = _DEFAULT_PORT
    address: str = ""
    identity: str = ""
    jump: str = ""
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not safe in a line of ssh's configuration."""
        optional = [(self.jump, _NAME), (self.address, _ADDRESS), (self.identity, _PATH)]
        values = [(self.name, _NAME), (self.user, _USER), *((key, _KEY) for key in self.keys)]
        for value, pattern in [*values, *((value, pattern) for value, pattern in optional if value)]:
            if not pattern.fullmatch(value):
                raise ValueError(f"{value!r} cannot be in a configuration of ssh")
        if not 0 < self.port < 65536:
            raise ValueError(f"{self.port} is not a port")


@dataclass(frozen=True)
class Facts:
    """The facts of a cluster that a configuration needs.

    head, nodes   names
    ports         of nodes whose sshd has another port than 22
    authorities   public keys that vouch for all of these; two during a change
    """

    head: str
    nodes: tuple[str, ...]
    ports: Mapping[str, int]
    authorities: tuple[str, ...]

    @classmethod
    def read(cls, data: Any) -> Facts:
        """Read JSON data. Raises ValueError for anything else."""
        try:
            facts = cls(data["head"], tuple(data["nodes"]), dict(data["ports"]), tuple(data["authorities"]))
        except (KeyError, TypeError) as error:
            raise ValueError("these are no facts of a cluster") from error
        names = (facts.head, *facts.nodes, *facts.ports)
        numbers = all(type(port) is int for port in facts.ports.values())
        if not (numbers and _all(_NAME, names) and _all(_KEY, facts.authorities) and facts.authorities):
            raise ValueError("these are no facts of a cluster")
        return facts


def _all(pattern: re.Pattern[str], values: Iterable[object]) -> bool:
    return all(isinstance(value, str) and pattern.fullmatch(value) for value in values)


def blocks(logins: Sequence[Login], authorities: Sequence[str]) -> str:
    """Return the Host blocks for logins, each kind of them once."""
    return "\n".join(line for block in _blocks(logins, authorities) for line in ["", *block]) + "\n"


def _blocks(logins: Sequence[Login], authorities: Sequence[str]) -> Iterator[list[str]]:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for login in logins:
        kinds.setdefault(tuple(_lines(login)), []).append(login.name)
    for lines, names in kinds.items():
        yield [f"Host {' '.join(names)}", *(f"    {line}" for line in lines)]
    members = [login.name for login in logins if not login.keys]
    yield [f"Host {' '.join(members)}", *(f"    {line}" for line in _known("@cert-authority %H", authorities))]


def _lines(login: Login) -> Iterator[str]:
    if login.address:
        yield f"HostName {login.address}"
        # The machine's certificate contains its name in the cluster.
        yield f"HostKeyAlias {login.name}"
    if login.port != _DEFAULT_PORT:
        yield f"Port {login.port}"
    yield f"User {login.user}"
    if login.identity:
        yield f'IdentityFile "{login.identity}"'
    if login.jump:
        yield f"ProxyJump {login.jump}"
    if login.keys:
        yield from _known("%H", login.keys)


def _known(prefix: str, keys: Sequence[str]) -> Iterator[str]:
    """Yield the lines with which ssh knows these keys alone, and asks no question.

    ssh takes the known hosts from a program, so one file is enough. It expands %H, the name that it looks up.
    """
    yield "StrictHostKeyChecking yes"
    words = [word for key in keys for word in (*prefix.split(), *key.split()[:2])]
    line = " ".join(["%%s"] * (len(words) // len(keys)))
    yield f'KnownHostsCommand /usr/bin/printf "{line}\\n" {" ".join(words)}'
