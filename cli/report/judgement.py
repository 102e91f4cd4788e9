"""The verdict of a measurement in a stack's outputs, and its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.output.terminal import one_line


@dataclass(frozen=True)
class Judgement:
    """A result with the keys `verdict` and `reason`."""

    result: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        return str(self.result["verdict"])

    @property
    def reason(self) -> str:
        """Return the reason of the verdict, which may contain output of programs on the nodes."""
        return one_line(str(self.result["reason"]))
