"""Changes that must be allowed by name: each rule is a function from a preview's event to findings.

To add a rule: a function here, its name in stacks/config/model.py, its function in RULES, and its row in
docs/pull-requests.md. A finding whose name is not in FINDINGS cannot be allowed.
"""

import ipaddress
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cli.run_events import Event
from components.roles.slurm.slurm.versions import RELEASES, oldest_accepted, release, upgrade_path
from components.roles.storage.share.exports import clients
from components.steps.command_line import read_request
from components.steps.label import StepLabel
from stacks.config.model import (
    EXPORT_WIDE,
    FINDINGS,
    FLOOR_LOWERED,
    FLOOR_REMOVED,
    HEAD_REPLACED,
    KEY_ENDLESS,
    SSH_OPEN,
)

EXPORT = "node_export"  # the header value with the line


def export_wide(event: Event) -> Iterator[tuple[str, str]]:
    """Find clients of a node's export that are not a single address."""
    line = (read_request(event.after.get("stdin")) or {}).get(EXPORT, "")
    for client in clients(line):
        if not _one_address(client):
            yield EXPORT_WIDE, f"{event.name} exports the share to {client}, which is more than one machine"


def _one_address(client: str) -> bool:
    try:
        return ipaddress.ip_network(client).num_addresses == 1
    except ValueError:  # a name, a pattern, or a network with host bits
        return False


UNITS = {
    "tailrack:validation:NcclValidation": " GB/s",
    "tailrack:validation:TrainingBenchmark": " images a second",
    # The scope names the figure, which has the unit.
    "tailrack:validation:StorageMeasurement": "",
}


def floors(event: Event) -> Iterator[tuple[str, str]]:
    """Find floors of the last run that are lower now, or removed while their scope remains."""
    unit = UNITS.get(event.type)
    if unit is None or not event.after:
        return
    scopes = event.after["scopes"]
    # Higher limits, such as a latency's, are as weak as lower floors.
    for kind, word, falls in (("floors", "floor", "falls"), ("limits", "limit", "rises")):
        before, after = event.before.get(kind, {}), event.after.get(kind, {})
        for scope, value in sorted(before.items()):
            if scope not in after and scope in scopes:
                yield FLOOR_REMOVED, f"{scope} loses its {word} of {value:g}{unit}: any result would pass"
            elif scope in after and (after[scope] < value if kind == "floors" else after[scope] > value):
                yield FLOOR_LOWERED, f"the {word} of {scope} {falls} from {value:g} to {after[scope]:g}{unit}"


HEAD = "tailrack:cluster:HeadNode"
HOST_KEY, RELEASE_KEY = "hostKey", "slurmRelease"  # inputs of the component, if the config has them


def head_replaced(event: Event) -> Iterator[tuple[str, str]]:
    """Find a head node that becomes another machine, and its steps that are replaced or undone.

    A machine that the stack created takes its steps with it, so their fate shows that of the machine.
    """
    types = event.urn.split("::")[2].split("$")
    if types[-1] == HEAD:
        keys = event.before.get(HOST_KEY), event.after.get(HOST_KEY)
        if event.operation == "delete":
            yield _lost(event.name)
        elif all(keys) and keys[0] != keys[1]:
            text = f"the head node {event.name} has another host key: it is another machine, or was reinstalled"
            yield HEAD_REPLACED, text
    elif HEAD in types and (
        # Triggers replace a step on the same machine (components/steps/step.py, `renewed`).
        (event.operation == "replace" and not event.after.get("triggers"))
        or (event.operation == "delete" and event.before.get("delete"))
    ):
        label = StepLabel.of(event.command)
        # A step without a machine runs on this one and keeps nothing of the head node (`<head>-device`).
        if label is None or label.machine:
            yield _lost(label.machine if label else event.name)


def _lost(name: str) -> tuple[str, str]:
    disk = "its disk has the homes, Slurm's state and the cluster's keys"
    return HEAD_REPLACED, f"the head node {name} would be removed from the cluster; {disk}"


KEY = "tailscale:index/tailnetKey:TailnetKey"
LONGEST_SECONDS = 90 * 24 * 3600  # Tailscale's maximum for a key


def key_endless(event: Event) -> Iterator[tuple[str, str]]:
    """Find a reusable key without an expiry, or with an unknown one."""
    if event.type != KEY or event.after.get("reusable") is not True:
        return
    expiry = event.after.get("expiry")
    if not isinstance(expiry, int | float) or not 0 < expiry <= LONGEST_SECONDS:
        yield KEY_ENDLESS, f"{event.name} is a reusable auth key that does not expire within 90 days"


GROUP = "aws:ec2/securityGroup:SecurityGroup"
SSH_PORT = 22
WIDEST = {4: 8, 6: 16}  # the shortest allowed prefix by IP version


def ssh_open(event: Event) -> Iterator[tuple[str, str]]:
    """Find wide networks from which a new or changed group allows SSH."""
    rules = event.after.get("ingress") if event.type == GROUP else None
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, Mapping) and _has_ssh(rule):
            for network in _networks(rule):
                if network.prefixlen < WIDEST[network.version]:
                    yield SSH_OPEN, f"{event.name} allows SSH from {network}: anyone there could try to log in"


