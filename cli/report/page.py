"""The page of `make report`: one HTML file without scripts and external resources."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cli.money.amounts import ClusterCosts
from cli.output.terminal import lines
from cli.report import chart
from cli.report.facts import Scope, node_facts, pairs, scopes, separate_nodes, site_paths
from cli.report.overall import judged, overall
from cli.report.storage import NUMBERS as STORAGE_NUMBERS
from cli.report.storage import storage_of, training_of
from cli.report.tables import node_figures
from components.roles.commands.tailrack.costs import duration
from components.validation.results import bandwidth, extended


def _printable(value: object) -> object:
    """Convert a text for the page; HTML from a macro stays as it is."""
    return lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# Autoescape is necessary: names, reasons and findings come from machines and may contain any program's output.
_ENVIRONMENT = Environment(
    loader=PackageLoader("cli.report", package_path=""),
    autoescape=True,
    finalize=_printable,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(
    outputs: Mapping[str, Any], stack: str, written_at: str, costs: ClusterCosts | None = None, last_run: str = ""
) -> str:
    """Return the HTML page for a stack's outputs, which must contain a cluster.

    stack        the stack's name
    written_at   the date on the page
    costs        None if no node has a price
    last_run     a sentence on the last `make up` if it failed
    """
    sites, paths = site_paths(outputs)
    single, of_scopes = separate_nodes(outputs), [_card(scope) for scope in scopes(outputs)]
    headline = outputs.get("busbw_gb_per_s")
    return _ENVIRONMENT.get_template("report.html.j2").render(
        stack=stack,
        written_at=written_at,
        cluster=outputs["cluster"],
        headline=None if headline is None else bandwidth(headline),
        overall=overall(outputs, failed_steps=bool(last_run)),
        last_run=last_run,
        all_judged=judged(outputs),
        trained=training_of(outputs),
        storage=storage_of(outputs),
        storage_numbers=STORAGE_NUMBERS,
        scopes=of_scopes,
        single=[(scope, node_figures(scope), bars) for scope, bars in zip(single, _bars(single), strict=True)],
        curves=[_card(scope) for scope in single],
        nodes=[node_facts(node) for node in outputs["cluster"]["nodes"]],
        gpus={node["name"]: node["gpu"] for node in outputs["cluster"]["nodes"] if node.get("gpu")},
        notes=outputs["cluster"].get("notes", []),
        sites=sites,
        paths={
            pair: ", ".join(f"{count} {path}" for path, count in sorted(cell.items())) for pair, cell in paths.items()
        },
        pairs=pairs(outputs),
        geometry=chart,
        histories=[card for card in of_scopes if card["history"]],
        costs=costs,
        duration=duration,
    )


def _card(scope: Scope) -> dict[str, Any]:
    # The history of an output of an earlier version is its last measurement.
    entries = extended(scope.result.get("history"), scope.result)
    return {
        "about": scope,
        "chart": chart.chart(scope.result),
        "history": chart.timeline(entries),
        "change": chart.change(entries),
        "measurements": chart.measurements(entries),
    }


def _bars(nodes: list[Scope]) -> list[dict[str, float | None]]:
    """Return each node's bandwidth and floor in percent of the largest value."""
    figures = [(scope.result["busbw_gb_per_s"], scope.result["floor_gb_per_s"]) for scope in nodes]
    most = max((number for pair in figures for number in pair if number), default=1.0)

    def share(number: float | None) -> float | None:
        return None if number is None else round(100 * number / most, 2)

    return [{"figure": share(figure), "floor": share(floor)} for figure, floor in figures]
