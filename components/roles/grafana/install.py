"""Install a release of Grafana, or remove Grafana."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from components.node import files, systemd
from components.node.artifacts import Artifact, keep_artifact
from components.node.failure import Failure
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.text import printable

UNIT = "tailrack-grafana.service"
FOLDER = "/etc/tailrack/grafana"
# Root's folder with one folder for each release, named by the checksum of its archive.
_PROGRAMS = "/usr/local/lib/tailrack/grafana"
_NEW = f"{_PROGRAMS}/.new"


@dataclass(frozen=True)
class ReleaseValues:
    """Grafana's archive and its checksum."""

    grafana_source: str
    grafana_sha256: str

    @property
    def home(self) -> str:
        """Return the folder of the release."""
        return f"{_PROGRAMS}/{self.grafana_sha256}"


def install(step: Step, values: ReleaseValues) -> None:
    """Unpack the archive to a folder that Grafana's account cannot change."""
    if files.is_folder(values.home):
        return
    files.remove_folder(_NEW)
    files.make_folder(_PROGRAMS)
    files.make_folder(_NEW, 0o700)
    source, archive = values.grafana_source, f"{_NEW}/grafana.tar.gz"
    keys = ("tailrack:monitoring.grafana.source", "tailrack:monitoring.grafana.sha256")
    keep_artifact(step, archive, Artifact(values.grafana_sha256, source, *keys))
    files.make_folder(f"{_NEW}/home")
    home = files.on_disk(f"{_NEW}/home")
    try:
        _unpack(step, source, files.on_disk(archive), home)
        _try_program(source, home)
    except Failure:
        files.remove_folder(_NEW)
        raise
    run("chmod", "-R", "u=rwX,go=rX", home)
    run("sync", "-f", home)
    files.rename(f"{_NEW}/home", values.home)
    files.remove_folder(_NEW)


def _unpack(step: Step, source: str, archive: str, home: str) -> None:
    options = ("--strip-components=1", "--no-same-owner", "--no-same-permissions")
    ended = attempt("tar", "-xzf", archive, "-C", home, *options, keep_errors=True)
    if not ended.ok:
        raise Failure(
            f"cannot unpack {source}: {files.room_error(_PROGRAMS) or _last_line(ended.errors)}",
            f"make room in {_PROGRAMS} on {step.host}, or set another tailrack:monitoring.grafana.source; then run up "
            "again",
        )


def _try_program(source: str, home: str) -> None:
    ended = attempt(f"{home}/bin/grafana", "--version", keep_errors=True)
    if not ended.ok:
        raise Failure(
            f"the program from {source} does not run here ({platform.machine()}): "
            f"{printable(_last_line(ended.output + ended.errors), 200)}",
            "set tailrack:monitoring.grafana.source to the Linux archive of Grafana 9.4 or newer for this "
            "architecture, and set its sha256",
        )


def _last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


def remove_old_releases(values: ReleaseValues) -> None:
    """Remove all releases except this one."""
    for name in files.names_in(_PROGRAMS):
        if name != values.grafana_sha256:
            files.remove_folder(f"{_PROGRAMS}/{name}")


def remove_grafana() -> None:
    """Remove Grafana. The database with users' dashboards stays, in case the config enables it again."""
    systemd.retire(UNIT)
    files.remove_folder(FOLDER)
    files.remove_folder(_PROGRAMS)
