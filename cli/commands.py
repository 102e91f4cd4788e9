"""Commands behind the Makefile: up, preview, outputs, status, diagnose, report, floors, images, shell, trust, down, ...

Progress and tables go to stderr and the terminal; only `outputs` writes to stdout, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console

from cli import lab_commands, measured_floors
from cli.checks import Checks
from cli.checks.key_endless import KEY
from cli.command_line import parser
from cli.head.command import on_head
from cli.head.diagnose import diagnose
from cli.money.amounts import Prices
from cli.money.change import change as change_of_costs
from cli.money.cluster_costs import cluster_costs
from cli.money.reap import decide
from cli.output.failures import first_line, say_failed
from cli.output.interrupts import Interrupts
from cli.output.live_status import NOW, over_ssh
from cli.output.make_command import Make
from cli.output.next_commands import next_commands
from cli.output.progress import Progress, changes
from cli.output.terminal import Terminal, run_shown
from cli.preview.comment import comment
from cli.preview.plan import Plan
from cli.preview.render import told
from cli.pulumi.deployment import Deployment, stack_config
from cli.pulumi.find_engine import Found, find_engine
from cli.pulumi.workspace import PROJECT, CliError, Workspace, write_private
from cli.report import overall, tables
from cli.report.last_run import LastRun
from cli.report.page import page
from cli.stack_config.stack_file import load_config, read_stack_file
from cli.stack_config.written_config import WrittenConfig
from cli.trust import trust
from engine.events import Event
from lab.errors import LabError
from lab.identity import lab_id
from stacks import bugs
from stacks.config import from_pulumi
from stacks.sites.hosts.inventory import PASSPHRASE
from stacks.yaml_file import FileError

STAYS = (
    "Machines that were not made by this stack keep packages, the logs in /var/log/tailrack and the setup scripts in "
    "~/.tailrack of the login; a head node also keeps people's files and the databases of accounting and MLflow. "
    "/var/log/tailrack/left on each machine lists all of it."
)
# What a preview reads of what would be created.
_OF_NEW = ("triggers", "update")


def main(words: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = parser(__doc__).parse_args(words)
    console = Terminal()
    try:
        status: int = {
            "up": _up,
            "preview": _preview,
            "outputs": _outputs,
            "status": _status,
            "diagnose": _diagnose,
            "report": _report,
            "floors": _floors,
            "images": _images,
            "shell": _shell,
            "trust": _trust,
            "down": _down,
            "reap": _reap,
            "engine": _which,
            "sweep": _sweep,
        }[arguments.command](arguments, console)
    except (FileError, LabError) as error:
        return _refused(console, str(error))
    except KeyboardInterrupt:
        _refused(console, "interrupted; run the same command again")
        return 130
    except Exception as error:  # noqa: BLE001 - the last net
        return _refused(console, bugs.report(error, arguments.state_dir))
    return status


def _refused(console: Console, why: str) -> int:
    console.print(f"tailrack: {why}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 1


def _deployment(
    arguments: argparse.Namespace, progress: Progress, found: Found, keep: Callable[[Event], None] = lambda event: None
) -> Deployment:
    config_file = arguments.config_file or stack_config(PROJECT, arguments.stack)
    workspace = Workspace(PROJECT, arguments.stack, config_file, arguments.state_dir)

    def on_event(event: Event) -> None:
        progress.on_event(event)
        keep(event)

    return Deployment(workspace, found, on_event)


def _engine(arguments: argparse.Namespace, console: Console) -> Found:
    found = find_engine(arguments.engine)
    console.print(found.why, markup=False, highlight=False)
    return found


def _up(arguments: argparse.Namespace, console: Console) -> int:
    begun, since = time.monotonic(), time.time()
    progress = Progress(console)
    deployment = _deployment(arguments, progress, _engine(arguments, console))
    if deployment.written.uses_lab:
        lab_commands.prepare(deployment.written.profiles)
    last_run = LastRun(arguments.state_dir, arguments.stack)
    last_run.begin()
    with Interrupts(console, deployment) as patience, progress:
        summary = deployment.up(Checks(deployment.written.allowed), arguments.refresh)
    last_run.end([first_line(failure) for failure in summary.failures])
    console.print()
    outputs = deployment.outputs() if summary.ok else {}
    if summary.ok:
        tables.show(console, outputs, deployment.make, since)
    nothing = not any(summary.counts[operation] for operation in ("create", "update", "replace", "delete"))
    console.print(f"Nothing to change: {changes(summary)}." if nothing and summary.ok else f"{changes(summary)}.")
    console.print(f"make up took {time.monotonic() - begun:.1f} s.", highlight=False)
    if not summary.ok:
        return say_failed(console, summary, progress, patience.interrupted)
    bad = overall.bad(outputs)
    if bad:
        console.print(
            f"The measurement of {', '.join(bad)} is not good enough (see above). To measure again, change "
            f"tailrack:validation.rerun in the config and run {deployment.make('up')}.",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 1
    console.print()
    tables.say_commands(console, next_commands(deployment, outputs))
    return 0


def _sweep(arguments: argparse.Namespace, console: Console) -> int:
    lab_commands.sweep(PROJECT)
    return 0


def _which(arguments: argparse.Namespace, console: Console) -> int:
    _engine(arguments, console)
    return 0


def _preview(arguments: argparse.Namespace, console: Console) -> int:
    progress, events = Progress(console, preview=True), list[Event]()

    def keep(event: Event) -> None:
        checks.on_event(event)
        # Of what comes as a whole nobody asks for more, and a thousand machines have many inputs.
        if event.operation == "create":
            event = replace(event, after={key: event.after[key] for key in _OF_NEW if key in event.after})
        events.append(event)

    deployment = _deployment(arguments, progress, _engine(arguments, console), keep)
    checks, made = Checks(deployment.written.allowed), deployment.made()
    with progress:
        summary = deployment.preview(made, arguments.refresh)
    plan = Plan.of(events, made, summary)
    for line in checks.lines():
        console.print(f" ! {line}", style="red", markup=False, highlight=False, soft_wrap=True)
    for line in told(plan):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    costs = change_of_costs(deployment) if summary.ok else []
    for line in costs:
        console.print(f"   costs: {line}", markup=False, highlight=False, soft_wrap=True)
    if arguments.comment:
        text = comment(arguments.stack, plan, summary.failures, checks, costs)
        arguments.comment.write_text(text, encoding="utf-8")
    if not summary.ok:
        return say_failed(console, summary, progress)
    console.print(plan.totals, highlight=False)
    # A key that is due is made anew by the next `up`, and is no sign of anybody's hand.
    changed = {event.type for event in events if event.kind == "start" and event.operation != "same"}
    if arguments.expect_no_changes and changed and changed != {KEY}:
        refresh = {"REFRESH": "yes"} if arguments.refresh else {}
        what = f"Stack {arguments.stack} is not as its config says: run {Make.of(arguments.stack)('up', **refresh)}."
        console.print(what, style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 1 if checks.refused else 0


def _outputs(arguments: argparse.Namespace, console: Console) -> int:
    quiet = Progress(console)
    outputs = _deployment(arguments, quiet, find_engine(arguments.engine)).outputs()
    print(json.dumps(outputs, indent=2, sort_keys=True))
    return 0


def _status(arguments: argparse.Namespace, console: Console) -> int:
    deployment = _deployment(arguments, Progress(console), find_engine(arguments.engine))
    outputs = deployment.outputs()
    tables.show(console, outputs, deployment.make, math.inf)
    if not outputs.get("cluster"):
        return 0
    if costs := Prices.made(outputs).words:
        console.print(f"Costs of stack {arguments.stack}, by its config: {costs}.", highlight=False, soft_wrap=True)
    head = outputs["cluster"].get("head", "")
    if deployment.written.head_in_lab or deployment.written.head_is_here:
        return 1 if run_shown(on_head(deployment, NOW, head)) else 0
    said = over_ssh(deployment.made(), head, NOW)
    console.print(said, highlight=False, soft_wrap=True)
    return 0


def _diagnose(arguments: argparse.Namespace, console: Console) -> int:
    deployment = _deployment(arguments, Progress(console), find_engine(arguments.engine))
    path, silent = diagnose(deployment, arguments.state_dir)
    if silent:
        told = f"No answer from {', '.join(silent)}: the archive says why, and has the others."
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    console.print(f"Written: {path}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _report(arguments: argparse.Namespace, console: Console) -> int:
    deployment = _deployment(arguments, Progress(console), find_engine(arguments.engine))
    outputs = _made(arguments, deployment)
    path = arguments.state_dir / f"report-{arguments.stack}.html"
    made_at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    costs = cluster_costs(deployment, outputs)
    write_private(
        path, page(outputs, arguments.stack, made_at, costs, LastRun(arguments.state_dir, arguments.stack).sentence())
    )
    console.print(f"Written: {path}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _floors(arguments: argparse.Namespace, console: Console) -> int:
    deployment = _deployment(arguments, Progress(console), find_engine(arguments.engine))
    outputs = _made(arguments, deployment)
    path = arguments.config_file or stack_config(PROJECT, arguments.stack)
    found = measured_floors.floors(outputs, make := Make.of(arguments.stack))
    source = f"measured floors of {time.strftime('%Y-%m-%d', time.gmtime())}"
    console.print(measured_floors.write(path, found, source), markup=False, highlight=False, end="")
    console.print(
        f"Written to {path.name}: {measured_floors.FRACTION:g} of the lowest of what was measured. "
        f"The next {make('up')} judges the same figures by them.",
        markup=False,
        highlight=False,
    )
    return 0


def _made(arguments: argparse.Namespace, deployment: Deployment) -> dict[str, Any]:
    """The outputs of a stack that has a cluster; CliError for one that has none."""
    outputs = deployment.outputs()
    if not outputs.get("cluster"):
        raise CliError(f"there is no cluster yet: run {Make.of(arguments.stack)('up')}")
    return outputs


def _trust(arguments: argparse.Namespace, console: Console) -> int:
    file = arguments.config_file or stack_config(PROJECT, arguments.stack)
    raw: dict[str, Any] = {
        key.removeprefix("tailrack:"): value for key, value in read_stack_file(file)["config"].items()
    }
    if PASSPHRASE in json.dumps(raw.get("sites"), default=str):  # of a bastion's key perhaps: a secret to be opened
        os.environ.update(Workspace(PROJECT, arguments.stack, file, arguments.state_dir).environment())
        raw = from_pulumi(load_config(PROJECT, file).values, "tailrack")
    return trust(raw, PROJECT, console, ask=sys.stdin.isatty())


def _images(arguments: argparse.Namespace, console: Console) -> int:
    deployment = _deployment(arguments, Progress(console), find_engine(arguments.engine))
    return run_shown(on_head(deployment, "tailrack-containers list"))


def _shell(arguments: argparse.Namespace, console: Console) -> int:
    config_file = arguments.config_file or stack_config(PROJECT, arguments.stack)
    written = WrittenConfig(read_stack_file(config_file)["config"])
    if not written.uses_lab:
        raise CliError(
            f"make shell is for containers of the lab, and stack {arguments.stack} has none: reach {arguments.node} by "
            "ssh, as the config does; of a local head node any shell of this machine is one"
        )
    lab, make = lab_id(PROJECT, written.cluster_stack or arguments.stack), Make.of(arguments.stack)
    container = lab_commands.container(lab, arguments.node, make)
    if arguments.run:
        return run_shown(["docker", "exec", "-i", container, "bash", "-l", "-c", arguments.run], always=False)
    terminal = "-it" if sys.stdin.isatty() else "-i"
    return subprocess.run(["docker", "exec", terminal, container, "bash", "-l"], check=False).returncode


def _reap(arguments: argparse.Namespace, console: Console) -> int:
    deployment = _deployment(arguments, Progress(console), find_engine(arguments.engine))
    decision = decide(deployment)
    if not decision.destroy:
        console.print(f"Stack {arguments.stack} is kept: {decision.why}.", highlight=False, soft_wrap=True)
        return 0
    console.print(f"Stack {arguments.stack} is taken away: {decision.why}.", highlight=False, soft_wrap=True)
    arguments.cluster_gone = False
    status = 1
    try:
        status = _down(arguments, console)
    finally:
        if status:
            _say_taken_out(deployment, console)
    return status


def _say_taken_out(deployment: Deployment, console: Console) -> None:
    told = (
        f"Its nodes take no jobs now: run {deployment.make('reap')} again, or, to keep them, "
        "'sudo tailrack resume --force NODE' on the head node."
    )
    console.print(told, style="red", markup=False, highlight=False, soft_wrap=True)


def _down(arguments: argparse.Namespace, console: Console) -> int:
    progress = Progress(console)
    deployment = _deployment(arguments, progress, _engine(arguments, console))
    if deployment.written.uses_lab:
        lab_commands.have_docker()
    if pools := deployment.pools():
        first = " and ".join(f"'{deployment.make.at(pool)('down')}'" for pool in pools)
        raise CliError(f"machines of {', '.join(pools)} are in this cluster, and they would lose it: run {first} first")
    with Interrupts(console, deployment) as patience, progress:
        summary = deployment.destroy(arguments.cluster_gone)
    console.print(f"{changes(summary)}.", highlight=False)
    if not summary.ok:
        if deployment.written.cluster_stack and not arguments.cluster_gone:
            told = f"\nIf its cluster is gone for good: {deployment.make('down', CLUSTER='gone')}"
            console.print(told, markup=False, highlight=False, soft_wrap=True)
        return say_failed(console, summary, progress, patience.interrupted)
    if deployment.written.uses_lab:
        # A pool is in the lab of its cluster.
        if not deployment.written.cluster_stack:
            lab_commands.clear_away(deployment.lab)
        lab_commands.stop_docker()
    console.print(f"Stack {arguments.stack} is destroyed.", highlight=False)
    if deployment.written.has_own_machines and not arguments.cluster_gone:
        console.print(STAYS, highlight=False, markup=False, soft_wrap=True)
    if deployment.written.cluster_stack and not arguments.cluster_gone:
        told = (
            "Its machines had the cluster's munge key. Where others get them now: change "
            f"tailrack:cluster.munge_generation and run {deployment.make.at(deployment.written.cluster_stack)('up')}."
        )
        console.print(told, highlight=False, markup=False, soft_wrap=True)
    return 0
