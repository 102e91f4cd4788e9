"""The command `kept`: run a plan that a step left on this machine, such as that of `tailrack-leave`.

    kept NAME [ACTION]

The file has two lines of JSON, as the stdin of a step (main.py). A person or a timer runs it, and reads its output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from components.node import files, run
from components.node.failure import Failure
from components.node.fetch import proxy_variables
from components.node.step.step import Step
from components.node.step.work import Work, read_plan

FOLDER = "/etc/tailrack/plans"
# Its calls go on after an error.
LEAVE = "leave"


def keep(name: str, plan: str, request: str, command: str) -> None:
    """Leave a plan and the program that runs it, `tailrack-<name>`, on this machine."""
    plan_file = files.File(f"{FOLDER}/{name}.json", f"{plan}\n{request}")
    files.write_all([plan_file, files.File(f"/usr/local/sbin/tailrack-{name}", command, 0o755)])


def main(arguments: Sequence[str]) -> int:
    """Run the plan and return the exit status."""
    name = arguments[0]
    os.umask(0o022)
    os.environ.update({"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": run.PATH, **proxy_variables()})
    text = files.read(f"{FOLDER}/{name}.json")
    if text is None:
        sys.stderr.write(f"there is no {FOLDER}/{name}.json\n")
        return 1
    plan_line, request_line = text.split("\n", 1)
    request = json.loads(request_line)
    step = Step(request["host"], f"tailrack-{name}", "")
    plan = read_plan(plan_line)
    work = Work(step, plan, {**plan.texts, **request["values"]})
    try:
        work.do(arguments[1] if len(arguments) > 1 else name, keep_going=name == LEAVE)
    except Failure as failure:
        sys.stderr.write(f"tailrack-{name}: {failure.reason or 'stopped'}; next: {failure.remedy or 'see above'}\n")
        return 1
    if name == LEAVE:
        sys.stdout.write("left\n")
    return 0
