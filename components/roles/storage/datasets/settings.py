"""The sections `datasets` and `staging`: data sets that nodes keep on their own disks, and limits of copying them."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.problems import Report, Stack
from components.settings.rules import Kinds, check_both, check_kinds, check_local, check_sites
from components.settings.section import Help, Section, key
from components.settings.types import FOLDER, HOST_PORT, AccessKey, LocalFolder, OneLine, SiteNames, Whole, refuse

_PART = r"[A-Za-z0-9_=+@%-][A-Za-z0-9._=+@%-]*"
S3 = re.compile(rf"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{{1,62}})(?P<folder>(/{_PART})*)")
HTTPS = re.compile(rf"(?P<site>https://{HOST_PORT})(?P<folder>(/{_PART})*)/(?P<file>{_PART})?")
# As in huggingface_hub; a branch or a tag would change what a job reads.
_REPOSITORY = r"(datasets/)?[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
HUB = re.compile(rf"hf://(?P<repository>{_REPOSITORY})@(?P<commit>[0-9a-f]{{40}})(?P<folder>(/{_PART})*)")
_LONGEST = 300
# The sources that a key is for.
_OF_S3: Kinds = dict.fromkeys(("region", "access_key", "secret_key"), ("s3://...",))
_KINDS: Kinds = {**_OF_S3, "token": ("hf://...",), "endpoint": ("s3://...", "hf://...")}


def _source(value: str) -> str:
    if value.startswith(("s3://", "hf://")):
        value = value.rstrip("/")
    if value.startswith("hf://") and not HUB.fullmatch(value):
        fix = "write hf://datasets/OWNER/NAME@COMMIT with the 40 digits of a commit (Files and versions, History)"
        refuse("is not a commit of a repository on Hugging Face", "its files could change, or do not exist", fix)
    if not any(pattern.fullmatch(value) for pattern in (S3, HTTPS, HUB, re.compile(FOLDER))):
        refuse("is neither s3://BUCKET/FOLDER nor https://HOST/FILE nor a folder of the share, in plain characters")
    return value


Endpoint = Annotated[
    str,
    Field(max_length=_LONGEST, pattern=rf"^https://{HOST_PORT}/*$"),
    AfterValidator(lambda address: address.rstrip("/")),
    Help("https://HOST or https://HOST:PORT", "write it as your provider of the bucket shows it"),
]


class Dataset(Section):
    """A data set that nodes copy to their own disks."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$")] = key(
        "a name of lowercase letters, digits and hyphens", "write a name such as imagenet"
    )
    """The data set's name: jobs find it as FOLDER/NAME on nodes with the feature `data-NAME`."""
    source: Annotated[str, Field(max_length=_LONGEST), AfterValidator(_source)] = key(
        "an s3://, https:// or hf:// address, or a path on the share", "write one such as s3://my-bucket/imagenet"
    )
    """`s3://BUCKET[/FOLDER]`, a file `https://HOST/FILE`, a web server's list of files `https://HOST/FOLDER/`, a folder
    on the share, or `hf://datasets/OWNER/NAME@COMMIT[/FOLDER]` (without `datasets/`, a model)."""
    sites: SiteNames | None = None
    """Sites whose nodes keep a copy; default: all."""
    folder: LocalFolder = "/data"
    """Folder on a local disk of each node. The data set is its subfolder NAME, read-only."""
    max_gb: Whole | None = key(ge=1, le=10**6, default=None)
    """A larger source is not copied, in GB (1,000,000,000 bytes); default: no limit."""
    endpoint: Endpoint | None = None
    """S3 and Hugging Face only: the address of the server; default: AWS, or https://huggingface.co."""
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")] | None = key("a region's name", default=None)
    """S3 only: the region of the bucket."""
    access_key: AccessKey | None = None
    """S3 only: the id of an access key that may read the bucket; default: a public bucket, without a log-in."""
    secret_key: OneLine | None = None
    """S3 only: the secret of the access key."""
    token: OneLine | None = None
    """Hugging Face only: a token that may read the repository; default: a public one, without a log-in."""
    wait: bool = False
    """Let `up` wait until each of the nodes has its copy; otherwise copying goes on after `up`."""

    def check(self, stack: Stack, report: Report) -> None:
        check_sites(self, "sites", "no node there would get a copy", stack, report)
        check_local(self, "folder", "jobs would read it over the network", stack, report)
        kind, share = kind_of(self.source), stack.share
        place = "/FOLDER" if kind == "share" else f"{kind}://..."
        check_kinds(self, place, _KINDS, "it would have no effect", report, "source")
        if kind == "s3":
            check_both(self, "access_key", "secret_key", "the server would reject the log-in", report)
        if kind == "share" and share and not any(self.source != place and below(self.source, place) for place in share):
            problem, breaks = f"is not a folder in the share ({', '.join(share)})", "the head node could not serve it"
            report.bad((self, "source"), problem, breaks, "copy it to a folder there and write that one")


class Staging(Section):
    """Limits of copying data sets to nodes."""

    rate_mb_per_s: Whole | None = key(ge=1, le=100_000, default=None)
    """The most that a node receives for data sets, in MB (1,000,000 bytes) per second; default: no limit."""
    reserve_gb: Whole = key(ge=1, le=10**6, default=10)
    """Room that data sets leave free on a disk, in GB (1,000,000,000 bytes)."""
    check_minutes: Whole = key(ge=1, le=10080, default=60)
    """Minutes after which the head node looks for changes."""


def kind_of(source: str) -> str:
    """Return `s3`, `https`, `hf` or `share`."""
    return "share" if source.startswith("/") else source.partition(":")[0]


def below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or in it."""
    return PurePosixPath(path).is_relative_to(folder)
