"""Commands that show or record the state of a stack: outputs, status, report, floors, trust, shell, ..."""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from cli import lab_commands, measured_floors, open_stack
from cli.github_keys import github_keys as record_github_keys
from cli.head.answer import NOW, ask_head, on_head
from cli.head.diagnose import diagnose as write_archive
from cli.money.amounts import Prices, cluster_costs
from cli.open_stack import say
from cli.output.make_command import Make
from cli.output.terminal import run_shown
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import PROJECT, CliError, Workspace, write_atomically
from cli.report import tables
from cli.report.last_run import LastRun
from cli.report.page import page
from cli.ssh_config import config_text
from cli.stack_config.stack_file import load_config, read_stack_file
from cli.stack_config.written_config import WrittenConfig
from cli.trust import trust as trust_hosts
from lab.identity import lab_id
from stacks.config import from_pulumi
from stacks.sites.hosts.other_stacks import stacks_read, with_other_stacks
from stacks.sites.hosts.ssh_types import PASSPHRASE


def engine(arguments: argparse.Namespace, console: Console) -> None:
    """Print which engine the other commands use."""
    open_stack.announced_engine(arguments, console)


def outputs(arguments: argparse.Namespace, console: Console) -> None:
    """Print the stack's outputs as one JSON object on stdout."""
    values = open_stack.open_quietly(arguments, console).outputs()
    print(json.dumps(values, indent=2, sort_keys=True))


def status(arguments: argparse.Namespace, console: Console) -> int:
    """Show the result of the last run, then the present state from the head node."""
    deployment = open_stack.open_quietly(arguments, console)
    values = deployment.outputs()
    tables.show(console, values, deployment.make, math.inf)
    if not values.get("cluster"):
        return 0
    if costs := Prices.from_outputs(values).summary:
        console.print(f"Costs of stack {arguments.stack}, by its config: {costs}.", soft_wrap=True)
    return _show_head(deployment, console, values, NOW)


def _show_head(deployment: Deployment, console: Console, values: Mapping[str, Any], command: str) -> int:
    head = values["cluster"].get("head", "")
    if deployment.written.head_in_lab or deployment.written.head_is_here:
        return 1 if run_shown(on_head(deployment, command, head)) else 0
    console.print(ask_head(deployment, deployment.made(), head, command), soft_wrap=True)
    return 0


def diagnose(arguments: argparse.Namespace, console: Console) -> None:
    """Write the archive for a bug report and print its path."""
    path, silent = write_archive(open_stack.open_quietly(arguments, console), arguments.state_dir)
    if silent:
        say(console, f"No answer from {', '.join(silent)}. The archive has the reasons, and the data of the others.")
    say(console, f"Written: {path}")


def report(arguments: argparse.Namespace, console: Console) -> None:
    """Write the report page and print its path."""
    deployment = open_stack.open_quietly(arguments, console)
    values = _cluster_outputs(deployment)
    path = arguments.state_dir / f"report-{arguments.stack}.html"
    written_at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    costs = cluster_costs(deployment, values)
    last_run = LastRun(arguments.state_dir, arguments.stack).sentence()
    write_atomically(path, page(values, arguments.stack, written_at, costs, last_run))
    say(console, f"Written: {path}")


def floors(arguments: argparse.Namespace, console: Console) -> None:
    """Write floors from the last measurement into the stack's config file."""
    deployment = open_stack.open_quietly(arguments, console)
    values = _cluster_outputs(deployment)
    path = arguments.config_file
    new_floors = measured_floors.floors(values, make := Make.of(arguments.stack))
    source = f"measured floors of {time.strftime('%Y-%m-%d', time.gmtime())}"
    console.print(measured_floors.write(path, new_floors, source), end="")
    share = f"{measured_floors.FRACTION:g} of the lowest measured value"
    say(console, f"Written to {path.name}: {share}. The next {make('up')} judges by these floors.")


def _cluster_outputs(deployment: Deployment) -> dict[str, Any]:
    """Return the outputs of a stack with a cluster; raise CliError for a stack without one."""
    values = deployment.outputs()
    if not values.get("cluster"):
        raise CliError(f"there is no cluster yet: run {deployment.make('up')}")
    return values


def trust(arguments: argparse.Namespace, console: Console) -> int:
    """Show unknown host keys, ask, and record them."""
    path = arguments.config_file
    raw: dict[str, Any] = {
        key.removeprefix("tailrack:"): value for key, value in read_stack_file(path)["config"].items()
    }
    # The sites, or a passphrase such as that of a bastion's key, may be an encrypted secret.
    if isinstance(sites := raw.get("sites"), dict) or PASSPHRASE in json.dumps(sites, default=str):
        os.environ.update(Workspace(PROJECT, arguments.stack, path, arguments.state_dir).environment())
        raw = from_pulumi(load_config(PROJECT, path).values)
    if names := stacks_read(raw):
        deployment = open_stack.open_quietly(arguments, console)
        raw = {**with_other_stacks(raw, {name: deployment.other_stack(name) for name in names})}
    return trust_hosts(raw, PROJECT, console, interactive=sys.stdin.isatty())


def github_keys(arguments: argparse.Namespace, console: Console) -> int:
    """Show the SSH keys of users at GitHub, ask, and record them in the stack's config."""
    make = Make.of(arguments.stack)
    return record_github_keys(arguments.config_file, console, make, interactive=sys.stdin.isatty())


def ssh_config(arguments: argparse.Namespace, console: Console) -> None:
    """Print lines for ~/.ssh/config on stdout."""
    deployment = open_stack.open_quietly(arguments, console)
    head = _cluster_outputs(deployment)["cluster"]["head"]
    print(config_text(deployment, head), end="")


def images(arguments: argparse.Namespace, console: Console) -> int:
    """Show the images of containers and the nodes that have them."""
    deployment = open_stack.open_quietly(arguments, console)
    return _show_head(deployment, console, _cluster_outputs(deployment), "tailrack-containers list")


def shell(arguments: argparse.Namespace, console: Console) -> int:
    """Open a shell on a lab node, or run one command there."""
    written = WrittenConfig(read_stack_file(arguments.config_file)["config"])
    if not written.uses_lab:
        raise CliError(
            f"make shell is for containers of the lab, and stack {arguments.stack} has none; connect to "
            f"{arguments.node} by SSH as the config does, or, for a local head node, use a shell on this machine"
        )
    lab, make = lab_id(PROJECT, written.cluster_stack or arguments.stack), Make.of(arguments.stack)
    container = lab_commands.container(lab, arguments.node, make)
    if arguments.run:
        return run_shown(["docker", "exec", "-i", container, "bash", "-l", "-c", arguments.run], always=False)
    terminal = "-it" if sys.stdin.isatty() else "-i"
    return subprocess.run(["docker", "exec", terminal, container, "bash", "-l"], check=False).returncode
