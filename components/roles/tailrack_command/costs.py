"""`tailrack costs`: what nodes cost an hour and came to this month, and which of them nobody uses."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.book import Stay, joined, month_begin, read_book, spent
from components.roles.tailrack_command.unused import idle_since
from components.validation.node_names import node_names
from components.validation.preflight.findings import plain
from components.validation.slurm_nodes import Node

NAME, HELP = "costs", "show what nodes cost an hour and came to this month, and which ones nobody uses"
MOST_ASKED = 50  # nodes that are asked by themselves: each takes slurmctld a few milliseconds
ESTIMATE = (
    "Estimates: the config's prices times the hours that nodes were in the cluster (UTC month). A provider bills from "
    "a machine's start to its end, and disks, traffic and taxes besides."
)


@dataclass(frozen=True)
class Cost:
    """A node that costs.

    price, currency   an hour's, now or when it left
    there, busy       whether it is in the cluster, and has jobs
    idle_seconds      without a job; None of one that has some, has left, or of which nobody knows
    month             what it came to since the first of the month, hours in the cluster, and those with a job; the
                      last is None where nobody keeps books
    """

    name: str
    price: float
    currency: str
    there: bool
    busy: bool
    idle_seconds: int | None
    month: float
    month_hours: float
    used_hours: float | None


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add its words."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--or-nothing", action="store_true", help="print nothing where no node has a price")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    now, book = time.time(), read_book()
    if not any(stay.price is not None for stays in book.values() for stay in stays):
        if not arguments.or_nothing:
            print('{"costs": []}' if arguments.json else "No node has a price_per_hour in its stack's config.")
        return 0
    busy = slurm.used(month_begin(now), int(now))
    nodes = {node.name: node for node in slurm.nodes()}
    # Of many that are asked together, one may be told busy whose jobs have ended.
    for name in [name for name in book if name in nodes and nodes[name].busy][:MOST_ASKED]:
        nodes[name] = slurm.nodes(name)[0]
    found = costs(book, nodes, busy, now)
    if arguments.json:
        print(json.dumps({"at": int(now), "since": since(book, now), "costs": [asdict(each) for each in found]}))
    else:
        print(as_text(found, since(book, now), now))
    return 0


def since(book: Mapping[str, Sequence[Stay]], now: float) -> int:
    """From when on this month is in the book: its first second, or that of the first line."""
    begins = [stay.begin for stays in book.values() for stay in stays]
    return max(month_begin(now), min(begins, default=int(now)))


def costs(
    book: Mapping[str, Sequence[Stay]],
    nodes: Mapping[str, Node],
    used: Iterable[tuple[str, int, int]] | None,
    now: float,
) -> list[Cost]:
    """Return those that cost now, or have this month.

    used   nodes in Slurm's short form with when a job had them; None where nobody keeps books
    """
    begin = month_begin(now)
    hours = None if used is None else used_hours(used, begin, now)
    found = []
    for name, stays in book.items():
        priced = [stay for stay in stays if stay.price is not None]
        if not priced or (priced[-1].end or now) < begin:
            continue
        node, amounts = nodes.get(name), spent(stays, begin, now)
        # One for each currency that it was paid in this month: mostly one.
        for currency in {**amounts, priced[-1].currency: 0.0}:
            of = [stay for stay in priced if stay.currency == currency]
            there = of[-1] is priced[-1] and joined(stays) is not None and priced[-1].end is None
            idle = idle_since(node, stays) if there and node is not None else None
            found.append(
                Cost(
                    name,
                    of[-1].price or 0.0,
                    currency,
                    there,
                    there and bool(node and node.busy),
                    None if idle is None else max(0, int(now) - idle),
                    amounts.get(currency, 0.0),
                    sum(stay.hours(begin, now) for stay in of),
                    None if hours is None else hours.get(name, 0.0),
                )
            )
    return found


def used_hours(used: Iterable[tuple[str, int, int]], begin: float, end: float) -> Mapping[str, float]:
    """Hours in which a node had one job or more, by node."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for names, first, last in used:
        for name in node_names(names):
            spans.setdefault(name, []).append((max(first, begin), min(last, end)))
    found: dict[str, float] = {}
    for name, each in spans.items():
        until, seconds = float(begin), 0.0
        for start, stop in sorted(each):
            seconds += max(0.0, stop - max(start, until))
            until = max(until, stop)
        found[name] = seconds / 3600
    return found


def totals(found: Iterable[Cost]) -> Mapping[str, tuple[float, float]]:
    """What those that are there cost an hour, and all came to this month, by currency."""
    sums: dict[str, tuple[float, float]] = {}
    for each in found:
        hour, month = sums.get(each.currency, (0.0, 0.0))
        sums[each.currency] = (hour + (each.price if each.there else 0.0), month + each.month)
    return dict(sorted(sums.items()))


def as_text(found: Sequence[Cost], begin: int, now: float) -> str:
    """Sums by currency, nodes that nobody uses, and what is an estimate."""
    lines = [*sums(found, begin), *(idle_words(each) for each in longest_idle(found))]
    if not longest_idle(found):
        lines.append("No node with a price is idle.")
    return "\n".join([*map(plain, lines), ESTIMATE])


def sums(found: Sequence[Cost], begin: int) -> list[str]:
    """A line for each currency."""
    lines = []
    for currency, (hour, month) in totals(found).items():
        words = f"{hour:,.2f} {currency} an hour now; {month:,.2f} {currency} since {_day(begin)}"
        of = [each for each in found if each.currency == currency]
        if all(each.used_hours is not None for each in of) and (paid := sum(each.month_hours for each in of)):
            words += f"; jobs had {min(1.0, sum(each.used_hours or 0.0 for each in of) / paid):.0%} of these node hours"
        lines.append(words)
    return lines


def longest_idle(found: Iterable[Cost]) -> list[Cost]:
    """Those that are idle, the longest first."""
    idle = [each for each in found if each.idle_seconds is not None]
    return sorted(idle, key=lambda each: -(each.idle_seconds or 0))


def idle_words(cost: Cost) -> str:
    seconds = cost.idle_seconds or 0
    return (
        f"{cost.name} idle for {duration(seconds)}: {cost.price * seconds / 3600:,.2f} {cost.currency} "
        f"({cost.price:,.2f} an hour)"
    )


def duration(seconds: int) -> str:
    """`25 min`, `7 h 5 min`, `3 days`."""
    if seconds < 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min" if seconds < 48 * 3600 else f"{seconds // 86400} days"


def _day(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def as_rows(told: Mapping[str, Any]) -> list[Cost]:
    """Return what `--json` printed as costs again. Raises ValueError for what it cannot have printed."""
    try:
        return [
            Cost(
                str(each["name"]),
                _number(each["price"]),
                str(each["currency"]),
                bool(each["there"]),
                bool(each["busy"]),
                None if each["idle_seconds"] is None else int(_number(each["idle_seconds"])),
                _number(each["month"]),
                _number(each["month_hours"]),
                None if each["used_hours"] is None else _number(each["used_hours"]),
            )
            for each in told["costs"]
        ]
    except (KeyError, TypeError) as error:
        raise ValueError("no costs") from error


def _number(told: object) -> float:
    if not isinstance(told, int | float) or isinstance(told, bool) or not math.isfinite(told) or told < 0:
        raise ValueError("no number")
    return float(told)
