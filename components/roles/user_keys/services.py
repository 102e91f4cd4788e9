"""Check that sshd on the head node reads the keys. This step's failure stops no node."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.user_keys.keys import KeysValues, require_read


def services(step: Step, values: KeysValues) -> None:
    """Check at the step's end, after all services have started."""
    step.later.append(lambda: require_read(values.by_user, step.host))
