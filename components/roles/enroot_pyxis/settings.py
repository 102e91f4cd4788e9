"""Containers for jobs: the section `containers`, its kinds of value, and what must hold between them."""

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo

from components.roles.enroot_pyxis.settings_pins import FILES, FILES_ARM, UPSTREAM, sums_of, wanted
from components.settings.draft import Draft, check_hidden, meant
from components.settings.image_name import enroot_image
from components.settings.local_folder import PLACES, LocalFolder
from components.settings.problems import Report, below, shown
from components.settings.section import Section, key, named, yes_no
from components.settings.types import Checksum, refuse

ARTIFACTS_VARIABLE = "TAILRACK_ARTIFACTS"
"""Of the environment: the folder that takes upstream's place where the config names none."""

_PORT = r":([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST = rf"[A-Za-z0-9]([A-Za-z0-9.-]{{0,251}}[A-Za-z0-9])?({_PORT})?"
# What Enroot takes for a user, less what a shell or a netrc file would read otherwise.
_USER = r"[A-Za-z0-9$][A-Za-z0-9._~+-]{0,127}"
_IMAGE = r"[a-z0-9][A-Za-z0-9._/-]{0,254}((:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|(@sha256:[0-9a-f]{64}))?"
_SOURCE = re.compile(rf"(?:(?:(?P<user>{_USER})@)?(?P<host>{_HOST})#)?{_IMAGE}")
_COMMAND = "pulumi config set --path --secret tailrack:containers.registries[0].password"


def _artifacts(value: object, info: ValidationInfo) -> object:
    """An address without its last slash, or the absolute path of a folder of this machine that holds together."""
    if not isinstance(value, str) or not value:
        raise ValueError("not text")
    if re.fullmatch(rf"https://[A-Za-z0-9.-]+({_PORT})?(/[A-Za-z0-9._~/-]*)?", value) and len(value) <= 300:
        return value.rstrip("/")
    if "://" in value:
        refuse("is not an https:// address of plain characters")
    try:
        folder = ((info.context or {}).get("base_dir", Path()) / Path(value).expanduser()).absolute()
        sums_of(folder)
    except ValueError as problem:
        refuse(f"(that is {shown(folder)}) {problem}")
    except (OSError, RuntimeError) as error:  # RuntimeError: ~name of nobody known
        refuse(f"cannot be read ({type(error).__name__})")
    return str(folder)


def _from_environment(_before: Mapping[str, Any]) -> str:
    folder = os.environ.get(ARTIFACTS_VARIABLE)
    return str(Path(folder).absolute()) if folder else UPSTREAM


