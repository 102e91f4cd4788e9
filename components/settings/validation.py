"""The section `validation`: measurements of bandwidth between nodes and GPUs, of storage, and of training."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from components.settings import types
from components.settings.problems import Report, Stack
from components.settings.rules import check_both, check_known, check_sites
from components.settings.section import Help, Section, key
from components.validation.model import format_size, parse_size, sizes_between
from components.validation.storage_figures import FIGURES


def largest(data: dict[str, int]) -> int:
    """Return the largest measured size."""
    if data["min_bytes"] > data["max_bytes"]:
        return data["max_bytes"]  # `Sizes.check` reports it
    return sizes_between(data["min_bytes"], data["max_bytes"], data["factor"])[-1]


class Sizes(Section):
    """The sizes of a measurement, with the defaults of one of GPUs."""

    min_bytes: types.Size = parse_size("8M")
    """Smallest message."""
    max_bytes: types.Size = parse_size("8G")
    """Largest message."""
    factor: types.Whole = key(ge=2, le=1024, default=4)
    """Factor from one size to the next."""
    iterations: types.Whole = key(ge=1, le=100_000, default=20)
    """Timed runs per size."""
    warmup: types.Whole = key(ge=0, le=100_000, default=5)
    """Warm-up runs per size."""
    gate_bytes: types.Size = key(default_text="the largest measured", default_factory=largest)
    """Message size whose bus bandwidth, of GPUs the median of three runs, is compared with the floor."""

    def check(self, stack: Stack, report: Report) -> None:

        def show(size: int) -> str:
            return report.value(path, size) if report.hides(path) else format_size(size)

        least, most, factor, gate = (getattr(self, name) for name in ("min_bytes", "max_bytes", "factor", "gate_bytes"))
        path = report.at(self, "min_bytes" if "min_bytes" in self.model_fields_set or least % 4 else "max_bytes")
        if least % 4:
            problem = f"{show(least)} is not a multiple of 4 bytes, the size of one number"
            report.add(path, problem, "no collective has a message of that size", "write a multiple of 4, such as 64K")
        if least > most:
            problem = f"min_bytes ({show(least)}) is above max_bytes ({show(most)})"
            fix = "write a smaller min_bytes or a larger max_bytes"
            report.add(path, problem, "there would be no size to measure", fix)
        elif gate not in (measured := sizes_between(least, most, factor)):
            problem = f"{show(gate)} is not among the measured sizes ({', '.join(map(show, measured))})"
            breaks, fix = "the floor would have no result to compare with", "write one of them, or leave it out"
            report.add((self, "gate_bytes"), problem, breaks, fix)


# Allowed srun options. Others could move the step to other nodes, change its ranks, or write into its table.
# srun also accepts abbreviations of long options; these are not allowed here.
SRUN_OPTIONS = types.word_set(
    """accel-bind acctg-freq container-env container-mount-home container-mounts container-remap-root
    container-workdir container-writable cores-per-socket cpu-bind cpu-freq cpus-per-task distribution
    extra-node-info gpu-bind gpu-freq hint mem mem-bind mem-per-cpu mem-per-gpu network nice
    no-container-mount-home no-container-remap-root propagate resv-ports sockets-per-node threads-per-core
    unbuffered"""
)
# The measurement sets these itself, and reads the output that they cause.
OWN_VARIABLES = types.word_set("NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE")
_TEXT = r"[^\x00-\x1f\x7f]*"
# The validators of texts; all but that of variables' names accept an empty one.
_one_line = types.must(types.full(_TEXT), "contains a control character")
SrunOption = Annotated[
    str,
    Field(max_length=1000),
    types.must(
        types.full(rf"--[a-z][a-z-]*(={_TEXT})?"), "is not --option or --option=value without control characters"
    ),
    types.must(
        lambda option: option[2:].partition("=")[0] in SRUN_OPTIONS,
        f"is none of the allowed options ({', '.join(sorted(SRUN_OPTIONS))})",
        "the step would get other nodes or ranks, or its table could not be read",
    ),
]


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        types.refuse("is not a name of letters, digits and '_'")
    if name in OWN_VARIABLES:
        types.refuse("is set by the measurement itself", "the transport of the data could not be verified")
    if name.startswith(("SLURM_", "SRUN_", "TAILRACK_")):
        types.refuse("controls the nodes and ranks of the job", "the measurement would run in another place")
    return name


Variable = Annotated[str, AfterValidator(_variable)]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]  # as in COLLECTIVES
NodePath = Annotated[
    str,
    Field(max_length=1000),
    _one_line,
    types.must(types.full(r"((?!.*/\.\.(/|$))/.*)?"), "is no absolute path, or has '..'"),
]
Source = Annotated[
    str,
    Field(max_length=1000),
    _one_line,
    types.must(
        types.full(rf"(https://([^\s/@]+@)?([^\s/:]+|\[[0-9A-Fa-f:.]+\])({types.PORT})?(/\S*)?|/\S*)?"),
        "is neither an https:// URL, with a port from 1 to 65535 or none, nor an absolute path",
    ),
    Help("an https:// URL or a path", "write one, or leave it out", default_text="the pinned release"),
]
Digest = Annotated[
    str,
    types.must(types.full(r"([0-9a-f]{64})?"), "is not a sha256 of 64 hexadecimal digits"),
    Help("a sha256", "write the output of sha256sum", "any program could be built and run"),
]
Image = Annotated[
    str,
    Field(max_length=500),
    _one_line,
    types.must(lambda name: not re.search(r"\s|^-", name), "is not an image's name"),
    AfterValidator(types.enroot_image),
    Help("an image's name", "write a name such as pytorch, or leave it out"),
]


class Nccl(Sizes):
    """The measurement of GPUs with nccl-tests."""

    collective: Collective = "all_reduce"
    """The collective to measure: all_reduce, all_gather, reduce_scatter, alltoall or sendrecv. The config's floors are
    for it."""
    more_collectives: tuple[Collective, ...] = key("a list of collectives", "write [all_gather, alltoall]", default=())
    """Collectives to measure after it in the same job, each with its own table, and a verdict if the table of floors
    knows it."""
    socket_max_bytes: types.Size = parse_size("512M")
    """Largest message when sockets carry the data, mostly between sites."""
    gpus_per_node: types.Whole = key(ge=0, le=1024, default=0)
    """Most GPUs per node that take part; 0: all."""
    gpus_per_process: types.Whole = key(ge=1, le=64, default=1)
    """GPUs that one process drives (nccl-tests' -g). On nodes whose number of GPUs is no multiple of it, it is 1."""
    partition: types.PartitionName | None = key(default_text="`all`", default=None)
    """The partition for the measuring jobs."""
    image: Image = ""
    """Container image with the program, as `srun --container-image` takes it (role enroot_pyxis)."""
    program: NodePath = key("a path such as /srv/nccl-tests/build", "write one, or leave it out", default="")
    """The program's path on every node or in the image; a folder if the program has nccl-tests' own name. Without
    `program` and `image`, it is built once for the share."""
    source: Source = ""
    """Source of nccl-tests: an archive's URL, or its path on the nodes."""
    source_sha256: Digest = ""
    """Sha256 of that archive."""
    exports: dict[Variable, Annotated[str, _one_line]] = key(
        "a mapping of names to texts", "write NAME: 'value'", default={}
    )
    """Environment variables for the measurement, such as NCCL_IB_HCA: mlx5."""
    srun_options: tuple[SrunOption, ...] = key("a list of --option=value", "write ['--cpu-bind=none']", default=())
    """Additional srun options, such as --cpu-bind=none."""

    def check(self, stack: Stack, report: Report) -> None:
        super().check(stack, report)
        names = [self.collective, *self.more_collectives]
        for number, name in enumerate(self.more_collectives):
            if name in names[: number + 1]:
                path = report.at(self, "more_collectives", number)
                report.add(path, f"{name} is measured already", "it would have two results", "remove it")
        if self.gpus_per_node % self.gpus_per_process:
            problem = f"does not divide gpus_per_node ({self.gpus_per_node})"
            fix = "write a divisor, or leave one of them out"
            report.bad((self, "gpus_per_process"), problem, "the last process would have fewer GPUs", fix)
        check_both(self, "source", "source_sha256", "an unknown program could be built and run", report)
        _check_image(self, "the measurement", "remove the image", stack, report)


def _check_image(section: Nccl | Training, runs: str, fix: str, stack: Stack, report: Report) -> None:
    if section.image and stack.share and stack.config.containers is None:
        breaks = f"the cluster has no containers, so {runs} could not run in one"
        fix = f"write a section tailrack:containers, or {fix}"
        report.bad((section, "image"), "without a section containers", breaks, fix)


SHARE, SCRATCH = "share", "scratch"  # targets of every cluster, and of one with tailrack:scratch
_LEAST_BYTES, _MOST_BYTES = 2**20, 2**36
# Shared targets are measured on one node after another, so that a figure is the node's own.
_MOST_SECONDS = 3600

Floor = Annotated[types.Number, Field(gt=0), Help("a number above 0", "write one, or leave it out to get UNJUDGED")]


class StorageFloor(Section):
    """Floors of one target."""

    target: str = key("the name of a target", "write share")
    """The measured storage: `share`, `scratch`, or the path of a mount."""
    sites: types.SiteNames = key(fix="write [rack], or leave it out", default=())
    """Sites whose nodes these floors judge."""
    write_mb_per_s: Floor | None = None
    """Lowest acceptable MB/s of one node that writes a large file."""
    read_mb_per_s: Floor | None = None
    """Lowest acceptable MB/s of one node that reads a large file."""
    files_per_s: Floor | None = None
    """Lowest acceptable number of small files per second on one node."""
    latency_us: Floor | None = None
    """Highest acceptable latency of a random read of 4 KiB, in microseconds."""

    def check(self, stack: Stack, report: Report) -> None:
        check_sites(self, "sites", "the floors would judge no node", stack, report)
        if not self.model_fields_set & FIGURES.keys():
            report.add((self,), "has no floor", "its target would be UNJUDGED", f"write one of {', '.join(FIGURES)}")

    def check_target(self, targets: Collection[str], report: Report) -> None:
        """Report a target that is not measured."""
        breaks = "the floors would judge nothing"
        if self.target == SCRATCH and SCRATCH not in targets:
            problem, fix = "scratch is not measured without tailrack:scratch.folder", "set that folder, or remove it"
            report.add((self, "target"), problem, breaks, fix)
        else:
            check_known(self, "target", targets, "is not a measured target", breaks, report)


class StorageMeasurement(Section):
    """The storage measurement: throughput, latency and small files of the share and of scratch, on each node."""

    nodes: types.NodeNames = key(default_text="those of `validation.nodes`", default=())
    """Nodes to measure; default: all measured nodes."""
    size: types.Size = 2**30
    """Size of the large file that a node writes and reads, at most 64G."""
    seconds: types.Whole = key(ge=2, le=600, default=10)
    """About the time for one target on one node."""
    checkpoint_size: types.Size | None = key(default_text="no checkpoint", default=None)
    """Size of one rank's part of a checkpoint, at most 64G. All ranks save theirs at the same time, with fsync, and
    restore them; a rank is a GPU, or a node without GPUs."""
    floors: tuple[StorageFloor, ...] = key(fix="write [{target: share, read_mb_per_s: 100}], or delete it", default=())
    """Floors by target; without one, a target is UNJUDGED."""

    def check(self, stack: Stack, report: Report) -> None:
        for name in ("size", "checkpoint_size"):
            path, value = report.at(self, name), getattr(self, name)
            if value is not None and not _LEAST_BYTES <= value <= _MOST_BYTES:
                shown = report.value(path, value) if report.hides(path) else format_size(value)
                problem = f"{shown} is not a size from 1 MiB to 64 GiB"
                breaks = "it would measure nothing" if value < _LEAST_BYTES else "writing it would take minutes"
                report.add(path, problem, breaks, "write a size such as 1G")
        shared = [SHARE, *(mount.path for mount in stack.config.storage.mounts)]
        chosen = stack.config.validation.nodes
        listed = chosen.most if isinstance(chosen, types.AnyNodes) else len(chosen)
        count = len(self.nodes) or listed or sum(node.compute for node in stack.nodes)
        if (total := count * len(shared) * self.seconds) > _MOST_SECONDS:
            problem = f"{count} nodes, one after another, would take about {total // 60} minutes"
            breaks = "up would wait for it, and no other job could run on these nodes"
            fix = "list fewer nodes in validation.storage.nodes, or write fewer seconds"
            report.add((self, "seconds" if "seconds" in self.model_fields_set else "nodes"), problem, breaks, fix)
        targets = {*shared, SCRATCH} if stack.config.scratch.folder is not None else {*shared}
        judged: dict[tuple[str, str], str] = {}
        for floor in self.floors:
            floor.check_target(targets, report)
            path = report.at(floor)
            firsts = [judged.setdefault((floor.target, site), path) for site in floor.sites or stack.sites]
            if first := next((first for first in firsts if first != path), ""):
                problem = f"judges {floor.target} at the same sites as {first}"
                report.add(path, problem, "one of the two would have no effect", "remove one, or list other sites")


def floors_at(floors: Sequence[StorageFloor], target: str, site: str) -> dict[str, float]:
    """Return the floors of a target for the nodes of a site, by figure."""
    for floor in floors:
        if floor.target == target and (not floor.sites or site in floor.sites):
            return {name: value for name in FIGURES if (value := getattr(floor, name)) is not None}
    return {}


class Training(Section):
    """The training benchmark: images per second of a small vision model trained on all nodes together."""

    nodes: types.NodeNames = key(default_text="those of `validation.nodes`", default=())
    """Nodes that train together; default: all measured nodes. If some are at another site, their gradients cross
    sites at every step."""
    image: Image = ""
    """Container image with PyTorch, as `srun --container-image` takes it (role enroot_pyxis)."""
    python: Annotated[NodePath, types.must(types.full(r"\S*"), "contains a blank")] = key(
        "a path such as /srv/torch/bin/python",
        "write one, or leave it out",
        default_text="`/usr/bin/python3`; `python3` in an image",
        default="",
    )
    """The Python with PyTorch, on every node or in the image."""
    steps: types.Whole = key(ge=5, le=1000, default=30)
    """Timed steps in each of the three runs."""
    warmup: types.Whole = key(ge=0, le=1000, default=5)
    """Untimed steps before each run."""
    floor_images_per_second: Floor | None = None
    """Lowest acceptable images per second of each GPU, or of each node's CPUs."""
    time_limit_minutes: types.Whole = key(ge=1, le=1440, default=10)
    """Time limit of the job, in minutes."""

    def check(self, stack: Stack, report: Report) -> None:
        fix = "python: PATH of a Python that has PyTorch on every node"
        _check_image(self, "the benchmark", fix, stack, report)


class Validation(Sizes):
    """The bandwidth measurement at the end of every change to the cluster."""

    min_bytes: types.Size = parse_size("64K")
    """Smallest message."""
    max_bytes: types.Size = parse_size("4M")
    """Largest message."""
    iterations: types.Whole = key(ge=1, le=100_000, default=5)
    """Timed runs per size."""
    warmup: types.Whole = key(ge=0, le=100_000, default=1)
    """Warm-up runs per size."""
    ranks_per_node: types.Whole = key(ge=1, le=1024, default=1)
    """Processes per node."""
    time_limit_minutes: types.Whole = key(ge=1, le=1440, default=10)
    """Time limit of each measuring job, in minutes."""
    queue_limit_seconds: types.Whole = key(ge=0, le=604800, default=30)
    """How long a measurement waits for other jobs on its nodes. After that it measures only the new nodes, each with
    a peer, or reports BUSY. Other jobs can start meanwhile."""
    floors_gb_per_s: dict[str, Annotated[types.Number, Field(gt=0)]] = key(
        "a mapping from a site's name or cross-site to GB/s above 0",
        "write a number above 0, or remove the scope to get UNJUDGED",
        default={},
    )
    """Lowest acceptable bus bandwidth in GB/s, by scope: a site's name, `cross-site`, or `node` for each node."""
    floors_from: types.FreeText = ""
    """Source of `floors_gb_per_s`, shown beside them; `make floors` writes it."""
    nodes: types.NodeChoice = ()
    """Nodes to measure: names, a number such as 4 for any four idle nodes of each site and across sites, or `idle` for
    all that run no other job at that time; default: all nodes that run jobs."""
    nccl: Nccl = Nccl()
    """Measurement of GPUs."""
    training: Training | None = None
    """Training benchmark after the bandwidth measurement; `{}` runs it with its defaults."""
    storage: StorageMeasurement | None = None
    """Storage measurement after the other measurements; `{}` runs it with its defaults."""
    rerun: types.FreeText = ""
    """Change this text to measure an unchanged cluster again."""

    @property
    def measured(self) -> Iterator[Validation | Training | StorageMeasurement]:
        """Yield each section that lists nodes to measure."""
        yield from filter(None, (self, self.training, self.storage))

    def check(self, stack: Stack, report: Report) -> None:
        super().check(stack, report)
        scopes = {*stack.sites, types.CROSS_SITE, types.NODE}
        breaks = "the floor would not apply to any measurement"
        check_known(self, "floors_gb_per_s", scopes, "is neither a site nor cross-site", breaks, report)
        computing = {node.name: node for node in stack.nodes if node.compute}
        for section in self.measured:
            problem, breaks = "is not a node that runs jobs", "it would not be measured"
            check_known(section, "nodes", computing, problem, breaks, report)
        keys = sorted(Sizes.model_fields.keys() & self.model_fields_set)
        if keys and computing and all(node.gpu for node in computing.values()):
            text = "has no effect, because all nodes that run jobs have GPUs; write it in validation.nccl"
            report.warn(report.at(self, keys[0]), text)
        for name in sorted({"training", "storage"} & self.model_fields_set if not stack.share else ()):
            breaks, fix = "it runs only on the cluster's own nodes", "move it to the cluster's stack"
            report.add((self, name), "is in a stack of kind pool", breaks, fix)


def sizes_of(section: Validation | Nccl) -> dict[str, Any]:
    """Return the settings that a measurement of CPUs and one of GPUs have."""
    return {name: getattr(section, name) for name in Sizes.model_fields}
