"""One stack and the engine that runs it, for `make` commands and the lab's tests.

Before a run it looks for a head node that was restored from a backup older than the newest in the stack's state. The
owner of a backup target can hide the newest backups. The backup role's services step prints the time of the last
backup (components/roles/storage/backup/host.py), which stays in the state when the head node is lost.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from cli.bastions import forwarded
from cli.changes_to_allow import Checks
from cli.output.failures import with_remedies
from cli.output.make_command import Make
from cli.preview.last_answers import last_answers
from cli.pulumi.find_engine import IN_PROCESS, Found
from cli.pulumi.runner import CliRunner
from cli.pulumi.workspace import CliError, Workspace
from cli.run_events import Event, Failure, Made, Summary, node_of, nodes_of
from cli.stack_config.stack_file import Secrets, check_for_cli, config_values, load_config, read_stack_file
from cli.stack_config.written_config import WrittenConfig
from components.settings.mask_secrets import MASK
from components.settings.problems import shown
from components.steps.command_line import is_step
from engine.engine import Engine
from lab.identity import lab_id
from stacks.config import ConfigError, OtherStack, PoolConfig, StackConfig, load, other_stacks_of
from stacks.release import RELEASE, is_newer
from stacks.rental_requests import LEFT_OUT, RENTED
from stacks.sites.hosts.bastions import hops_of
from stacks.sites.rented.model import WARN, RentedSite
from stacks.yaml_file import FileError

# Resources that run a command by SSH when they are deleted. In a pool's stack, these run only on the head node, which
# removes the nodes.
ON_MACHINES = "command:remote:Command"


class Deployment:
    """A stack of the program in `workspace`, run by `engine`.

    up, preview, destroy return a Summary; outputs returns the stack's outputs. Raises CliError if the engine cannot
    start.
    """

    def __init__(
        self, workspace: Workspace, engine: Found, on_event: Callable[[Event], None], parallel: int = 32
    ) -> None:
        self.workspace = workspace
        self._runner: CliRunner | Engine
        # Read first, so that errors of the file are the same under either engine.
        self.written = WrittenConfig(
            read_stack_file(workspace.config_file)["config"], self.other_stack, workspace.project
        )
        self._other_stacks: dict[str, OtherStack] = {}
        self._on_event = on_event
        self._stopped = False
        workspace.prepare()
        if engine.cli is not None:
            workspace.prepare_pulumi_home()
            check_for_cli(workspace.config_copy, {**os.environ, **workspace.environment()})
            self._refuse_another_engine("cli")
            self._runner = CliRunner(workspace, engine.cli, self._forward, parallel)
        else:
            os.environ.update(workspace.environment())
            config = load_config(workspace.project, workspace.config_copy)
            self._refuse_another_engine(IN_PROCESS)
            self._runner = Engine(
                workspace.project,
                workspace.stack,
                lambda stack: replace(workspace, stack=stack).in_process_state,
                config,
                self._forward,
                parallel,
            )

    def _forward(self, event: Event) -> None:
        self._on_event(event)

    def _refuse_another_engine(self, engine: str) -> None:
        """Refuse another engine than that of the stack's `up`: it has no state and would create everything again."""
        marker = self._engine_file
        previous = marker.read_text(encoding="utf-8").strip() if marker.is_file() else engine
        if previous != engine:
            raise CliError(
                f"stack {self.workspace.stack!r} was created by the engine {previous!r}, and the engine {engine!r} "
                f"does not have its state; use ENGINE={previous}"
                + (" with the Pulumi CLI on PATH" if previous == "cli" else "")
                + f", or run '{Make(self.workspace.stack, previous)('down')}' first"
            )

    @property
    def _engine_file(self) -> Path:
        return self.workspace.folder / "engine"

    @property
    def lab(self) -> str:
        """Return the id of this stack's lab, a part of its containers' names; a pool uses its cluster's lab."""
        return lab_id(self.workspace.project, self.written.cluster_stack or self.workspace.stack)

    def config(self) -> StackConfig | PoolConfig:
        """Return the checked config. Raises CliError if it cannot be read, decrypted or used."""
        try:
            values, secrets = self._config_values()
            others = {name: self.other_stack(name) for name in other_stacks_of(values)}
            paths = [path for inside in secrets.values() for path, _ in inside]
            return load(values, paths, self.workspace.project, other_stacks=others)
        except ConfigError as error:
            raise CliError(error.message_for(self.workspace.stack)) from None
        except FileError as error:
            raise CliError(str(error)) from None

    def _config_values(self) -> tuple[dict[str, str], Secrets]:
        return config_values(self.workspace.config_copy, {**os.environ, **self.workspace.environment()})

    def other_stack(self, name: str) -> OtherStack:
        """Return the outputs of another stack, or the reason why they cannot be read. They are read once."""
        if name not in self._other_stacks:
            try:
                outputs = self._runner.outputs_of(name)
            except CliError as error:
                self._other_stacks[name] = OtherStack(error=str(error))
            else:
                secrets = frozenset(key for key, value in outputs.items() if MASK in json.dumps(value))
                self._other_stacks[name] = OtherStack(outputs, secrets)
        return self._other_stacks[name]

    @property
    def make(self) -> Make:
        """Return the renderer of this stack's `make` commands."""
        return Make.of(self.workspace.stack)

    def _refuse_newer_release(self) -> None:
        release = self.outputs().get("release")
        if is_newer(release):
            raise CliError(
                f"stack {self.workspace.stack} was created by tailrack {shown(release)}, and this is {RELEASE}, which "
                "would undo the newer release's changes; use the newer release (its CHANGELOG.md lists the changes)"
            )

    def _refuse_unusable(self) -> None:
        """Raise CliError for a stack of a newer release, of another cluster's name, or whose cluster is unknown."""
        self._refuse_newer_release()
        self._refuse_another_name()
        self._refuse_unknown_cluster()

    def _refuse_another_name(self) -> None:
        cluster = self.outputs().get("cluster")
        old_name = cluster.get("name") if isinstance(cluster, dict) else None
        names = [section.get("name") for section in self.written.mappings("tailrack:cluster")]
        if isinstance(old_name, str) and names and names[0] != old_name:
            raise CliError(
                f"tailrack:cluster.name: the cluster is named {shown(old_name)}, but the config has {shown(names[0])}; "
                f"slurmctld would reject its saved state; write {shown(old_name)} again, or, to replace the cluster, "
                f"run `{self.make('down')}` with the old name, `rm -r /var/lib/slurm/slurmctld` on a head node that "
                f"stays, and `{self.make('up')}`"
            )

    def _refuse_unknown_cluster(self) -> None:
        reference, stack = self.written.cluster, self.written.cluster_stack
        if stack and not self._runner.has(reference):
            raise CliError(
                f"tailrack:cluster: there is no stack {shown(reference)} with a cluster (in PULUMI_BACKEND_URL); "
                "nodes cannot join it; write the name of the cluster's stack, or run "
                f"{self.make.at(stack)('up')} first"
            )

    def up(self, checks: Checks | None = None, refresh: bool = False) -> Summary:
        """Bring the stack to what its config says.

        checks    checks of a preview of an existing stack; CliError, before any change, if the config does not allow
                  a change
        refresh   read clouds and tailnet first
        """
        with self.workspace.exclusive(), self.forwarded(alone=True):
            self._refuse_unusable()
            if checks and self.outputs():
                planned = self._preview_for_checks(checks, refresh)
                if not planned.ok:
                    return planned
                if checks.refused:
                    lines = "\n".join(f"  {line}" for line in checks.lines())
                    raise CliError(f"refused, nothing was changed:\n{lines}")
            before = self.made() if self.written.restores else []
            # A preview records no engine: it leaves nothing that another engine could not see.
            self._engine_file.write_text(f"{IN_PROCESS if self.in_process else 'cli'}\n", encoding="utf-8")
            with self._rented_machines():
                summary = self._refreshing(self._runner.up, refresh)()
                # `make elastic` gives up nodes that get no machine itself.
                if not (summary.ok or self._stopped or self.written.elastic):
                    summary = with_fewer(summary, self.config, self._runner.up, self._tell)
            summary = with_remedies(summary, self.make)
            if before and (warning := older_backup(before, self.made())):
                self._tell(warning)
            return summary

    def _tell(self, text: str) -> None:
        self._on_event(Event("message", text=text))

    def _preview_for_checks(self, checks: Checks, refresh: bool) -> Summary:
        on_event, self._on_event = self._on_event, checks.on_event
        try:
            return self._previewed(None, refresh)
        finally:
            self._on_event = on_event

    @contextmanager
    def _rented_machines(self) -> Iterator[None]:
        """Tell the program which machines of an elastic pool exist, unless `make elastic` has told it."""
        if not self.written.elastic or RENTED in os.environ:
            yield
            return
        os.environ[RENTED] = ",".join(sorted(nodes_of(self.made())))
        try:
            yield
        finally:
            del os.environ[RENTED]

    def preview(self, resources: Sequence[Made] | None = None, refresh: bool = False) -> Summary:
        """Return the changes that `up` would make if machines answer as before.

        resources   of the last run, if the caller has them already
        refresh     read clouds and tailnet first
        """
        self._refuse_unusable()
        return self._previewed(resources, refresh)

    def _previewed(self, resources: Sequence[Made] | None, refresh: bool) -> Summary:
        made = self.made() if resources is None else resources
        with last_answers(made, self.workspace.folder), self._rented_machines():
            return self._refreshing(self._runner.preview, refresh)()

    def _refreshing(self, operation: Callable[..., Summary], refresh: bool) -> Callable[[], Summary]:
        """Return the runner's operation, with a refresh first if asked; only the Pulumi CLI can refresh."""
        if refresh and self.in_process:
            raise CliError("the in-process engine cannot read clouds and tailnet; install the Pulumi CLI")
        return partial(operation, refresh=True) if refresh else operation

    def made(self) -> list[Made]:
        """Return the resources of the last run."""
        return self._runner.made()

    def pools(self) -> list[str]:
        """Return the stacks of this workspace whose machines are in this stack's cluster."""
        files = sorted(self.workspace.folder.parent.glob("*/Pulumi.*.yaml"))
        stacks = {file.parent.name: WrittenConfig(read_stack_file(file)["config"]).cluster_stack for file in files}
        members = [stack for stack, joined in stacks.items() if joined == self.workspace.stack]
        return [stack for stack in members if self._runner.has(stack)]

    def _forget_cluster(self, requested: bool) -> None:
        """If a pool's cluster no longer exists, skip the pool's clean-up on its head node, and report it.

        requested   skip without looking for the cluster's stack
        """
        reference = self.written.cluster
        if not self.written.cluster_stack or (not requested and self._runner.has(reference)):
            return
        undeleted = self._runner.leave_undone(ON_MACHINES)
        why = "as requested" if requested else f"stack {reference} does not exist"
        self._tell(
            f"The cluster no longer exists ({why}). The pool's clean-up on its head node is skipped "
            f"({', '.join(undeleted) or 'nothing'}). On machines that stay, run tailrack-leave as root."
        )

    def destroy(self, cluster_gone: bool = False) -> Summary:
        """Delete everything of the stack, and then its folder.

        cluster_gone   for a pool: do not contact the head node. This is automatic if the cluster's stack is gone.
        """
        with self.workspace.exclusive(), self.forwarded(alone=True):
            self._refuse_newer_release()
            self._forget_cluster(cluster_gone)
            summary = with_remedies(self._runner.destroy(), self.make)
        if summary.ok:
            self.workspace.forget()
        return summary

    def forwarded(self, alone: bool = False) -> AbstractContextManager[None]:
        """Return a context in which machines behind two bastions are reached. Raises CliError if a bastion fails.

        alone   do not use the forward of another command on this stack, which may end first
        """
        # Only the decrypted config shows the bastions of sites that are encrypted as a whole.
        if not any("secure" in site or len(hops_of(site)) > 1 for site in self.written.mappings("tailrack:sites")):
            return nullcontext()
        sites = json.loads(self._config_values()[0]["tailrack:sites"])
        chained = [site for site in sites if len(hops_of(site)) > 1]
        return forwarded(chained, self.workspace.stack, self.workspace.project, alone)

    @property
    def in_process(self) -> bool:
        return isinstance(self._runner, Engine)

    def stop(self) -> None:
        """Start no more steps, and let the running ones finish. The CLI does this itself."""
        self._stopped = True
        self._runner.stop()

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the last `up`."""
        return self._runner.outputs()


def stack_config(project: Path, stack: str) -> Path:
    """Return the path of a stack's config file. Raises CliError for a name that no stack can have."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", stack):
        raise CliError(f"{shown(stack)} is not a stack's name; write its letters, digits, hyphens and dots: STACK=prod")
    return project / f"Pulumi.{stack}.yaml"


