"""Print the failures of an operation."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cli.output.make_command import Make
from cli.output.progress import Progress, describe
from cli.output.terminal import lines
from cli.pulumi.workspace import ROOT
from cli.run_events import Failure, Summary
from components.steps.label import StepLabel
from stacks.unexpected_errors import TRACEBACK, report_text


def print_failures(console: Console, summary: Summary, progress: Progress, interrupted: bool = False) -> int:
    """Print the failures and the next action; return the exit status.

    interrupted   whether Ctrl-C ended the run; if no step failed, there is nothing to fix
    """
    failures = [failure for failure in summary.failures if failure.urn or not interrupted]
    for failure in failures:
        console.print()
        console.print(lines(describe_failure(failure)), style="red", soft_wrap=True)
    console.print()
    if not failures:
        console.print("Stopped. Run the same command again to continue.")
        return 1
    done = "The next run continues with the unfinished steps." if progress.begun else "No step was started."
    console.print(f"{done} Fix the problem above and run the same command again.")
    return 1


def first_line(failure: Failure) -> str:
    """Return the name of the failed step, for a list; the program itself if no step failed."""
    return describe(failure.command, failure.name) if failure.urn else "the program"


def describe_failure(failure: Failure) -> str:
    """Return the text of one failure for people."""
    if not failure.urn:  # the program itself failed
        return report_text(failure.message, ROOT) if TRACEBACK in failure.message else failure.message
    return f"failed: {first_line(failure)}\n{_without_command(failure.message) or 'no reason was given'}"


def _without_command(message: str) -> str:
    """Return a failure without the command: both engines print hundreds of its characters before its output."""
    first, _, rest = message.partition("\n")
    status, running, _ = first.partition(': running "')
    return (rest.strip("\n") or status) if running else message


_REMEDIES = tomllib.loads(Path(__file__).with_name("remedies.toml").read_text(encoding="utf-8"))["remedies"]
_FIRST_CONNECTION = "-host-key"  # the end of the name of a rented machine's step (stacks/sites/rented/first_key.py)


def with_remedies(summary: Summary, make: Make = Make()) -> Summary:
    """Add a line `next: ...` to the failures of steps on machines that could not be reached.

    make   the commands of the stack
    """
    summary.failures = [_explained(failure, make) for failure in summary.failures]
    return summary


def _explained(failure: Failure, make: Make) -> Failure:
    label = StepLabel.of(failure.command)
    if not label or not label.machine or "next: " in failure.message:
        return failure
    for remedy in _REMEDIES:
        if re.search(remedy["pattern"], failure.message, re.IGNORECASE):
            first = label.name == f"{label.machine}{_FIRST_CONNECTION}"
            text = remedy.get("first_connection", remedy["remedy"]) if first else remedy["remedy"]
            text = text.format(machine=label.machine, trust=make("trust"))
            return replace(failure, message=f"{failure.message}\nnext: {text}")
    return failure
