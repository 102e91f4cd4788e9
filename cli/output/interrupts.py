"""What an interrupt does while steps run."""

from __future__ import annotations

import signal
from typing import Any

from rich.console import Console

from cli.pulumi.deployment import Deployment


class Interrupts:
    """The first Ctrl-C or SIGTERM lets the steps that run now come to their end; the second one kills the run.

    interrupted   whether there was one
    """

    def __init__(self, console: Console, deployment: Deployment) -> None:
        self._console, self._deployment = console, deployment
        self._before: dict[signal.Signals, Any] = {}
        self.interrupted = False

    def __enter__(self) -> Interrupts:
        # The CLI gets a Ctrl-C itself, and nothing else from here.
        numbers = [signal.SIGINT, signal.SIGTERM] if self._deployment.in_process else [signal.SIGINT]
        self._before = {number: signal.signal(number, self._interrupted) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupted(self, *_: object) -> None:
        self.interrupted = True
        self._deployment.stop()
        if self._deployment.in_process:
            for number in self._before:
                signal.signal(number, signal.SIG_DFL)
        self._console.print(
            "\nStopping: the steps that run now come to their end. Run the same command again to go on from there."
        )
