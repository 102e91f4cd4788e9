"""`python -m engine up|preview|destroy|outputs --stack dev`: the engine for a terminal, one line an event."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from engine import Engine, EngineError, Event, Summary

MARKS = {"create": "+", "update": "~", "replace": "+-", "delete": "-", "same": " "}
DONE = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted", "same": "unchanged"}
NOTE = "This is tailrack's own engine, for trying out and for tests. Use Pulumi's CLI for a cluster you care about."


def render(event: Event) -> None:
    """Print an event, as Pulumi's CLI would say it; unchanged resources are only counted."""
    if event.operation == "same" and event.kind == "done":
        return
    words = {"start": f"{event.operation} ...", "done": f"{DONE.get(event.operation)} ({event.seconds:.1f}s)"}
    what = words.get(event.kind, f"{event.kind}: {event.text}" if event.kind != "message" else event.text)
    print(f" {MARKS.get(event.operation, ''):2} {event.type} {event.name} {what}", flush=True)


def report(summary: Summary, verbs: dict[str, str]) -> int:
    """Print the summary and return the exit status."""
    for failure in summary.failures:
        print(
            f"error: {failure.urn.rpartition('::')[2]}: {failure.message}".replace("error: : ", "error: "),
            file=sys.stderr,
        )
    print("Resources:")
    for operation, count in summary.counts.items():
        if count:
            print(f"    {MARKS[operation]:2} {count} {verbs[operation]}")
    if summary.failures:
        print(f"    {len(summary.failures)} errored")
    print(f"Duration: {summary.seconds:.0f}s")
    return 0 if summary.ok else 1


def main() -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="engine", description=NOTE)
    parser.add_argument("operation", choices=("up", "preview", "destroy", "outputs"))
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--stack", required=True)
    parser.add_argument("--state", type=Path, help="default: .tailrack/<stack>.state.json in the project")
    parser.add_argument("--config", type=Path, help="default: Pulumi.<stack>.yaml in the project")
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--show-secrets", action="store_true")
    given = parser.parse_args()
    state = given.state or given.project / ".tailrack" / f"{given.stack}.state.json"
    config = given.config or given.project / f"Pulumi.{given.stack}.yaml"
    engine = Engine(given.project, given.stack, state, config, render, given.parallel)
    try:
        if given.operation == "outputs":
            print(json.dumps(engine.outputs(given.show_secrets), indent=2))
            return 0
        print(NOTE, file=sys.stderr)
        summary = {"up": engine.up, "preview": engine.preview, "destroy": engine.destroy}[given.operation]()
        if given.operation == "up":
            print("Outputs:", json.dumps(engine.outputs(given.show_secrets), indent=2))
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 255
    return report(summary, MARKS and ({k: f"to {k}" for k in MARKS} if given.operation == "preview" else DONE))


if __name__ == "__main__":
    sys.exit(main())
