"""Report a munge key of another cluster, with which this machine could not talk to its present cluster."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.accounts import as_user
from components.node.step.step import Step
from components.roles.munge.keys import FOLDER, KEY, is_foreign


@dataclass(frozen=True)
class CheckValues:
    """The cluster's name."""

    munge_cluster: str


def check(step: Step, values: CheckValues) -> None:
    """Report the key, and change nothing."""
    if is_foreign(_present(), values.munge_cluster):
        step.foreign.append(f"a munge key ({KEY})")


def _present() -> str:
    """Return the key, read as the owner of its folder, which may still be munge. A link is no key."""
    owner = files.owner_of(FOLDER)
    if owner in ("", "root"):
        return files.read(KEY) or ""
    return as_user(owner, "find", KEY, "-maxdepth", "0", "-type", "f", "-exec", "cat", "{}", ";", limit=10).output
