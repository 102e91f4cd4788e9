"""The end of `make up`: nodes, bus bandwidth by message size for each scope, verdicts, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from components.validation.table import COLUMNS, table_rows
from components.validation.verdict import Result

BAD_VERDICTS = ("FAIL", "INCONCLUSIVE")
_STYLES = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "red", "UNJUDGED": "yellow", "BUSY": "yellow"}


def bad_scopes(outputs: Mapping[str, Any]) -> list[str]:
    """Return the scopes whose verdict makes `up` fail."""
    return [scope for scope, result in outputs.get("validation", {}).items() if result["verdict"] in BAD_VERDICTS]


def show(console: Console, outputs: Mapping[str, Any]) -> None:
    """Print the report."""
    cluster = outputs.get("cluster")
    if not cluster:
        console.print("There is no cluster yet: run make up.")
        return
    nodes = Table(title=f"Cluster {cluster['name']}: slurmctld at {cluster['control_address']}", title_justify="left")
    for column in ("node", "site", "tailnet address", "path", "CPUs", "memory", "GPUs", "Slurm", "Tailscale"):
        nodes.add_column(column, justify="right" if column in ("CPUs", "memory", "GPUs") else "left")
    for node in cluster["nodes"]:
        nodes.add_row(
            node["name"],
            node["site"],
            node["tailnet_ip"],
            node["path"],
            str(node["cpus"]),
            f"{node['memory_mb']} MB",
            str(node["gpus"]),
            node["slurm_version"],
            node["tailscale_version"],
        )
    console.print(nodes)
    for note in cluster.get("notes", []):
        console.print(f"Note: {note}", style="yellow", highlight=False, markup=False)
    # Sites first: what lies between them is understood after what they are.
    for scope, result in sorted(
        outputs.get("validation", {}).items(), key=lambda pair: (pair[0] == "cross-site", pair[0])
    ):
        _show_scope(console, scope, result)


def _show_scope(console: Console, scope: str, result: Mapping[str, Any]) -> None:
    if result["rows"]:
        console.print(_table(scope, result))
    else:
        console.print(f"Bus bandwidth, {scope}: not measured", style="italic", highlight=False, markup=False)
    verdict = result["verdict"]
    console.print(f"{verdict}  {result['reason']}", style=_STYLES[verdict], highlight=False, markup=False)
    console.print()


def _table(scope: str, result: Mapping[str, Any]) -> Table:
    how = f"{result['backend']}, {result['ranks']} ranks on {', '.join(result['nodes'])}"
    transport = f"{result['transport']} over {result['interface']}" if result["transport"] else "transport unknown"
    table = Table(title=f"Bus bandwidth, {scope}: {how}; {transport}", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for row in table_rows(cast(Result, result)):
        table.add_row(*row)
    return table


def next_commands(console: Console, user: str) -> None:
    """Print the three commands worth trying next."""
    console.print("Try next:", highlight=False)
    for command, what in (
        (f"make shell NODE=head COMMAND=\"su - {user} -c 'srun -N2 --switches=2 hostname'\"", "a job over both sites"),
        ("make outputs | python3 -m json.tool", "every figure, as one JSON object"),
        ("make down", "remove all of it"),
    ):
        console.print(f"  {command}\n      {what}", highlight=False, markup=False, soft_wrap=True)
