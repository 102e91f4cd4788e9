"""`tailrack costs`: show the nodes' costs per hour and this month, and the idle nodes."""

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.roles.commands.tailrack.idle import idle_since
from components.roles.monitoring.budget.spending import (
    Stay,
    budget_line,
    joined,
    month_begin,
    read_book,
    read_budget,
    spending,
    spent,
)
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node, node_names
from components.validation.preflight.findings import plain
from components.validation.untrusted import read

NAME, HELP = "costs", "show what nodes cost per hour and this month, and which of them are idle"
MOST_QUERIES = 50  # for single nodes: each takes slurmctld a few milliseconds
ESTIMATE = (
    "Estimates: the config's prices times the hours that nodes were in the cluster (UTC month). Providers bill a "
    "machine from its start to its end, and add disks, traffic and taxes."
)


@dataclass(frozen=True)
class Cost:
    """The cost of a node.

    price, currency   per hour, now or when it left
    there, busy       whether it is in the cluster, and whether it has jobs
    idle_seconds      time without a job; None if it has jobs, has left, or the time is unknown
    month             cost since the first of the month
    month_hours       hours in the cluster since then
    used_hours        hours with a job since then; None without accounting
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
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--or-nothing", action="store_true", help="print nothing if no node has a price")


def run(arguments: argparse.Namespace) -> int:
    """Print the costs."""
    now, book = time.time(), read_book()
    on_budget = budget_now(book, now)
    if not any(stay.price is not None for stays in book.values() for stay in stays):
        if not arguments.or_nothing:
            print('{"costs": []}' if arguments.json else "No node has a price_per_hour in its stack's config.")
        elif on_budget and not arguments.json:
            print(on_budget)
        return 0
    busy = slurm.used(month_begin(now), int(now))
    nodes = {node.name: node for node in slurm.nodes()}
    # A query for many nodes can report a node as busy after its jobs have ended.
    for name in [name for name in book if name in nodes and nodes[name].busy][:MOST_QUERIES]:
        nodes[name] = slurm.nodes(name)[0]
    rows = costs(book, nodes, busy, now)
    if arguments.json:
        print(json.dumps({"at": int(now), "since": since(book, now), "costs": [asdict(row) for row in rows]}))
    else:
        print(as_text(rows, since(book, now), now))
        if on_budget:
            print(on_budget)
    return 0


def budget_now(book: Mapping[str, Sequence[Stay]], now: float) -> str:
    """Return a line on this month's budget; empty without one in the config."""
    budget = read_budget()
    return budget_line(spending(budget, book, now)) if budget else ""


def since(book: Mapping[str, Sequence[Stay]], now: float) -> int:
    """Return where the ledger's data of this month starts: at the month's first second, or at the first entry."""
    begins = [stay.begin for stays in book.values() for stay in stays]
    return max(month_begin(now), min(begins, default=int(now)))


def costs(
    book: Mapping[str, Sequence[Stay]],
    nodes: Mapping[str, Node],
    used: Iterable[tuple[str, int, int]] | None,
    now: float,
) -> list[Cost]:
    """Return the nodes that cost something now or did this month.

    used   nodes (in Slurm's short form), start and end of each job; None without accounting
    """
    begin = month_begin(now)
    hours = None if used is None else used_hours(used, begin, now)
    rows = []
    for name, stays in book.items():
        priced = [stay for stay in stays if stay.price is not None]
        if not priced or (priced[-1].end or now) < begin:
            continue
        node, amounts = nodes.get(name), spent(stays, begin, now)
        # One row for each currency of this month, usually a single one.
        for currency in {**amounts, priced[-1].currency: 0.0}:
            paid = [stay for stay in priced if stay.currency == currency]
            present = paid[-1] is priced[-1] and joined(stays) is not None and priced[-1].end is None
            idle = idle_since(node, stays) if present and node is not None else None
            rows.append(
                Cost(
                    name,
                    paid[-1].price or 0.0,
                    currency,
                    present,
                    present and bool(node and node.busy),
                    None if idle is None else max(0, int(now) - idle),
                    amounts.get(currency, 0.0),
                    sum(stay.hours(begin, now) for stay in paid),
                    None if hours is None else hours.get(name, 0.0),
                )
            )
    return rows


def used_hours(used: Iterable[tuple[str, int, int]], begin: float, end: float) -> Mapping[str, float]:
    """Return for each node the hours in which it had at least one job."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for names, first, last in used:
        for name in node_names(names):
            spans.setdefault(name, []).append((max(first, begin), min(last, end)))
    hours: dict[str, float] = {}
    for name, periods in spans.items():
        until, seconds = float(begin), 0.0
        for start, stop in sorted(periods):
            seconds += max(0.0, stop - max(start, until))
            until = max(until, stop)
        hours[name] = seconds / 3600
    return hours


def totals(costs: Iterable[Cost]) -> Mapping[str, tuple[float, float]]:
    """Return by currency the cost per hour of the present nodes, and this month's cost of all nodes."""
    sums: dict[str, tuple[float, float]] = {}
    for cost in costs:
        hour, month = sums.get(cost.currency, (0.0, 0.0))
        sums[cost.currency] = (hour + (cost.price if cost.there else 0.0), month + cost.month)
    return dict(sorted(sums.items()))


def as_text(costs: Sequence[Cost], begin: int, now: float) -> str:
    """Return the sums by currency, the idle nodes, and a sentence on the estimate."""
    lines = [*sums(costs, begin), *(idle_line(cost) for cost in longest_idle(costs))]
    if not longest_idle(costs):
        lines.append("No node with a price is idle.")
    return "\n".join([*map(plain, lines), ESTIMATE])


def sums(costs: Sequence[Cost], begin: int) -> list[str]:
    """Return a line for each currency."""
    lines, since = [], time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begin))
    for currency, (hour, month) in totals(costs).items():
        line = f"{hour:,.2f} {currency} an hour now; {month:,.2f} {currency} since {since}"
        rows = [cost for cost in costs if cost.currency == currency]
        if all(row.used_hours is not None for row in rows) and (paid := sum(row.month_hours for row in rows)):
            share = min(1.0, sum(row.used_hours or 0.0 for row in rows) / paid)
            line += f"; jobs used {share:.0%} of these node hours"
        lines.append(line)
    return lines


def longest_idle(costs: Iterable[Cost]) -> list[Cost]:
    """Return the idle nodes, the longest idle first."""
    idle = [cost for cost in costs if cost.idle_seconds is not None]
    return sorted(idle, key=lambda cost: -(cost.idle_seconds or 0))


def idle_line(cost: Cost) -> str:
    """Return a sentence on an idle node and the cost of its idle time."""
    seconds = cost.idle_seconds or 0
    return (
        f"{cost.name} idle for {duration(seconds)}: {cost.price * seconds / 3600:,.2f} {cost.currency} "
        f"({cost.price:,.2f} an hour)"
    )


def duration(seconds: int) -> str:
    """Return `25 min`, `7 h 5 min` or `3 days`."""
    if seconds < 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min" if seconds < 48 * 3600 else f"{seconds // 86400} days"


def as_rows(data: Mapping[str, Any]) -> list[Cost]:
    """Read the output of `--json`. Raise ValueError, KeyError or TypeError for invalid data."""
    return [read(Cost, row) for row in data["costs"]]
