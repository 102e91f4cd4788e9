"""The release that the config names, and the folders of its packages: for one distribution and architecture each.

Packages may be built elsewhere. The head node copies them to the share, and every machine compares them with the one
list whose checksum is in the config.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from components.node import files
from components.node.artifacts import SUMS, Artifact, keep_artifact, take_artifact, whole_sums, write_sums
from components.node.failure import Failure
from components.node.log import STATE_DIR
from components.node.packages import architecture, os_release
from components.node.run import run
from components.node.step.step import Step

# A folder of the share that only root of the head node can write: root of other machines is mapped to nobody.
SHARED = "slurm"
# The packages to keep of those that the source builds.
PACKAGES = (
    *("slurm-smd", "slurm-smd-client", "slurm-smd-dev", "slurm-smd-slurmctld", "slurm-smd-slurmdbd"),
    *("slurm-smd-slurmd", "slurm-smd-libpam-slurm-adopt"),
)
# Change this number when the same source is built differently.
RECIPE = 3
_LISTED = re.compile(r"([0-9a-f]+)\s+\*?([a-z]+-[a-z0-9.]+-[a-z0-9]+)/([A-Za-z0-9.+~_-]+\.deb)")
# The sums of packages by file.
Sums = Mapping[str, str]
_KEYS = ("tailrack:slurm.release_packages", "tailrack:slurm.release_packages_sha256")


@dataclass(frozen=True)
class ReleaseValues:
    """The release.

    slurm_release                   its number, such as 24.11.5
    slurm_release_sha256            checksum of its source; empty if only ready packages are used
    slurm_release_packages          where ready packages are: an address, or a path on the head node; empty without any
    slurm_release_packages_sha256   checksum of SHA256SUMS there
    """

    slurm_release: str
    slurm_release_sha256: str
    slurm_release_packages: str
    slurm_release_packages_sha256: str

    @property
    def source_name(self) -> str:
        """Return the source's file name. tar detects the compression."""
        return f"slurm-{self.slurm_release}-{self.slurm_release_sha256[:12]}.tar"

    @property
    def list_name(self) -> str:
        return f"packages-{self.slurm_release_packages_sha256[:12]}.sums"

    def ready_name(self, kind: str) -> str:
        """Return the name of the folder with ready packages for a kind of machine."""
        return f"{kind}-{self.slurm_release}-{self.slurm_release_packages_sha256[:12]}-ready"

    def built_name(self, kind: str) -> str:
        """Return the name of the folder with packages that were built."""
        return f"{kind}-{self.slurm_release}-{self.slurm_release_sha256[:12]}-{RECIPE}"


class Release:
    """The release on this machine.

    ready   for each kind of machine, the ready packages in the verified list
    """

    def __init__(self, host: str, values: ReleaseValues, ready: Mapping[str, Sums]) -> None:
        self.host = host
        self.values = values
        self._ready = ready

    @property
    def version(self) -> str:
        return self.values.slurm_release

    @cached_property
    def _kind(self) -> str:
        """Return the kind of machine: packages work only with their own distribution's libraries."""
        system = os_release()
        names = ("VERSION_ID", "VERSION_CODENAME")
        version = next((system[name] for name in names if system.get(name)), "rolling")
        return f"{system['ID']}-{version}-{architecture()}"

    @property
    def folder_name(self) -> str:
        """Return the name of this machine's package folder: of ready packages if the list has this kind of machine."""
        if self._kind in self._ready:
            return self.values.ready_name(self._kind)
        return self.built_name

    @property
    def built_name(self) -> str:
        """Return the name of the folder with packages that were built for this machine."""
        return self.values.built_name(self._kind)

    def refuse_without_source(self) -> None:
        """Raise Failure if there are neither ready packages for this machine nor a source."""
        if self.values.slurm_release_sha256:
            return
        kinds = " ".join(sorted(self._ready)) or "no kind of machine"
        raise Failure(
            f"there is no Slurm {self.version} for {self._kind}: tailrack:slurm.release_packages has it for {kinds}",
            f"add its packages there in a folder {self._kind}, with their sums in SHA256SUMS; or set release_sha256 to "
            "build it from its source; then run up again",
        )

    def is_whole(self, folder: str) -> bool:
        """Return whether a folder has the release for this machine, as the list has it if it has this kind."""
        sums = whole_sums(folder)
        return not missing_in(sums) and self._ready.get(self._kind) in (None, sums)


def read_list(path: str, release: str) -> dict[str, Sums]:
    """Return the ready packages of a release in the file of a list `sha256  kind/file`, for each kind of machine.

    Of each package the first one counts.
    """
    ready: dict[str, dict[str, str]] = {}
    listed = [line for line in map(_LISTED.fullmatch, files.lines(path)) if line]
    for package in PACKAGES:
        for digest, kind, file in (line.groups() for line in listed):
            sums = ready.setdefault(kind, {})
            if file.startswith(f"{package}_{release}-") and not any(name.startswith(f"{package}_") for name in sums):
                sums[file] = digest
    return {kind: sums for kind, sums in ready.items() if sums}


def missing_in(sums: Sums) -> list[str]:
    """Return the packages that a folder with these files lacks."""
    return [package for package in PACKAGES if not any(file.startswith(f"{package}_") for file in sums)]


def has_release(folder: str) -> bool:
    """Return whether a folder contains all packages, unchanged, and belongs to root."""
    return not missing_in(whole_sums(folder))


def publish(folder: str, sums: Sums) -> None:
    """Complete the folder `<folder>.new`, and give it its name."""
    write_sums(f"{folder}.new", sums)
    run("sync", "-f", files.on_disk(f"{folder}.new"))
    files.rename(f"{folder}.new", folder)


def keep_ready_packages(step: Step, values: ReleaseValues, folder: str) -> Mapping[str, Sums]:
    """Copy the list and the release's packages for every kind of machine into subfolders of a folder."""
    origin = values.slurm_release_packages
    if not origin:
        return {}
    path = f"{folder}/source/{values.list_name}"
    keep_artifact(step, path, Artifact(values.slurm_release_packages_sha256, f"{origin}/{SUMS}", *_KEYS))
    ready = read_list(path, values.slurm_release)
    for kind, sums in sorted(ready.items()):
        target = f"{folder}/{values.ready_name(kind)}"
        if has_release(target):
            continue
        if missing := missing_in(sums):
            raise Failure(
                f"SHA256SUMS of {origin} has no {missing[0]} of {values.slurm_release} for {kind}",
                "add it there (docs/day-2.md lists the packages), then run up again",
            )
        files.remove_folder(f"{target}.new")
        files.remove_folder(target)
        files.make_folder(f"{target}.new")
        for file, digest in sums.items():
            keep_artifact(step, f"{target}.new/{file}", Artifact(digest, f"{origin}/{kind}/{file}", *_KEYS))
        publish(target, sums)
    return ready


def take_ready_packages(values: ReleaseValues, shared: str) -> Mapping[str, Sums]:
    """Return the packages in the share's list, from a copy in a folder of root's."""
    if not values.slurm_release_packages:
        return {}
    folder = f"{STATE_DIR}/slurm-list"
    files.make_folder(folder, 0o700)
    take_artifact(f"{shared}/source/{values.list_name}", folder, values.slurm_release_packages_sha256)
    return read_list(f"{folder}/{values.list_name}", values.slurm_release)
