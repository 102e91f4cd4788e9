"""`tailrack usage`: show who uses the GPUs: GPU hours, their idle share and their cost, by user."""

import argparse
import calendar
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from components.roles.commands.sll.snapshot import gpus_of
from components.roles.commands.tailrack.costs import budget_now
from components.roles.monitoring.budget.spending import month_begin, read_book
from components.roles.monitoring.usage.samples import read_summary
from components.slurm_commands import slurm
from components.slurm_commands.slurm import Held, SlurmError
from components.validation.preflight.findings import plain

NAME, HELP = "usage", "show each user's GPU hours, how much of them the GPUs were idle, and their cost"
_MONTH = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
HEAD = ("USER", "JOBS", "GPU HOURS", "IDLE", "COST")
NOTE = (
    "GPU hours of the jobs' allocations in this month (UTC). IDLE is the share of samples, one a minute, with a GPU "
    "below 5 % utilization. COST is the GPUs' share of the nodes' prices; an estimate."
)


@dataclass
class Usage:
    """The GPUs of a user.

    hours     GPU hours
    sampled   GPU hours of jobs with samples
    idle      idle GPU hours among these
    costs     by currency
    """

    user: str
    jobs: int = 0
    hours: float = 0.0
    sampled: float = 0.0
    idle: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--month", metavar="YYYY-MM", help="another month than this one")
    parser.add_argument("--user", metavar="NAME", help="only this user (default: all for root, else yourself)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    now = time.time()
    begin, end = span(arguments.month, now)
    if arguments.user and not _USER.fullmatch(arguments.user):
        raise SlurmError(f"{arguments.user!r} is not a user name; write one such as ada")
    try:
        held = slurm.held(begin, int(end), arguments.user or "")
    except SlurmError as error:
        raise SlurmError(f"{error}; without tailrack:accounting the cluster has no record of usage") from None
    rows = usages(held, comments() if any(job.end is None for job in held) else {}, begin, end)
    if arguments.json:
        print(json.dumps({"from": begin, "until": int(end), "usage": [asdict(row) for row in rows]}, indent=2))
    else:
        print(as_text(rows, begin))
        if line := budget_now(read_book(), now):
            print(line)
    return 0


def span(month: str | None, now: float) -> tuple[int, float]:
    """Return the first and last second of a month, by default of this one until now. Raise SlurmError."""
    if month is None:
        return month_begin(now), now
    match = _MONTH.fullmatch(month)
    if not match:
        raise SlurmError(f"{month!r} is not a month; write one such as 2026-11")
    year, number = int(match[1]), int(match[2])
    begin = calendar.timegm((year, number, 1, 0, 0, 0))
    if begin > now:
        raise SlurmError(f"{month} has not begun")
    days = calendar.monthrange(year, number)[1]
    return begin, min(now, begin + days * 86400)


def comments() -> dict[str, str]:
    """Return slurmctld's AdminComment of each job: the accounting gets that of a running job only at its end."""
    try:
        return {str(job.number): job.admin_comment for job in slurm.all_jobs()}
    except SlurmError:
        return {}


def usages(held: Iterable[Held], comments: Mapping[str, str], begin: float, end: float) -> list[Usage]:
    """Return the usage of each user who had GPUs between two times, the most GPU hours first.

    comments   AdminComments of running jobs, by job
    """
    rows: dict[str, Usage] = {}
    counted = set[str]()
    for job in held:
        gpus, until = gpus_of(job.allocated), end if job.end is None else job.end
        seconds = min(until, end) - max(job.start, begin)
        if not gpus or seconds <= 0:
            continue
        row = rows.setdefault(job.user, Usage(job.user))
        # Hours and cost up to the record, which is minutes old while it runs; a part of them belongs to this month.
        part = min(1.0, seconds / (until - job.start))
        hours = gpus * job.seconds * part / 3600
        row.jobs += job.number not in counted
        counted.add(job.number)
        row.hours += hours
        known = read_summary(job.admin_comment if job.end is not None else comments.get(job.number, ""))
        if known is None:
            continue
        if known.idle is not None:
            row.sampled += hours
            row.idle += hours * known.idle / 100
        for unit, amount in known.costs.items():
            row.costs[unit] = row.costs.get(unit, 0.0) + amount * part
    return sorted(rows.values(), key=lambda row: (-row.hours, row.user))


def as_text(rows: Sequence[Usage], begin: int) -> str:
    """Return the table, and a sentence on the figures."""
    since = time.strftime("%Y-%m-%d", time.gmtime(begin))
    if not rows:
        return f"No job has had GPUs since {since}, as far as you may see."
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([*lines, NOTE])


def _cells(row: Usage) -> tuple[str, ...]:
    idle = f"{row.idle / row.sampled:.0%}" if row.sampled else "-"
    costs = ", ".join(f"{amount:,.2f} {unit}" for unit, amount in sorted(row.costs.items())) or "-"
    return plain(row.user), str(row.jobs), f"{row.hours:,.2f}", idle, plain(costs)
