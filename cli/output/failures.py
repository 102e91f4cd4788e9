"""What a person reads of an operation that failed."""

from __future__ import annotations

from rich.console import Console

from cli.output.progress import Progress, describe
from cli.output.terminal import lines
from cli.pulumi.workspace import ROOT
from engine.events import Failure, Summary
from stacks import bugs


def say_failed(console: Console, summary: Summary, progress: Progress, interrupted: bool = False) -> int:
    """Print what failed and what to do next; the exit status.

    interrupted   whether Ctrl-C ended the run: where no step failed, there is nothing to repair
    """
    failures = [failure for failure in summary.failures if failure.urn or not interrupted]
    for failure in failures:
        console.print()
        console.print(lines(told(failure)), style="red", markup=False, highlight=False, soft_wrap=True)
    console.print()
    if not failures:
        console.print("Stopped. Run the same command again to go on from there.")
        return 1
    done = "What did not fail is done." if progress.begun else "Nothing was begun."
    console.print(f"{done} Repair what is named above, then run the same command again.")
    return 1


def first_line(failure: Failure) -> str:
    """Return the step that failed in a few words, for a list; the program itself where no step did."""
    return describe(failure.command, failure.urn.rsplit("::", 1)[-1]) if failure.urn else "the program"


def told(failure: Failure) -> str:
    """Return what a person reads of one failure."""
    if not failure.urn:  # the program itself, by either engine
        return bugs.report_text(failure.message, ROOT) if bugs.TRACEBACK in failure.message else failure.message
    return f"failed: {first_line(failure)}\n{_without_command(failure.message) or 'no reason was given'}"


def _without_command(message: str) -> str:
    """Return a failure without the command: both engines put hundreds of its characters before what it printed."""
    first, _, rest = message.partition("\n")
    status, running, _ = first.partition(': running "')
    return (rest.strip("\n") or status) if running else message
