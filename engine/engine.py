"""The engine's operations on a stack: preview, up, destroy, outputs."""

from __future__ import annotations

import contextlib
import io
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from engine.commands import Commands
from engine.config import Config, load_config
from engine.events import EngineError, Event, Failure, Summary
from engine.lifecycle import Lifecycle
from engine.monitor import Log, Monitor, refusal
from engine.program import run_program
from engine.state import State, exclusive
from engine.values import HIDDEN, is_unknown, map_secrets, mask, plain


class Engine:
    """One stack of the program in `project_dir`, its state in `state_file`, its config in `config_file`.

    Every method raises EngineError before anything is touched: for a locked state, a wrong passphrase, bad config,
    and resources it cannot run. Failures of steps and of the program are in the summary.
    """

    def __init__(
        self,
        project_dir: Path,
        stack: str,
        state_file: Path,
        config_file: Path,
        on_event: Callable[[Event], None],
        parallel: int = 32,
    ) -> None:
        self._folder, self._stack, self._parallel = project_dir.resolve(), stack, parallel
        self._state_file, self._config_file = state_file, config_file
        self._on_event = on_event

    def preview(self) -> Summary:
        """Say what `up` would do. Runs the program; runs no command and writes nothing."""
        config = self._config()
        state = self._state(config)
        return self._pass(config, state, None, self._on_event)

    def up(self) -> Summary:
        """Bring the stack to what the program says. A preview comes first, silently: it finds what must be refused."""
        config = self._config()
        with exclusive(self._state_file):
            state = self._state(config)
            with contextlib.redirect_stdout(io.StringIO()):
                before = self._pass(config, state, None, lambda event: None)
            if before.failures:
                return before
            with Commands(self._parallel, str(self._folder)).started() as commands:
                return self._pass(config, state, commands, self._on_event)

    def destroy(self) -> Summary:
        """Delete every resource in the state, dependents first. Does not run the program."""
        config = self._config()
        begun = time.monotonic()
        with exclusive(self._state_file), Commands(self._parallel, str(self._folder)).started() as commands:
            state = self._state(config)
            lifecycle = Lifecycle(state, commands, self._parallel, self._masked(config, self._on_event))
            with self._interruptible(lifecycle, commands):
                lifecycle.delete_unregistered()
            if not state.live:
                state.put_outputs({})
            lifecycle.summary.seconds = time.monotonic() - begun
            return lifecycle.summary

    def outputs(self, show_secrets: bool = False) -> dict[str, Any]:
        """Return the stack's outputs as of the last `up`; secrets as "[secret]" unless they are to be shown."""
        outputs = self._state(self._config()).outputs
        shown: dict[str, Any] = plain(outputs) if show_secrets else map_secrets(outputs, lambda secret: HIDDEN)
        return shown

    def _config(self) -> Config:
        return load_config(self._folder, self._stack, self._config_file)

    def _state(self, config: Config) -> State:
        return State(self._state_file, f"{config.project}/{self._stack}")

    def _pass(
        self, config: Config, state: State, commands: Commands | None, on_event: Callable[[Event], None]
    ) -> Summary:
        begun = time.monotonic()
        tell = self._masked(config, on_event)
        lifecycle = Lifecycle(state, commands, self._parallel, tell)
        monitor = Monitor(lifecycle, config.project, self._stack, collect=commands is None)
        summary = lifecycle.summary
        with self._interruptible(lifecycle, commands):
            failed = run_program(
                self._folder, self._stack, config, monitor, Log(tell), dry_run=commands is None, parallel=self._parallel
            )
            if monitor.refused and not commands:
                raise EngineError(refusal(monitor.refused))
            if failed:
                summary.failures.append(Failure("", mask(failed, config.secrets)))
            elif not lifecycle.stopped.is_set():
                lifecycle.delete_unregistered()
        if lifecycle.stopped.is_set():
            summary.failures.append(Failure("", "stopped; what had finished is saved, run it again to go on"))
        if commands:
            # After a failure an output that is missing or unknown may only not have been reached: the old one stays.
            known = {key: value for key, value in monitor.outputs.items() if not is_unknown(value)}
            state.put_outputs({**state.outputs, **known} if summary.failures else known)
        summary.seconds = time.monotonic() - begun
        return summary

    def _masked(self, config: Config, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
        lock = threading.Lock()

        def tell(event: Event) -> None:
            with lock:
                on_event(replace(event, text=mask(event.text, config.secrets)))

        return tell

    @contextlib.contextmanager
    def _interruptible(self, lifecycle: Lifecycle, commands: Commands | None) -> Iterator[None]:
        """On Ctrl-C or SIGTERM start no more steps and let the running ones finish; on the second one end them."""

        def stop(number: int, frame: FrameType | None) -> None:
            if lifecycle.stopped.is_set() and commands:
                commands.stop()
            lifecycle.stopped.set()
            callers = before[number]
            if callable(callers) and callers is not signal.default_int_handler:
                callers(number, frame)  # which may tell the person what happens now

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
