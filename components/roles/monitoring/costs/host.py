"""The record of costs: one file for each node, one line for each period in the cluster at one price.

FROM UNTIL AMOUNT CURRENCY     seconds since 1970, `-` while in the cluster; price per hour, `- -` without one
"""

import time

from components.node import files
from components.node.log import STATE_DIR
from components.node.step.step import Step

_FOLDER = f"{STATE_DIR}/costs"
# Lines to keep for each node, and days to keep a node that has left.
_LINES = 200
_DAYS = 400


def register(step: Step, node_name: str, node_price: str) -> None:
    """Start a period for a node, unless the last line already has its price, such as `2.05 USD`; empty without one."""
    path, price = f"{_FOLDER}/{node_name}", node_price or "- -"
    lines = files.lines(path)
    if lines and lines[-1].partition(" ")[2] == f"- {price}":
        return
    now = int(time.time())
    _write(path, [*_ended(lines, now), f"{now} - {price}"])


def forget(step: Step, node_name: str) -> None:
    """End the current period of a node."""
    path = f"{_FOLDER}/{node_name}"
    if lines := files.lines(path):
        _write(path, _ended(lines, int(time.time())))


def _write(path: str, lines: list[str]) -> None:
    files.write(path, "\n".join(lines))


def _ended(lines: list[str], until: int) -> list[str]:
    """Return the last lines, with an open period ended."""
    words = (line.split() for line in lines[-(_LINES - 1) :])
    return [" ".join([begin, str(until) if end == "-" else end, *price]) for begin, end, *price in words]


def services(step: Step, node_name: str, node_price: str) -> None:
    """Start a period of the head node, and forget nodes that left long ago."""
    register(step, node_name, node_price)
    for name in files.names_in(_FOLDER):
        path = f"{_FOLDER}/{name}"
        left = not any(line.split()[1:2] == ["-"] for line in files.lines(path))
        if left and files.is_plain(path) and (files.age_of(path) or 0) // 86400 > _DAYS:
            files.remove(path)
