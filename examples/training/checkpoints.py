"""Checkpoints on the share: each is there as a whole or not at all, and the last two are kept."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

KEPT = 2


class CheckpointError(Exception):
    """One line that says what is wrong and what to do."""


def save(folder: Path, step: int, content: dict[str, Any]) -> Path:
    """Write `step-NUMBER.pt`. Raises CheckpointError where it cannot; the ones of before stay."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:08d}.pt"
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            new.unlink()
        last = newest(folder)
        kept = f"the last good one is {last}" if last else "there is none yet"
        raise CheckpointError(
            f"cannot write checkpoint {path} ({_line(error)}): {kept}; is there room? df -h {folder}"
        ) from None
    for old in sorted(folder.glob("step-*.pt"))[:-KEPT]:
        old.unlink()
    return path


def newest(folder: Path) -> Path | None:
    """The last one; None where there is none."""
    return max(folder.glob("step-*.pt"), default=None)


def load(path: Path, ranks: int) -> dict[str, Any]:
    """Read one. Raises CheckpointError where it is damaged, or of another number of ranks."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        of = int(content["ranks"])
    except Exception as error:  # noqa: BLE001  # torch has many for a file that is cut off
        raise CheckpointError(
            f"checkpoint {path} is damaged ({_line(error)}): take it away, and the run goes on from the one before"
        ) from None
    if of != ranks:
        raise CheckpointError(
            f"checkpoint {path} is of {of} ranks and this job has {ranks}: each would see other data. "
            f"Run with {of}, or begin anew in another folder"
        )
    return content


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
