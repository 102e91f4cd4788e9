"""The section `containers`, its value types, and checks of it."""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from components.settings import types
from components.settings.problems import Report, Stack, shown
from components.settings.rules import check_local, check_sites, check_unique
from components.settings.section import Section, key

# The releases to install. The checksums are not here, because no second source could confirm those of upstream's
# releases. They come from the config or from the user's own folder.
ENROOT = "4.1.2"
PYXIS = "0.24.0"
UPSTREAM = "https://github.com/NVIDIA"

_PYXIS_SOURCE = f"v{PYXIS}.tar.gz"
# The second package of each pair gives two of Enroot's programs the capabilities that users need to import images.
_PACKAGES = {
    architecture: (f"enroot_{ENROOT}-1_{architecture}.deb", f"enroot+caps_{ENROOT}-1_{architecture}.deb")
    for architecture in ("amd64", "arm64")
}
# By upstream's names: Enroot's packages, and Pyxis as source; Enroot's packages for arm64 machines, such as GH200.
FILES, FILES_ARM = (*_PACKAGES["amd64"], _PYXIS_SOURCE), _PACKAGES["arm64"]
SUMS = "SHA256SUMS"  # the file with checksums in a user's own folder, in the format of sha256sum
MOST_BYTES = 1_000_000  # of a file: files from a folder are sent with the head node's step
# An environment variable: the folder that replaces upstream if the config has no `artifacts`.
ARTIFACTS_VARIABLE = "TAILRACK_ARTIFACTS"

# User names that Enroot accepts, without characters that a shell or a netrc file would interpret.
_USER = r"[A-Za-z0-9$][A-Za-z0-9._~+-]{0,127}"
_NO_IMAGE = "the image could not be fetched"
_IMAGE = r"[a-z0-9][A-Za-z0-9._/-]{0,254}((:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|(@sha256:[0-9a-f]{64}))?"
_SOURCE = re.compile(rf"(?:(?:(?P<user>{_USER})@)?(?P<host>{types.HOST_PORT})#)?{_IMAGE}")
FileName = Annotated[str, types.must({*FILES, *FILES_ARM}.__contains__, "is not one of the installed files")]


def url_of(base: str, file: str) -> str:
    """Return a file's address: at upstream's own places, or directly below another base address."""
    path = "pyxis/archive/refs/tags/" if file == _PYXIS_SOURCE else f"enroot/releases/download/v{ENROOT}/"
    return f"{base}/{path if base == UPSTREAM else ''}{file}"


def required_files(names: Collection[str]) -> tuple[str, ...]:
    """Return all files to install: both packages of each architecture in `names`, and Pyxis."""
    packages = [pair for pair in _PACKAGES.values() if not {*pair}.isdisjoint(names)]
    return (*(file for pair in packages or [_PACKAGES["amd64"]] for file in pair), _PYXIS_SOURCE)


def sums_of(folder: Path) -> Mapping[str, str]:
    """Return the checksums in a folder's SHA256SUMS, by file name.

    Raises ValueError with the problem if a file is missing, too large, or does not match the list.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        raise ValueError(f"has no readable {SUMS}") from None
    sums = {match[2]: match[1] for line in lines if (match := re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)", line))}
    for file in required_files(sums):
        if file not in sums:
            raise ValueError(f"has a {SUMS} without {file}")
        try:
            content = (folder / file).read_bytes()
        except OSError:
            raise ValueError(f"has no readable {file}") from None
        if len(content) > MOST_BYTES:
            raise ValueError(f"has a {file} of more than {MOST_BYTES} bytes")
        if hashlib.sha256(content).hexdigest() != sums[file]:
            raise ValueError(f"has a {file} that does not match its {SUMS}")
    return {file: sums[file] for file in required_files(sums)}


def _artifacts(value: object, info: ValidationInfo) -> object:
    """Return an address without its last slash, or the absolute path of a valid folder of this machine."""
    context = info.context or {}
    if value == "" and context.get("exported"):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("not text")
    if re.fullmatch(rf"https://[A-Za-z0-9.-]+({types.PORT})?(/[A-Za-z0-9._~/-]*)?", value) and len(value) <= 300:
        return value.rstrip("/")
    if "://" in value:
        types.refuse("is not an https:// address of plain characters")
    try:
        folder = (context.get("base_dir", Path()) / Path(value).expanduser()).absolute()
        sums_of(folder)
    except ValueError as problem:
        types.refuse(f"(that is {shown(folder)}) {problem}")
    except (OSError, RuntimeError) as error:  # RuntimeError: ~name of an unknown user
        types.refuse(f"cannot be read ({type(error).__name__})")
    return str(folder)


# A path stays as it is; an image gets Enroot's spelling.
Source = Annotated[
    str,
    Field(max_length=700),
    types.must(
        types.full(rf"(?s)(?!/|.*\.sqsh$).*|{types.FOLDER}\.sqsh"),
        "is not the absolute path of a .sqsh file in plain letters, digits, '.', '_' and '-'",
    ),
    types.must(
        lambda source: "://" not in source, "has a scheme, which srun rejects", fix="remove the part to its ://"
    ),
    AfterValidator(types.enroot_image),
    types.must(
        lambda source: source[:1] == "/" or (_SOURCE.fullmatch(source) and ".." not in source), "is not an image"
    ),
]


class Registry(Section):
    """A log-in at an image registry."""

    host: str = key("a host name, with a port if needed", "write one such as nvcr.io", pattern=rf"^{types.HOST_PORT}$")
    """The registry, as in an image's source."""
    user: str = key("a user name of plain characters", "write one such as $oauthtoken", pattern=rf"^{_USER}$")
    """The account there, as in the image's source."""
    password: Annotated[
        types.OneLine,
        types.must(types.full("[^$].*"), "starts with '$', which Enroot would run as a command", _NO_IMAGE),
    ]
    """Its password or token."""


