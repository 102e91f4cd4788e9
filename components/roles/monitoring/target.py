"""One target file per member for Prometheus. The ports are the same for all members (prometheus.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from components.node import files
from components.node.step.step import STATE_DIR

# On the head node. Prometheus watches this folder for changes.
TARGETS = f"{STATE_DIR}/monitoring/targets"


@dataclass(frozen=True)
class MemberName:
    """A member's name."""

    node_name: str


@dataclass(frozen=True)
class Member(MemberName):
    """Its site."""

    node_site: str


def write_target(member: Member, address: str) -> None:
    """Write the target of a member at its tailnet address."""
    target = {"targets": [address], "labels": {"instance": member.node_name, "site": member.node_site}}
    files.write(_path(member), json.dumps([target], separators=(",", ":"), ensure_ascii=False))


def remove_target(member: MemberName) -> None:
    """Remove the target of a member."""
    files.remove(_path(member))


def _path(member: MemberName) -> str:
    return f"{TARGETS}/{member.node_name}.json"
