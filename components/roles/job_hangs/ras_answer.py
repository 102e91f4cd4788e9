"""Read an answer of NCCL's RAS subsystem: JSON since NCCL 2.28.7, and a text since 2.24. Pure. The answer is untrusted.

The formats are those of NCCL's src/ras/client_support.cc. Reading gives None for an answer in another form.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.roles.job_hangs.communicators import Communicator, Group, Rank

_MOST = 2**53
_MOST_COMMUNICATORS = 4096
_VERSION = re.compile(r"^NCCL version ([0-9][0-9A-Za-z.+-]{0,40})", re.MULTILINE)
_OPERATION = re.compile(r"[A-Za-z]{1,24}")
_ROW = re.compile(
    r"\s*([0-9]{1,6})(?:\s+[0-9]{1,9}){2}\s+[0-9-]{1,12}\s+([0-9]{1,9})\s+[0-9]{1,9}\s+[A-Z]{2,12}\s+[A-Z,]{2,40}"
)
_HEADING = re.compile(r"#([0-9]{1,6})-[0-9]{1,6} \(([0-9a-f]{1,16})\) [A-Z]{1,20}")
_PLACE = (
    r"GPU ([0-9]{1,3})(?: \(NVML ([0-9]{1,3})\))? managed by process ([0-9]{1,10}) on node ([0-9A-Fa-f.:%a-z]{1,80})"
)
_COUNTS = re.compile(r"Communicator ranks have different ([A-Za-z]{1,24}) operation counts")
_MANY = re.compile(r"([0-9]{1,9}) ranks have (?:launched up to operation ([0-9]{1,16})|not launched any operations)")
_ONE = re.compile(
    r"Rank ([0-9]{1,9}) has (?:launched up to operation ([0-9]{1,16})|not launched any operations) -- "
    rf"(?:{_PLACE}|\[process information not found\])"
)
_MEMBER = re.compile(rf"Rank ([0-9]{{1,9}}) -- (?:{_PLACE}|\[process information not found\])")
_LOST = re.compile(r"The missing ranks?: ([0-9]{1,9}(?:,[0-9]{1,9})*)")
_STATUS = re.compile(r"[0-9]{1,9} ranks have status ([A-Z]{2,12})")
_ONE_STATUS = re.compile(rf"Rank ([0-9]{{1,9}}) has status ([A-Z]{{2,12}}) -- {_PLACE}")
# NCCL 2.28.7 and 2.28.9 forget a comma there.
_FORGOTTEN_COMMA = re.compile(r'("nvml_dev": [0-9]+)(\n *"status": \{\n *"unresponsive")')


def read_answer(text: str) -> list[Communicator] | None:
    """Read RAS's answer to `SET FORMAT json` and `VERBOSE STATUS`; None if it is none or was cut off."""
    begin = re.search(r"^\{", text, re.MULTILINE)
    try:
        if begin:
            return _from_json(text[begin.start() :])
        if _VERSION.search(text) and "Communicators..." in text:
            return _from_text(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    return None


# JSON.


def _from_json(text: str) -> list[Communicator]:
    # raw_decode: the connection may carry more.
    data = json.JSONDecoder().raw_decode(_FORGOTTEN_COMMA.sub(r"\1,\2", text))[0]
    rows = data["communicators"]
    if not isinstance(rows, list) or len(rows) > _MOST_COMMUNICATORS:
        raise ValueError
    return [item for row in rows if (item := _communicator(row)) is not None]


def _communicator(row: Mapping[str, Any]) -> Communicator | None:
    """Return a communicator; None if it is ending."""
    missing: list[Rank] = []
    absent: list[Rank] = []
    counts: dict[str, dict[int, list[Rank]]] = {}
    for entry in row["ranks"]:
        status = entry["status"]
        if any(status.get(name) is not False for name in ("finalize_called", "destroy_flag", "abort_flag")):
            return None
        rank = _rank(entry)
        for name, count in entry["collective_counts"].items():
            if not _OPERATION.fullmatch(name):
                raise ValueError
            counts.setdefault(name, {}).setdefault(_number(count), []).append(rank)
    for entry in row["missing_ranks"]:
        lost = entry["status"].get("unresponsive") is not False or entry["status"].get("considered_dead") is not False
        (missing if lost else absent).append(_rank(entry))
    operations = {
        name: tuple(Group(count, len(ranks), tuple(ranks)) for count, ranks in sorted(groups.items()))
        for name, groups in counts.items()
    }
    name = f"{_hash(row['hash'])}:{_hash(row['secondary_hash'])}"
    return Communicator(name, _number(row["size"]), operations, True, tuple(missing), tuple(absent))


def _rank(entry: Mapping[str, Any]) -> Rank:
    # The process of a rank that RAS cannot find any more is -1.
    process = entry["pid"]
    return Rank(
        _number(entry["rank"]),
        _host(entry["host"]),
        max(0, process) if process == -1 else _number(process),
        _number(entry["nvml_dev"]),
    )


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError
    return value


def _hash(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fx:]{1,60}", value):
        raise ValueError
    return value


def _host(value: object) -> str:
    """Return an IP address, or an empty text."""
    try:
        return str(ipaddress.ip_address(str(value).partition("%")[0]))
    except ValueError:
        return ""


# Text.


@dataclass
class _Section:
    """A communicator in the part of errors or of warnings."""

    size: int
    operations: dict[str, list[tuple[int, int, list[Rank]]]] = field(default_factory=dict)
    missing: list[Rank] = field(default_factory=list)
    absent: list[Rank] = field(default_factory=list)


def _from_text(text: str) -> list[Communicator]:
    sizes: dict[str, int] = {}
    sections: dict[str, _Section] = {}
    section: _Section | None = None
    # The list that gets the ranks of the next lines.
    members: list[Rank] = []
    operation = ""
    for line in map(str.strip, text.splitlines()):
        if match := _HEADING.fullmatch(line):
            if len(sections) >= _MOST_COMMUNICATORS:
                raise ValueError
            section = sections.setdefault(match[2], _Section(sizes.get(match[1], 0)))
            members, operation = [], ""
        elif section is None:
            if match := _ROW.fullmatch(line):
                sizes[match[1]] = int(match[2])
        elif match := _COUNTS.fullmatch(line):
            operation, members = match[1], []
            section.operations[operation] = []
        elif operation and (match := _MANY.fullmatch(line)):
            members = []
            section.operations[operation].append((int(match[2] or 0), int(match[1]), members))
        elif operation and (match := _ONE.fullmatch(line)):
            members = []
            section.operations[operation].append((int(match[2] or 0), 1, [_named(match, 3)]))
        elif line.startswith("Missing communicator data from "):
            members = section.missing
        elif match := _LOST.fullmatch(line):
            section.missing += [Rank(int(number)) for number in match[1].split(",")]
        elif match := _STATUS.fullmatch(line):
            # Ranks that have called ncclCommDestroy already are UNKNOWN in NCCL 2.24.
            members = section.absent if match[1] == "NOCOMM" else []
            operation = ""
        elif match := _ONE_STATUS.fullmatch(line):
            if match[2] == "NOCOMM":
                section.absent.append(_named(match, 3))
        elif match := _MEMBER.fullmatch(line):
            members.append(_named(match, 2))
    return [
        Communicator(
            name,
            item.size,
            {
                key: tuple(Group(*group[:2], tuple(group[2])) for group in sorted(groups, key=lambda group: group[:2]))
                for key, groups in item.operations.items()
                if groups
            },
            False,
            tuple(item.missing),
            tuple(item.absent),
        )
        for name, item in sections.items()
    ]


def _named(match: re.Match[str], first: int) -> Rank:
    cuda, nvml, process, host = (match[first + number] for number in range(4))
    if process is None:
        return Rank(int(match[1]))
    return Rank(int(match[1]), _host(host), int(process), int(nvml or cuda))
