"""Check that sshd on a node reads the keys."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.user_keys.keys import KeysValues, require_read


def node(step: Step, values: KeysValues) -> None:
    """Check at the step's end, when the node takes jobs already."""
    step.later.append(lambda: require_read(values.by_user, step.host))
