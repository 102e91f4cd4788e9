"""Talk with `tailrack elastic` on the head node, over the connection of the stack's steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.elastic.plan import Attempts, Placeholder, Plan
from cli.head.answer import ask_head
from cli.output.live_status import as_root
from cli.output.terminal import one_line
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import Made
from components.roles.tailrack_command.elastic import Status
from components.roles.tailrack_command.host import COMMAND


@dataclass(frozen=True)
class Answer:
    """The placeholders in slurmctld, the time there, and the last report.

    failed, renting   its failed attempts, and since when machines are being rented
    replaced          Unix seconds of the last replacement of a sick machine
    """

    nodes: Sequence[Placeholder]
    failed: Mapping[str, Attempts]
    renting: Mapping[str, float]
    now: float
    replaced: float = 0


class Head:
    """The head node of a pool's cluster.

    pool       the pool's name there
    resources  of the last run, whose steps have the connection
    """

    def __init__(self, deployment: Deployment, name: str, pool: str, resources: Sequence[Made]) -> None:
        self._deployment, self._name, self._pool, self._resources = deployment, name, pool, resources

    def exchange(self, plan: Plan | None = None, status: Status | None = None) -> Answer:
        """Apply a plan's states and record a report, and return the present states. Raises CliError."""
        changes = {
            "down": dict(plan.down) if plan else {},
            "resume": list(plan.resume) if plan else [],
            "power_up": list(plan.power_up) if plan else [],
            "replace": list(plan.replace) if plan else [],
            "status": status.to_plain() if status else None,
        }
        words = ["elastic", "--json", *(["--apply", json.dumps(changes)] if plan or status else []), self._pool]
        return _read(ask_head(self._deployment, self._resources, self._name, as_root(COMMAND, *words)))


def _read(text: str) -> Answer:
    try:
        data: Mapping[str, Any] = json.loads(text)
        status = data["status"] or {"failed": {}, "renting": {}}
        return Answer(
            [
                Placeholder(str(row["name"]), frozenset(map(str, row["flags"])), str(row["reason"]), str(row["by"]))
                for row in data["nodes"]
            ],
            {str(name): Attempts(int(row[0]), float(row[1]), str(row[2])) for name, row in status["failed"].items()},
            {str(name): float(since) for name, since in status["renting"].items()},
            float(data["now"]),
            float(status.get("replaced", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise CliError(f"the head node did not report its placeholders: {one_line(text[-200:]) or 'nothing'}") from None
