"""Interrupts of a run by Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
from typing import Any

from rich.console import Console

from cli.pulumi.deployment import Deployment


class Interrupts:
    """A handler of interrupts: the first Ctrl-C or SIGTERM lets running steps finish, the second one kills the run.

    interrupted   whether an interrupt arrived
    """

    def __init__(self, console: Console, deployment: Deployment) -> None:
        self._console, self._deployment = console, deployment
        self._handlers: dict[signal.Signals, Any] = {}
        self.interrupted = False

    def __enter__(self) -> Interrupts:
        # The CLI receives Ctrl-C itself, from the terminal.
        numbers = [signal.SIGINT, signal.SIGTERM] if self._deployment.in_process else [signal.SIGINT]
        self._handlers = {number: signal.signal(number, self._interrupted) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _interrupted(self, *_: object) -> None:
        self.interrupted = True
        self._deployment.stop()
        if self._deployment.in_process:
            for number in self._handlers:
                signal.signal(number, signal.SIG_DFL)
        self._console.print("\nStopping when the running steps have finished. Run the same command again to continue.")
