"""The outputs of another program, whichever tool has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class OtherStack:
    """The outputs of another stack, by name, without those that are unknown.

    secrets   the names of those that are secret or contain a secret
    error     the reason why they cannot be read; empty if they can
    """

    outputs: Mapping[str, Any] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    error: str = ""
