"""The measurement of GPUs: the section `validation.nccl`, and the srun options and variables that it allows."""

import re
from typing import Annotated, Protocol
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from components.settings.problems import Report
from components.settings.section import Section, key
from components.settings.types import PartitionName, Size, Whole, enroot_image, refuse, word_set
from components.validation.collectives import COLLECTIVES, format_size, parse_size, sizes_between


def largest(data: dict[str, int]) -> int:
    """Return the largest measured size."""
    if data["min_bytes"] > data["max_bytes"]:
        return data["max_bytes"]  # `check_sizes_of` reports it
    return sizes_between(data["min_bytes"], data["max_bytes"], data["factor"])[-1]


class Sizes(Protocol):
    """A section with message sizes."""

    min_bytes: int
    max_bytes: int
    factor: int
    gate_bytes: int

    @property
    def model_fields_set(self) -> set[str]: ...


def check_sizes_of(section: Sizes, report: Report) -> None:
    """Report sizes that cannot be measured, and a `gate_bytes` that is not measured."""

    def show(path: str, size: int) -> str:
        return report.value(path, size) if report.hides(path) else format_size(size)

    least, most = section.min_bytes, section.max_bytes
    if least % 4:
        path = report.at(section, "min_bytes")
        problem = f"{show(path, least)} is not a multiple of 4 bytes, the size of one number"
        report.add(path, problem, "no collective has a message of that size", "write a multiple of 4, such as 64K")
    if least > most:
        path = report.at(section, "min_bytes" if "min_bytes" in section.model_fields_set else "max_bytes")
        problem = f"min_bytes ({show(path, least)}) is above max_bytes ({show(path, most)})"
        fix = "write a smaller min_bytes or a larger max_bytes"
        report.add(path, problem, "there would be no size to measure", fix)
        return
    measured, path = sizes_between(least, most, section.factor), report.at(section, "gate_bytes")
    if section.gate_bytes not in measured:
        listed = ", ".join(show(path, size) for size in measured)
        problem = f"{show(path, section.gate_bytes)} is not among the measured sizes ({listed})"
        report.add(
            path, problem, "the floor would have no result to compare with", "write one of them, or leave it out"
        )


