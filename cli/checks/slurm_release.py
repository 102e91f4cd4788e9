"""Rule: refuse a Slurm release that the present one cannot be upgraded to, before any change, with a valid path.

The state has each machine's release from the last run of its steps. The head node's check covers machines of other
stacks, the pools (components/roles/slurm_release/host.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cli.checks.head_replaced import HEAD
from cli.run_events import Event
from components.roles.slurm.versions import RELEASES, oldest_accepted, release, upgrade_path
from components.steps.command_line import read_request

RELEASE = "slurm-release"
_NODE = "tailrack:cluster:ComputeNode"
_VALUE = "SLURM_RELEASE"


class SlurmRelease:
    """A rule for one preview, which receives the wanted release before those of the machines."""

    def __init__(self) -> None:
        self._wanted = ""

    def __call__(self, event: Event) -> Iterator[tuple[str, str]]:
        """Find machines whose Slurm cannot be upgraded to the wanted release."""
        types = event.urn.split("::")[2].split("$")
        step = event.name.rpartition("-")[2]
        if event.operation not in ("update", "replace"):
            return
        if HEAD in types and step == "check":
            self._wanted = _release_in(event.after)
            if not self._wanted and (old := _release_in(event.before)):
                yield RELEASE, f"the cluster has Slurm {old}, but the config no longer sets a release. {_AGAIN}"
        elif self._wanted and (current := _current_release(event)):
            machine = event.name.rpartition("-")[0]
            if HEAD in types and step == "head":
                yield from _of_controller(current, self._wanted)
            elif _NODE in types and step == "node":
                yield from _of_node(machine, current, self._wanted)


_AGAIN = "Set tailrack:slurm.release again: the distribution's Slurm is not an upgrade"


def _release_in(inputs: object) -> str:
    """Return the release in a step's inputs; empty if the inputs have none or are unknown."""
    stdin = inputs.get("stdin") if isinstance(inputs, dict) else None
    return (read_request(stdin) or {}).get(_VALUE, "")


def _current_release(event: Event) -> str:
    """Return a machine's release in its step's last run; empty if unknown."""
    try:
        version = str(json.loads(event.outputs.get("stdout", ""))["slurm_version"])
        return version if release(version) in RELEASES else ""
    except (KeyError, TypeError, ValueError):
        return ""


def _of_controller(current: str, wanted: str) -> Iterator[tuple[str, str]]:
    if _numbers(wanted) < _numbers(current):
        text = f"the cluster has Slurm {current}, and {wanted} is older; it cannot read the newer release's state"
        yield RELEASE, f"{text}. Set {current} or newer"
    elif stops := upgrade_path(current, wanted):
        steps = "; ".join(f"set tailrack:slurm.release to a release of {stop} and run up" for stop in stops)
        reason = f"Slurm {wanted} reads the state of {oldest_accepted(wanted)} and newer, and the cluster has {current}"
        yield (
            RELEASE,
            f"{reason}. Upgrade by way of {', '.join(stops)}: {steps}; then {wanted}. Upgrade pools after each",
        )


def _of_node(machine: str, current: str, wanted: str) -> Iterator[tuple[str, str]]:
    oldest = oldest_accepted(wanted)
    if release(current) < oldest:
        reason = f"slurmctld {wanted} accepts nodes of {oldest} and newer, and {machine} has {current}"
        yield RELEASE, f"{reason}. Upgrade it first (run up with the old config), or remove it from the config"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split("-")[0].split(".") if part.isdigit()]
