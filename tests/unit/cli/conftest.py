"""A played stack for commands: no engine runs, and a test says what its runs and its outputs are."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cli import open_stack
from cli.output.make_command import Make
from cli.run_events import Event, Summary
from cli.stack_config.written_config import WrittenConfig

Play = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Let commands work on a stack prod whose runs send events and return `end()`, and that has other attributes.

    Returns the arguments of each run.
    """

    def play(
        events: Sequence[Event] = (), end: Callable[[], Summary] = Summary, why: str = "", **attributes: Any
    ) -> list[tuple[object, ...]]:
        runs: list[tuple[object, ...]] = []

        def opened(_arguments: Any, progress: Any, _engine: Any, keep: Any = lambda event: None) -> Any:
            def run(*arguments: object) -> Summary:
                runs.append(arguments)
                for event in events:
                    progress.on_event(event)
                    keep(event)
                return end()

            usual: dict[str, Any] = {"written": WrittenConfig({}), "make": Make("prod"), "outputs": dict, "lab": "x"}
            usual |= {"in_process": True, "stop": lambda: None, "pools": list, "made": list}
            return SimpleNamespace(**{**usual, **dict.fromkeys(("up", "preview", "destroy"), run), **attributes})

        monkeypatch.setattr(open_stack, "open_deployment", opened)
        monkeypatch.setattr(open_stack, "find_engine", lambda _: SimpleNamespace(why=why))
        return runs

    return play
