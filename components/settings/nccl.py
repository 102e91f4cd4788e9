"""The measurement of GPUs: the section `validation.nccl`, and the srun options and variables that it allows."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from components.settings import sizes
from components.settings.problems import Report
from components.settings.section import Section, key, number, size
from components.settings.types import PartitionName, Size, Whole, enroot_image, refuse, word_set
from components.validation.collectives import COLLECTIVES, parse_size

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
        "the collective to measure: all_reduce, all_gather, reduce_scatter, alltoall or sendrecv",
        wants="a collective's name",
        breaks="nothing would be measured",
        fix="write all_reduce",
        default="all_reduce",
    )
    min_bytes: Size = sizes.smallest_key("8M")
    max_bytes: Size = sizes.largest_key("8G")
    factor: Whole = sizes.factor_key()
    iterations: Whole = sizes.iterations_key(20)
    warmup: Whole = sizes.warmup_key(5)
    gate_bytes: Size = sizes.judged_key(
        "message size whose bus bandwidth, the median of three runs, is compared with the floor"
    )
    socket_max_bytes: Size = size(
        "largest message when sockets carry the data, mostly between sites",
        breaks="a measurement over a slow network would take an hour",
        default=parse_size("512M"),
    )
    gpus_per_node: Whole = number(
        "most GPUs per node that take part; 0: all", 0, 1024, breaks="nothing would be measured", default=0
    )
    partition: PartitionName | None = key(
        "the partition for the measuring jobs",
        wants="a partition's name",
        breaks="Slurm would reject the jobs",
        fix="leave it out, or write one of the cluster's",
        default_text="`all`",
        default=None,
    )
    image: Annotated[str, Field(max_length=500), AfterValidator(check_image)] = key(
        "container image with the program, as `srun --container-image` takes it (role enroot_pyxis)",
        wants="an image's name",
        breaks="the measurement could not run",
        fix="write a name such as nccl-tests, or leave it out",
        default="",
    )
    program: Annotated[str, Field(max_length=1000), AfterValidator(check_absolute)] = key(
        "the program's path on every node or in the image; a folder if the program has nccl-tests' own name. Without "
        "`program` and `image`, it is built once for the share",
        wants="a path such as /srv/nccl-tests/build",
        breaks="the measurement could not run",
        fix="write one, or leave it out",
        default="",
    )
    source: Annotated[str, Field(max_length=1000), AfterValidator(_source)] = key(
        "source of nccl-tests: an archive's URL, or its path on the nodes",
        wants="an https:// URL or a path",
        breaks="the program could not be built",
        fix="write one, or leave it out",
        default_text="the pinned release",
        default="",
    )
    source_sha256: Annotated[str, AfterValidator(_digest)] = key(
        "sha256 of that archive",
        wants="a sha256",
        breaks="any program could be built and run",
        fix="write the output of sha256sum",
        default="",
    )
    exports: dict[Annotated[str, AfterValidator(_variable)], Annotated[str, AfterValidator(_one_line)]] = key(
        "environment variables for the measurement, such as NCCL_IB_HCA: mlx5",
        wants="a mapping from a variable's name to a text",
        breaks="the program would not see them",
        fix="write NAME: 'value'",
        default={},
    )
    srun_options: tuple[Annotated[str, Field(max_length=1000), AfterValidator(_srun_option)], ...] = key(
        "additional srun options, such as --cpu-bind=none",
        wants="a list of --option=value",
        breaks="srun would run with other options",
        fix="write ['--cpu-bind=none']",
        default=(),
    )


def check_nccl(nccl: Nccl, report: Report) -> None:
    """Report sizes that cannot be measured, and a source without a checksum."""
    sizes.check_sizes_of(nccl, report)
    if bool(nccl.source) != bool(nccl.source_sha256):
        name, partner = ("source", "source_sha256") if nccl.source else ("source_sha256", "source")
        breaks, fix = "an unknown program could be built and run", f"write {partner} too"
        report.add(report.at(nccl, name), f"is set without {partner}", breaks, fix)
