"""Starts the program that drives a measurement, on the head node: `python3 -I -c` of this text, the rest on stdin.

Nothing that somebody else could have changed on the way is run: the program comes with the step, and lies in a folder
of this process alone for as long as it runs.
"""

import base64
import json
import signal
import sys
import tempfile
import zlib
from pathlib import Path


def main() -> int:
    """Unpack the program, and do what stdin says; the exit status."""
    # Ended in the middle, it takes its jobs and its folder with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    told = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="tailrack-") as folder:
        for name, text in json.loads(zlib.decompress(base64.b64decode(told["program"]))).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sys.path.insert(0, folder)
        from components.validation import measurement_run  # only now is it there

        return measurement_run.main(told)


if __name__ == "__main__":
    sys.exit(main())
