"""The engine's operations on a stack: preview, up, destroy, outputs."""

import asyncio
import contextlib
import contextvars
import io
import json
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import Settings, configure, run_in_stack, set_all_config

from engine.commands import Commands
from engine.events import Config, EngineError, Made, Summary, Tell, command_of
from engine.lifecycle import Lifecycle, shown
from engine.locks import locked
from engine.monitor import Monitor, stack_of
from engine.state import State
from engine.values import HIDDEN, as_secret, convert, is_unknown, plain, secret_lines


@dataclass
class Engine:
    """One stack of the program in `folder`; at most `parallel` commands at once.

    `state_files` gives the state file of a stack by its name: of this one, and of those that it reads. Every
    method raises EngineError before anything is touched: for a locked state, a wrong passphrase, resources it cannot
    run, and stacks it cannot read. Failures of steps and of the program are in the summary.
    """

    folder: Path
    stack: str
    state_files: Callable[[str], Path]
    config: Config
    on_event: Tell
    parallel: int = 32
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def state_file(self) -> Path:
        """This stack's state file."""
        return self.state_files(self.stack)

    def preview(self) -> Summary:
        """Say what `up` would do. Runs the program; runs no command and writes nothing."""
        return self._pass(self.on_event, dry_run=True)

    def up(self) -> Summary:
        """Bring the stack to what the program says. A preview comes first, silently: it finds what must be refused."""
        with self._exclusive():
            with contextlib.redirect_stdout(io.StringIO()):
                before = self._pass(lambda event: None, dry_run=True)
            return Summary(failures=before.failures) if before.failures else self._pass(self.on_event)

    def destroy(self) -> Summary:
        """Delete every resource in the state, dependents first. Does not run the program."""
        with self._exclusive():
            return self._pass(self.on_event, program=False)

    def outputs(self, show_secrets: bool = False) -> dict[str, Any]:
        """Return the stack's outputs as of the last `up`; secrets as "[secret]" unless they are to be shown."""
        return dict(convert(self._state(True).outputs, plain if show_secrets else lambda secret: HIDDEN))

    def made(self) -> list[Made]:
        """Return what the last run left."""
        live = self._state(dry_run=True).live.values()
        return [
            Made(
                each.urn,
                command_of(inputs := shown(each.inputs)),
                str(inputs.get("stdin", "")),
                str(plain(each.outputs.get("stdout", ""))),
                each.values_of,
                plain(each.inputs.get("connection")) or {},
            )
            for each in live
        ]

    def has(self, reference: str) -> bool:
        """Whether a stack, named as Pulumi names it, is there and has resources."""
        stack = stack_of(reference, self.config.project)
        path = self.state_files(stack)
        owner = f"{self.config.project}/{stack}"
        return path.exists() and bool(State(path, owner, self.config.passphrase, dry_run=True).live)

    def leave_undone(self, type_: str) -> list[str]:
        """Have resources of a type deleted later without their command; their names. Nothing is deleted now."""
        with self._exclusive():
            state = self._state(dry_run=False)
            found = [each for each in state.live.values() if each.type == type_ and "delete" in each.inputs]
            for each in found:
                inputs = {key: value for key, value in each.inputs.items() if key != "delete"}
                state.put(replace(each, inputs=inputs))
        return [each.name for each in found]

    def stop(self) -> None:
        """Start no more steps, and let the running ones finish. For signals; the engine is of no use afterwards."""
        self._stopped.set()

    def _state(self, dry_run: bool) -> State:
        return State(self.state_file, f"{self.config.project}/{self.stack}", self.config.passphrase, dry_run)

    def _exclusive(self) -> contextlib.AbstractContextManager[None]:
        path = self.state_file
        return locked(Path(f"{path}.lock"), EngineError(f"another run works on {path}; wait for it or stop it"))

    def _outputs_of(self, stack: str) -> dict[str, Any]:
        """Return a stack's outputs as of its last `up`, secrets marked.

        EngineError where another stack has none or they do not open; this one has none before its first `up`.
        """
        if not (path := self.state_files(stack)).exists() and stack != self.stack:
            raise EngineError(f"it was not made by this engine, which would have its state in {path}")
        return State(path, f"{self.config.project}/{stack}", self.config.passphrase, dry_run=True).outputs

    def _pass(self, on_event: Tell, dry_run: bool = False, program: bool = True) -> Summary:
        begun, state = time.monotonic(), self._state(dry_run)
        lifecycle = Lifecycle(state, Commands(self.parallel, self.folder.resolve(), dry_run), self._stopped, on_event)
        lifecycle.secrets |= secret_lines(as_secret([*self.config.secrets]))
        monitor = Monitor(lifecycle, self.config.project, self.stack, self._outputs_of)
        summary = lifecycle.summary
        failed = self._run_program(monitor, dry_run) if program else ""
        if (refusal := monitor.refusal()) and dry_run:
            raise EngineError(refusal)
        if failed or refusal:
            lifecycle.fail("", refusal or failed)
        lifecycle.delete_rest()
        if self._stopped.is_set():
            lifecycle.fail("", "stopped; what had finished is saved, run it again to go on")
        # After a failure an output that is missing or unknown may only not have been reached: the old one stays.
        known = {key: value for key, value in monitor.outputs.items() if not is_unknown(value)}
        state.put_outputs({**state.outputs, **known} if summary.failures else known)
        summary.seconds = time.monotonic() - begun
        return summary

    def _run_program(self, monitor: Monitor, dry_run: bool) -> str:
        """Run `__main__.py`, unchanged, in Pulumi's own runtime until all is registered. Returns why it failed."""
        folder = self.folder.resolve()

        async def program() -> None:
            runpy.run_path(str(folder / "__main__.py"), run_name="__main__")

        async def run() -> None:
            loop = asyncio.get_running_loop()
            # A registration holds a thread until its step is done; steps themselves wait for a slot.
            loop.set_default_executor(ThreadPoolExecutor(self.parallel * 4))
            # A failed program leaves futures nobody looked at, and asyncio would complain of each.
            loop.set_exception_handler(lambda loop, context: None)
            set_all_config(values, keys)
            # The types say address (str) or anything; the runtime takes objects, as its own mocks do.
            more: dict[str, Any] = {"monitor": monitor, "engine": monitor, "root_directory": str(folder)}
            more |= {"dry_run": dry_run, "parallel": self.parallel, "organization": "organization"}
            configure(Settings(self.config.project, self.stack, **more))
            await run_in_stack(program)

        before, values, keys = {*sys.modules}, dict(self.config.values), list(self.config.secret_keys)
        environment = {"PULUMI_CONFIG": json.dumps(values), "PULUMI_CONFIG_SECRET_KEYS": json.dumps(keys)}
        os.environ.update(environment)
        sys.path.insert(0, str(folder))
        try:
            # An empty context: the runtime keeps all its state in context variables.
            with contextlib.chdir(folder):
                contextvars.Context().run(asyncio.run, run())
        except pulumi.RunError as error:
            return str(error)
        except (Exception, SystemExit):  # noqa: BLE001 - whatever the program raises is its failure
            # The last frames are the program's own.
            return f"Program failed with an unhandled exception:\n{traceback.format_exc(limit=-8)}"
        finally:
            sys.path.remove(str(folder))
            for key in environment:
                del os.environ[key]
            # The next run is to import the project's own modules anew.
            for name in {*sys.modules} - before:
                path = Path(getattr(sys.modules[name], "__file__", None) or "/")
                if path.is_relative_to(folder) and not path.is_relative_to(sys.prefix):
                    del sys.modules[name]
        return ""
