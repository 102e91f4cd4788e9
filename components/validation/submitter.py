"""Run a measurement's program as the user who submits its jobs. Root on the head node calls this.

Root opens and writes nothing in a home: the program writes the jobs' files and reads their output as the user. So its
report is untrusted: JSON of a limited size, or nothing.
"""

from __future__ import annotations

import json
from typing import Any

from components.node import files
from components.node.accounts import as_user
from components.node.log import note
from components.node.passwd import user_named
from components.node.run import Ended

_MOST_OUTPUT = 64_000_000


def run_as_submitter(name: str, *command: str, task: Any, limit: float, **environment: str) -> Ended:
    """Run a command with a task as JSON on its stdin, for a number of seconds."""
    user = user_named(name)
    if user is None:
        note(f"this machine has no account {name}")
        return Ended(1, "")
    return as_user(
        name,
        *command,
        limit=limit,
        most=_MOST_OUTPUT,
        stdin=json.dumps(task),
        environment={
            "HOME": files.on_disk(user.pw_dir),
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **environment,
        },
    )
