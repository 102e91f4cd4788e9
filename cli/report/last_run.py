"""Record how the last `make up` of a stack ended, so that a later report does not look better than the run."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from cli.output.make_command import Make
from cli.pulumi.workspace import write_atomically


class LastRun:
    """A small file beside the stack's state. It exists from the start of a `make up` until one ends well."""

    def __init__(self, state_dir: Path, stack: str) -> None:
        self._path = state_dir / f"last-run-{stack}.json"
        self._command = Make.of(stack)("up")

    def begin(self) -> None:
        """Note that a run started; a run that is killed leaves this note."""
        self._write([])

    def end(self, failed: Sequence[str]) -> None:
        """Note the steps that failed; forget the run if none did."""
        if failed:
            self._write(failed)
        else:
            self._path.unlink(missing_ok=True)

    def sentence(self) -> str:
        """Return one sentence about a last run that did not end well; empty if it did."""
        try:
            run = json.loads(self._path.read_text(encoding="utf-8"))
            started, failed = str(run["started"]), [str(step) for step in run["failed"]]
        except (OSError, ValueError, LookupError, TypeError):
            return ""
        end = f"failed: {'; '.join(failed)}" if failed else "did not finish"
        return f"The last '{self._command}', started {started}, {end}. The figures below may be older."

    def _write(self, failed: Sequence[str]) -> None:
        started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        write_atomically(self._path, json.dumps({"started": started, "failed": list(failed)}))
