"""The command `pod-link`: what rsync runs in place of ssh. It sends a pod the request to run rsync too."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from components.node import run
from components.node.failure import Failure
from components.roles.pod_staging.paths import REQUEST
from components.roles.pod_staging.transfer import LINK_VALUES
from components.roles.ssh_trust.ask import NO_ANSWER, ssh_command


def main(arguments: Sequence[str]) -> int:
    """Connect rsync with the pod. rsync passes the pod's name, `rsync`, and the arguments of the pod's rsync."""
    values = json.loads(os.environ[LINK_VALUES])
    try:
        command = ssh_command(values["key"], values["node"], REQUEST)
    except Failure as failure:
        sys.stderr.write(f"{failure.reason}\n")
        return NO_ANSWER
    header = json.dumps({"job": values["job"], "arguments": list(arguments[2:])})
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PATH": run.PATH})
    if process.stdin is None:
        return NO_ANSWER
    with suppress(BrokenPipeError), process.stdin:
        target = process.stdin.fileno()
        _write(target, f"{header}\n".encode())
        _pass_on(target)
    return process.wait()


def _pass_on(target: int) -> None:
    """Pass stdin on until one of the two ends. rsync waits for the end of this program before it closes stdin."""
    poller = select.poll()
    poller.register(0, select.POLLIN)
    # Without an event, poll reports only that the other end has closed.
    poller.register(target, 0)
    while target not in dict(poller.poll()):
        data = os.read(0, 1 << 17)
        if not data:
            return
        _write(target, data)


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
