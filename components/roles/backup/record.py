"""The record of the last backup: lines NAME=VALUE."""

from __future__ import annotations

from components.node import files


def recorded(path: str, name: str) -> str:
    """Return a value of a record; empty if it has none."""
    rows = (line.partition("=") for line in files.lines(path))
    return next((value for key, _, value in rows if key == name), "")
