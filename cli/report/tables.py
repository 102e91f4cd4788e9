"""The tables at the end of `make up`: nodes, bus bandwidth of each scope, verdicts, and next commands."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.money.amounts import amount
from cli.output.make_command import Make
from cli.output.terminal import one_line
from cli.report.facts import Judgement, Scope, node_facts, scopes, separate_nodes
from cli.report.overall import BAD_VERDICTS
from cli.report.storage import NUMBERS as STORAGE_NUMBERS
from cli.report.storage import MeasuredStorage, Trained, of_jobs
from components.validation.model import format_size
from components.validation.results import COLUMNS, bandwidth

_STYLES = {"PASS": "green", **dict.fromkeys(BAD_VERDICTS, "red"), "UNJUDGED": "yellow", "BUSY": "yellow"}
_SEVERITIES = {"error": "red", "warning": "yellow"}
_NUMBERS = ("CPUs", "memory", "GPUs", "an hour", "busbw (GB/s)", "floor (GB/s)", "spread", *STORAGE_NUMBERS)


def show(console: Console, outputs: Mapping[str, Any], make: Make = Make(), since: float = 0) -> None:
    """Print the report.

    make    the renderer of its stack's commands
    since   the start of this run in seconds since 1970; older figures get their date
    """
    cluster = outputs.get("cluster")
    if not cluster:
        console.print(f"There is no cluster yet: run {make('up')}.", soft_wrap=True)
        return
    title = f"Cluster {cluster['name']}: slurmctld at {cluster['control_address']}"
    console.print(_table(title, [node_facts(node) for node in cluster["nodes"]]))
    if rented := list(rented_rows(outputs)):
        console.print(_table("Rented machines", rented))
    unconfined = [node["name"] for node in cluster["nodes"] if not node.get("gpu", {}).get("confined", True)]
    if unconfined:
        console.print(
            f"Jobs on {', '.join(unconfined)} can use each other's GPUs, because systemd has no cgroup controllers on "
            "these machines (docs/gpus.md).",
            style="yellow", soft_wrap=True,
        )  # fmt: skip
    for note in cluster.get("notes", []):
        console.print(f"Note: {one_line(note)}", style="yellow")
    single = separate_nodes(outputs)
    if single:
        console.print(_table("Single nodes", [node_figures(scope) for scope in single]))
    for scope in single:
        if scope.rows:  # they would make one table per node
            _print_verdict(console, scope, since, f"{scope.name}: ")
    for scope in [*(scope for scope in single if not scope.rows), *scopes(outputs)]:
        _show(console, scope, since)
        for finding in scope.findings:
            if finding["severity"] in _SEVERITIES:
                line = f"{finding['severity']}  {finding['node']}: {finding['check']}: {finding['seen']}"
                line += f"; {finding['remedy']}" if finding["remedy"] else ""
                console.print(line, style=_SEVERITIES[finding["severity"]])
        console.print()
    for judged in of_jobs(outputs):
        _show(console, judged, since)
        console.print()


def node_figures(scope: Scope) -> dict[str, str]:
    """Return the figures of a single node by column, for the terminal and the page."""
    result = scope.result
    figure, floor, spread = result["busbw_gb_per_s"], result["floor_gb_per_s"], scope.result.get("spread")
    return {
        "node": scope.name,
        "GPUs": ", ".join(dict.fromkeys((scope.result.get("gpus") or {}).values())),
        "size": format_size(result["gate_bytes"]),
        "busbw (GB/s)": "not measured" if figure is None else bandwidth(figure),
        "floor (GB/s)": "none" if floor is None else bandwidth(floor),
        "spread": f"{spread['relative']:.1%}" if spread else "",
        "transport": scope.transport,
        "verdict": result["verdict"],
    }


def _table(title: str, rows: list[dict[str, str]], numbers: Sequence[str] = _NUMBERS) -> Table:
    # Text, because rich would interpret markup in a plain string.
    table = Table(title=Text(title), title_justify="left")
    for column in rows[0] if rows else ():
        # Long names and addresses continue on the next line and are never cut.
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    return table


def _show(console: Console, judged: Scope | MeasuredStorage | Trained, since: float) -> None:
    """Print the table, the verdict and its reasons."""
    name, mark, numbers = judged.title.capitalize(), ",", _NUMBERS
    if isinstance(judged, Scope):
        name, mark, numbers = f"Bus bandwidth, {judged.title}", ":", COLUMNS
    if judged.rows:
        console.print(_table(f"{name}{mark} {judged.how}", judged.rows, numbers))
    else:
        console.print(f"{name}: not measured", style="italic")
    _print_verdict(console, judged, since)
    for reason in judged.reasons:
        console.print(reason, style="red")


def _print_verdict(console: Console, judged: Judgement, since: float, subject: str = "") -> None:
    date = dated(judged.result, since, time.time())
    text = f"{judged.verdict}  {subject}{judged.text}{f' ({date})' if date else ''}"
    console.print(text, style=_STYLES.get(judged.verdict, ""))


def print_commands(console: Console, commands: Iterable[tuple[str, str]]) -> None:
    """Print commands worth trying next, each with its purpose."""
    console.print("Try next:")
    for command, purpose in commands:
        console.print(f"  {command}\n      {purpose}", soft_wrap=True)


def dated(result: Mapping[str, Any], since: float, now: float) -> str:
    """Return `measured 05:18 UTC, unchanged since` for a result older than this run, with the date on another day.

    Returns "" for a result of this run, and for one without a measurement.

    since   the start of the run in seconds since 1970; infinity for a command that does not measure
    now     the present time in seconds since 1970
    """
    try:
        measured_at = datetime.fromisoformat(str(result.get("measured_at")))
    except ValueError:
        return ""
    if result.get("verdict") == "BUSY" or measured_at.tzinfo is None or measured_at.timestamp() >= since:
        return ""
    today = measured_at.astimezone(UTC).date() == datetime.fromtimestamp(now, UTC).date()
    return f"measured {measured_at.astimezone(UTC):{'%H:%M' if today else '%Y-%m-%d %H:%M'} UTC}, unchanged since"


def rented_rows(outputs: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Give a row for each rented machine. Its texts are the cloud's."""
    rented = outputs.get("rented")
    for node, facts in sorted(rented.items()) if isinstance(rented, dict) else ():
        price, currency = facts.get("price_per_hour"), str(facts.get("currency", ""))
        yield {
            "node": one_line(str(node)),
            "type": one_line(str(facts.get("type", ""))),
            "region": one_line(str(facts.get("region", ""))),
            "an hour": amount(price, one_line(currency)) if isinstance(price, int | float) else "unknown",
            "tried before": one_line("; ".join(map(str, facts.get("tried") or []))) or "-",
        }
