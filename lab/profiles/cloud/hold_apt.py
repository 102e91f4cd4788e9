#!/usr/bin/python3
"""Hold the locks of `apt-get update` and of dpkg for the seconds given, as the daily updates of a new machine do."""

import fcntl
import sys
import time
from contextlib import ExitStack
from pathlib import Path

LOCKS = (Path("/var/lib/dpkg/lock-frontend"), Path("/var/lib/apt/lists/lock"))

with ExitStack() as held:
    for path in LOCKS:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Locks of the kind that apt and dpkg take; they would not see flock's.
        fcntl.lockf(held.enter_context(path.open("w")), fcntl.LOCK_EX)
    time.sleep(float(sys.argv[1]))
