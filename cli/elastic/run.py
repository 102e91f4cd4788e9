"""One run of an elastic pool's `up` with given machines, in its own process, which can be ended."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from cli.output.failures import describe_failure, first_line
from cli.pulumi.workspace import PROJECT
from cli.run_events import Failure, node_of
from stacks.rental_requests import RENTED

_STEP_ERROR = "tailrack: "
# Seconds for running steps to finish after the first signal.
_END_SECONDS = 30


class Run:
    """A run that has started. `machines` are the nodes whose machines it keeps or rents."""

    def __init__(self, command: list[str], machines: Collection[str], result: Path) -> None:
        self.machines, self.began = frozenset(machines), time.monotonic()
        self._result = result
        result.unlink(missing_ok=True)
        environment = {**os.environ, RENTED: ",".join(sorted(machines))}
        words = [*command, "rent", "--result", str(result)]
        self._process = subprocess.Popen(words, cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL)
        self._ends_at: float | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def was_ended(self) -> bool:
        """Return whether it was asked to end."""
        return self._ends_at is not None

    def ended(self) -> bool:
        """Return whether it has ended. A run that was asked to end is killed after some time."""
        if self._process.poll() is not None:
            return True
        if self._ends_at is not None and time.monotonic() > self._ends_at:
            self._process.kill()
        return False

    def end(self) -> None:
        """Ask it to end once."""
        if self._ends_at is None:
            self._process.send_signal(signal.SIGINT)
            self._ends_at = time.monotonic() + _END_SECONDS

    def failures(self) -> dict[str, str] | None:
        """Return the causes of failures by node, or at the key "" for all; None for a run that was cut off."""
        if self.was_ended:
            return None
        try:
            failures: dict[str, str] = json.loads(self._result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return failures


def by_node(failures: Collection[Failure], names: Collection[str]) -> dict[str, str]:
    """Return the cause of each node's first failure, by node; of a failure that is no node's at the key ""."""
    causes: dict[str, str] = {}
    for failure in failures:
        causes.setdefault(node_of(failure.name, names), _cause(failure))
    return causes


def _cause(failure: Failure) -> str:
    """Return the failed step and its error in one line."""
    lines = [line.strip() for line in describe_failure(failure).splitlines()[1 if failure.urn else 0 :]]
    errors = [line for line in lines if line and not line.startswith("next:")] or ["no reason was given"]
    # A step on a host prints its error first, and lines of its log; other programs print theirs last.
    error = next((line for line in errors if line.startswith(_STEP_ERROR)), errors[-1]).removeprefix(_STEP_ERROR)
    return f"{first_line(failure)}: {error}" if failure.urn else error
