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

from cli.file_lock import locked
from cli.run_events import Config, EngineError, Made, Summary, Tell, command_of
from engine.commands import Commands
from engine.lifecycle import Lifecycle, shown
from engine.monitor import Monitor, stack_of
from engine.state import State
from engine.values import as_secret, is_unknown, plain, secret_lines


@dataclass
class Engine:
    """One stack of the program in `folder`, with at most `parallel` commands at a time.

    `state_files` returns the state file of a stack by its name: of this stack, and of stacks whose outputs it reads.
    Every method raises EngineError, before it changes anything, for a locked state, a wrong passphrase, resources that
    it cannot run, and stacks that it cannot read. Failures of steps and of the program are in the summary.
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
        """Report what `up` would do. Runs the program, but no command, and writes nothing."""
        return self._pass(self.on_event, dry_run=True)

    def up(self) -> Summary:
        """Bring the stack to what the program describes, after a silent preview that finds what cannot run."""
        with self._exclusive():
            with contextlib.redirect_stdout(io.StringIO()):
                preview = self._pass(lambda event: None, dry_run=True)
            return Summary(failures=preview.failures) if preview.failures else self._pass(self.on_event)

    def destroy(self) -> Summary:
        """Delete every resource of the state, dependents first, without running the program."""
        with self._exclusive():
            return self._pass(self.on_event, program=False)

    def outputs(self, show_secrets: bool = False) -> dict[str, Any]:
        """Return the outputs of the last `up`, secrets as "[secret]" unless `show_secrets`."""
        outputs = self._state(True).outputs
        return plain(outputs) if show_secrets else shown(outputs)

    def outputs_of(self, reference: str) -> dict[str, Any]:
        """Return the outputs of another stack, named as Pulumi names it, secrets as "[secret]"."""
        return shown(self._outputs_of(stack_of(reference, self.config.project)))

    def made(self) -> list[Made]:
        """Return the resources that the last run left."""
        return [
            Made(
                resource.urn,
                command_of(inputs := shown(resource.inputs)),
                str(inputs.get("stdin", "")),
                str(plain(resource.outputs.get("stdout", ""))),
                resource.values_of,
                plain(resource.inputs.get("connection")) or {},
                str(plain(resource.inputs.get("stdin")) or ""),
            )
            for resource in self._state(dry_run=True).live.values()
        ]

    def has(self, reference: str) -> bool:
        """Return whether a stack, named as Pulumi names it, exists and has resources."""
        stack = stack_of(reference, self.config.project)
        path = self.state_files(stack)
        owner = f"{self.config.project}/{stack}"
        return path.exists() and bool(State(path, owner, self.config.passphrase, dry_run=True).live)

    def leave_undone(self, type_: str) -> list[str]:
        """Take the delete command from resources of a type, so that a later delete runs nothing; return their names."""
        with self._exclusive():
            state = self._state(dry_run=False)
            resources = [r for r in state.live.values() if r.type == type_ and "delete" in r.inputs]
            for resource in resources:
                inputs = {key: value for key, value in resource.inputs.items() if key != "delete"}
                state.put(replace(resource, inputs=inputs))
        return [resource.name for resource in resources]

    def stop(self) -> None:
        """Start no more steps, and let running ones finish. For signal handlers; the engine cannot run again."""
        self._stopped.set()

    def _state(self, dry_run: bool) -> State:
        return State(self.state_file, f"{self.config.project}/{self.stack}", self.config.passphrase, dry_run)

    def _exclusive(self) -> contextlib.AbstractContextManager[None]:
        path = self.state_file
        return locked(Path(f"{path}.lock"), EngineError(f"another run works on {path}; wait for it or stop it"))

    def _outputs_of(self, stack: str) -> dict[str, Any]:
        """Return the outputs of a stack's last `up`, with marks for secrets; none before this stack's first `up`.

        Raises EngineError if another stack has none, or if they do not open.
        """
        if not (path := self.state_files(stack)).exists() and stack != self.stack:
            raise EngineError(f"it was not made by this engine, which would have its state in {path}")
        return State(path, f"{self.config.project}/{stack}", self.config.passphrase, dry_run=True).outputs

    def _pass(self, on_event: Tell, dry_run: bool = False, program: bool = True) -> Summary:
        start, state = time.monotonic(), self._state(dry_run)
        with Commands(self.parallel, self.folder.resolve(), dry_run) as commands:
            lifecycle = Lifecycle(state, commands, self._stopped, on_event)
            lifecycle.secrets |= secret_lines(as_secret([*self.config.secrets]))
            monitor = Monitor(lifecycle, self.config.project, self.stack, self._outputs_of)
            summary = lifecycle.summary
            error = self._run_program(monitor, dry_run) if program else ""
            if (refusal := monitor.refusal()) and dry_run:
                raise EngineError(refusal)
            if error or refusal:
                lifecycle.fail("", refusal or error)
            lifecycle.delete_rest()
        if self._stopped.is_set():
            lifecycle.fail("", "stopped; finished steps are saved. Run it again to continue")
        # After a failure, the program may not have reached an output that is missing or unknown: keep the old one.
        outputs = {key: value for key, value in monitor.outputs.items() if not is_unknown(value)}
        state.put_outputs({**state.outputs, **outputs} if summary.failures else outputs)
        summary.seconds = time.monotonic() - start
        return summary

    def _run_program(self, monitor: Monitor, dry_run: bool) -> str:
        """Run `__main__.py` in Pulumi's runtime until all resources are registered; return why it failed, or ""."""
        folder = self.folder.resolve()

        async def program() -> None:
            runpy.run_path(str(folder / "__main__.py"), run_name="__main__")

        async def run() -> None:
            loop = asyncio.get_running_loop()
            # A registration keeps a thread until its step is done; steps also wait for a slot.
            loop.set_default_executor(ThreadPoolExecutor(self.parallel * 4))
            # A failed program leaves futures that no one awaits, and asyncio would report each one.
            loop.set_exception_handler(lambda loop, context: None)
            set_all_config(values, keys)
            # By its types, the runtime takes addresses; like its own mocks, this gives it objects.
            options: dict[str, Any] = {"monitor": monitor, "engine": monitor, "root_directory": str(folder)}
            options |= {"dry_run": dry_run, "parallel": self.parallel, "organization": "organization"}
            configure(Settings(self.config.project, self.stack, **options))
            await run_in_stack(program)

        modules, values, keys = {*sys.modules}, dict(self.config.values), list(self.config.secret_keys)
        environment = {"PULUMI_CONFIG": json.dumps(values), "PULUMI_CONFIG_SECRET_KEYS": json.dumps(keys)}
        os.environ.update(environment)
        sys.path.insert(0, str(folder))
        try:
            # An empty context, because the runtime keeps its state in context variables.
            with contextlib.chdir(folder):
                contextvars.Context().run(asyncio.run, run())
        except pulumi.RunError as error:
            return str(error)
        except (Exception, SystemExit):  # noqa: BLE001 - whatever the program raises is its failure
            # The last frames are the program's.
            return f"Program failed with an unhandled exception:\n{traceback.format_exc(limit=-8)}"
        finally:
            sys.path.remove(str(folder))
            for key in environment:
                del os.environ[key]
            # The next run must import the project's modules again.
            for name in {*sys.modules} - modules:
                path = Path(getattr(sys.modules[name], "__file__", None) or "/")
                if path.is_relative_to(folder) and not path.is_relative_to(sys.prefix):
                    module, (package, _, child) = sys.modules.pop(name), name.rpartition(".")
                    # `from package import module` would still find it there.
                    if getattr(sys.modules.get(package), child, None) is module:
                        delattr(sys.modules[package], child)
        return ""
