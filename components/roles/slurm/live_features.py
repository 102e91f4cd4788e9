"""Features of a node that come and go while it runs, such as those of mounts. Each role has a file with its own.

They are not part of the node's registration, so a change neither drains the node nor touches its jobs. A feature is
either available and active or neither: Slurm would restart a node for one that is only available.
"""

from __future__ import annotations

from collections.abc import Collection

from components.node import files
from components.node.locks import Lock
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import STATE_DIR
from components.validation.json_part import first_object, objects_in

FOLDER = f"{STATE_DIR}/features"
_LIMIT_SECONDS = 30
_LOCK_SECONDS = 120


def live_features() -> frozenset[str]:
    """Return the features that roles have set, or are about to set."""
    names = files.names_in(FOLDER)
    return frozenset(line for name in names for line in files.lines(f"{FOLDER}/{name}") if line)


def set_live_features(host: str, role: str, features: Collection[str]) -> bool:
    """Give this node a role's features, and take its former ones. Return whether Slurm has them now."""
    path = f"{FOLDER}/{role}"
    with Lock("features", seconds=_LOCK_SECONDS):
        own = {line for line in files.lines(path) if line} | {*features}
        if not own:
            return True
        # Note them first: a step that reads the node in between must not take them for its registration.
        files.write(path, "\n".join(sorted(own)))
        if not _update(host, own, {*features}):
            return False
        if features:
            files.write(path, "\n".join(sorted(features)))
        else:
            files.remove(path)
            files.remove_if_empty(FOLDER)
    return True


def _update(host: str, own: Collection[str], wanted: Collection[str]) -> bool:
    shown = attempt("scontrol", "show", "node", host, "--json", quiet=True, limit=_LIMIT_SECONDS)
    answer, _ = first_object(shown.output, lambda entry: "nodes" in entry)
    for node in objects_in(answer, "nodes"):
        available, active = ([str(name) for name in node.get(key) or ()] for key in ("features", "active_features"))
        features = [name for name in available if name not in own] + sorted(wanted)
        if {*available} == {*active} == {*features}:
            return True
        text = ",".join(features)
        words = (f"nodename={host}", f"availablefeatures={text}", f"activefeatures={text}")
        note(f"features of {host}: {text}")
        return attempt("scontrol", "update", *words, limit=_LIMIT_SECONDS).ok
    return False
