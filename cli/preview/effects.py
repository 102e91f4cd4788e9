"""What people look for in a preview: users, lines of slurm.conf, exports, the tailnet's policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from cli.output.terminal import one_line
from cli.preview.change import Change
from cli.preview.changed_lines import difference, values_and_script
from cli.preview.names import folded
from components.roles.slurm.fragment import gpu_node_set, node_set_lines
from components.settings.types import GPUS_FOUND
from engine.events import Made

_JOB_LIMIT = "SLURM_JOB_LIMIT_SECONDS"
_USERS = "USERS_LINES"
_EXPORT = "NODE_EXPORT"
_OF_NODE, _GPU_KIND = "NODE_SLURM_CONF", "NODE_GPU_KIND"
_SLURM_CONF = ("SLURM_SLURM_CONF", "POOL_SLURM_CONF")


@dataclass(frozen=True)
class Effect:
    """Lines of a diff of something that people know by this name."""

    name: str
    lines: list[str]


def effects(found: Sequence[Change], made: Sequence[Made]) -> list[Effect]:
    """Return what changes, whatever changes besides.

    made   what the run before left
    """
    kept = [change for change in found if change.before and change.after]
    gone = [change for change in found if not change.after]
    by_name = {
        "Users": _values(kept, (_USERS,)),
        "slurm.conf": chain(_values(kept, _SLURM_CONF), _of_nodes(found, made)),
        "Exports": _values([*kept, *gone], (_EXPORT,)),
        "Jobs": _of_jobs(gone),
        "Policy of the tailnet": (line for change in found for line in _policy(change)),
    }
    told = {name: list(dict.fromkeys(map(one_line, lines))) for name, lines in by_name.items()}
    return [Effect(name, lines) for name, lines in told.items() if lines]


def _values(found: Iterable[Change], names: Sequence[str]) -> Iterator[str]:
    """How header values of these names differ."""
    for change in found:
        before, after = _header(change.before), _header(change.after)
        # What is not known yet is not gone.
        for name in names if after or not change.after else ():
            yield from difference(before.get(name, ""), after.get(name, ""))


def _of_nodes(found: Sequence[Change], made: Sequence[Made]) -> Iterator[str]:
    """Lines of slurm.conf that nodes bring with them, which stay as long as one of them brings them."""
    now = {each.urn: text for each in made if (text := values_and_script(each.stdin)[0].get(_OF_NODE))}
    then = dict(now)
    for change in found:
        if change.urn in now and (not change.after or (told := _header(change.after))):
            then[change.urn] = told.get(_OF_NODE, "") if change.after else ""
        # What a new node brings is known once its gate has looked, which refuses a node without the GPUs of the config.
        elif made and _is_first_look(change) and (kind := _header(change.after).get(_GPU_KIND)):
            then[change.urn] = "\n".join(node_set_lines(gpu_node_set(kind), kind))
    yield from difference(*("\n".join(sorted(_lines(of.values()))) for of in (now, then)))
    # Without any in the config it has those that are found.
    first = [change for change in found if made and _is_first_look(change)]
    unsure = [change.subject for change in first if _header(change.after).get(_GPU_KIND) == ""]
    if unsure and not any(gpu_node_set("found") in text for text in now.values()):
        yield f"# and the lines of the partition {GPUS_FOUND}, if GPUs are found on {', '.join(folded(unsure))}"


def _of_jobs(gone: Iterable[Change]) -> Iterator[str]:
    """What becomes of jobs on nodes that leave, and how long `make up` waits for them."""
    leaving: dict[str, list[str]] = {}
    for change in gone:
        if change.name == f"{change.subject}-register" and (limit := _header(change.before).get(_JOB_LIMIT)):
            leaving.setdefault(limit, []).append(change.subject)
    for limit, nodes in leaving.items():
        yield (
            f"# jobs on {', '.join(folded(nodes))} may go on for {limit} s (tailrack:slurm.job_limit_seconds), and "
            "the run waits for that; then they are requeued, or cancelled where they cannot be. 'squeue' on the head "
            "node shows them"
        )


def _is_first_look(change: Change) -> bool:
    """Whether it is the gate of a machine that is new."""
    return not change.before and change.name == f"{change.subject}-check"


def _lines(texts: Iterable[str]) -> set[str]:
    return {line for text in texts for line in text.splitlines()}


def _policy(change: Change) -> Iterator[str]:
    old, new = change.before.get("acl"), change.after.get("acl")
    if isinstance(old, str) and isinstance(new, str) and UNKNOWN not in (old, new):
        yield from difference(old, new)


def _header(inputs: Mapping[str, Any]) -> dict[str, str]:
    """The values that a step is sent; none of them where it is a secret, or not known yet."""
    stdin = inputs.get("stdin")
    return values_and_script(stdin)[0] if isinstance(stdin, str) else {}
