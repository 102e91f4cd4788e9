"""Import each staged image to the share once, as an account that owns nothing else, and publish it when complete."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass

from components.node import files, folders
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.log import note
from components.node.passwd import user_named
from components.node.run import attempt, run
from components.node.step.step import STATE_DIR, Step
from components.roles.enroot_pyxis.artifacts import SHARED, place_copy

IMPORT_USER = "tailrack-images"
# Folders of the logins (in memory) and of the import; both exist only during an import.
LOGINS = "/run/tailrack-images"
WORK = f"{STATE_DIR}/images"
IMPORT_PROGRAM = "/usr/local/lib/tailrack/import-image"
# Seconds for one image; large ones take many minutes.
_IMPORT_LIMIT = 5400
# Limit in bytes of the import's output.
_IMPORT_OUTPUT = 10_000_000


@dataclass(frozen=True)
class Image:
    """An image. `where`: sites, `all` or `none`."""

    name: str
    where: str
    source: str


@dataclass(frozen=True)
class ImagesValues:
    """The images, and the directory of the share.

    enroot_pyxis_credentials   secret; logins at registries, in netrc format
    """

    enroot_pyxis_images: list[Image]
    enroot_pyxis_credentials: str
    nfs_exports_path: str


def services(step: Step, values: ImagesValues) -> None:
    """Import and publish the images, and remove others."""
    folder = f"{values.nfs_exports_path}/{SHARED}/images"
    files.make_folder(folder)
    _clear_imports(folder)
    _remove_others(folder, {image.name for image in values.enroot_pyxis_images})
    if not values.enroot_pyxis_images:
        return
    if not user_named(IMPORT_USER):
        place = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        run("useradd", "--system", "--user-group", *place, IMPORT_USER)
    try:
        write_logins(values.enroot_pyxis_credentials)
        failed = [image.name for image in values.enroot_pyxis_images if not _publish(image, folder)]
    finally:
        _clear_imports(folder)
    if failed:
        raise Failure(
            f"these images could not be imported: {', '.join(failed)}",
            "see the errors above; correct tailrack:containers.images or .registries, then run up again",
        )


def write_logins(credentials: str) -> None:
    """Write the logins. Only the importing account can read them, and it cannot change them in root's folder."""
    folders.take(LOGINS, 0o711)
    files.write(f"{LOGINS}/.credentials", credentials, 0o400, IMPORT_USER)


def _clear_imports(folder: str) -> None:
    """Remove the files of an import that has finished or was cut off."""
    for path in (LOGINS, WORK):
        files.remove_folder(path)
    for name in files.names_in(folder):
        if name.endswith(".coming") or (name.startswith(".") and name.endswith(".new")):
            files.remove(f"{folder}/{name}")


def _remove_others(folder: str, wanted: set[str]) -> None:
    for file in files.names_in(folder):
        name, _, kind = file.rpartition(".")
        if kind in ("image", "sqsh") and name not in wanted:
            files.remove(f"{folder}/{file}")


def _publish(image: Image, folder: str) -> bool:
    """Publish one image on the share, and return whether it could be imported.

    The previous image stays until the new one is complete.
    """
    path, record, coming = (f"{folder}/{image.name}.{kind}" for kind in ("sqsh", "image", "coming"))
    published = dict(line.split("=", 1) for line in files.lines(record) if "=" in line)
    if published.get("source") == image.source and files.read(path, 1):
        digest = published.get("sha256", "")
    else:
        note(f"importing {image.name} from {image.source}")
        os.close(files.open_to_write(coming, 0o644))
        imported = files.on_disk(image.source) if image.source.startswith("/") else _import(image.source)
        if not imported or not attempt("unsquashfs", "-s", imported).ok:
            files.remove(coming)
            return False
        # A copy, so that root owns the file that nodes read.
        place_copy(imported, path)
        digest = files.sha256(path)
    files.write(record, f"source={image.source}\nsha256={digest}\nwhere={image.where}")
    files.remove(coming)
    return True


def _import(source: str) -> str:
    """Import an image from a registry, and return its path; empty if that failed."""
    image = f"{WORK}/image.sqsh"
    files.remove_folder(WORK)
    folders.give(IMPORT_USER, 0o700, WORK)
    work = files.on_disk(WORK)
    ended = as_user(
        *(IMPORT_USER, IMPORT_PROGRAM, source, work),
        limit=_IMPORT_LIMIT,
        most=_IMPORT_OUTPUT,
        environment={"HOME": work, "ENROOT_CONFIG_PATH": files.on_disk(LOGINS)},
    )
    sys.stderr.write(ended.output)
    # Take the folder from the importing account, and accept the image only if it is a file with one name (no link).
    folders.take(WORK, 0o700)
    return files.on_disk(image) if ended.ok and _has_one_name(image) else ""


def _has_one_name(path: str) -> bool:
    descriptor = files.open_to_read(path)
    if descriptor is None:
        return False
    try:
        state = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return stat.S_ISREG(state.st_mode) and state.st_nlink == 1
