"""The measurement of GPUs: the section `validation.nccl`, and what must not be said to srun."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from components.settings import sizes
from components.settings.draft import Draft
from components.settings.image_name import enroot_image
from components.settings.problems import Report
from components.settings.section import Section, key, number, size
from components.settings.types import PartitionName, Size, Whole, refuse, words
from components.validation.collectives import COLLECTIVES
from components.validation.sizes import parse_size

# What srun may be told besides. Anything else could take the step to other nodes, give it other ranks, or write into
# its table; abbreviations of long options, which srun takes too, are not told apart from others here.
SRUN_OPTIONS = words(
    """accel-bind acctg-freq container-env container-mount-home container-mounts container-remap-root
    container-workdir container-writable cores-per-socket cpu-bind cpu-freq cpus-per-task distribution
    extra-node-info gpu-bind gpu-freq hint mem mem-bind mem-per-cpu mem-per-gpu network nice
    no-container-mount-home no-container-remap-root propagate resv-ports sockets-per-node threads-per-core
    unbuffered"""
)
# The measurement sets these itself, and reads what they make NCCL say.
OWN_VARIABLES = words("NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _one_line(value: str) -> str:
    if _CONTROL.search(value):
        refuse("has a control character in it")
    return value


def _srun_option(value: str) -> str:
    found = re.fullmatch(r"--([a-z][a-z-]*)(=.*)?", _one_line(value))
    if not found:
        refuse("is not --option or --option=value")
    if found[1] not in SRUN_OPTIONS:
        refuse(
            f"is none of the options that leave the measurement what it is ({', '.join(sorted(SRUN_OPTIONS))})",
            "the step would get other nodes or ranks, or its table could not be read",
        )
    return value


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        refuse("is not a name of letters, digits and '_'")
    if value in OWN_VARIABLES:
        refuse("is set by the measurement itself", "what carried the data could not be proven")
    if value.startswith(("SLURM_", "SRUN_", "TAILRACK_")):
        refuse("tells the job or srun what it runs where", "the step would be another one than was asked for")
    return value


def _collective(value: str) -> str:
    if value not in COLLECTIVES:
        refuse(f"is none of {', '.join(COLLECTIVES)}")
    return value


def check_absolute(value: str) -> str:
    """A path on the nodes, or nothing."""
    if value and (not _one_line(value).startswith("/") or ".." in value.split("/")):
        refuse("is not a path from / on without '..'")
    return value


def _source(value: str) -> str:
    if value and not re.fullmatch(r"https://\S+|/[^\s]*", _one_line(value)):
        refuse("is neither https:// nor a path from / on")
    try:
        _ = urlsplit(value).port
    except ValueError:
        refuse("has a port that is not from 0 to 65535, or another part that no address has")
    return value


def _digest(value: str) -> str:
    if value and not re.fullmatch(r"[0-9a-f]{64}", value):
        refuse("is not a sha256 of 64 hexadecimal digits")
    return value


def check_image(value: str) -> str:
    """A container image's name, or nothing."""
    if re.search(r"\s", _one_line(value)) or value.startswith("-"):
        refuse("is not an image's name")
    return enroot_image(value)


class Nccl(Section):
    """The measurement between GPUs, by nccl-tests."""

    collective: Annotated[str, AfterValidator(_collective)] = key(
        "what is measured: all_reduce, all_gather, reduce_scatter, alltoall or sendrecv",
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
        "the size whose bus bandwidth is held against the floor, in the middle of three runs"
    )
    socket_max_bytes: Size = size(
        "the largest message where sockets carry the data, between sites above all",
        breaks="a measurement over a slow network would take an hour",
        default=parse_size("512M"),
    )
    gpus_per_node: Whole = number(
        "GPUs of a node that take part at most; 0: all", 0, 1024, breaks="nothing would measure", default=0
    )
    partition: PartitionName | None = key(
        "the partition that the jobs are submitted to",
        wants="a partition's name",
        breaks="Slurm would refuse the jobs",
        fix="leave it out, or write one of the cluster's",
        otherwise="`all`",
        default=None,
    )
    image: Annotated[str, Field(max_length=500), AfterValidator(check_image)] = key(
        "the container image that has the program, as `srun --container-image` takes it (role enroot_pyxis)",
        wants="an image's name",
        breaks="nothing could be run",
        fix="write a name such as nccl-tests, or leave it out",
        default="",
    )
    program: Annotated[str, Field(max_length=1000), AfterValidator(check_absolute)] = key(
        "the program's path on every node, or in the image; a folder where it has nccl-tests' own name. Left out "
        "without an image: it is built once for the share",
        wants="a path such as /srv/nccl-tests/build",
        breaks="nothing could be run",
        fix="write one, or leave it out",
        default="",
    )
    source: Annotated[str, Field(max_length=1000), AfterValidator(_source)] = key(
        "where the source of nccl-tests is built from: an archive's URL, or its path on the nodes",
        wants="an https:// URL or a path",
        breaks="nothing could be built",
        fix="write one, or leave it out",
        otherwise="the pinned release",
        default="",
    )
    source_sha256: Annotated[str, AfterValidator(_digest)] = key(
        "sha256 of that archive",
        wants="a sha256",
        breaks="anything could be built and run",
        fix="write what sha256sum prints",
        default="",
    )
    exports: dict[Annotated[str, AfterValidator(_variable)], Annotated[str, AfterValidator(_one_line)]] = key(
        "environment variables of the measurement, such as NCCL_IB_HCA: mlx5",
        wants="a mapping from a variable's name to a text",
        breaks="the program would not see them",
        fix="write NAME: 'value'",
        default={},
    )
    srun_options: tuple[Annotated[str, Field(max_length=1000), AfterValidator(_srun_option)], ...] = key(
        "options of srun besides, such as --cpu-bind=none",
        wants="a list of --option=value",
        breaks="srun would be told something else",
        fix="write ['--cpu-bind=none']",
        default=(),
    )


def check_nccl(nccl: Draft, report: Report) -> None:
    """Report sizes that cannot be measured, and a source that nobody vouches for."""
    sizes.check_sizes_of(nccl, report)
    for one, other in (("source", "source_sha256"), ("source_sha256", "source")):
        if nccl.text(one) and not nccl.text(other):
            what = f"is there without {other}"
            report.add(nccl.at(one), what, "nobody could tell what is built and run", f"write {other} as well")
