"""One stack and the engine that runs it: what `make` commands and the lab's tests work with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cli.checks import Checks
from cli.output.make_command import Make
from cli.output.remedies import with_remedies
from cli.preview.last_answers import last_answers
from cli.pulumi.find_engine import IN_PROCESS, Found
from cli.pulumi.restored import older_backup
from cli.pulumi.runner import CliRunner
from cli.pulumi.workspace import CliError, Workspace
from cli.stack_config.stack_file import check_for_cli, config_values, load_config, read_stack_file
from cli.stack_config.written_config import WrittenConfig
from components.settings.problems import shown
from components.steps.former_names import current_name
from engine.engine import Engine
from engine.events import EngineError, Event, Made, Summary
from lab.identity import lab_id
from stacks.config import ConfigError, PoolConfig, StackConfig, load
from stacks.release import RELEASE, is_newer
from stacks.yaml_file import FileError

T = TypeVar("T")
# What undoes something by SSH. In a pool's stack that is on the head node alone: a node leaves when the head asks it.
ON_MACHINES = "command:remote:Command"


class Deployment:
    """A stack of the program in `workspace`, run by the engine `found`.

    up, preview, destroy return a Summary; outputs returns the stack's outputs. Raises CliError where the engine
    cannot start at all.
    """

    def __init__(
        self, workspace: Workspace, found: Found, on_event: Callable[[Event], None], parallel: int = 32
    ) -> None:
        self.workspace = workspace
        self._runner: CliRunner | Engine
        # Before anything reads it: what is wrong with the file itself is said in the same words under either engine.
        self.written = WrittenConfig(read_stack_file(workspace.config_file)["config"])
        self._on_event = on_event

        def tell(event: Event) -> None:
            self._on_event(event)

        workspace.prepare()
        if found.cli is not None:
            workspace.prepare_pulumi_home()
            check_for_cli(workspace.config_copy, {**os.environ, **workspace.environment()})
            self._take("cli")
            self._runner = CliRunner(workspace, found.cli, tell, parallel)
        else:
            for name, value in workspace.environment().items():
                os.environ[name] = value
            config = load_config(workspace.project, workspace.config_copy)
            self._take(IN_PROCESS)
            self._runner = Engine(
                workspace.project,
                workspace.stack,
                lambda stack: replace(workspace, stack=stack).in_process_state,
                config,
                tell,
                parallel,
            )

    def _take(self, engine: str) -> None:
        """Keep a stack with the engine that made it: each has a state of its own and would make all of it again."""
        marker = self.workspace.folder / "engine"
        before = marker.read_text(encoding="utf-8").strip() if marker.is_file() else engine
        if before != engine:
            raise CliError(
                f"stack {self.workspace.stack!r} was made by the engine {before!r} and this would be {engine!r}, which "
                f"knows nothing of it; use ENGINE={before}"
                + (" with the Pulumi CLI on PATH" if before == "cli" else "")
                + f", or '{Make(self.workspace.stack, before)('down')}' first"
            )
        marker.write_text(engine + "\n", encoding="utf-8")

    @property
    def lab(self) -> str:
        """The id of this stack's lab, part of its containers' names; of a pool, that of its cluster."""
        return lab_id(self.workspace.project, self.written.cluster_stack or self.workspace.stack)

    def config(self) -> StackConfig | PoolConfig:
        """Return the checked config. Raises CliError with what keeps it from being read, opened or used."""
        try:
            environment = {**os.environ, **self.workspace.environment()}
            values, secrets = config_values(self.workspace.config_copy, environment)
            return load(values, secrets, self.workspace.project)
        except ConfigError as error:
            raise CliError(error.words(self.workspace.stack)) from None
        except FileError as error:
            raise CliError(str(error)) from None

    @property
    def make(self) -> Make:
        """The commands of this stack, for people."""
        return Make.of(self.workspace.stack)

    def _refuse_newer_release(self) -> None:
        """Raise CliError where a newer release of tailrack has made what is there."""
        release = self.outputs().get("release")
        if is_newer(release):
            raise CliError(
                f"stack {self.workspace.stack} was made by tailrack {shown(release)}, and this is {RELEASE}, which "
                "would take back what it does not know; run the newer one, in whose CHANGELOG.md is what it changed"
            )

    def _refuse_another_name(self) -> None:
        """Raise CliError where the config calls the cluster that is there by another name."""
        cluster = self.outputs().get("cluster")
        made = cluster.get("name") if isinstance(cluster, dict) else None
        names = [section.get("name") for section in self.written.mappings("tailrack:cluster")]
        if isinstance(made, str) and names and names[0] != made:
            raise CliError(
                f"tailrack:cluster.name: the cluster was made as {shown(made)}, and the config has {shown(names[0])}; "
                f"slurmctld would refuse the state that it has; write {shown(made)} again, or give this cluster up: "
                f"`{self.make('down')}` with the old name, `rm -r /var/lib/slurm/slurmctld` on a head node that stays, "
                f"`{self.make('up')}`"
            )

    def _refuse_unknown_cluster(self) -> None:
        """Raise CliError where a pool's cluster has no stack here."""
        named, stack = self.written.cluster, self.written.cluster_stack
        if stack and not self._started(partial(self._runner.has, named)):
            raise CliError(
                f"tailrack:cluster: there is no stack {shown(named)} with a cluster (in PULUMI_BACKEND_URL); "
                "no node could join; write the name of the cluster's stack, or run "
                f"{self.make.at(stack)('up')} first"
            )

    def up(self, checks: Checks | None = None, refresh: bool = False) -> Summary:
        """Bring the stack to what its config says.

        checks    looks at a preview of a stack that is there first; CliError, and nothing is touched, where it
                  finds what nobody asked for
        refresh   look at clouds and tailnet first
        """
        with self.workspace.exclusive():
            self._refuse_newer_release()
            self._refuse_another_name()
            self._refuse_unknown_cluster()
            if checks and self.outputs():
                planned = self._looked_at_by(checks, refresh)
                if not planned.ok:
                    return planned
                if checks.refused:
                    raise CliError("nothing was touched:\n" + "\n".join(f"  {line}" for line in checks.lines()))
            before = self.made() if self.written.restores else []
            summary = with_remedies(self._started(self._refreshing(self._runner.up, refresh)), self.make)
            if before and (warning := older_backup(before, self.made())):
                self._on_event(Event("message", text=warning))
            return summary

    def _looked_at_by(self, checks: Checks, refresh: bool) -> Summary:
        """Run a preview for nobody but the checks."""
        told, self._on_event = self._on_event, checks.on_event
        try:
            return self._previewed(None, refresh)
        finally:
            self._on_event = told

    def preview(self, made: Sequence[Made] | None = None, refresh: bool = False) -> Summary:
        """Say what `up` would do, where machines answer what they answered before.

        made      what the last run left, where somebody has asked for it already
        refresh   look at clouds and tailnet first
        """
        self._refuse_newer_release()
        self._refuse_another_name()
        self._refuse_unknown_cluster()
        return self._previewed(made, refresh)

    def _previewed(self, made: Sequence[Made] | None, refresh: bool) -> Summary:
        with last_answers(self.made() if made is None else made, self.workspace.folder):
            return self._started(self._refreshing(self._runner.preview, refresh))

    def _refreshing(self, operation: Callable[..., Summary], refresh: bool) -> Callable[[], Summary]:
        """An operation of the runner that looks at clouds and tailnet first, which the Pulumi CLI alone can do."""
        if refresh and self.in_process:
            raise CliError("the in-process engine cannot look at clouds and tailnet; install the Pulumi CLI")
        return partial(operation, refresh=True) if refresh else operation

    def made(self) -> list[Made]:
        """Return what the last run left, by the names that steps have in this version."""
        made = self._started(self._runner.made)
        return [replace(each, urn=_renamed(each.urn), values_of=[*map(_renamed, each.values_of)]) for each in made]

    def pools(self) -> list[str]:
        """Return the stacks of this workspace whose machines are in this stack's cluster."""
        files = sorted(self.workspace.folder.parent.glob("*/Pulumi.*.yaml"))
        stacks = {file.parent.name: WrittenConfig(read_stack_file(file)["config"]).cluster_stack for file in files}
        own = [stack for stack, joined in stacks.items() if joined == self.workspace.stack]
        return [stack for stack in own if self._started(partial(self._runner.has, stack))]

    def _forget_cluster(self, asked: bool) -> None:
        """Have what a pool has on its cluster's head node left undone, where the cluster is gone, and say so.

        asked   whoever runs this says that it is gone
        """
        named = self.written.cluster
        if not self.written.cluster_stack:
            return
        if not asked and self._started(partial(self._runner.has, named)):
            return
        left = self._started(partial(self._runner.leave_undone, ON_MACHINES))
        why = "as asked" if asked else f"there is no stack {named} any more"
        self._on_event(
            Event(
                "message",
                text=f"The cluster is gone ({why}): what its head node had of this pool is forgotten, not undone "
                f"({', '.join(left) or 'nothing'}). On machines that stay, run tailrack-leave as root.",
            )
        )

    def destroy(self, cluster_gone: bool = False) -> Summary:
        """Delete everything of the stack; when nothing is left, its folder too.

        cluster_gone   of a pool: do not ask the head node, which is gone. Found out where the cluster's stack is gone.
        """
        with self.workspace.exclusive():
            self._refuse_newer_release()
            self._forget_cluster(cluster_gone)
            summary = with_remedies(self._started(self._runner.destroy), self.make)
        if summary.ok:
            self.workspace.forget()
        return summary

    @property
    def in_process(self) -> bool:
        """Whether the in-process engine runs the stack."""
        return isinstance(self._runner, Engine)

    def stop(self) -> None:
        """Start no more steps, and let the running ones finish. The CLI does so itself."""
        self._runner.stop()

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the last `up`."""
        return self._started(self._runner.outputs)

    @staticmethod
    def _started(operation: Callable[[], T]) -> T:
        try:
            return operation()
        except EngineError as error:
            raise CliError(str(error)) from None


def _renamed(urn: str) -> str:
    """Return the URN that a step will have once this version has run."""
    kind, _, name = urn.rpartition("::")
    return f"{kind}::{current_name(name)}" if kind.endswith("Command") else urn


def stack_config(project: Path, stack: str) -> Path:
    """Return the path of a stack's config file."""
    return project / f"Pulumi.{stack}.yaml"
