"""Restrict access to the share on the machine that serves it, and disarm its files there (share.py)."""

from __future__ import annotations

from typing import Protocol

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import LOG_DIR, Step
from components.roles.nfs_exports import share
from components.roles.users.accounts import Account


class ShareValues(Protocol):
    """The directory of the share, and the cluster's users."""

    @property
    def nfs_exports_path(self) -> str: ...

    @property
    def users_lines(self) -> list[Account]: ...


def close_share(step: Step, values: ShareValues) -> None:
    """Apply the config to every mount of the share and to its list of excluded accounts.

    Mounts in use are changed in place.
    """
    uids = "".join(f"{user.uid} " for user in values.users_lines)
    folder = files.real_path(values.nfs_exports_path)
    # tailrack-share reads it at every boot and after each change.
    files.write(share.SETTINGS, f"# Written by tailrack.\nSHARE='{folder}'\nUSERS='{uids}'")
    try:
        share.close_share()
    except (Failure, OSError) as error:
        note(f"tailrack-share: {error}")
        raise Failure(
            f"cannot close {values.nfs_exports_path} to set-uid programs and to accounts that are not users of the "
            "cluster",
            f"see the output of tailrack-share in {LOG_DIR}/{step.name}.log on {step.host}, then run up again",
        ) from error
