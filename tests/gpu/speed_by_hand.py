"""Print the deep check's readings of this machine's GPUs as JSON: `python3 -I tests/gpu/speed_by_hand.py`.

It needs only this checkout and NVIDIA's driver.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from components.validation.gpu_speed.node import readings

if __name__ == "__main__":
    start = time.monotonic()
    found = readings()
    print(json.dumps({"seconds": round(time.monotonic() - start, 1), "gpus": [asdict(gpu) for gpu in found]}, indent=1))
