"""The section `validation`: measurements of bandwidth between nodes and GPUs, of storage, and of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
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


LeastSize = Annotated[
    types.Size,
    types.must(lambda size: not size % 4, "is not a multiple of 4, the bytes of a number", fix="write one such as 64K"),
    Field(description="Smallest message."),
]
MostSize = Annotated[types.Size, Field(description="Largest message.")]
Runs = Annotated[types.Whole, Field(ge=1, le=100_000, description="Timed runs per size.")]
WarmUps = Annotated[types.Whole, Field(ge=0, le=100_000, description="Warm-up runs per size.")]
TimeLimit = Annotated[types.Whole, Field(ge=1, le=1440, description="Time limit of each measuring job, in minutes.")]


class Sizes(Section):
    """The sizes of a measurement, with the defaults of one of GPUs."""

    min_bytes: LeastSize = parse_size("8M")
    max_bytes: MostSize = parse_size("8G")
    factor: types.Whole = key(ge=2, le=1024, default=4)
    """Factor from one size to the next."""
    iterations: Runs = 20
    warmup: WarmUps = 5
    gate_bytes: types.Size = key(default_text="the largest measured", default_factory=largest)
    """Message size whose bus bandwidth, of GPUs the median of three runs, is compared with the floor."""

    def check(self, stack: Stack, report: Report) -> None:
        show = partial(report.value, report.at(self), show=format_size)
        if self.min_bytes > self.max_bytes:
            problem = f"min_bytes ({show(self.min_bytes)}) is above max_bytes ({show(self.max_bytes)})"
            blamed = "min_bytes" if "min_bytes" in self.model_fields_set else "max_bytes"
            report.add((self, blamed), problem, "there would be no size to measure", "change one of the two")
        elif self.gate_bytes not in (measured := sizes_between(self.min_bytes, self.max_bytes, self.factor)):
            problem = f"{show(self.gate_bytes)} is not among the measured sizes ({', '.join(map(show, measured))})"
            breaks, fix = "the floor would have no result to compare with", "write one of them, or leave it out"
            report.add((self, "gate_bytes"), problem, breaks, fix)


# Allowed srun options. Others could move the step to other nodes, change its ranks, or write into its table.
# srun also accepts abbreviations of long options; these are not allowed here.
SRUN_OPTIONS = types.word_set(Path(__file__).with_name("srun_options.txt").read_text(encoding="utf-8"))
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

Variable = Annotated[
    str,
    types.must(types.full("[A-Za-z_][A-Za-z0-9_]*"), "is not a name of letters, digits and '_'"),
    types.must(lambda name: name not in OWN_VARIABLES, "is set by the measurement itself"),
    types.must(types.full("(?!SLURM_|SRUN_|TAILRACK_).*"), "controls the nodes and ranks of the job"),
]
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
Image = Annotated[
    str,
    Field(max_length=500, pattern=r"^([^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]*)?$"),
    AfterValidator(types.enroot_image),
    Help("an image's name", "write a name such as pytorch, or leave it out"),
]


class Nccl(Sizes):
    """The measurement of GPUs with nccl-tests."""

    collective: Collective = "all_reduce"
    """The collective to measure, which the config's floors are for."""
    more_collectives: tuple[Collective, ...] = key("a list of collectives", "write [all_gather, alltoall]", default=())
    """Collectives to measure after it in the same job; those in the table of floors get a verdict."""
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
    """The program's path, or its folder, on every node or in the image; default: built once, without `image`."""
    source: Source = ""
    """Source of nccl-tests: an archive's URL, or its path on the nodes."""
    source_sha256: types.Checksum | None = key(fix="write the output of sha256sum", default=None)
    """Sha256 of that archive."""
    exports: dict[Variable, Annotated[str, _one_line]] = key("a mapping", "write NAME: 'value'", default={})
    """Environment variables for the measurement, such as NCCL_IB_HCA: mlx5."""
    srun_options: tuple[SrunOption, ...] = key("a list of --option=value", "write ['--cpu-bind=none']", default=())
    """Additional srun options, such as --cpu-bind=none."""

    def check(self, stack: Stack, report: Report) -> None:
        super().check(stack, report)
        for number, name in enumerate(self.more_collectives):
            if name in (self.collective, *self.more_collectives[:number]):
                path = report.at(self, "more_collectives", number)
                report.add(path, f"{name} is measured already", "it would have two results", "remove it")
        if self.gpus_per_node % self.gpus_per_process:
            problem = f"does not divide gpus_per_node ({self.gpus_per_node})"
            report.bad((self, "gpus_per_process"), problem, "the last process would have fewer", "write a divisor")
        check_both(self, "source", "source_sha256", "an unknown program could be built and run", report)
        _check_image(self, "remove the image", stack, report)


def _check_image(section: Nccl | Training, fix: str, stack: Stack, report: Report) -> None:
    if section.image and stack.share and stack.config.containers is None:
        breaks, fix = "the cluster has no containers to run it in", f"write a section tailrack:containers, or {fix}"
        report.bad((section, "image"), "without a section containers", breaks, fix)


