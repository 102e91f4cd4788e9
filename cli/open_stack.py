"""Open the stack of a command: its config file, its engine, its deployment."""

import argparse
from collections.abc import Callable

from rich.console import Console

from cli.output.progress import Progress
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import Found, find_engine
from cli.pulumi.workspace import PROJECT, Workspace
from cli.run_events import Event


def open_deployment(
    arguments: argparse.Namespace, progress: Progress, engine: Found, keep: Callable[[Event], None] = lambda event: None
) -> Deployment:
    """Return the stack's deployment; its events go to `progress` and to `keep`."""
    workspace = Workspace(PROJECT, arguments.stack, arguments.config_file, arguments.state_dir)

    def on_event(event: Event) -> None:
        progress.on_event(event)
        keep(event)

    return Deployment(workspace, engine, on_event)


def open_quietly(arguments: argparse.Namespace, console: Console) -> Deployment:
    """Return the stack's deployment without printing which engine runs it."""
    return open_deployment(arguments, Progress(console), find_engine(arguments.engine))


def announced_engine(arguments: argparse.Namespace, console: Console) -> Found:
    """Find the engine and print which one it is."""
    engine = find_engine(arguments.engine)
    console.print(engine.why)
    return engine


def confirmed(console: Console, question: str, interactive: bool) -> bool:
    """Return whether a person says that keys are right. Without one, or a yes, print that no key is recorded.

    interactive   whether a person can answer
    """
    if not interactive:
        say(console, "No key is recorded: run this in a terminal, to confirm the keys.", "red")
    elif console.input(f"{question} Type yes: ").strip().lower() != "yes":
        say(console, "No key is recorded.")
    else:
        return True
    return False


def say(console: Console, text: str, style: str = "") -> None:
    """Print plain text without wrapping its lines."""
    console.print(text, style=style, soft_wrap=True)
