"""`python -m engine up|preview|destroy|outputs --stack dev`: the engine for a terminal, one line an event."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from engine import Engine, EngineError, Event, Summary

MARKS = {"create": "+", "update": "~", "replace": "+-", "delete": "-", "same": " "}
DONE = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted", "same": "unchanged"}
PLANNED = {**{operation: f"to {operation}" for operation in MARKS}, "same": "unchanged"}
NOTE = (
    "This is tailrack's own engine, for trying out and for tests; a cluster you care about wants Pulumi's CLI. "
    "It knows commands alone, and no policy, service backends, imports or refresh."
)


def render(verbs: dict[str, str], event: Event) -> None:
    """Print an event, as Pulumi's CLI would say it; unchanged resources are only counted."""
    if event.operation == "same":
        return
    what = {"start": event.operation, "done": verbs.get(event.operation), "message": event.text}.get(event.kind)
    took = f" ({event.seconds:.1f}s)" if event.seconds >= 0.1 else ""
    print(f" {MARKS.get(event.operation, ''):2} {event.type} {event.name} {what or event.kind}{took}", end="")
    print(f": {event.text}" if event.kind in ("failed", "skipped") else "", flush=True)


def report(verbs: dict[str, str], summary: Summary) -> int:
    """Print the summary and return the exit status."""
    for failure in summary.failures:
        name = failure.urn.rpartition("::")[2]
        print(f"error: {f'{name}: ' if name else ''}{failure.message}", file=sys.stderr)
    print("Resources:")
    for operation, count in summary.counts.items():
        if count:
            print(f"    {MARKS[operation]:2} {count} {verbs[operation]}")
    print(f"    {len(summary.failures)} errored\n" if summary.failures else "", end="")
    print(f"Duration: {summary.seconds:.0f}s")
    return 0 if summary.ok else 1


def main() -> int:
    """Run one operation; returns the exit status."""
    parser = argparse.ArgumentParser(prog="engine", description=NOTE)
    parser.add_argument("operation", choices=("up", "preview", "destroy", "outputs"))
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--stack", required=True)
    parser.add_argument("--state", type=Path, help="default: .tailrack/<stack>.state.json in the project")
    parser.add_argument("--config", type=Path, help="default: Pulumi.<stack>.yaml in the project")
    parser.add_argument("--parallel", type=int, default=32, help="commands at once")
    parser.add_argument("--show-secrets", action="store_true")
    given = parser.parse_args()
    state = given.state or given.project / ".tailrack" / f"{given.stack}.state.json"
    config = given.config or given.project / f"Pulumi.{given.stack}.yaml"
    verbs = PLANNED if given.operation == "preview" else DONE
    engine = Engine(given.project, given.stack, state, config, partial(render, verbs), given.parallel)
    status = 0
    try:
        if given.operation != "outputs":
            print(NOTE, file=sys.stderr)
            run = {"up": engine.up, "preview": engine.preview, "destroy": engine.destroy}[given.operation]
            status = report(verbs, run())
        if given.operation in ("up", "outputs"):
            print(json.dumps(engine.outputs(given.show_secrets), indent=2, sort_keys=True))
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 255
    return status


if __name__ == "__main__":
    sys.exit(main())
