"""One stack and the engine that runs it: what `make` commands and the lab's tests work with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from driver.cli_runner import CliRunner
from driver.find_engine import IN_PROCESS, Found
from driver.remedies import with_remedies
from driver.stack_file import load_config
from driver.workspace import DriverError, Workspace
from engine import Engine, EngineError
from engine.events import Event, Summary
from lab.identity import lab_id
from stacks.sites import KINDS

T = TypeVar("T")


class Deployment:
    """A stack of the program in `workspace`, run by the engine `found`.

    up, preview, destroy return a Summary; outputs returns the stack's outputs. Raises DriverError where the engine
    cannot start at all.
    """

    def __init__(
        self, workspace: Workspace, found: Found, on_event: Callable[[Event], None], parallel: int = 32
    ) -> None:
        self.workspace = workspace
        self._runner: CliRunner | Engine
        workspace.prepare()
        self._take("cli" if found.cli is not None else IN_PROCESS)
        if found.cli is not None:
            self._runner = CliRunner(workspace, found.cli, on_event, parallel)
        else:
            for name, value in workspace.environment().items():
                os.environ[name] = value
            self._runner = Engine(
                workspace.project,
                workspace.stack,
                lambda stack: replace(workspace, stack=stack).in_process_state,
                load_config(workspace.project, workspace.config_copy),
                on_event,
                parallel,
            )

    def _take(self, engine: str) -> None:
        """Keep a stack with the engine that made it: each has a state of its own and would make all of it again."""
        marker = self.workspace.folder / "engine"
        before = marker.read_text(encoding="utf-8").strip() if marker.is_file() else engine
        if before != engine:
            raise DriverError(
                f"stack {self.workspace.stack!r} was made by the engine {before!r} and this would be {engine!r}, which "
                f"knows nothing of it; use ENGINE={before}"
                + (" with the Pulumi CLI on PATH" if before == "cli" else "")
                + ", or 'make down' with it first"
            )
        marker.write_text(engine + "\n", encoding="utf-8")

    @property
    def lab(self) -> str:
        """The id of this stack's lab, part of its containers' names."""
        return lab_id(self.workspace.project, self.workspace.stack)

    @property
    def uses_lab(self) -> bool:
        """Whether nodes of some site are containers of the lab."""
        kinds = {name for name, kind in KINDS.items() if kind.uses_lab}
        return any(site.get("kind") in kinds for site in self._config().get("tailrack:sites") or [])

    @property
    def likenesses(self) -> set[str]:
        """What machines of the lab look like, beside its plain ones."""
        sites = self._config().get("tailrack:sites") or []
        looks = [pool.get("like") for site in sites for pool in site.get("pools") or []]
        return {str(like) for like in [*looks, *(site.get("head_like") for site in sites)] if like}

    @property
    def first_user(self) -> str:
        """The first user of the config, for examples."""
        users = self._config().get("tailrack:users") or [{"name": "USER"}]
        return str(users[0]["name"])

    @property
    def head_name(self) -> str:
        """The head node's name."""
        return str((self._config().get("tailrack:head") or {}).get("name", "head"))

    def _config(self) -> dict[str, Any]:
        """The config as written, for hints only; it is checked by the program."""
        text = yaml.safe_load(self.workspace.config_file.read_text(encoding="utf-8")) or {}
        config: dict[str, Any] = text.get("config") or {}
        return config

    def up(self) -> Summary:
        """Bring the stack to what its config says."""
        with self.workspace.exclusive():
            return with_remedies(self._started(self._runner.up))

    def preview(self) -> Summary:
        """Say what `up` would do."""
        return self._started(self._runner.preview)

    def destroy(self) -> Summary:
        """Delete everything of the stack; when nothing is left, its folder too."""
        with self.workspace.exclusive():
            summary = with_remedies(self._started(self._runner.destroy))
        if summary.ok:
            self.workspace.forget()
        return summary

    @property
    def in_process(self) -> bool:
        """Whether the in-process engine runs the stack."""
        return isinstance(self._runner, Engine)

    def stop(self) -> None:
        """Start no more steps, and let the running ones finish. The CLI does so itself."""
        if isinstance(self._runner, Engine):
            self._runner.stop()

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the last `up`."""
        return self._started(self._runner.outputs)

    @staticmethod
    def _started(operation: Callable[[], T]) -> T:
        try:
            return operation()
        except EngineError as error:
            raise DriverError(str(error)) from None


def stack_config(project: Path, stack: str) -> Path:
    """Return the path of a stack's config file."""
    return project / f"Pulumi.{stack}.yaml"
