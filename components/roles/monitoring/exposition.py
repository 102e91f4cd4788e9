"""Format metrics in Prometheus' exposition format, which node exporter reads from files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from components.validation.preflight.findings import plain

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Metric:
    """Samples with the same name. Label values may be any text.

    help   a description with the unit
    """

    name: str
    help: str
    samples: Sequence[Sample]
    kind: Literal["gauge", "counter"] = "gauge"


def exposition(metrics: Iterable[Metric]) -> str:
    """Return the text, one line per sample. Metrics without samples are left out."""
    lines = []
    for metric in metrics:
        if metric.samples:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{metric.name}{_labels(labels)} {float(value)!r}" for labels, value in metric.samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    text = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


def _quoted(text: str) -> str:
    # A lone surrogate is not valid UTF-8, and node exporter would skip the whole file.
    valid = plain(text).encode("utf-8", "replace").decode("utf-8")
    return valid.replace("\\", "\\\\").replace('"', '\\"')
