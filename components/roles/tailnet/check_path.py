"""Find a node's path to the head node over the tailnet, and compare the clocks, before the node gets the munge key."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import IO

from components.node import run
from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step
from components.roles.clock.compare import compare_with_head

# Signs of each path in the answers of `tailscale ping`, the best path first. A relay of the control server carries a
# few Mbit/s.
_PATHS = {"direct": r"via [0-9\[]", "peer-relay": r"via peer-relay\(", "relay": "via DERP"}
_PING = ("ping", "--c", "4", "--timeout", "3s", "--until-direct")
_LOOK_SECONDS = 30


@dataclass(frozen=True)
class HeadValues:
    """The tailnet address of the head node."""

    head_address: str


def check_path(step: Step, values: HeadValues) -> None:
    """Look for the best path while the rest of the step goes on: the search for a direct path takes seconds."""
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115 it is read at the end of the step
    look = run.begin("timeout", str(_LOOK_SECONDS), "tailscale", *_PING, values.head_address, output=said.fileno())
    step.later.append(lambda: _report(step, values.head_address, look, said))
    compare_with_head(values.head_address, step.host)


def _report(step: Step, address: str, look: subprocess.Popen[bytes], said: IO[str]) -> None:
    if look.wait() != 0:
        note("tailscale ping found no direct path")
    said.seek(0)
    answer = said.read()
    said.close()
    note(f"tailscale ping: {answer.strip()}")
    path = next((name for name, sign in _PATHS.items() if re.search(sign, answer)), "")
    if not path:
        raise Failure(
            f"the head node does not answer on the tailnet at {address}",
            f"see 'tailscale netcheck' and 'tailscale ping {address}' on {step.host}; outgoing UDP 41641 or TCP 443 "
            "must be open",
        )
    step.result("path", path)
