"""The job's program of a node: print a line of readings, then a line of findings of dcgmi if that is wanted.

The argument is JSON with `dcgm_level` (0: no dcgmi) and `dcgm_seconds`, the time for all.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Sequence

from components.validation.gpu_speed.node import readings
from components.validation.gpu_speed.reading import line
from components.validation.preflight import dcgm


def main(arguments: Sequence[str]) -> int:
    """Print the lines. Always return 0: slow GPUs are no failure of the job."""
    settings = json.loads(arguments[0])
    end = time.monotonic() + float(settings["dcgm_seconds"])
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    # One write for each line, so that lines of other nodes do not come between.
    sys.stdout.write(line(node, readings()) + "\n")
    sys.stdout.flush()
    if not settings["dcgm_level"]:
        return 0
    return dcgm.diagnose([json.dumps({**settings, "dcgm_seconds": max(10.0, end - time.monotonic())})])
