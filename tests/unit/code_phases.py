"""Phases whose work is a text of Python, for tests of the step itself."""

from dataclasses import dataclass

from components.node.step.step import Step


@dataclass(frozen=True)
class Values:
    """The Python of each action; `step` is defined in it."""

    up: str
    down: str


def up(step: Step, values: Values) -> None:
    """Run the text of `up`."""
    exec(values.up, {"step": step})  # noqa: S102 a test wrote it


def down(step: Step, values: Values) -> None:
    """Run the text of `down`."""
    exec(values.down, {"step": step})  # noqa: S102 a test wrote it
