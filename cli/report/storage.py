"""The storage measurement in a stack's outputs, for the terminal and the report page."""

from collections.abc import Iterator, Mapping
from typing import Any

from cli.output.terminal import one_line
from cli.report.facts import Judgement
from components.validation.model import format_size
from components.validation.storage_figures import FILES, LATE, LATENCY, READ, WRITE
from components.validation.storage_verdict import number

# Columns with a figure.
_COLUMNS = {
    "write (MB/s)": WRITE,
    "read (MB/s)": READ,
    "files/s": FILES,
    "latency (us)": LATENCY,
    "p99 (us)": LATE,
}
NUMBERS = (*_COLUMNS, "spread")


class MeasuredStorage(Judgement):
    """The storage measurement; `result` comes from components/validation/storage_verdict.py."""

    @property
    def how(self) -> str:
        return f"a file of {format_size(self.result['size_bytes'])} by fio"

    @property
    def rows(self) -> list[dict[str, str]]:
        """Return the figures of each node and target by column; a cell with a floor shows both."""
        return [
            {
                "node": node,
                "storage": one_line(f"{name} ({target['path']})"),
                **{column: _cell(target, figure) for column, figure in _COLUMNS.items()},
                "spread": _spread(target),
                "I/O": _access(target),
                "verdict": str(target["verdict"]),
            }
            for node, name, target in self._targets
        ]

    @property
    def reasons(self) -> list[str]:
        """Return the reasons of nodes with missing figures or a failed verdict."""
        reasons = [
            one_line(str(target["reason"]))
            for _, _, target in self._targets
            if target["verdict"] not in ("PASS", "UNJUDGED")
        ]
        return [reason for reason in reasons if reason not in self.reason]

    @property
    def _targets(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        for node, targets in sorted(self.result["nodes"].items()):
            for name, target in targets.items():
                yield node, name, target


def _cell(target: Mapping[str, Any], figure: str) -> str:
    value, floor = target[figure], target["floors"].get(figure)
    text = "not measured" if value is None else number(value)
    bound = "most" if figure == LATENCY else "least"
    return text if floor is None else f"{text} ({bound} {number(floor)})"


def _spread(target: Mapping[str, Any]) -> str:
    """Return the largest spread of the figures."""
    spreads = [spread["relative"] for spread in target["spread"].values()]
    return f"{max(spreads):.0%}" if spreads else ""


def _access(target: Mapping[str, Any]) -> str:
    """Return how the data was moved: with direct I/O or through the page cache, the file system, and its limit."""
    read_only = "read-only" if target["read_only"] else ""
    access = {True: "direct", False: "page cache emptied", None: ""}[target["direct"]]
    return one_line(", ".join(filter(None, (access, target["file_system"], read_only))))


def storage_of(outputs: Mapping[str, Any]) -> MeasuredStorage | None:
    """Return the storage measurement of a stack, if it has one."""
    result = outputs.get("storage")
    return MeasuredStorage("storage", result) if result else None


class Trained(Judgement):
    """The training benchmark; `result` comes from components/validation/training_verdict.py."""

    @property
    def how(self) -> str:
        """Return the model, the nodes and the settings of the training."""
        result, how = self.result, self.result.get("how") or {}
        device = "CPUs" if result["device"] == "CPU" else ", ".join(result["devices"])
        participants = f"{result['ranks']} ranks on {', '.join(result['nodes'])} ({device})"
        size = f"ResNet-18 of width {how.get('width')}, images of {how.get('pixels')} pixels, {how.get('precision')}"
        return one_line(f"{participants}; {size}, PyTorch {how.get('torch')}")

    @property
    def rows(self) -> list[dict[str, str]]:
        """Return one row of figures by column; none without any. Figures on CPUs have the label `CPU`."""
        result = self.result
        rate = result["images_per_second"]
        if rate is None:
            return []
        floor, spread = result["floor_images_per_second"], result["spread"]
        rate_column = "images/s per GPU" if result["device"] == "GPU" else "images/s per node (CPU)"
        row = {
            rate_column: f"{result['images_per_second_per_rank']:,.1f}",
            "images/s in all": f"{rate:,.1f}",
            "jitter": f"{result['jitter']:.1%}",
            "spread": f"{spread['relative']:.1%}" if spread else "",
            "floor": "none" if floor is None else f"{floor:,g}",
        }
        return [row]


def training_of(outputs: Mapping[str, Any]) -> Trained | None:
    """Return the training benchmark of a stack, if it has one."""
    result = outputs.get("training")
    return Trained("training", result) if result else None


def of_jobs(outputs: Mapping[str, Any]) -> list[Trained | MeasuredStorage]:
    """Return the measurements by one job that a stack has."""
    return [result for result in (training_of(outputs), storage_of(outputs)) if result]