SHARE, SCRATCH = "share", "scratch"  # targets of every cluster, and of one with tailrack:scratch
# Shared targets are measured on one node after another, so that a figure is the node's own.
_MOST_SECONDS = 3600

Floor = Annotated[types.Number, Field(gt=0), Help(fix="write one, or leave it out to get UNJUDGED")]
FileSize = Annotated[types.Size, Field(ge=2**20, le=2**36), Help("a size from 1M to 64G", "write one such as 1G")]


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
        targets, breaks = {SHARE, SCRATCH, *_mounts(stack)}, "the floors would judge nothing"
        check_known(self, "target", targets, "is not a measured target", breaks, report)
        if self.target == SCRATCH and stack.config.scratch.folder is None:
            problem, fix = "scratch is not measured without tailrack:scratch.folder", "set that folder, or remove it"
            report.add((self, "target"), problem, breaks, fix)


def _mounts(stack: Stack) -> list[str]:
    return [mount.path for mount in stack.config.storage.mounts]


class StorageMeasurement(Section):
    """The storage measurement: throughput, latency and small files of the share and of scratch, on each node."""

    nodes: types.NodeNames = key(default_text="those of `validation.nodes`", default=())
    """Nodes to measure; default: all measured nodes."""
    size: FileSize = 2**30
    """Size of the large file that a node writes and reads."""
    seconds: types.Whole = key(ge=2, le=600, default=10)
    """About the time for one target on one node."""
    checkpoint_size: FileSize | None = key(default_text="no checkpoint", default=None)
    """Size of the part of a checkpoint that each rank (a GPU, or a node without) saves and restores, all at once."""
    floors: tuple[StorageFloor, ...] = key(fix="write [{target: share, read_mb_per_s: 100}], or delete it", default=())
    """Floors by target; without one, a target is UNJUDGED."""

    def check(self, stack: Stack, report: Report) -> None:
        chosen = stack.config.validation.nodes
        listed = chosen.most if isinstance(chosen, types.AnyNodes) else len(chosen)
        count = len(self.nodes) or listed or sum(node.compute for node in stack.nodes)
        if (total := count * (1 + len(_mounts(stack))) * self.seconds) > _MOST_SECONDS:
            problem = f"{count} nodes, one after another, would take about {total // 60} minutes"
            breaks, fix = "no other job could run there", "list fewer nodes in `nodes`, or write fewer seconds"
            report.add((self, "seconds" if "seconds" in self.model_fields_set else "nodes"), problem, breaks, fix)
        judged: dict[tuple[str, str], str] = {}
        for floor in self.floors:
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
    """Nodes that train together; default: all measured nodes."""
    image: Image = ""
    """Container image with PyTorch, as `srun --container-image` takes it (role enroot_pyxis)."""
    python: Annotated[NodePath, types.must(types.full(r"\S*"), "contains a blank")] = key(
        "a path such as /srv/torch/bin/python", default_text="`/usr/bin/python3`; `python3` in an image", default=""
    )
    """The Python with PyTorch, on every node or in the image."""
    steps: types.Whole = key(ge=5, le=1000, default=30)
    """Timed steps in each of the three runs."""
    warmup: types.Whole = key(ge=0, le=1000, default=5)
    """Untimed steps before each run."""
    floor_images_per_second: Floor | None = None
    """Lowest acceptable images per second of each GPU, or of each node's CPUs."""
    time_limit_minutes: TimeLimit = 10

    def check(self, stack: Stack, report: Report) -> None:
        _check_image(self, "python: PATH of a Python that has PyTorch on every node", stack, report)


class Validation(Sizes):
    """The bandwidth measurement at the end of every change to the cluster."""

    min_bytes: LeastSize = parse_size("64K")
    max_bytes: MostSize = parse_size("4M")
    iterations: Runs = 5
    warmup: WarmUps = 1
    ranks_per_node: types.Whole = key(ge=1, le=1024, default=1)
    """Processes per node."""
    time_limit_minutes: TimeLimit = 10
    queue_limit_seconds: types.Whole = key(ge=0, le=604800, default=30)
    """Seconds to wait for other jobs on the nodes; after that, only new nodes are measured, each with a peer."""
    floors_gb_per_s: dict[str, Annotated[types.Number, Field(gt=0)]] = key(
        "a mapping from scopes to GB/s above 0", "write one above 0, or remove it to get UNJUDGED", default={}
    )
    """Lowest acceptable bus bandwidth in GB/s, by scope: a site's name, `cross-site`, or `node` for each node."""
    floors_from: types.FreeText = ""
    """Source of `floors_gb_per_s`, shown beside them; `make floors` writes it."""
    nodes: types.NodeChoice = ()
    """Nodes to measure: names, a number of idle ones per site and across sites, or `idle`; default: all with jobs."""
    nccl: Nccl = Nccl()
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
        scopes, problem = {*stack.sites, types.CROSS_SITE, types.NODE}, "is neither a site nor cross-site"
        check_known(self, "floors_gb_per_s", scopes, problem, "the floor would have no effect", report)
        computing, problem = {node.name: node for node in stack.nodes if node.compute}, "is not a node that runs jobs"
        for section in self.measured:
            check_known(section, "nodes", computing, problem, "it would not be measured", report)
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
