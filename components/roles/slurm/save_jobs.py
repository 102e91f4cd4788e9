"""The command `save-jobs SECONDS` on a node: give jobs time to save before the machine shuts down.

tailrack-shutdown.service runs it before tailrack-shutdown, while slurmd and the share still work. It prints no error:
tailrack-shutdown does the rest in any case.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.node import files
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import STATE_DIR
from components.roles.slurm.end_jobs import end_jobs, shut_down_cause, wait_for_end

# The same as in templates/tailrack-shutdown.
REASON = "tailrack: shuts down"
_LIMIT = 4


def main(arguments: Sequence[str]) -> int:
    """End the node's jobs, and wait until their processes have ended."""
    # The unit also stops when the node leaves the cluster, or an administrator restarts the unit.
    if attempt("systemctl", "is-system-running").output.strip() != "stopping":
        return 0
    node = (files.read(f"{STATE_DIR}/node-name") or "").strip()
    # No new job may start here. A node that is drained already keeps its reason.
    state = attempt("scontrol", "-o", "show", "node", node, limit=_LIMIT, quiet=True)
    if not state.ok:
        note("slurmctld does not answer")
        return 0
    drained = "+DRAIN" in state.output
    if not drained:
        attempt("scontrol", "update", f"nodename={node}", "state=drain", f"reason={REASON}", limit=_LIMIT)
    end_jobs(node, shut_down_cause(node))
    if not wait_for_end(node, int(arguments[0])):
        note(f"jobs have not ended within {arguments[0]} s")
    # tailrack-shutdown sets the node down. With a drain, it would stay out after the reboot.
    if not drained:
        attempt("scontrol", "update", f"nodename={node}", "state=undrain", limit=_LIMIT)
    return 0