KNOWN, RESTORED = "backup_made", "restored_made"


def moment(resources: Iterable[Made], name: str) -> int:
    """Return the latest time (seconds since 1970) that a step printed under this name; 0 if no step did."""
    moments = [0]
    for resource in resources:
        if is_step(resource.command) and name in resource.stdout:
            try:
                answer = json.loads(resource.stdout)
            except ValueError:
                continue
            value = answer.get(name) if isinstance(answer, dict) else None
            moments += [value] if isinstance(value, int) else []
    return max(moments)


def older_backup(before: Iterable[Made], after: Iterable[Made]) -> str:
    """Return a warning if this run restored a backup older than the newest known one, else ""."""
    before = list(before)
    newest, restored = moment(before, KNOWN), moment(after, RESTORED)
    if restored in (0, moment(before, RESTORED)) or restored >= newest:
        return ""
    return (
        f"WARNING: the head node was restored from a backup of {_time(restored)}, but a backup of {_time(newest)} "
        "existed. If tailrack:head.restore_from is latest, newer backups are missing at the target: ask its owner."
    )


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def with_fewer(
    first: Summary,
    config: Callable[[], StackConfig | PoolConfig],
    run: Callable[[], Summary],
    tell: Callable[[str], None],
) -> Summary:
    """Return the summary of all runs; the first one's if a run without nodes cannot help.

    In the last run nothing fails for want of a machine, so it measures and deletes as after any other change.

    config   reads the stack's config
    run      runs `up` again
    tell     prints a warning
    """
    missing: dict[str, str] = {}
    summary = first
    # Under the CLI, a run ends before it rents all machines of a large site.
    while new := without_machine(summary.failures, config, missing):
        for node, reason in new.items():
            tell(f"{node} is left out (fewer: warn): {reason}")
        missing |= new
        os.environ[LEFT_OUT] = ",".join(missing)
        try:
            summary = _both(summary, run())
        finally:
            del os.environ[LEFT_OUT]
    # Without any machine, only the first run's failures say why.
    if missing and not summary.ok:
        summary.failures[:0] = first.failures
    return summary


