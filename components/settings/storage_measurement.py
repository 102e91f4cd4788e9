"""The storage measurement: the section `validation.storage`."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from components.settings.problems import Report, suggest
from components.settings.section import Help, Section, key
from components.settings.types import NodeNames, Number, SiteNames, Size, Whole
from components.validation.collectives import format_size
from components.validation.storage_figures import FIGURES

SHARE, SCRATCH = "share", "scratch"  # targets of every cluster, and of one with tailrack:scratch
_LEAST_BYTES, _MOST_BYTES = 2**20, 2**36
# Shared targets are measured on one node after another, so that a figure is the node's own.
_MOST_SECONDS = 3600

Floor = Annotated[Number, Field(gt=0), Help("a number above 0", "write one, or leave it out to get UNJUDGED")]


class StorageFloor(Section):
    """Floors of one target."""

    target: str = key(wants="the name of a target", fix="write share")
    """The measured storage: `share`, `scratch`, or the path of a mount."""
    sites: SiteNames = key(fix="write [rack], or leave it out", default=())
    """Sites whose nodes these floors judge."""
    write_mb_per_s: Floor | None = None
    """Lowest acceptable MB/s of one node that writes a large file."""
    read_mb_per_s: Floor | None = None
    """Lowest acceptable MB/s of one node that reads a large file."""
    files_per_s: Floor | None = None
    """Lowest acceptable number of small files per second on one node."""
    latency_us: Floor | None = None
    """Highest acceptable latency of a random read of 4 KiB, in microseconds."""


class StorageMeasurement(Section):
    """The storage measurement: throughput, latency and small files of the share and of scratch, on each node."""

    nodes: NodeNames = key(default_text="those of `validation.nodes`", default=())
    """Nodes to measure; default: all measured nodes."""
    size: Size = 2**30
    """Size of the large file that a node writes and reads, at most 64G."""
    seconds: Whole = key(ge=2, le=600, default=10)
    """About the time for one target on one node."""
    floors: tuple[StorageFloor, ...] = key(
        fix="write [{target: share, read_mb_per_s: 100}], or leave it out", default=()
    )
    """Floors by target; without one, a target is UNJUDGED."""


def check_storage_measurement(
    section: StorageMeasurement,
    shared: Collection[str],
    local: Collection[str],
    sites: Collection[str],
    nodes: int,
    report: Report,
) -> None:
    """Report a size that no node should write, a measurement that takes hours, and floors that judge nothing.

    shared, local   names of the targets
    nodes           the number of nodes that are measured if the section lists none
    """
    _check_size(section, report)
    count = len(section.nodes) or nodes
    if (total := count * len(shared) * section.seconds) > _MOST_SECONDS:
        path = report.at(section, "seconds" if "seconds" in section.model_fields_set else "nodes")
        problem = f"{count} nodes, one after another, would take about {total // 60} minutes"
        breaks = "up would wait for it, and no other job could run on these nodes"
        report.add(path, problem, breaks, "list fewer nodes in validation.storage.nodes, or write fewer seconds")
    judged: dict[tuple[str, str], str] = {}
    for floor in section.floors:
        _check_floor(floor, {*shared, *local}, sites, report)
        _check_once(floor, sites, judged, report)


def _check_size(section: StorageMeasurement, report: Report) -> None:
    path, value = report.at(section, "size"), section.size
    if not _LEAST_BYTES <= value <= _MOST_BYTES:
        shown = report.value(path, value) if report.hides(path) else format_size(value)
        problem = f"{shown} is not a size from 1 MiB to 64 GiB"
        breaks = "a file of that size measures nothing" if value < _LEAST_BYTES else "writing it would take minutes"
        report.add(path, problem, breaks, "write a size such as 1G")


def _check_floor(floor: StorageFloor, targets: Collection[str], sites: Collection[str], report: Report) -> None:
    target, path = floor.target, report.at(floor, "target")
    if target not in targets:
        if target == SCRATCH:
            problem, fix = "scratch is not measured without tailrack:scratch.folder", "set that folder, or remove it"
        else:
            problem, fix = f"{report.value(path, target)} is not a measured target", suggest(target, targets)
        report.add(path, problem, "the floors would judge nothing", fix)
    for index, name in enumerate(floor.sites):
        if name not in sites:
            site_path = report.at(floor, "sites", index)
            problem = f"{report.value(site_path, name)} is not a site of this stack"
            report.add(site_path, problem, "the floors would judge no node", partial(suggest, name, sites))
    if not floor.model_fields_set & FIGURES.keys():
        fix = f"write one of {', '.join(FIGURES)}"
        report.add(report.at(floor), "has no floor", "its target would be UNJUDGED", fix)


def _check_once(
    floor: StorageFloor, sites: Collection[str], judged: dict[tuple[str, str], str], report: Report
) -> None:
    path = report.at(floor)
    for site in floor.sites or sites:
        first = judged.setdefault((floor.target, site), path)
        if first != path:
            problem = f"judges {floor.target} at {site}, as {first} does"
            report.add(path, problem, "one of the two would have no effect", "remove one, or list other sites")
            return


def floors_at(floors: Sequence[StorageFloor], target: str, site: str) -> dict[str, float]:
    """Return the floors of a target for the nodes of a site, by figure."""
    for floor in floors:
        if floor.target == target and (not floor.sites or site in floor.sites):
            return {name: value for name in FIGURES if (value := getattr(floor, name)) is not None}
    return {}
