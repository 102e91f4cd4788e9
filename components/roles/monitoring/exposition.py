"""Figures as text that node exporter reads from its folder: Prometheus' exposition format. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from components.validation.preflight.findings import plain

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Metric:
    """Figures of one name, each with its labels, whose values may be anything.

    help   what it is, with its unit
    """

    name: str
    help: str
    samples: Sequence[Sample]
    kind: Literal["gauge", "counter"] = "gauge"


def exposition(metrics: Iterable[Metric]) -> str:
    """Return the text, a line a figure. One without samples is left out."""
    lines = []
    for metric in metrics:
        if metric.samples:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{metric.name}{_labels(labels)} {float(value)!r}" for labels, value in metric.samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    told = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _quoted(text: str) -> str:
    # No half of a letter: that is no UTF-8, and node exporter would leave the whole file out.
    whole = plain(text).encode("utf-8", "replace").decode("utf-8")
    return whole.replace("\\", "\\\\").replace('"', '\\"')
