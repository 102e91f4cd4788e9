"""Commands that change a stack or show the changes: up, preview, down, reap, sweep."""

import argparse
import time
from dataclasses import replace

from rich.console import Console

from cli import lab_commands, open_stack
from cli.changes_to_allow import KEY, Checks
from cli.money.amounts import change as change_of_costs
from cli.money.amounts import decide
from cli.open_stack import say
from cli.output.failures import first_line, print_failures
from cli.output.make_command import Make
from cli.output.next_commands import next_commands
from cli.output.progress import Progress, changes
from cli.preview.comment import comment
from cli.preview.plan import Plan, render
from cli.pulumi.deployment import Deployment
from cli.pulumi.interrupts import Interrupts
from cli.pulumi.workspace import PROJECT, CliError
from cli.report import overall, tables
from cli.report.last_run import LastRun
from cli.run_events import Event
from lab import docker_daemon

STAYS = (
    "Machines that this stack did not create keep their packages, the logs in /var/log/tailrack and the setup scripts "
    "in ~/.tailrack of the login account. A head node also keeps users' files and the databases of accounting and "
    "MLflow. /var/log/tailrack/left on each machine lists everything that stays."
)
# The inputs of a new resource that a preview needs; a thousand machines have many inputs.
_INPUTS_OF_NEW = ("triggers", "update", "gpuKind")


def up(arguments: argparse.Namespace, console: Console) -> int:
    """Bring the stack to its config, and show its nodes and measurements."""
    begun, since = time.monotonic(), time.time()
    progress = Progress(console)
    deployment = open_stack.open_deployment(arguments, progress, open_stack.announced_engine(arguments, console))
    if deployment.written.uses_lab:
        lab_commands.prepare(deployment.written.profiles)
    last_run = LastRun(arguments.state_dir, arguments.stack)
    last_run.begin()
    with Interrupts(console, deployment) as interrupts, progress:
        summary = deployment.up(Checks(deployment.written.allowed), arguments.refresh)
    last_run.end([first_line(failure) for failure in summary.failures])
    console.print()
    outputs = deployment.outputs() if summary.ok else {}
    if summary.ok:
        tables.show(console, outputs, deployment.make, since)
    nothing = not any(summary.counts[operation] for operation in ("create", "update", "replace", "delete"))
    console.print(f"Nothing to change: {changes(summary)}." if nothing and summary.ok else f"{changes(summary)}.")
    console.print(f"make up took {time.monotonic() - begun:.1f} s.")
    if not summary.ok:
        return print_failures(console, summary, progress, interrupts.interrupted)
    bad = overall.bad(outputs)
    if bad:
        say(
            console,
            f"The measurement of {', '.join(bad)} is not good enough (see above). To measure again, change "
            f"tailrack:validation.rerun in the config and run {deployment.make('up')}.",
            style="red",
        )
        return 1
    console.print()
    tables.print_commands(console, next_commands(deployment, outputs))
    return 0


def preview(arguments: argparse.Namespace, console: Console) -> int:
    """Show the changes that `up` would make."""
    progress, events = Progress(console, preview=True), list[Event]()

    def keep(event: Event) -> None:
        checks.on_event(event)
        if event.operation == "create":
            inputs = {key: event.after[key] for key in _INPUTS_OF_NEW if key in event.after}
            event = replace(event, after=inputs)
        events.append(event)

    engine = open_stack.announced_engine(arguments, console)
    deployment = open_stack.open_deployment(arguments, progress, engine, keep)
    checks, resources = Checks(deployment.written.allowed), deployment.made()
    with progress:
        summary = deployment.preview(resources, arguments.refresh)
    plan = Plan.of(events, resources, summary)
    for line in checks.lines():
        say(console, f" ! {line}", style="red")
    for line in render(plan):
        say(console, line)
    costs = change_of_costs(deployment) if summary.ok else []
    for line in costs:
        say(console, f"   costs: {line}")
    if arguments.comment:
        text = comment(arguments.stack, plan, summary.failures, checks, costs)
        arguments.comment.write_text(text, encoding="utf-8")
    if not summary.ok:
        return print_failures(console, summary, progress)
    console.print(plan.totals)
    # The next `up` replaces an auth key that is due, so such a change alone is no drift.
    changed = {event.type for event in events if event.kind == "start" and event.operation != "same"}
    if arguments.expect_no_changes and changed and changed != {KEY}:
        refresh = {"REFRESH": "yes"} if arguments.refresh else {}
        command = Make.of(arguments.stack)("up", **refresh)
        say(console, f"Stack {arguments.stack} differs from its config. To apply the config: {command}.", style="red")
        return 1
    return 1 if checks.refused else 0


def reap(arguments: argparse.Namespace, console: Console) -> int:
    """Destroy a pool that has been idle for too long; print the decision and its reason."""
    deployment = open_stack.open_quietly(arguments, console)
    use = decide(deployment)
    if not use.unused:
        say(console, f"Keeping stack {arguments.stack}: {use.why}.")
        return 0
    say(console, f"Destroying stack {arguments.stack}: {use.why}.")
    arguments.cluster_gone = False
    status = 1
    try:
        status = down(arguments, console)
    finally:
        if status:
            _warn_drained(deployment, console)
    return status


def _warn_drained(deployment: Deployment, console: Console) -> None:
    say(
        console,
        f"The pool's nodes are drained and take no jobs. Run {deployment.make('reap')} again, or, to keep the nodes, "
        "'sudo tailrack resume --force NODE' on the head node.",
        style="red",
    )


def down(arguments: argparse.Namespace, console: Console) -> int:
    """Destroy the stack."""
    progress = Progress(console)
    deployment = open_stack.open_deployment(arguments, progress, open_stack.announced_engine(arguments, console))
    if deployment.written.uses_lab:
        docker_daemon.ensure_daemon()
    if pools := deployment.pools():
        first = " and ".join(f"'{deployment.make.at(pool)('down')}'" for pool in pools)
        raise CliError(f"machines of {', '.join(pools)} are still in this cluster; run {first} first")
    with Interrupts(console, deployment) as interrupts, progress:
        summary = deployment.destroy(arguments.cluster_gone)
    console.print(f"{changes(summary)}.")
    if not summary.ok:
        if deployment.written.cluster_stack and not arguments.cluster_gone:
            command = deployment.make("down", CLUSTER="gone")
            say(console, f"\nIf the pool's cluster no longer exists, run {command}")
        return print_failures(console, summary, progress, interrupts.interrupted)
    if deployment.written.uses_lab:
        # A pool uses the lab of its cluster.
        if not deployment.written.cluster_stack:
            lab_commands.clear_away(deployment.lab)
        lab_commands.stop_docker()
    console.print(f"Stack {arguments.stack} is destroyed.")
    if deployment.written.has_own_machines and not arguments.cluster_gone:
        say(console, STAYS)
    if deployment.written.cluster_stack and not arguments.cluster_gone:
        command = deployment.make.at(deployment.written.cluster_stack)("up")
        say(
            console,
            "The pool's machines had the cluster's munge key. If other people get these machines, change "
            f"tailrack:cluster.munge_generation and run {command}.",
        )
    return 0


def sweep(arguments: argparse.Namespace, console: Console) -> None:
    """Remove every lab of this checkout."""
    lab_commands.sweep(PROJECT)
