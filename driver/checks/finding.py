"""What a rule gives: one thing about a change that nobody should merge without having asked for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`name` is one of stacks.config.allow.FINDINGS, by which it is allowed; `text` says what would be."""

    name: str
    text: str
