"""The engine's operations on a stack: preview, up, destroy, outputs."""

import asyncio
import contextlib
import contextvars
import importlib
import io
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import Settings, configure, run_in_stack, set_all_config

from engine.commands import Commands
from engine.events import Config, EngineError, Event, Summary
from engine.lifecycle import Lifecycle
from engine.monitor import Monitor
from engine.state import State, exclusive
from engine.values import HIDDEN, Secrets, convert, is_unknown, plain


class Engine:
    """One stack of the program in `folder`, its state in `state_file`; at most `parallel` commands at once.

    Every method raises EngineError before anything is touched: for a locked state, a wrong passphrase, and resources
    it cannot run. Failures of steps and of the program are in the summary.
    """

    def __init__(
        self,
        folder: Path,
        stack: str,
        state: Path,
        config: Config,
        on_event: Callable[[Event], None],
        parallel: int = 32,
    ) -> None:
        self._folder, self._stack, self._state_file, self._config = folder.resolve(), stack, state, config
        self._on_event, self._parallel = on_event, parallel
        self._commands = Commands(parallel, str(folder), dry_run=False)

    def preview(self) -> Summary:
        """Say what `up` would do. Runs the program; runs no command and writes nothing."""
        return self._pass(self._on_event, dry_run=True)

    def up(self) -> Summary:
        """Bring the stack to what the program says. A preview comes first, silently: it finds what must be refused."""
        with exclusive(self._state_file):
            with contextlib.redirect_stdout(io.StringIO()):
                before = self._pass(lambda event: None, dry_run=True)
            return before if before.failures else self._pass(self._on_event)

    def destroy(self) -> Summary:
        """Delete every resource in the state, dependents first. Does not run the program."""
        with exclusive(self._state_file):
            return self._pass(self._on_event, program=False)

    def outputs(self, show_secrets: bool = False) -> dict[str, Any]:
        """Return the stack's outputs as of the last `up`; secrets as "[secret]" unless they are to be shown."""
        return dict(convert(self._state(True).outputs, plain if show_secrets else lambda secret: HIDDEN))

    def stop(self) -> None:
        """Start no more steps in this run and let the running ones finish; the second time, end them. For signals."""
        self._commands.stop()

    def _state(self, dry_run: bool) -> State:
        owner = f"{self._config.project}/{self._stack}"
        return State(self._state_file, owner, self._config.passphrase, dry_run)

    def _pass(self, on_event: Callable[[Event], None], dry_run: bool = False, program: bool = True) -> Summary:
        begun, state = time.monotonic(), self._state(dry_run)
        self._commands = Commands(self._parallel, str(self._folder), dry_run)
        lifecycle = Lifecycle(state, self._commands, Secrets(self._config.secrets), on_event)
        monitor, summary = Monitor(lifecycle, self._config.project, self._stack), lifecycle.summary
        failed = self._run_program(monitor, dry_run) if program else ""
        if monitor.refused:
            failed = monitor.refusal()
            if dry_run:
                raise EngineError(failed)
        if failed:
            lifecycle.fail("", failed)
        lifecycle.delete_rest()
        if self._commands.stopped.is_set():
            lifecycle.fail("", "stopped; what had finished is saved, run it again to go on")
        # After a failure an output that is missing or unknown may only not have been reached: the old one stays.
        known = {key: value for key, value in monitor.outputs.items() if not is_unknown(value)}
        state.put_outputs({**state.outputs, **known} if summary.failures else known)
        summary.seconds = time.monotonic() - begun
        return summary

    def _run_program(self, monitor: Monitor, dry_run: bool) -> str:
        """Run `__main__.py`, unchanged, in Pulumi's own runtime until all is registered. Returns why it failed."""
        main = str(self._folder / "__main__.py")

        async def run() -> None:
            loop = asyncio.get_running_loop()
            # A registration holds a thread until its step is done; steps themselves wait for a slot.
            loop.set_default_executor(ThreadPoolExecutor(self._parallel * 4))
            # A failed program leaves futures nobody looked at, and asyncio would complain of each.
            loop.set_exception_handler(lambda loop, context: None)
            set_all_config(dict(self._config.values), list(self._config.secret_keys))
            # The types say address (str) or anything; the runtime takes objects, as its own mocks do.
            more: dict[str, Any] = {"monitor": monitor, "engine": monitor, "root_directory": str(self._folder)}
            more |= {"dry_run": dry_run, "parallel": self._parallel, "organization": "organization"}
            configure(Settings(self._config.project, self._stack, **more))
            await run_in_stack(partial(_run_main, main))

        with _fresh_modules(self._folder), contextlib.chdir(self._folder):
            try:
                # An empty context: the runtime keeps all its state in context variables.
                contextvars.Context().run(asyncio.run, run())
            except pulumi.RunError as error:
                return str(error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the program raises is its failure
                trace = error.__traceback__
                while trace and trace.tb_next and trace.tb_frame.f_code.co_filename != main:
                    trace = trace.tb_next
                lines = traceback.format_exception(type(error), error, trace)
                return f"Program failed with an unhandled exception:\n{''.join(lines)}"
        return ""


def _run_main(path: str) -> None:
    runpy.run_path(path, run_name="__main__")


@contextlib.contextmanager
def _fresh_modules(folder: Path) -> Iterator[None]:
    """Have the project's modules found, and forget afterwards those that the program imported."""
    before = {*sys.modules}
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in {*sys.modules} - before:
            path = Path(getattr(sys.modules[name], "__file__", None) or "/")
            if path.is_relative_to(folder) and not path.is_relative_to(sys.prefix):
                del sys.modules[name]
