"""The command `elastic`, and `rent`, the run of a pool's `up` that it starts."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from cli import lab_commands, open_stack
from cli.elastic.controller import Controller
from cli.elastic.run import Run, by_node
from cli.file_lock import locked
from cli.open_stack import say
from cli.output.failures import print_failures
from cli.output.progress import Progress
from cli.pulumi.find_engine import find_engine
from cli.pulumi.interrupts import Interrupts
from cli.pulumi.workspace import CliError
from stacks.config import PoolConfig
from stacks.rental_requests import RENTED


def elastic(arguments: argparse.Namespace, console: Console) -> None:
    """Rent the machines that jobs wait for and return unused ones, until an interrupt or, with --once, one pass."""
    deployment = open_stack.open_quietly(arguments, console)
    folder = deployment.workspace.folder
    if deployment.written.uses_lab:
        lab_commands.prepare(deployment.written.profiles)
    command = [sys.executable, "-m", "cli", "--stack", arguments.stack, "--engine", arguments.engine]
    command += ["--config-file", str(arguments.config_file.resolve())]
    command += ["--state-dir", str(arguments.state_dir.resolve())]

    def start(machines: Sequence[str]) -> Run:
        return Run(command, machines, folder / "rent.json")

    def tell(text: str) -> None:
        say(console, f"{time.strftime('%H:%M:%S')} {text}")

    busy = f"another `{deployment.make('elastic')}` is active; end it with Ctrl-C there"
    with locked(folder / "elastic", CliError(busy)):
        controller = Controller(deployment, start, tell)
        if not arguments.once:
            tell(f"watching the jobs of pool {arguments.stack}; Ctrl-C ends this, and rented machines stay")
        try:
            controller.watch(once=arguments.once)
        except KeyboardInterrupt:
            say(console, f"\nStopped. Rented machines stay until {deployment.make('elastic')} runs again.")


def rent(arguments: argparse.Namespace, console: Console) -> int:
    """Run `up` with the machines that the environment names, and write the failures by node."""
    progress = Progress(console)
    deployment = open_stack.open_deployment(arguments, progress, find_engine(arguments.engine))
    config = deployment.config()
    if RENTED not in os.environ or not isinstance(config, PoolConfig):
        raise CliError(f"this command is a part of `{deployment.make('elastic')}`; run that")
    with Interrupts(console, deployment) as interrupts, progress:
        summary = deployment.up()
    names = [node.name for node in config.nodes()]
    arguments.result.write_text(json.dumps(by_node(summary.failures, names)), encoding="utf-8")
    return 0 if summary.ok else print_failures(console, summary, progress, interrupts.interrupted)
