"""A release of Slurm that cannot follow the one that is there: asked before anything is touched, with the way to go.

What the machines have, the last run of each one's own step has said; the state remembers it. Machines of other stacks
(pools) are asked by the head node's look at itself (components/roles/slurm_release/check_head.sh).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cli.checks.head_replaced import HEAD
from cli.preview.changed_lines import values_and_script
from components.roles.slurm.versions import RELEASES, oldest_accepted, release, way
from engine.events import Event

RELEASE = "slurm-release"
_NODE = "tailrack:cluster:ComputeNode"
_VALUE = "SLURM_RELEASE"


class SlurmRelease:
    """A rule of one preview, which hears of the release that is wanted before it hears of those that are there."""

    def __init__(self) -> None:
        self._wanted = ""

    def __call__(self, event: Event) -> Iterator[tuple[str, str]]:
        """Find machines whose Slurm the wanted release could not follow."""
        types = event.urn.split("::")[2].split("$")
        step = event.name.rpartition("-")[2]
        if event.operation not in ("update", "replace"):
            return
        if HEAD in types and step == "check":
            self._wanted = _named(event.after)
            if not self._wanted and (named := _named(event.before)):
                yield RELEASE, f"the cluster has Slurm {named}, and the config no longer names a release. {_AGAIN}"
        elif self._wanted and (there := _said(event)):
            machine = event.name.rpartition("-")[0]
            if HEAD in types and step == "head":
                yield from _of_controller(there, self._wanted)
            elif _NODE in types and step == "node":
                yield from _of_node(machine, there, self._wanted)


_AGAIN = "Write tailrack:slurm.release again: what a distribution has is no upgrade of it"


def _named(inputs: object) -> str:
    """The release that a step is sent; empty where it is sent none, or what it is sent is not known."""
    stdin = inputs.get("stdin") if isinstance(inputs, dict) else None
    return values_and_script(stdin)[0].get(_VALUE, "") if isinstance(stdin, str) else ""


def _said(event: Event) -> str:
    """The release that a machine had when its step ran last; empty where that is not known."""
    try:
        version = str(json.loads(event.outputs.get("stdout", ""))["slurm_version"])
        return version if release(version) in RELEASES else ""
    except (KeyError, TypeError, ValueError):
        return ""


def _of_controller(there: str, wanted: str) -> Iterator[tuple[str, str]]:
    if _numbers(wanted) < _numbers(there):
        reason = "no release reads what a newer one has written"
        yield RELEASE, f"the cluster has Slurm {there}, and {wanted} is older: {reason}. Write {there} or newer"
    elif stops := way(there, wanted):
        steps = "; ".join(f"write a release of {each} as tailrack:slurm.release and run up" for each in stops)
        reads = f"Slurm {wanted} reads the state of {oldest_accepted(wanted)} and newer, and the cluster has {there}"
        yield RELEASE, f"{reads}. Go by way of {', '.join(stops)}: {steps}; then {wanted}. Pools after each"


def _of_node(machine: str, there: str, wanted: str) -> Iterator[tuple[str, str]]:
    oldest = oldest_accepted(wanted)
    if release(there) < oldest:
        takes = f"a controller of {wanted} takes nodes of {oldest} and newer, and {machine} has {there}"
        yield RELEASE, f"{takes}. Bring it to the cluster's release first (run up as the config was), or take it out"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split("-")[0].split(".") if part.isdigit()]
