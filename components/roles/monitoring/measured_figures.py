"""The measurement as figures: each scope's bus bandwidth, its floor, the verdict and its age. Pure.

From what the measurement has kept on the head node (components/measurement/validate.sh): words of a user, which may be
anything. Judged by figure and floor alone; that another network should have carried the data, `make up` says.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, get_args

from components.roles.monitoring.exposition import Metric, Sample
from components.validation.model import Measurement
from components.validation.results import Conditions, judge_scope
from components.validation.verdict import Result, Verdict

VERDICTS: tuple[str, ...] = get_args(Verdict)
_BUSBW = ("tailrack_busbw_gb_per_s", "Bus bandwidth of the last measurement, 1e9 bytes a second.")
_FLOOR = ("tailrack_busbw_floor_gb_per_s", "What it is held against.")
_MOMENT = ("tailrack_measured_timestamp_seconds", "When it was measured.")
_VERDICT = ("tailrack_measurement_verdict", "1 for the verdict of the last measurement.")


def measured_figures(
    told: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], members: Container[str]
) -> list[Metric]:
    """Return figures of all scopes, and of nodes that were measured by themselves.

    told      `cpu`, what is asked of a measurement of CPUs; `ranks_per_node`; `floors`, GB/s by scope; the words
              `cross_site` and `node`, which are scopes too
    found     what was kept, by scope
    members   nodes of the cluster: a report may name others
    """
    busbw: list[Sample] = []
    floor: list[Sample] = []
    moment: list[Sample] = []
    verdict: list[Sample] = []
    for scope, kept in sorted(found.items()):
        whole, alone = _judged(told, scope, kept)
        by_itself = [
            ({"scope": told["node"], "node": node}, result) for node, result in sorted(alone.items()) if node in members
        ]
        for labels, result in [({"scope": scope}, whole), *by_itself]:
            how = {**labels, "collective": result["collective"], "bytes": str(result["gate_bytes"])}
            if result["busbw_gb_per_s"] is not None:
                busbw.append((how, result["busbw_gb_per_s"]))
            if result["floor_gb_per_s"] is not None:
                floor.append((how, result["floor_gb_per_s"]))
            verdict += [({**labels, "verdict": each}, int(each == result["verdict"])) for each in VERDICTS]
            if isinstance(kept.get("measured_at"), int | float):
                moment.append((labels, kept["measured_at"]))
    return [Metric(*_BUSBW, busbw), Metric(*_FLOOR, floor), Metric(*_MOMENT, moment), Metric(*_VERDICT, verdict)]


def _judged(told: Mapping[str, Any], scope: str, kept: Mapping[str, Any]) -> tuple[Result, Mapping[str, Result]]:
    nodes = kept.get("nodes")
    left_out = kept.get("left_out")
    count = sum(len(each) for each in (nodes, left_out) if isinstance(each, list)) or 1
    asked = Measurement(
        **told["cpu"],
        backend="tcp-cpu" if scope == told["cross_site"] else "mpi-cpu",
        nodes=count,
        ranks=max(2, count * told["ranks_per_node"]),
    )
    floors = told["floors"]
    how = Conditions(floors.get(scope), floors.get(told["node"]), "", spans=False)
    # What the nodes have of networks is left out: what should have carried the data is not judged here.
    return judge_scope(asked, {**kept, "there": ""}, how, lambda _: {})
