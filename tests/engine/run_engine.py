"""`python -m tests.engine.run_engine FOLDER STATE`: `up` of the stack dev in a process of its own, told as text."""

import json
import signal
import sys
from pathlib import Path

from cli.run_events import EngineError, Event
from cli.stack_config.stack_file import load_config
from engine.engine import Engine


def _tell(event: Event) -> None:
    print(" ".join(filter(None, (event.name, event.kind, event.operation, event.text))), flush=True)


def main(folder: Path, state: Path) -> int:
    """Run `up` and print its events, its errors, its counts and the outputs; returns the exit status."""
    engine = Engine(folder, "dev", lambda stack: state, load_config(folder, folder / "Pulumi.dev.yaml"), _tell)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: engine.stop())
    try:
        summary = engine.up()
        outputs = engine.outputs()
    except EngineError as error:
        print(f"error: {error}")
        return 255
    for failure in summary.failures:
        print(f"error: {failure.urn.rpartition('::')[2]}: {failure.message}")
    print(json.dumps(summary.counts), json.dumps(outputs))
    return 0 if summary.ok else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
