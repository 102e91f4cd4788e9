"""Print the failures of an operation."""

from __future__ import annotations

from rich.console import Console

from cli.output.progress import Progress, describe
from cli.output.terminal import lines
from cli.pulumi.workspace import ROOT
from cli.run_events import Failure, Summary
from stacks import bugs


def print_failures(console: Console, summary: Summary, progress: Progress, interrupted: bool = False) -> int:
    """Print the failures and the next action; return the exit status.

    interrupted   whether Ctrl-C ended the run; if no step failed, there is nothing to fix
    """
    failures = [failure for failure in summary.failures if failure.urn or not interrupted]
    for failure in failures:
        console.print()
        console.print(lines(describe_failure(failure)), style="red", markup=False, highlight=False, soft_wrap=True)
    console.print()
    if not failures:
        console.print("Stopped. Run the same command again to continue.")
        return 1
    done = "The next run continues with the unfinished steps." if progress.begun else "No step was started."
    console.print(f"{done} Fix the problem above and run the same command again.")
    return 1


def first_line(failure: Failure) -> str:
    """Return the name of the failed step, for a list; the program itself if no step failed."""
    return describe(failure.command, failure.urn.rsplit("::", 1)[-1]) if failure.urn else "the program"


def describe_failure(failure: Failure) -> str:
    """Return the text of one failure for people."""
    if not failure.urn:  # the program itself failed
        return bugs.report_text(failure.message, ROOT) if bugs.TRACEBACK in failure.message else failure.message
    return f"failed: {first_line(failure)}\n{_without_command(failure.message) or 'no reason was given'}"


def _without_command(message: str) -> str:
    """Return a failure without the command: both engines print hundreds of its characters before its output."""
    first, _, rest = message.partition("\n")
    status, running, _ = first.partition(': running "')
    return (rest.strip("\n") or status) if running else message
