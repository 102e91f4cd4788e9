"""The tailnet policy that the cluster needs, from the ports of its roles, and the rules that a policy lacks.

Syntax: tailscale.com/docs/reference/syntax/policy-file. A file with neither grants nor acls allows everything. For what
machines need, a rule counts if it surely covers them: one for a group, a person or a posture does not. For what must be
closed, a rule counts if it may cover one of them: by an address, an alias, or words that this program does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import ip_address, ip_network, summarize_address_range
from typing import Any, Protocol

from components.roles.network.tailnet.settings import Tailnet
from components.roles.role import Role
from components.settings.network_names import TAILNET, is_interface

CAPABILITY = "tailscale.com/cap/relay"
SSH = "22"
# MPI and NCCL choose among these. If jobs stay on one node, the policy does not need them.
JOBS = "1024-65535"
# A port of NFS before version 4, which must stay closed: the policy's own test that it blocks something.
CLOSED = 111
# Ports that pods reach on the cluster's machines: slurmctld's, and those of srun. The others of Slurm, SSH and the
# share are closed to them: root of a pod's host has the munge key. 6815 is the port at which a pod answers the head
# node's requests.
FROM_PODS = ("6817", "60001-60999")
TO_PODS = ("6815", "6818", "60001-60999")
CLOSED_TO_PODS = ("22", "2049", "5000", "6814", "6816", "6818", "6819", "9090", "9100")
# Jobs over several pods: slurmd's port, and those that PMIx and srun choose.
BETWEEN_PODS = (JOBS,)
_LAST = 65535
_TCP = ("tcp", "6")
_NOT_TCP = frozenset(("icmp", "igmp", "ipv4", "ip-in-ip", "egp", "igp", "udp", "gre", "esp", "ah", "sctp", "ipv6-icmp"))
_TAILNET_6 = ip_network("fd7a:115c:a1e0::/48")
Ranges = list[tuple[int, int]]
_ALL: Ranges = [(0, _LAST)]


def relay_port(tailnet: Tailnet, node: str) -> str:
    """Return the relay's UDP port for the relay node; empty for every other node."""
    return str(tailnet.relay.port) if tailnet.relay and tailnet.relay.node == node else ""


