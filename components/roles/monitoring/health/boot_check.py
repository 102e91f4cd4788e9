"""tailrack-boot-check: a node's check at boot, before it takes jobs (health.on_boot).

Usage: tailrack-boot-check begin | quick | dcgm [reboot]

systemd runs `begin` before slurmd starts, and does not wait for the rest. The result is a part of the findings of the
node's health check (node_checks.py), which drains the node until this check ends, and for as long as DCGM's errors
stand. With `reboot`, an error that does not go by itself restarts the machine once; after that the node stays drained.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from components.validation.preflight import dcgm
from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.holders import device_numbers
from components.validation.preflight.node_checks import BOOT_CHECK, Node, collect, findings
from components.validation.this_node import save

LEVEL, DCGM_SECONDS = 2, 1800
# A share or a mount may need the tailnet, which comes later at boot.
LATE_SECONDS, PAUSE_SECONDS = 180, 5
_NAME = "check at boot"
_REPEAT = "'systemctl restart tailrack-boot-check' on the node repeats it; see 'journalctl -u tailrack-boot-check'"


def system(*command: str) -> None:
    """Run a command, whatever becomes of it."""
    subprocess.run(command, check=False, timeout=120)


def main(
    arguments: list[str],
    node: Node | None = None,
    run: Callable[..., None] = system,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Check the node, and return 1 for an error."""
    os.umask(0o022)
    node = node or Node()
    result, restarted = node.of_this_boot / BOOT_CHECK, node.persistent / "restarted"
    running = finding("error", _NAME, "it has not ended", _REPEAT)
    if arguments == ["begin"]:
        save(result, [running])
        return 0
    collect(node)
    gpus = "dcgm" in arguments and device_numbers(node.root)
    found = dcgm.diagnosed(LEVEL, DCGM_SECONDS) if gpus else []
    save(result, [item for item in found if item["severity"] == "error"])
    errors = _lasting_errors(node, wait)
    for item in errors:
        sys.stdout.write(f"{item['check']}: {item['seen']}; next: {item['remedy']}\n")
    if errors and "reboot" in arguments and not restarted.exists():
        sys.stdout.write("restarting the machine once\n")
        save(restarted, node.boot_id)
        save(result, [running])
        run("systemctl", "reboot")
        return 1
    if not errors:
        restarted.unlink(missing_ok=True)
    run("/usr/local/sbin/tailrack-nhc", "--wait")
    return 1 if errors else 0


def _lasting_errors(node: Node, wait: Callable[[float], None]) -> list[Finding]:
    """Return the errors of the node; wait until it has no more, up to a limit."""
    for _ in range(LATE_SECONDS // PAUSE_SECONDS):
        errors = [item for item in findings(node) if item["severity"] == "error"]
        if not errors:
            break
        wait(PAUSE_SECONDS)
    return errors