def _checksum_files(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if name not in (*FILES, *FILES_ARM):
            refuse(
                f"has {shown(name)}, which is no file that is installed",
                None,
                f"write those of {' and '.join(FILES)}, and for arm64 of {' and '.join(FILES_ARM)}",
            )
    return value


def _source(value: str) -> str:
    if value.startswith("/"):
        if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+\.sqsh", value):
            refuse("is not the absolute path of a .sqsh file in plain letters, digits, '.', '_' and '-'")
        return value
    if "://" in value:
        refuse(
            "has a scheme, which --container-image does not want either",
            None,
            f"leave out {shown(value.split('//')[0] + '//')}",
        )
    value = enroot_image(value)
    if not _SOURCE.fullmatch(value) or ".." in value:
        raise ValueError("not an image")
    return value


def _password(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text or not text.isprintable() or not text.isascii() or " " in text or len(text) > 4096:
        refuse("is empty, or has blanks, line breaks or other than plain characters in it")
    if text.startswith("$"):
        refuse("starts with '$', which Enroot would run as a command", "the image could not be fetched")
    return value


class Registry(Section):
    """A log-in at a registry of images."""

    host: str = key(
        "the registry, as in an image's source",
        wants="a host name, with a port if it has one",
        breaks="no image could be fetched there",
        fix="write one such as nvcr.io",
        pattern=rf"^{_HOST}$",
    )
    user: str = key(
        "the account there, which the image's source names too",
        wants="a user name of plain characters",
        breaks="no image could be fetched with it",
        fix="write one such as $oauthtoken",
        pattern=rf"^{_USER}$",
    )
    password: Annotated[SecretStr, AfterValidator(_password)] = key(
        f"its password or token; a Pulumi secret (`{_COMMAND}`)",
        wants="a password on one line",
        breaks="the registry would let nobody in",
        fix=f"run: {_COMMAND}",
        secret=True,
    )


class Image(Section):
    """An image that is imported once, and at the nodes before the jobs are."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")] = named(
        "what jobs call it: `srun --container-image=NAME`",
        breaks="no job could ask for it",
        fix="write a name such as pytorch",
    )
    source: Annotated[str, AfterValidator(_source)] = key(
        "where it comes from: [USER@][REGISTRY#]IMAGE[:TAG], as --container-image takes it or as "
        "Docker does (REGISTRY/IMAGE), or the path of a .sqsh file on the head node",
        wants="an image such as nvcr.io#nvidia/pytorch:25.08-py3, or the path of a .sqsh file on the head node",
        breaks="nothing could be imported",
        fix="write one of the two",
        max_length=700,
    )
    where: tuple[str, ...] | None = key(
        "sites whose nodes keep it on a disk of their own; left out, all; an empty list, none: jobs read it from the "
        "share",
        wants="a list of site names",
        breaks="jobs there would read it over the network",
        fix="write sites' names, or leave it out",
        otherwise="all sites",
        default=None,
    )


class Containers(Section):
    """Containers for jobs, by Enroot and Pyxis. A stack without this section has none."""

    artifacts: Annotated[str, BeforeValidator(_artifacts)] = key(
        f"where Enroot and Pyxis come from: an https:// address with {' and '.join(FILES)} side by side (for machines "
        "of arm64, Enroot's packages for that with them, or in the place of the first two), or a folder "
        f"of this machine with these and their SHA256SUMS; left out, the folder of the environment's "
        f"{ARTIFACTS_VARIABLE}, or upstream's releases",
        wants="an https:// address, or a folder with the files and their SHA256SUMS",
        breaks="the nodes could not install them",
        fix="write one of the two, or leave it out",
        otherwise="upstream's releases",
        default_factory=_from_environment,
    )
    checksums: Annotated[dict[str, Checksum], AfterValidator(_checksum_files)] = key(
        "sha256 by file name; needed for files from an address, and held against a folder's own list",
        wants="a mapping from a file's name to its sha256 in 64 lowercase digits",
        breaks="whatever comes from there would be run as root",
        fix=f"write the checksums that you have compared with the release's page, of {' and '.join(FILES)}",
        default={},
    )
    local: LocalFolder = key(
        "folder on a disk of each node's own: staged images, and users' named containers",
        wants="an absolute path",
        breaks="there would be no room for containers",
        fix=f"write /var/lib/enroot, {PLACES}",
        default="/var/lib/enroot",
    )
    nvidia_libraries: bool = yes_no(
        "on nodes with GPUs, give containers the driver's libraries (libnvidia-container); false: images bring "
        "or mount them",
        True,
    )
    registries: tuple[Registry, ...] = key(
        "log-ins at registries, for `images`",
        wants="a list of log-ins",
        breaks="images that are not for everybody could not be fetched",
        fix="write [{host: nvcr.io, user: $oauthtoken}] and set each password",
        default=(),
    )
    images: tuple[Image, ...] = key(
        "images that are imported once and brought to the nodes ahead of jobs",
        wants="a list of images",
        breaks="none would be there before the first job",
        fix='write [{name: pytorch, source: "nvcr.io#nvidia/pytorch:25.08-py3"}]',
        default=(),
    )

    def for_export(self) -> Self:
        """Without a folder of the operator's machine: what is in it comes to nodes from the head node, by its sum."""
        base = self.artifacts if self.artifacts.startswith("https://") else ""
        return self.model_copy(update={"artifacts": base, "checksums": dict(sums(self))})


def check_containers(containers: Draft, sites: Collection[str], share: Collection[str], report: Report) -> None:
    """Report files without a checksum, log-ins in plain text, images that meet or lead nowhere.

    sites   names of the stack's sites
    share   the share's two folders, as far as they hold
    """
    _check_checksums(containers, report)
    at, local = containers.at("local"), containers.value("local")
    for folder in share if isinstance(local, str) else ():
        if PurePosixPath(str(local)).is_relative_to(folder):
            what = f"{report.value(at, local)} is on the share"
            report.add(
                at, what, "a container would be started over the network", "write a folder on a disk of the nodes' own"
            )
    logins = {(registry.text("host"), registry.text("user")) for registry in containers.items("registries")}
    for registry in containers.items("registries"):
        breaks = "whoever reads the file, or the repository's past, can log in there"
        check_hidden(registry, "password", breaks, f"change it at the registry, then run: {_COMMAND}", report)
    seen: set[str] = set()
    for image in containers.items("images"):
        name, source = image.text("name"), image.values.get("source")
        if name is not None and name in seen:
            what = f"{report.value(image.path, name)} is the name of two images"
            report.add(image.at("name"), what, "a job would get either", "give one of them another name")
        seen |= {name} if name is not None else set()
        match = _SOURCE.fullmatch(source) if isinstance(source, str) else None
        if match and match["user"] and (match["host"], match["user"]) not in logins:
            what = f"{report.value(image.path, source)} names a user of {match['host']} without a log-in"
            fix = "add host, user and password to tailrack:containers.registries"
            report.add(image.at("source"), what, "the registry would let nobody in", fix)
        where = image.values.get("where")
        for index, site in enumerate(where if isinstance(where, tuple) else ()):
            if sites and site not in sites:
                at = below(image.at("where"), index)
                what = f"{report.value(at, site)} is not a site"
                report.add(at, what, "no node there would have it", partial(meant, site, sites))


def _check_checksums(containers: Draft, report: Report) -> None:
    if "artifacts" in containers.raw and "artifacts" not in containers.values:
        return  # refused already
    base = containers.values.get("artifacts", _from_environment({}))
    given, at = containers.value("checksums"), containers.at("checksums")
    if not isinstance(base, str) or not isinstance(given, dict):
        return
    known: Mapping[str, str] = {}
    if not base.startswith("https://"):
        try:
            known = sums_of(Path(base))
        except (OSError, ValueError) as problem:
            what = f"{shown(base)}, the folder of {ARTIFACTS_VARIABLE}, {problem}"
            report.add(
                containers.at("artifacts"), what, "the nodes could not install Enroot and Pyxis", "name a whole folder"
            )
            return
    for file in wanted({**known, **given}):
        if file not in known and file not in given:
            fix = f"write the sha256 of {file} from the release's page, or name a folder with a SHA256SUMS as artifacts"
            report.add(at, f"{file} is missing", "whatever comes from there would be run as root", fix)
        elif known.get(file, given.get(file)) != given.get(file, known.get(file)):
            report.add(
                at,
                f"{file} is another one than in the folder's SHA256SUMS",
                "one of the two is not the file that was meant",
                "find out which",
            )


def sums(containers: Containers) -> Mapping[str, str]:
    """Return the checksum of each file that is installed."""
    files = wanted(containers.checksums)
    if all(file in containers.checksums for file in files):
        return {file: containers.checksums[file] for file in files}
    return sums_of(Path(containers.artifacts))
