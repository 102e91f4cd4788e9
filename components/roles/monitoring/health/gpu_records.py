"""The deep check's records of GPUs: each GPU's first and last reading, and the findings, which all users may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from components.validation.gpu_speed.judge import FIGURES, judged, key, lowest
from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.gpu_health import Reading, read_lines
from components.validation.this_node import load, save
from components.validation.untrusted import read_or_default

# The folder of these records, in the folder of the deep check's records.
GPUS = "gpus"
FINDINGS = Path("/var/lib/tailrack/gpu-findings.json")


@dataclass(frozen=True)
class GpuRecord:
    """The stored readings of a node.

    address    of the machine, on the tailnet: another machine's readings do not count
    readings   of the last check
    first      each GPU's first figures
    findings   of the last check, without information
    """

    address: str = ""
    readings: Sequence[Reading] = ()
    first: Sequence[Reading] = ()
    findings: Sequence[Any] = ()


class GpuRecords:
    """The records of all nodes."""

    def __init__(self, records: Path, findings: Path | None = None) -> None:
        self._folder, self._findings = records / GPUS, findings or FINDINGS

    def judge(self, node: str, address: str, report: Mapping[str, Any] | None) -> list[Finding]:
        """Return the findings about a node's GPUs from a measurement's report, and store its readings.

        A report without readings changes nothing. A user's process printed it, so it may contain anything.
        """
        readings = read_lines(str((report or {}).get("gpu_speed", ""))).get(node)
        if not readings:
            return []
        record = self._read(node)
        if record.address != address:
            record = GpuRecord(address)
        first = {key(reading): reading for reading in record.first}
        items = judged(
            readings,
            cluster=[reading for other in self._nodes() if other != node for reading in self._read(other).readings],
            first=first,
            last={key(reading): reading for reading in record.readings},
        )
        shown = [item for item in items if item["severity"] != "info"]
        first_figures = [_first_figures(first.get(key(reading)), reading) for reading in readings]
        save(self._folder / f"{node}.json", asdict(GpuRecord(address, readings, first_figures, shown)))
        self.publish()
        return items

    def figures(self, node: str) -> str:
        """Return the lowest figures of a node's last check."""
        return lowest(self._read(node).readings)

    def forget(self, node: str) -> None:
        """Make a node's next figures its first ones."""
        (self._folder / f"{node}.json").unlink(missing_ok=True)
        self.publish()

    def publish(self) -> None:
        """Write the findings of all nodes for all users, also after a node has left."""
        records = {node: self._read(node).findings for node in self._nodes()}
        items = {node: findings for node, findings in records.items() if findings}
        if items or self._findings.exists():
            save(self._findings, {node: list(findings) for node, findings in items.items()}, 0o644)

    def _nodes(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def _read(self, node: str) -> GpuRecord:
        return read_or_default(GpuRecord, load(self._folder / f"{node}.json"))


def _first_figures(first: Reading | None, reading: Reading) -> Reading:
    """Return the first figures of a GPU, with those that were not measured before."""
    if first is None:
        return reading
    missing = {figure.name: getattr(reading, figure.name) for figure in FIGURES if getattr(first, figure.name) is None}
    return replace(first, **missing)


def published(path: Path = FINDINGS) -> dict[str, list[Finding]]:
    """Return the findings by node; none where the file is missing or malformed."""
    data = load(path)
    try:
        return {
            str(node): [finding(item["severity"], item["check"], item["seen"], item["remedy"]) for item in items]
            for node, items in (data or {}).items()
        }
    except (TypeError, KeyError, AttributeError):
        return {}
