"""Phases of a role for tests of the step itself."""

from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.network.tailnet import tailscale


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str
    number: int


@dataclass(frozen=True)
class Values:
    """Values of every kind."""

    rows: list[Row]
    text: str
    count: int
    on: bool
    maybe: int | None


def tell(step: Step, values: Values) -> None:
    """Report the values."""
    step.result("told", f"{values.rows} {values.text!r} {values.count} {values.on} {values.maybe}")


def address(step: Step) -> None:
    """Report the address in the tailnet."""
    step.result("tailnet_ip", tailscale.address())


def refuse(step: Step) -> None:
    """Fail with a reason."""
    raise Failure("Python refuses", "change it")


def crash(step: Step) -> None:
    """Fail without one."""
    raise RuntimeError("unexpected")


def lock(step: Step) -> None:
    """Take the host's lock, and say whether somebody had it."""
    step.result("locked_before", step.locked)
    step.take_lock()


def changed(step: Step) -> None:
    """Report whether a file changed, at each call."""
    step.result("changed", [*step.results.get("changed", []), step.changed])


def go(step: Step) -> None:
    """Write a file."""
    files.write("/etc/went", "went")
