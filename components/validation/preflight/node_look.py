"""tailrack-nhc: Slurm's HealthCheckProgram, as root on every node each two minutes and when slurmd starts.

Usage: tailrack-nhc [--wait | --reason | --own]

It makes the node's checks of what is known already and what is cheap to look at (no driver is asked), writes what it
found to /run/tailrack/verdict.json for everybody, and drains the node for an error, `reason=health: ...`. What it has
drained it takes back when the error has gone; nobody else's drain (drain.py). /run/tailrack/unhealthy keeps jobs from
beginning here between an error and its drain (prolog.d/30-health).

--wait: where somebody looks already, look after that one; without it, that one will do.
--reason: a script of the prolog or epilog has failed; wait for Slurm's drain and say in its reason which one, and why.
--own: exit with 0 where the node has the drain that it has from here, with 1 where it has another one or none.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.validation.preflight import drain
from components.validation.preflight.checks import said_by
from components.validation.preflight.drain import Memory, Slurm, cause, decide
from components.validation.preflight.findings import Finding, plain
from components.validation.preflight.node_checks import Node, findings, load, save, verdict
from components.validation.preflight.storage import SHARE
from components.validation.slurm_nodes import read_nodes

COMMAND_SECONDS = 20
REASON_SECONDS = 60
# What a look has drained the node for; root's alone.
REMEMBERED = "drain.json"
ERRORS_OF_SLURM = ("Prolog error", "Epilog error")
OWN_SCRIPT = "prolog.d/30-health"
# What comes and goes with the head node's own restarts drains nobody before it has lasted so long: until the next look.
LASTING, LASTS_SECONDS = frozenset({SHARE}), 30
Scontrol = Callable[..., str | None]


def scontrol(*words: str) -> str | None:
    """What scontrol prints; None where it fails."""
    try:
        done = subprocess.run(
            ["scontrol", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=COMMAND_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def slurm_of(name: str, ask: Scontrol) -> Slurm | None:
    """What Slurm says of the node; None where nobody answers, or it knows no such node."""
    try:
        node, *_ = read_nodes(ask("show", "node", name, "--json") or "")
    except ValueError:
        return None
    return Slurm("DRAIN" in node.flags, node.reason, node.by, node.since)


def run_of_slurmd() -> str:
    """What systemd calls the present run of slurmd; empty where there is none."""
    return said_by("systemctl", "show", "-p", "InvocationID", "--value", "slurmd.service").strip()


def is_own(node: Node, name: str, ask: Scontrol = scontrol) -> bool:
    """Whether the drain that the node has now is one that a look has set."""
    slurm = slurm_of(name, ask)
    return slurm is not None and drain.is_own(slurm, Memory.of(load(node.kept / REMEMBERED)).own)


def look(node: Node, name: str, ask: Scontrol = scontrol, *, instead: bool = False) -> None:
    """One look, and what it means."""
    found = findings(node)
    shown = node.shown / "verdict.json"
    since = since_when(found, load(shown), node.boot_id, time.time())
    save(shown, {**verdict(node, name, found), "since": since}, 0o644)
    found = [
        item for item in found if item["check"] not in LASTING or time.time() - since[cause(item)] >= LASTS_SECONDS
    ]
    remembered = node.kept / REMEMBERED
    slurm = slurm_of(name, ask)
    memory = Memory.of(load(remembered))
    # Where nobody answers, it is as it was.
    as_was = Slurm(True, memory.own.reason, "", memory.own.at) if memory.own else Slurm(False)
    decision = decide(found, slurm or as_was, memory, f"{node.boot_id} {run_of_slurmd()}", instead=instead)
    _show_unhealthy(node, decision.unhealthy)
    if slurm is None:
        return
    after = decision.memory
    if decision.action == "drain":
        sys.stdout.write(f"{decision.reason}\n")
        if ask("update", f"nodename={name}", "state=drain", f"reason={decision.reason}") is None:
            return
        told = slurm_of(name, ask)
        if told is None or after.own is None or told.reason != after.own.reason:
            # Whose it is nobody could say later: a person takes it back.
            after = Memory(None, frozenset(), after.accepted)
        else:
            after = Memory(replace(after.own, reason=told.reason, at=told.at), after.causes, after.accepted)
    elif decision.action == "resume":
        sys.stdout.write("nothing is wrong any more: the node is taken back\n")
        # Unlike `resume` it changes nothing else of the state.
        if ask("update", f"nodename={name}", "state=undrain") is None:
            return
    if after != memory:
        save(remembered, after.plain())


def since_when(found: Sequence[Finding], before: object, boot_id: str, now: float) -> dict[str, float]:
    """Since when each finding is there without a break, of this boot; `before` is what the last look has shown."""
    known = before.get("since") if isinstance(before, dict) and before.get("boot_id") == boot_id else None
    times = {key: at for key, at in known.items() if isinstance(at, int | float)} if isinstance(known, dict) else {}
    return {cause(item): min(now, times.get(cause(item), now)) for item in found}


def _show_unhealthy(node: Node, errors: Sequence[Any]) -> None:
    path = node.shown / "unhealthy"
    if errors:
        first = errors[0]
        save(path, f"next: {first['remedy']}\n{first['check']}: {first['seen']}\n", 0o644)
    else:
        path.unlink(missing_ok=True)


def say_reason(node: Node, name: str, ask: Scontrol = scontrol, wait: Callable[[float], None] = time.sleep) -> None:
    """Write which script failed, and why, into the reason of Slurm's drain once that is there."""
    failure = load(node.shown / "last-failure.json")
    if not isinstance(failure, dict) or failure.get("boot_id") != node.boot_id:
        return
    end = time.monotonic() + REASON_SECONDS
    while time.monotonic() < end:
        slurm = slurm_of(name, ask)
        if slurm is not None and slurm.drained and slurm.by == "slurm" and slurm.reason in ERRORS_OF_SLURM:
            if failure.get("script") == OWN_SCRIPT:
                look(node, name, ask, instead=True)
            else:
                script, what, remedy = (plain(str(failure.get(key) or "")) for key in ("script", "what", "remedy"))
                words = drain.script_reason(slurm.reason, script, what, remedy)
                ask("update", f"nodename={name}", f"reason={words}")
            return
        wait(0.5)


def main(arguments: list[str], node: Node | None = None) -> int:
    """See above. A look that fails drains nobody."""
    # slurmd gives it no environment.
    os.umask(0o022)
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    node = node or Node()
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    if arguments not in ([], ["--wait"], ["--reason"], ["--own"]):
        sys.stderr.write("usage: tailrack-nhc [--wait | --reason | --own]\n")
        return 2
    if arguments == ["--own"]:
        return 0 if is_own(node, name) else 1
    node.of_this_boot.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Path(node.of_this_boot / "nhc.lock").open("w") as lock:
        if arguments == ["--reason"]:
            say_reason(node, name)
            return 0
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if arguments else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        look(node, name)
    return 0