class Image(Section):
    """An image that is imported once and copied to the nodes before jobs need it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")] = key(
        "a name of at most 63 lowercase letters, digits, '-' and '_'", "write a name such as pytorch"
    )
    """The image's name for jobs: `srun --container-image=NAME`."""
    source: Source = key(fix="write one such as nvcr.io#nvidia/pytorch:25.08-py3, or the path of a .sqsh file")
    """[USER@][REGISTRY#]IMAGE[:TAG], Docker's REGISTRY/IMAGE, or the path of a .sqsh file on the head node."""
    where: types.SiteNames | None = None
    """Sites whose nodes store the image locally; default: all. With an empty list, jobs read it from the share."""


class Containers(Section):
    """Containers for jobs, with Enroot and Pyxis; without this section there are none."""

    artifacts: Annotated[str, BeforeValidator(_artifacts)] = key(
        "an https:// address, or a folder with the files and their SHA256SUMS",
        "write one of the two, or leave it out",
        default_text="upstream's releases",
        default_factory=lambda: (
            str(Path(os.environ[ARTIFACTS_VARIABLE]).absolute()) if os.environ.get(ARTIFACTS_VARIABLE) else UPSTREAM
        ),
    )
    """An https:// address with the packages of Enroot and Pyxis side by side (for arm64 machines, Enroot's for arm64),
    or a folder of this machine with them and their SHA256SUMS. Default: TAILRACK_ARTIFACTS, or upstream."""
    checksums: dict[FileName, types.Checksum] = key(
        "a mapping from a file's name to its sha256 in 64 lowercase digits",
        f"copy those of {' and '.join(FILES)} from the release's page, and for arm64 of {' and '.join(FILES_ARM)}",
        "root would run unverified files",
        default={},
    )
    """Sha256 by file name; required for files from an address, and compared with a folder's SHA256SUMS."""
    local: types.LocalFolder = "/var/lib/enroot"
    """Folder on a local disk of each node, for copies of images and users' named containers."""
    imported_gb: types.Whole = key(ge=1, le=100_000, default=100)
    """Limit in GB for images that jobs import on a node; the longest unused ones make room, also on a full disk."""
    nvidia_libraries: bool = True
    """Give containers the driver's libraries (libnvidia-container). With false, images must have them."""
    registries: tuple[Registry, ...] = key(
        "a list of log-ins", "write [{host: nvcr.io, user: $oauthtoken}] and set each password", default=()
    )
    """Log-ins at registries, for `images`."""
    images: tuple[Image, ...] = key(fix='write [{name: torch, source: "nvcr.io#nvidia/pytorch:25.08-py3"}]', default=())
    """Images to import once and copy to the nodes before jobs need them."""

    def for_export(self) -> Self:
        """Return it with an empty text for a local folder: nodes get its files, with checksums, from the head node."""
        base = self.artifacts if self.artifacts.startswith("https://") else ""
        return self.model_copy(update={"artifacts": base, "checksums": dict(sums(self))})

    def check(self, stack: Stack, report: Report) -> None:
        self._check_checksums(report)
        check_local(self, "local", "a container would start over the network", stack, report)
        logins = {(registry.host, registry.user) for registry in self.registries}
        check_unique(self.images, "name", "is the name of two images", "a job could get either image", report)
        for image in self.images:
            match = _SOURCE.fullmatch(image.source)
            if match and match["user"] and (match["host"], match["user"]) not in logins:
                problem = f"names a user of {match['host']} without a log-in"
                report.bad((image, "source"), problem, "the registry would reject it", "write it in registries")
            check_sites(image, "where", "no node would store the image", stack, report)

    def _check_checksums(self, report: Report) -> None:
        folder_sums: Mapping[str, str] = {}
        if not self.artifacts.startswith("https://"):
            try:
                folder_sums = sums_of(Path(self.artifacts))
            except (OSError, ValueError) as error:
                problem = f"{shown(self.artifacts)}, the folder of {ARTIFACTS_VARIABLE}, {error}"
                report.add((self, "artifacts"), problem, "the nodes could not install it", "use a complete folder")
                return
        known = {**folder_sums, **self.checksums}
        if missing := [file for file in required_files(known) if file not in known]:
            fix = "write the sha256 of each from its release's page, or set artifacts to a folder that has them"
            problem = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            report.add((self, "checksums"), problem, "root would run an unverified file", fix)
        for file in (file for file, found in folder_sums.items() if known[file] != found):
            problem = f"the checksum of {file} differs from the one in the folder's SHA256SUMS"
            report.add((self, "checksums"), problem, "one is for another file", "compare both with upstream's")


def sums(containers: Containers) -> Mapping[str, str]:
    """Return the checksum of each installed file."""
    files = required_files(containers.checksums)
    if all(file in containers.checksums for file in files):
        return {file: containers.checksums[file] for file in files}
    return sums_of(Path(containers.artifacts))
