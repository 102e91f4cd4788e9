"""How often the state is written: once for all steps that end while another one's file is written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from engine.state import Resource, State

STEPS = 16
SECONDS = 20


def test_steps_that_end_together_share_a_file_and_each_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    state, written = State(path, "trial/dev", "sesame"), list[Path]()
    replace = Path.replace

    def counted(self: Path, target: Path) -> Path:
        written.append(target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", counted)
    names = [f"step-{number}" for number in range(STEPS)]
    threads = [
        threading.Thread(target=state.put, args=(Resource(f"urn::{name}", "command:local:Command", name, True),))
        for name in names
    ]
    with state._lock:  # as if a file were being written
        for thread in threads:
            thread.start()
        end = time.monotonic() + SECONDS
        while len(state.live) < STEPS:
            assert time.monotonic() < end
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert len(written) < STEPS / 2
    kept = State(path, "trial/dev", "sesame").live.values()
    assert sorted(resource.name for resource in kept) == sorted(names)