def _has_ssh(rule: Mapping[str, Any]) -> bool:
    protocol, first, last = rule.get("protocol"), rule.get("fromPort"), rule.get("toPort")
    if protocol in ("-1", "all"):
        return True
    return protocol in ("tcp", "6") and isinstance(first, int) and isinstance(last, int) and first <= SSH_PORT <= last


def _networks(rule: Mapping[str, Any]) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for key in ("cidrBlocks", "ipv6CidrBlocks"):
        for text in rule.get(key) or ():
            try:
                yield ipaddress.ip_network(text, strict=False)
            except ValueError:  # unknown until a resource exists; it is then a single address
                continue


RELEASE = "slurm-release"


class SlurmRelease:
    """A rule for one preview, which receives the wanted release before those of the machines."""

    def __init__(self) -> None:
        self._wanted = ""

    def __call__(self, event: Event) -> Iterator[tuple[str, str]]:
        """Find machines whose Slurm cannot be upgraded to the wanted release."""
        types = event.urn.split("::")[2].split("$")
        step = event.name.rpartition("-")[2]
        if event.operation not in ("update", "replace"):
            return
        if types[-1] == HEAD:
            self._wanted = event.after.get(RELEASE_KEY, "")
            if not self._wanted and (old := event.before.get(RELEASE_KEY)):
                yield RELEASE, f"the cluster has Slurm {old}, but the config no longer sets a release. {_AGAIN}"
        elif self._wanted and (current := _current_release(event)):
            machine = event.name.rpartition("-")[0]
            if HEAD in types and step == "head":
                yield from _of_controller(current, self._wanted)
            elif "tailrack:cluster:ComputeNode" in types and step == "node":
                yield from _of_node(machine, current, self._wanted)


_AGAIN = "Set tailrack:slurm.release again: the distribution's Slurm is not an upgrade"


def _current_release(event: Event) -> str:
    """Return a machine's release in its step's last run; empty if unknown."""
    try:
        version = str(json.loads(event.outputs.get("stdout", ""))["slurm_version"])
        return version if release(version) in RELEASES else ""
    except (KeyError, TypeError, ValueError):
        return ""


def _of_controller(current: str, wanted: str) -> Iterator[tuple[str, str]]:
    if _numbers(wanted) < _numbers(current):
        text = f"the cluster has Slurm {current}, and {wanted} is older; it cannot read the newer release's state"
        yield RELEASE, f"{text}. Set {current} or newer"
    elif stops := upgrade_path(current, wanted):
        steps = "; ".join(f"set tailrack:slurm.release to a release of {stop} and run up" for stop in stops)
        reason = f"Slurm {wanted} reads the state of {oldest_accepted(wanted)} and newer, and the cluster has {current}"
        yield (
            RELEASE,
            f"{reason}. Upgrade by way of {', '.join(stops)}: {steps}; then {wanted}. Upgrade pools after each",
        )


def _of_node(machine: str, current: str, wanted: str) -> Iterator[tuple[str, str]]:
    oldest = oldest_accepted(wanted)
    if release(current) < oldest:
        reason = f"slurmctld {wanted} accepts nodes of {oldest} and newer, and {machine} has {current}"
        yield RELEASE, f"{reason}. Upgrade it first (run up with the old config), or remove it from the config"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split("-")[0].split(".") if part.isdigit()]


Rule = Callable[[Event], Iterable[tuple[str, str]]]
RULES: tuple[Rule, ...] = (ssh_open, key_endless, export_wide, floors, head_replaced)


class Finding(NamedTuple):
    """A result of a rule: its name, which the config can allow if it is in stacks.config.model.FINDINGS, and a text."""

    name: str
    text: str


def refusal(finding: Finding) -> str:
    """Return a line for a finding that is not allowed."""
    remedy = f" To allow it, add {finding.name} to tailrack:allow." if finding.name in FINDINGS else ""
    return f"{finding.name}: {finding.text}.{remedy}"


class Checks:
    """The findings of one preview, allowed by the config or refused."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)
        self._rules: tuple[Rule, ...] = (*RULES, SlurmRelease())
        self._findings: dict[Finding, None] = {}  # each once, in the order of discovery

    def on_event(self, event: Event) -> None:
        """Apply the rules to one event of a preview."""
        if event.kind == "start":
            for rule in self._rules:
                self._findings.update((Finding(*result), None) for result in rule(event))

    @property
    def refused(self) -> list[Finding]:
        return sorted(finding for finding in self._findings if finding.name not in self._allowed & {*FINDINGS})

    def lines(self) -> Iterator[str]:
        """Give a line for each finding, refused ones first, and for each name that no finding needs."""
        refused = self.refused
        yield from map(refusal, refused)
        for name, text in sorted(self._findings.keys() - {*refused}):
            yield f"{name}: {text}. Allowed by tailrack:allow."
        for name in sorted(self._allowed - {name for name, _ in self._findings}):
            yield f"tailrack:allow has {name}, but no change needs it. Remove it, or it allows the next change unseen."
