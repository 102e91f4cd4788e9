"""Seconds to read a config, and one that is twice as large: twice as many where the work is linear, four times if not.

tests/unit/stacks/test_config_speed.py counts executed lines of Python, which are the same on every machine. These
seconds include the work of C code in one line: copying lists, joining texts, comparing numbers with items of a list.
CPU seconds, the best of two. Nothing is judged.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from stacks.yaml_file import read_yaml
from tests.unit.configs import KEY_PAIR, RawConfig
from tests.unit.large_configs import SIZES, read, yaml_of

LARGER = 30  # times the sizes of the tests, for seconds that can be read
TURNS = 2
YAML_USERS = 20_000


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of a piece of work, the best of some turns."""
    times = []
    for _ in range(TURNS):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def show(label: str, number: int, work: Callable[[int], Callable[[], object]]) -> None:
    """Print a line of the table. work   the function to time, for a number of items"""
    once, twice = seconds(work(number)), seconds(work(2 * number))
    print(f"  {label:28} {number:7,} {once:7.2f} s {twice:7.2f} s   twice/once {twice / once:.2f}")


def main() -> None:
    """Read each config, and each twice as large."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "key").write_bytes(KEY_PAIR.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))

        def config_of(config: Callable[[int], RawConfig], number: int) -> Callable[[], object]:
            return partial(read, config(number), folder)

        def file_of(number: int) -> Callable[[], object]:
            file = folder / "users.yaml"
            file.write_text(yaml_of(number), encoding="utf-8")
            return partial(read_yaml, file)

        print("to read a config, and one that is twice as large:")
        for label, (count, config) in SIZES.items():
            show(label, LARGER * count, partial(config_of, config))
        show("users in YAML", YAML_USERS, file_of)


if __name__ == "__main__":
    main()
