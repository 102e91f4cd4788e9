"""Progress on stderr: steps that run, and how long finished ones took. Stdout is for results."""

from __future__ import annotations

import threading
import time

from rich.console import Console
from rich.text import Text

from cli.output.terminal import lines, one_line
from cli.run_events import Event, Summary
from components.steps.label import StepLabel

MARKS = {"create": "+", "update": "~", "replace": "±", "delete": "-"}
_DONE = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted"}


def describe(command: str, name: str) -> str:
    """Return the text of the label in front of a step's command, or the resource's name without a label."""
    label = StepLabel.of(command)
    return one_line(label.text if label else name)


class Progress:
    """A printer of one line per finished step; a terminal also shows the running steps.

    Without a terminal, it prints the running steps when none has finished for a while. It prints nothing for a preview
    (see cli/preview).

    begun   whether a step has started; always false in a preview
    """

    def __init__(self, console: Console, preview: bool = False, quiet_seconds: float = 30) -> None:
        self.begun = False
        self._quiet_seconds, self._ended, self._printed = quiet_seconds, threading.Event(), threading.Event()
        self._console, self._preview = console, preview
        self._running: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._status = console.status("") if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._status:
            self._status.start()
        elif not self._preview:
            threading.Thread(target=self._print_running_steps, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._status:
            self._status.stop()

    def on_event(self, event: Event) -> None:
        """Handle an event of either engine; components do nothing and are not shown."""
        if event.type.startswith(("tailrack:", "pulumi:")) or event.operation == "same":
            return
        with self._lock:
            if event.kind != "start":
                self._printed.set()
            if event.kind == "start":
                self.begun = not self._preview
                self._running[event.urn] = (describe(event.command, event.name), time.monotonic())
            elif event.kind in ("done", "failed", "skipped"):
                self._running.pop(event.urn, None)
                if not self._preview:
                    word = _DONE.get(event.operation, event.operation) if event.kind == "done" else event.kind
                    line = _line(event, f"{word} in {event.seconds:.1f} s" if event.kind != "skipped" else word)
                    style = "red" if event.kind == "failed" else None
                    self._console.print(line, style=style)
            elif event.kind == "message":
                self._console.print(f"  {lines(event.text)}")
            if self._status:
                self._status.update(Text(self._running_steps()))

    def _print_running_steps(self) -> None:
        while not self._ended.wait(self._quiet_seconds):
            with self._lock:
                if self._running and not self._printed.is_set():
                    longest = time.monotonic() - min(begun for _, begun in self._running.values())
                    line = f"   {self._running_steps()}, for {longest:.0f} s"
                    self._console.print(line, soft_wrap=True)
                self._printed.clear()

    def _running_steps(self) -> str:
        names = [name for name, _ in sorted(self._running.values(), key=lambda pair: pair[1])]
        return f"now: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}" if names else ""


def _line(event: Event, outcome: str) -> str:
    mark = {"failed": "x", "skipped": " "}.get(event.kind, MARKS.get(event.operation, " "))
    return f" {mark} {describe(event.command, event.name):<52} {outcome}"


def changes(summary: Summary) -> str:
    """Return one line of counts: `3 created, 1 updated, 20 unchanged in 12.3 s`."""
    parts = [f"{summary.counts[operation]} {_DONE[operation]}" for operation in _DONE if summary.counts[operation]]
    parts.append(f"{summary.counts['same']} unchanged")
    return f"{', '.join(parts)} in {summary.seconds:.1f} s"