def _both(first: Summary, second: Summary) -> Summary:
    """Return the counts and seconds of both runs, and the failures of the second one."""
    # The second run finds unchanged whatever the first one has done.
    counts = first.counts + second.counts - Counter(same=first.counts.total())
    return Summary(counts, second.failures, first.seconds + second.seconds)


def without_machine(
    failures: Sequence[Failure], read_config: Callable[[], StackConfig | PoolConfig], before: Collection[str]
) -> dict[str, str]:
    """Return the nodes without which a run can succeed, with reasons; empty if another step failed too.

    before   nodes that earlier runs have left out
    """
    reasons: dict[str, str] = {}
    for failure in failures:
        name = failure.name.removesuffix("-machine")
        if reason := re.search(rf"no machine for {re.escape(name)} at .*", failure.message):
            reasons[name] = reason[0]
    # The CLI also reports the run as a whole, components and steps that need the machine.
    others = [failure for failure in failures if failure.command and not node_of(failure.name, reasons)]
    if not reasons or others:
        return {}
    config = read_config()
    sites = {site.name for site in config.sites if isinstance(site, RentedSite) and site.fewer == WARN}
    accepted = {node.name for node in config.nodes() if node.site in sites and not node.is_head}
    return reasons if reasons.keys() <= accepted - {*before} else {}