# Allowed srun options. Others could move the step to other nodes, change its ranks, or write into its table.
# srun also accepts abbreviations of long options; these are not allowed here.
SRUN_OPTIONS = word_set(
    """accel-bind acctg-freq container-env container-mount-home container-mounts container-remap-root
    container-workdir container-writable cores-per-socket cpu-bind cpu-freq cpus-per-task distribution
    extra-node-info gpu-bind gpu-freq hint mem mem-bind mem-per-cpu mem-per-gpu network nice
    no-container-mount-home no-container-remap-root propagate resv-ports sockets-per-node threads-per-core
    unbuffered"""
)
# The measurement sets these itself, and reads the output that they cause.
OWN_VARIABLES = word_set("NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _one_line(value: str) -> str:
    if _CONTROL.search(value):
        refuse("contains a control character")
    return value


def _srun_option(value: str) -> str:
    match = re.fullmatch(r"--([a-z][a-z-]*)(=.*)?", _one_line(value))
    if not match:
        refuse("is not --option or --option=value")
    if match[1] not in SRUN_OPTIONS:
        refuse(
            f"is none of the allowed options ({', '.join(sorted(SRUN_OPTIONS))})",
            "the step would get other nodes or ranks, or its table could not be read",
        )
    return value


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        refuse("is not a name of letters, digits and '_'")
    if value in OWN_VARIABLES:
        refuse("is set by the measurement itself", "the transport of the data could not be verified")
    if value.startswith(("SLURM_", "SRUN_", "TAILRACK_")):
        refuse("controls the nodes and ranks of the job", "the measurement would run in another place")
    return value


def _collective(value: str) -> str:
    if value not in COLLECTIVES:
        refuse(f"is not one of {', '.join(COLLECTIVES)}")
    return value


def check_absolute(value: str) -> str:
    """Return an absolute path on the nodes, or an empty one."""
    if value and (not _one_line(value).startswith("/") or ".." in value.split("/")):
        refuse("is not an absolute path without '..'")
    return value


def _source(value: str) -> str:
    if value and not re.fullmatch(r"https://\S+|/[^\s]*", _one_line(value)):
        refuse("is neither an https:// URL nor an absolute path")
    try:
        _ = urlsplit(value).port
    except ValueError:
        refuse("has a port that is not from 0 to 65535, or another invalid part")
    return value


def _digest(value: str) -> str:
    if value and not re.fullmatch(r"[0-9a-f]{64}", value):
        refuse("is not a sha256 of 64 hexadecimal digits")
    return value


def check_image(value: str) -> str:
    """Return a container image's name in Enroot's form, or an empty one."""
    if re.search(r"\s", _one_line(value)) or value.startswith("-"):
        refuse("is not an image's name")
    return enroot_image(value)


class Nccl(Section):
    """The measurement of GPUs with nccl-tests."""

    collective: Annotated[str, AfterValidator(_collective)] = key(
        wants="a collective's name", fix="write all_reduce", default="all_reduce"
    )
    """The collective to measure: all_reduce, all_gather, reduce_scatter, alltoall or sendrecv."""
    min_bytes: Size = parse_size("8M")
    """Smallest message."""
    max_bytes: Size = parse_size("8G")
    """Largest message."""
    factor: Whole = key(ge=2, le=1024, default=4)
    """Factor from one size to the next."""
    iterations: Whole = key(ge=1, le=100_000, default=20)
    """Timed runs per size."""
    warmup: Whole = key(ge=0, le=100_000, default=5)
    """Warm-up runs per size."""
    gate_bytes: Size = key(default_text="the largest measured", default_factory=largest)
    """Message size whose bus bandwidth, the median of three runs, is compared with the floor."""
    socket_max_bytes: Size = parse_size("512M")
    """Largest message when sockets carry the data, mostly between sites."""
    gpus_per_node: Whole = key(ge=0, le=1024, default=0)
    """Most GPUs per node that take part; 0: all."""
    partition: PartitionName | None = key(default_text="`all`", default=None)
    """The partition for the measuring jobs."""
    image: Annotated[str, Field(max_length=500), AfterValidator(check_image)] = key(
        wants="an image's name", fix="write a name such as nccl-tests, or leave it out", default=""
    )
    """Container image with the program, as `srun --container-image` takes it (role enroot_pyxis)."""
    program: Annotated[str, Field(max_length=1000), AfterValidator(check_absolute)] = key(
        wants="a path such as /srv/nccl-tests/build", fix="write one, or leave it out", default=""
    )
    """The program's path on every node or in the image; a folder if the program has nccl-tests' own name. Without
    `program` and `image`, it is built once for the share."""
    source: Annotated[str, Field(max_length=1000), AfterValidator(_source)] = key(
        wants="an https:// URL or a path",
        fix="write one, or leave it out",
        default_text="the pinned release",
        default="",
    )
    """Source of nccl-tests: an archive's URL, or its path on the nodes."""
    source_sha256: Annotated[str, AfterValidator(_digest)] = key(
        wants="a sha256", breaks="any program could be built and run", fix="write the output of sha256sum", default=""
    )
    """Sha256 of that archive."""
    exports: dict[Annotated[str, AfterValidator(_variable)], Annotated[str, AfterValidator(_one_line)]] = key(
        wants="a mapping from a variable's name to a text", fix="write NAME: 'value'", default={}
    )
    """Environment variables for the measurement, such as NCCL_IB_HCA: mlx5."""
    srun_options: tuple[Annotated[str, Field(max_length=1000), AfterValidator(_srun_option)], ...] = key(
        wants="a list of --option=value", fix="write ['--cpu-bind=none']", default=()
    )
    """Additional srun options, such as --cpu-bind=none."""


def check_nccl(nccl: Nccl, report: Report) -> None:
    """Report sizes that cannot be measured, and a source without a checksum."""
    check_sizes_of(nccl, report)
    if bool(nccl.source) != bool(nccl.source_sha256):
        name, partner = ("source", "source_sha256") if nccl.source else ("source_sha256", "source")
        breaks, fix = "an unknown program could be built and run", f"write {partner} too"
        report.add(report.at(nccl, name), f"is set without {partner}", breaks, fix)
