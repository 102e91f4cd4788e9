"""Machines that have another address than at the last run, such as pods that were stopped and started."""

from __future__ import annotations

from collections.abc import Mapping

from stacks.rental.cloud import READY, SSH_PORT, Instance


def new_address(facts: object, machines: Mapping[str, Instance]) -> str:
    """Return the address and port of a node's machine, if they are not those of the last run; else empty."""
    facts = facts if isinstance(facts, dict) else {}
    machine = machines.get(str(facts.get("id")))
    if machine is None or machine.state != READY or not machine.address or not facts.get("address"):
        return ""
    place = machine.address, machine.port
    return "" if place == (facts["address"], facts.get("port", SSH_PORT)) else "{}:{}".format(*place)
