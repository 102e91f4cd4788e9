"""Read an answer of NCCL's RAS subsystem in JSON, which NCCL has since 2.28.7. Pure. The answer is untrusted.

The format is that of NCCL's src/ras/client_support.cc. Reading gives None for an answer in another form.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any

from components.roles.job_hangs.communicators import Communicator, Rank

_MOST = 2**53
_MOST_COMMUNICATORS = 4096
_OPERATION = re.compile(r"[A-Za-z]{1,24}")
# NCCL 2.28.7 and 2.28.9 forget a comma there.
_FORGOTTEN_COMMA = re.compile(r'("nvml_dev": [0-9]+)(\n *"status": \{\n *"unresponsive")')


def read_answer(text: str) -> list[Communicator] | None:
    """Read RAS's answer to `SET FORMAT json` and `VERBOSE STATUS`; None if it is none or was cut off."""
    begin = re.search(r"^\{", text, re.MULTILINE)
    try:
        # raw_decode: the connection may carry more.
        data = json.JSONDecoder().raw_decode(_FORGOTTEN_COMMA.sub(r"\1,\2", text[begin.start() if begin else 0 :]))[0]
        rows = data["communicators"]
        if not isinstance(rows, list) or len(rows) > _MOST_COMMUNICATORS:
            return None
        return [item for row in rows if (item := _communicator(row)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _communicator(row: Mapping[str, Any]) -> Communicator | None:
    """Return a communicator; None if all its ranks leave it. A rank that leaves it alone is behind the others."""
    missing: list[Rank] = []
    absent: list[Rank] = []
    counts: dict[str, dict[int, list[Rank]]] = {}
    leaving = [_leaves(entry["status"]) for entry in row["ranks"]]
    if leaving and all(leaving):
        return None
    for entry in row["ranks"]:
        rank = _rank(entry)
        for name, count in entry["collective_counts"].items():
            if not _OPERATION.fullmatch(name):
                raise ValueError
            counts.setdefault(name, {}).setdefault(_number(count), []).append(rank)
    for entry in row["missing_ranks"]:
        lost = entry["status"].get("unresponsive") is not False or entry["status"].get("considered_dead") is not False
        (missing if lost else absent).append(_rank(entry))
    operations = {
        name: {count: tuple(ranks) for count, ranks in sorted(groups.items())} for name, groups in counts.items()
    }
    name = f"{_hash(row['hash'])}:{_hash(row['secondary_hash'])}"
    return Communicator(name, _number(row["size"]), operations, tuple(missing), tuple(absent))


def _leaves(status: Mapping[str, Any]) -> bool:
    return any(status.get(name) is not False for name in ("finalize_called", "destroy_flag", "abort_flag"))


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
