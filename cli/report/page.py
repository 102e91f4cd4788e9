"""The page of `make report`: everything in one HTML file, which loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cli.money.cluster_costs import ClusterCosts
from cli.output.terminal import lines
from cli.report import chart, timeline
from cli.report.facts import Scope, node_facts, nodes_beside_sites, pairs, scopes, site_paths
from cli.report.overall import judged, overall
from cli.report.tables import node_figures
from cli.report.training import training_of
from components.roles.tailrack_command.costs import duration
from components.validation.table import COLUMNS, bandwidth, table_rows


def _words(value: object) -> object:
    """What the page says of a value; a macro's own HTML is no text of anybody's."""
    return lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# Autoescape: names, reasons and findings come from machines, and some are whatever a program there has printed.
_ENVIRONMENT = Environment(
    loader=PackageLoader("cli.report", package_path=""),
    autoescape=True,
    finalize=_words,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(
    outputs: Mapping[str, Any], stack: str, made_at: str, costs: ClusterCosts | None = None, last_run: str = ""
) -> str:
    """Return the HTML of a stack's outputs, which have a cluster.

    stack      the stack's name
    made_at    when, as shown
    costs      None where no node has a price
    last_run   a sentence on the last `make up` if it did not end well
    """
    sites, paths = site_paths(outputs)
    alone, of_scopes = nodes_beside_sites(outputs), [_shown(scope) for scope in scopes(outputs)]
    headline = outputs.get("busbw_gb_per_s")
    return _ENVIRONMENT.get_template("report.html.j2").render(
        stack=stack,
        made_at=made_at,
        cluster=outputs["cluster"],
        headline=None if headline is None else bandwidth(headline),
        overall=overall(outputs, failed_steps=bool(last_run)),
        last_run=last_run,
        everything=judged(outputs),
        trained=training_of(outputs),
        scopes=of_scopes,
        alone=[(scope, node_figures(scope), bars) for scope, bars in zip(alone, _bars(alone), strict=True)],
        curves=[_shown(scope) for scope in alone],
        nodes=[node_facts(node) for node in outputs["cluster"]["nodes"]],
        gpus={node["name"]: node["gpu"] for node in outputs["cluster"]["nodes"] if node.get("gpu")},
        notes=outputs["cluster"].get("notes", []),
        sites=sites,
        paths={
            pair: ", ".join(f"{count} {path}" for path, count in sorted(cell.items())) for pair, cell in paths.items()
        },
        pairs=pairs(outputs),
        columns=COLUMNS,
        geometry=chart,
        histories=[shown for shown in of_scopes if shown["history"]],
        time=timeline,
        costs=costs,
        duration=duration,
    )


def _shown(scope: Scope) -> dict[str, Any]:
    entries = timeline.history_of(scope.optional)
    return {
        "about": scope,
        "rows": table_rows(scope.result),
        "chart": chart.chart(scope.result),
        "history": timeline.timeline(entries),
        "change": timeline.change(entries),
        "measurements": timeline.measurements(entries),
    }


def _bars(alone: list[Scope]) -> list[dict[str, float | None]]:
    """Of each node, its figure and its floor in hundredths of the best there is."""
    figures = [(scope.result["busbw_gb_per_s"], scope.result["floor_gb_per_s"]) for scope in alone]
    most = max((number for pair in figures for number in pair if number), default=1.0)

    def share(number: float | None) -> float | None:
        return None if number is None else round(100 * number / most, 2)

    return [{"figure": share(figure), "floor": share(floor)} for figure, floor in figures]
