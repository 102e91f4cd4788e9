"""The most important changes of a preview: users, groups, keys, slurm.conf, exports, jobs, the tailnet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from cli.output.ssh_key import described
from cli.output.terminal import one_line
from cli.preview.change import Change, folded
from cli.preview.changed_lines import difference
from cli.run_events import Made
from components.roles.slurm.slurm.node_lines import gpu_node_set, node_set_lines
from components.settings.types import GPUS_FOUND
from components.steps.command_line import read_request

_JOB_LIMIT = "slurm_job_limit_seconds"
_USERS, _KEYS = "users_lines", "user_keys_lines"
_IDENTITIES = ("user_keys_provider", "user_keys_identities")
_GROUPS, _MEMBERS = "user_groups_lines", "user_groups_members"
_OF_NODE = "node_slurm_conf"
_SLURM_CONF = ("slurm_slurm_conf", "pool_slurm_conf")


def effects(changes: Sequence[Change], resources: Sequence[Made]) -> dict[str, list[str]]:
    """Return the effects of changes: lines of a diff, by a name that users know.

    resources   of the last run
    """
    # The values of a step that was secret cannot be compared.
    kept = [change for change in changes if change.before and change.after and _comparable(change)]
    gone = [change for change in changes if not change.after]
    by_name = {
        "Users": _values(kept, (_USERS,)),
        "Groups": chain(_values(kept, (_GROUPS,)), _of_members(kept)),
        "SSH keys": chain(_of_keys(kept), _values(kept, _IDENTITIES)),
        "slurm.conf": chain(_values(kept, _SLURM_CONF), _of_nodes(changes, resources)),
        "Exports": _values([*kept, *gone], ("node_export",)),
        "Jobs": _of_jobs(gone),
        "Tailnet policy": (line for change in changes for line in _policy(change)),
    }
    shown = {name: list(dict.fromkeys(map(one_line, lines))) for name, lines in by_name.items()}
    return {name: lines for name, lines in shown.items() if lines}


def _values(changes: Iterable[Change], names: Sequence[str]) -> Iterator[str]:
    """Give the differences of header values with these names."""
    for change in changes:
        before, after = _header(change.before), _header(change.after)
        # An unknown value is not a removed one.
        for name in names if after or not change.after else ():
            yield from difference(before.get(name, ""), after.get(name, ""))


def _of_keys(changes: Iterable[Change]) -> Iterator[str]:
    """Give a line for each key that a user gains or loses, in the order of users."""
    for line, gone in sorted(_changed(changes, _KEYS)):
        user, _, key = line.partition(" ")
        yield f"- {user}: {described(key)} can no longer log in" if gone else f"+ {user}: {described(key)} can log in"


def _of_members(changes: Iterable[Change]) -> Iterator[str]:
    """Give a line for each user who joins or leaves a group."""
    for line, gone in sorted(_changed(changes, _MEMBERS)):
        group, _, user = line.partition(" ")
        yield f"- {user} leaves {group}" if gone else f"+ {user} joins {group}"


def _changed(changes: Iterable[Change], name: str) -> Iterator[tuple[str, bool]]:
    """Give the lines of a header value that only one side of a change has, and whether they are gone."""
    for change in changes:
        if after := _header(change.after):
            old, new = (_lines([header.get(name, "")]) for header in (_header(change.before), after))
            yield from ((line, line in old) for line in old ^ new)


def _of_nodes(changes: Sequence[Change], resources: Sequence[Made]) -> Iterator[str]:
    """Give the differences of the slurm.conf lines that depend on the set of nodes."""
    old_lines = {
        resource.urn: text for resource in resources if (text := _header({"stdin": resource.stdin}).get(_OF_NODE))
    }
    new_lines = dict(old_lines)
    for change in changes:
        if change.urn in old_lines and (not change.after or (header := _header(change.after))):
            new_lines[change.urn] = header.get(_OF_NODE, "") if change.after else ""
        # The check of a new node reports its lines, and refuses a node without the GPUs in the config.
        elif resources and _is_new_node(change) and (kind := change.after.get("gpuKind")):
            new_lines[change.urn] = "\n".join(node_set_lines(gpu_node_set(kind), kind))
    old_text, new_text = ("\n".join(sorted(_lines(lines.values()))) for lines in (old_lines, new_lines))
    yield from difference(old_text, new_text)
    # Without GPUs in the config, a node gets the GPUs that its check finds.
    new_nodes = [change for change in changes if resources and _is_new_node(change)]
    unsure = [change.name for change in new_nodes if "gpuKind" not in change.after]
    if unsure and not any(gpu_node_set("found") in text for text in old_lines.values()):
        yield f"# also the lines of partition {GPUS_FOUND}, if GPUs are found on {', '.join(folded(unsure))}"


def _of_jobs(gone: Iterable[Change]) -> Iterator[str]:
    """Give a line about jobs on nodes that leave, with the time that `make up` waits for them."""
    leaving: dict[str, list[str]] = {}
    for change in gone:
        if change.name == f"{change.subject}-register" and (limit := _header(change.before).get(_JOB_LIMIT)):
            leaving.setdefault(limit, []).append(change.subject)
    for limit, nodes in leaving.items():
        yield (
            f"# jobs on {', '.join(folded(nodes))} may continue for {limit} s (tailrack:slurm.job_limit_seconds), and "
            "the run waits for them; then they are requeued, or cancelled if Slurm cannot requeue them. 'squeue' on "
            "the head node lists them"
        )


def _comparable(change: Change) -> bool:
    before, after = change.before.get("stdin"), change.after.get("stdin")
    return not isinstance(before, str) or read_request(before) is not None or not isinstance(after, str)


def _is_new_node(change: Change) -> bool:
    return change.operation == "create" and change.type == "tailrack:cluster:ComputeNode"


def _lines(texts: Iterable[str]) -> set[str]:
    return {line for text in texts for line in text.splitlines()}


def _policy(change: Change) -> Iterator[str]:
    old, new = change.before.get("acl"), change.after.get("acl")
    if isinstance(old, str) and isinstance(new, str) and UNKNOWN not in (old, new):
        yield from difference(old, new)


def _header(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the values in a step's stdin; none if it is secret or unknown."""
    return read_request(inputs.get("stdin")) or {}
