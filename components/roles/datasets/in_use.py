"""Whether jobs on this node may use a version of a data set."""

from __future__ import annotations

from components.node.run import attempt

_LIMIT_SECONDS = 30


def oldest_job(node: str) -> float | None:
    """Return the start of the oldest job on a node in Unix seconds; infinity without jobs, None if Slurm is silent."""
    states = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT"
    command = ("squeue", "-h", "-w", node, "-t", states, "-o", "%S")
    ended = attempt(*command, limit=_LIMIT_SECONDS, environment={"SLURM_TIME_FORMAT": "%s"}, keep_errors=True)
    if not ended.ok:
        return None
    starts = ended.output.split()
    # A job without a start begins now.
    return min((float(start) if start.isdecimal() else 0.0 for start in starts), default=float("inf"))
