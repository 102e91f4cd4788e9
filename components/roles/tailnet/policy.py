"""What the tailnet's policy file has to hold for the cluster, from the ports of its roles; and what one lacks. Pure.

Syntax: tailscale.com/docs/reference/syntax/policy-file. Rules are never taken as more than they surely give: one by a
group, a person or a posture is none for a tag. A file with neither grants nor acls lets everything through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

from components.roles.role import Role
from components.roles.tailnet.relay import relay_grant
from components.settings.network_names import TAILNET

SSH = "22"
# MPI and NCCL choose among these. Where jobs stay on one node the policy can do without.
JOBS = "1024-65535"
# A port of NFS before version 4, which nobody is to reach: the test that the policy shuts something out.
CLOSED = 111
_LAST = 65535
_TCP = ("tcp", "6")

Ranges = list[tuple[int, int]]


def ports(roles: Iterable[Role]) -> tuple[str, ...]:
    """Return the ports and ranges that the cluster's machines reach on one another: daemons' first, then jobs'."""
    merged: Ranges = []
    for first, last in sorted(_range(port) for role in roles for port in (*role.serves, SSH)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return (*(_text(each) for each in merged), JOBS)


def policy(tag: str, wanted: Sequence[str], whole: bool = False, relay: bool = False) -> dict[str, Any]:
    """Return what a policy file has to hold, as its own words are.

    whole   it is all that the file holds: people reach the cluster by SSH, and their own devices; nothing else is open
    relay   whether a member is the cluster's relay
    """
    grants: list[dict[str, Any]] = [{"src": [tag], "dst": [tag], "ip": [f"tcp:{port}" for port in wanted]}]
    told: dict[str, Any] = {"src": tag, "accept": [f"{tag}:{_range(port)[0]}" for port in wanted]}
    if relay:
        grants.append(relay_grant(tag))
    if whole:
        grants.append({"src": ["autogroup:member"], "dst": [tag], "ip": [f"tcp:{SSH}"]})
        grants.append({"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["*"]})
        told["deny"] = [f"{tag}:{CLOSED}"]
    return {"tagOwners": {tag: ["autogroup:admin"]}, "grants": grants, "tests": [told]}


def lacking(found: Mapping[str, Any], tag: str, wanted: Sequence[str]) -> str:
    """Return what a policy file in force lacks, as a sentence with what to add; empty where it lacks nothing."""
    owners = found.get("tagOwners")
    if not isinstance(owners, Mapping) or tag not in owners:
        return f'its tagOwners have no {tag}; add "{tag}": ["autogroup:admin"]'
    if "grants" not in found and "acls" not in found:
        return ""
    opened = [*_of_grants(found.get("grants"), tag), *_of_acls(found.get("acls"), tag)]
    shut = [port for port in wanted if not _within(_range(port), opened)]
    if not shut:
        return ""
    grant = {"src": [tag], "dst": [tag], "ip": [f"tcp:{port}" for port in shut]}
    return f"no rule lets {tag} reach itself on tcp {', '.join(shut)}; add to its grants {json.dumps(grant)}"


def opens_all(found: Mapping[str, Any], tag: str) -> bool:
    """Whether a policy file in force lets machines with the tag reach all of the tailnet, as Tailscale's first does."""
    if "grants" not in found and "acls" not in found:
        return True
    rules = [*_rules(found.get("grants")), *_rules(found.get("acls"))]
    return any(
        _meant({"src": rule.get("src", rule.get("users"))}, "src", tag)
        and any(where in ("*", "*:*") for where in _texts(rule.get("dst", rule.get("ports"))))
        for rule in rules
    )


def _of_grants(rules: object, tag: str) -> Ranges:
    opened: Ranges = []
    for rule in _rules(rules):
        # What depends on a posture or goes by way of another machine is not there for every machine at any time.
        if "srcPosture" in rule or "via" in rule or not (_meant(rule, "src", tag) and _meant(rule, "dst", tag)):
            continue
        for entry in _texts(rule.get("ip")):
            proto, _, port = entry.rpartition(":")
            if proto in ("", *_TCP):
                opened += _ranges(port)
    return opened


def _of_acls(rules: object, tag: str) -> Ranges:
    opened: Ranges = []
    for rule in _rules(rules):
        if rule.get("action") != "accept" or "srcPosture" in rule or rule.get("proto", "") not in ("", *_TCP):
            continue
        if not _meant({"src": rule.get("src", rule.get("users"))}, "src", tag):
            continue
        for entry in _texts(rule.get("dst", rule.get("ports"))):
            where, _, port = entry.rpartition(":")
            if _selects(where, "dst", tag):
                opened += _ranges(port)
    return opened


def _rules(rules: object) -> list[Mapping[str, Any]]:
    return [rule for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _meant(rule: Mapping[str, Any], side: str, tag: str) -> bool:
    return any(_selects(selector, side, tag) for selector in _texts(rule.get(side)))


def _selects(selector: str, side: str, tag: str) -> bool:
    """Whether every machine with the tag is one that the selector means."""
    if selector in ("*", tag, "autogroup:tagged") or (side == "src" and selector == "autogroup:danger-all"):
        return True
    try:
        network = ip_network(selector, strict=False)
    except ValueError:
        return False
    return network.version == TAILNET.version and TAILNET.subnet_of(network)


def _ranges(text: str) -> Ranges:
    """`*`, `22`, `80-90`, `22,80-90`; what is none of these opens nothing."""
    if text == "*":
        return [(0, _LAST)]
    parts = text.split(",")
    return [_range(part) for part in parts] if all(re.fullmatch(r"\d{1,5}(-\d{1,5})?", part) for part in parts) else []


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _text(each: tuple[int, int]) -> str:
    return str(each[0]) if each[0] == each[1] else f"{each[0]}-{each[1]}"


def _within(wanted: tuple[int, int], opened: Ranges) -> bool:
    """Whether the ranges together hold every port that is wanted."""
    first, last = wanted
    for low, high in sorted(opened):
        if low <= first <= high:
            first = high + 1
    return first > last