def ports(roles: Iterable[Role]) -> tuple[str, ...]:
    """Return the ports and ranges that the cluster's machines must reach on one another: daemons first, then jobs."""
    merged: Ranges = []
    for first, last in sorted(_range(port) for role in roles for port in (*role.serves, SSH)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return (*(_text(each) for each in merged), JOBS)


class _Node(Protocol):
    @property
    def pod(self) -> bool: ...
    @property
    def fabric(self) -> str: ...


class Pods(Enum):
    """The pods of a cluster: none, pods for jobs on one of them, or also pods for jobs over several of them."""

    NONE = "none"
    ALONE = "alone"
    TOGETHER = "together"

    @classmethod
    def of(cls, nodes: Iterable[_Node]) -> Pods:
        """Return the pods among some nodes."""
        pods = [node for node in nodes if node.pod]
        if any(is_interface(node.fabric) for node in pods):
            return cls.TOGETHER
        return cls.ALONE if pods else cls.NONE

    def __bool__(self) -> bool:
        return self is not Pods.NONE


def pod_tag(tag: str) -> str:
    """Return the tag of pods in a cluster whose other machines have a tag."""
    return f"{tag}-pod"


def policy(
    tag: str, wanted: Sequence[str], whole: bool = False, relay: bool = False, pods: Pods = Pods.NONE
) -> dict[str, Any]:
    """Return the required content of a policy file, in its own format.

    whole   the file has nothing else: people reach the cluster by SSH, and their own devices; nothing else is open
    relay   whether a member is the cluster's relay
    pods    the cluster's pods
    """
    grants: list[dict[str, Any]] = [{"src": [tag], "dst": [tag], "ip": [f"tcp:{port}" for port in wanted]}]
    test: dict[str, Any] = {"src": tag, "accept": [f"{tag}:{_range(port)[0]}" for port in wanted]}
    if relay:
        grants.append({"src": [tag], "dst": [tag], "app": {CAPABILITY: []}})
    if whole:
        grants.append({"src": ["autogroup:member"], "dst": [tag], "ip": [f"tcp:{SSH}"]})
        grants.append({"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["*"]})
        test["deny"] = [f"{tag}:{CLOSED}"]
    owners, tests = [tag], [test]
    if pods:
        pod = pod_tag(tag)
        owners.append(pod)
        grants += [
            {"src": [src], "dst": [dst], "ip": [f"tcp:{port}" for port in ports]}
            for src, dst, ports in _of_pods(tag, pods)
        ]
        accepted = [f"{tag}:{_range(port)[0]}" for port in FROM_PODS]
        tests.append({"src": pod, "accept": accepted, "deny": [f"{tag}:{port}" for port in CLOSED_TO_PODS]})
    return {"tagOwners": {name: ["autogroup:admin"] for name in owners}, "grants": grants, "tests": tests}


def _of_pods(tag: str, pods: Pods) -> list[tuple[str, str, Sequence[str]]]:
    """Return the rules of pods: source, destination and ports."""
    pod = pod_tag(tag)
    between = [(pod, pod, BETWEEN_PODS)] if pods is Pods.TOGETHER else []
    return [(pod, tag, FROM_PODS), (tag, pod, TO_PODS), *between] if pods else []


def lacking(policy_file: Mapping[str, Any], tag: str, wanted: Sequence[str], pods: Pods = Pods.NONE) -> str:
    """Return a sentence with the rule that a policy in force lacks and how to add it; empty if it lacks none.

    pods   the cluster's pods. A policy that opens more to them than they need is not sufficient either
    """
    for name in (tag, pod_tag(tag)) if pods else (tag,):
        owners = policy_file.get("tagOwners")
        if not isinstance(owners, Mapping) or name not in owners:
            return f'its tagOwners have no {name}; add "{name}": ["autogroup:admin"]'
    if "grants" not in policy_file and "acls" not in policy_file:
        return "it has no rules, so pods reach everything; add the whole policy of docs/tailnet.md" if pods else ""
    for src, dst, needed in ((tag, tag, wanted), *_of_pods(tag, pods)):
        opened = _opened(policy_file, src, dst)
        shut = [port for port in needed if not _within(_range(port), opened)]
        if shut:
            grant = {"src": [src], "dst": [dst], "ip": [f"tcp:{port}" for port in shut]}
            where = "itself" if src == dst else dst
            return f"no rule lets {src} reach {where} on tcp {', '.join(shut)}; add to its grants {json.dumps(grant)}"
    if pods:
        for section, rule, opened in _may_open(policy_file, pod_tag(tag), tag):
            if wide := _outside(opened, [_range(port) for port in FROM_PODS]):
                shown = json.dumps(rule)
                return (
                    f"a rule of its {section} lets, or may let, {pod_tag(tag)} reach {tag} on tcp "
                    f"{', '.join(map(_text, wide))}, and root of a pod's host would reach your machines there: "
                    f"{shown[:300]}; name {tag} in that rule's src in place of a wider selector, or other machines in "
                    "its dst"
                )
    return ""


def _may_open(policy_file: Mapping[str, Any], src: str, dst: str) -> Iterator[tuple[str, Mapping[str, Any], Ranges]]:
    """Give rules with the TCP ports that a machine with one tag may reach by them on one with another."""
    hosts = policy_file.get("hosts")
    hosts = hosts if isinstance(hosts, Mapping) else {}

    def may(selectors: object, tag: str) -> bool:
        return any(_may_select(selector, tag, hosts) for selector in _texts(selectors))

    for rule in _rules(policy_file.get("grants")):
        if may(rule.get("src"), src) and may(rule.get("dst"), dst):
            entries = [entry.rpartition(":") for entry in _texts(rule.get("ip"))]
            ports = [port for protocol, _, port in entries if _may_be_tcp(protocol)]
            yield "grants", rule, [each for port in ports for each in _ranges(port) or _ALL]
    for rule in _rules(policy_file.get("acls")):
        if may(rule.get("src", rule.get("users")), src) and _may_be_tcp(rule.get("proto", "")):
            targets = [entry.rpartition(":") for entry in _texts(rule.get("dst", rule.get("ports")))]
            ports = [port for where, _, port in targets if _may_select(where, dst, hosts)]
            yield "acls", rule, [each for port in ports for each in _ranges(port) or _ALL]
    for rule in _rules(policy_file.get("ssh")):
        if may(rule.get("src"), src) and may(rule.get("dst"), dst):
            yield "ssh", rule, [_range(SSH)]


def _may_be_tcp(protocol: object) -> bool:
    other = isinstance(protocol, str) and (protocol in _NOT_TCP or (protocol.isdecimal() and protocol not in _TCP))
    return not other


def _may_select(selector: str, tag: str, hosts: Mapping[str, Any]) -> bool:
    """Return whether a selector may cover a machine with the tag. Machines with a tag belong to no person or group."""
    target = hosts.get(selector, selector)
    if not isinstance(target, str):
        return True
    if target.startswith("autogroup:"):
        return target in ("autogroup:tagged", "autogroup:danger-all")
    if target.startswith("tag:"):
        return target == tag
    if target.startswith("group:") or "@" in target:
        return False
    first, dash, last = target.strip("[]").partition("-")
    try:
        if dash:
            networks = [*summarize_address_range(ip_address(first), ip_address(last))]
        else:
            networks = [ip_network(first, strict=False)]
    except (ValueError, TypeError):
        return True
    return any(
        network.overlaps(tailnet)
        for network in networks
        for tailnet in (TAILNET, _TAILNET_6)
        if network.version == tailnet.version
    )


def _outside(opened: Ranges, allowed: Ranges) -> Ranges:
    """Return the parts of port ranges that are not allowed."""
    rest = sorted(opened)
    for low, high in allowed:
        parts = [[(first, min(last, low - 1)), (max(first, high + 1), last)] for first, last in rest]
        rest = [each for pair in parts for each in pair if each[0] <= each[1]]
    return list(dict.fromkeys(rest))


def _opened(policy_file: Mapping[str, Any], src: str, dst: str) -> Ranges:
    """Return the ports that machines with one tag certainly reach on those with another."""
    return [*_of_grants(policy_file.get("grants"), src, dst), *_of_acls(policy_file.get("acls"), src, dst)]


def opens_all(policy_file: Mapping[str, Any], tag: str) -> bool:
    """Return whether a policy lets machines with the tag reach the whole tailnet, as Tailscale's default does."""
    if "grants" not in policy_file and "acls" not in policy_file:
        return True
    rules = [*_rules(policy_file.get("grants")), *_rules(policy_file.get("acls"))]
    return any(
        _meant({"src": rule.get("src", rule.get("users"))}, "src", tag)
        and any(where in ("*", "*:*") for where in _texts(rule.get("dst", rule.get("ports"))))
        for rule in rules
    )


def _of_grants(rules: object, src: str, dst: str) -> Ranges:
    opened: Ranges = []
    for rule in _rules(rules):
        # A rule with a posture or a via machine does not apply to every machine at all times.
        if "srcPosture" in rule or "via" in rule or not (_meant(rule, "src", src) and _meant(rule, "dst", dst)):
            continue
        for entry in _texts(rule.get("ip")):
            proto, _, port = entry.rpartition(":")
            if proto in ("", *_TCP):
                opened += _ranges(port)
    return opened


def _of_acls(rules: object, src: str, dst: str) -> Ranges:
    opened: Ranges = []
    for rule in _rules(rules):
        if rule.get("action") != "accept" or "srcPosture" in rule or rule.get("proto", "") not in ("", *_TCP):
            continue
        if not _meant({"src": rule.get("src", rule.get("users"))}, "src", src):
            continue
        for entry in _texts(rule.get("dst", rule.get("ports"))):
            where, _, port = entry.rpartition(":")
            if _selects(where, "dst", dst):
                opened += _ranges(port)
    return opened


def _rules(rules: object) -> list[Mapping[str, Any]]:
    return [rule for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _meant(rule: Mapping[str, Any], side: str, tag: str) -> bool:
    return any(_selects(selector, side, tag) for selector in _texts(rule.get(side)))


def _selects(selector: str, side: str, tag: str) -> bool:
    """Return whether the selector covers every machine with the tag."""
    if selector in ("*", tag, "autogroup:tagged") or (side == "src" and selector == "autogroup:danger-all"):
        return True
    try:
        network = ip_network(selector, strict=False)
    except ValueError:
        return False
    return network.version == TAILNET.version and TAILNET.subnet_of(network)


def _ranges(text: str) -> Ranges:
    """Parse `*`, `22`, `80-90` or `22,80-90`; anything else opens nothing."""
    if text == "*":
        return [(0, _LAST)]
    parts = text.split(",")
    return [_range(part) for part in parts] if all(re.fullmatch(r"\d{1,5}(-\d{1,5})?", part) for part in parts) else []


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _text(ports: tuple[int, int]) -> str:
    return str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}-{ports[1]}"


def _within(wanted: tuple[int, int], opened: Ranges) -> bool:
    """Return whether the ranges together cover every wanted port."""
    first, last = wanted
    for low, high in sorted(opened):
        if low <= first <= high:
            first = high + 1
    return first > last
