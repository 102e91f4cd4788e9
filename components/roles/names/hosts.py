"""Lines of /etc/hosts, and of the list of the cluster's machines. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_MARK = "# tailrack"
_WORD = re.compile(r"[^ \t]+")
_BYTE = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
# A tailnet address, and a name that has no special meaning in any network.
_MEMBER = re.compile(
    rf"(100\.(?:6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.{_BYTE}\.{_BYTE}) "
    r"(?P<name>(?!(?:localhost[46]?|broadcasthost|ip6-.*)$)[a-z]([a-z0-9-]{0,61}[a-z0-9])?)"
)


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


def is_marked(text: str) -> bool:
    """Return whether a hosts file has a line of this program."""
    return any(line.endswith(_MARK) for line in text.split("\n"))


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
