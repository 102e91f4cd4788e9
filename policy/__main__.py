"""A policy pack with the rules of cli/changes_to_allow, for `pulumi up --policy-pack policy` of any program.

A policy gets the new inputs of a resource. The rules compare them with the last run, so the pack reads the stack's
state before anything changes. It does not know which resources Pulumi replaces: only `make up` refuses to replace a
head node because its machine is replaced.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # Pulumi starts this file from another folder

import pulumi
from pulumi.runtime.rpc import UNKNOWN
from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from cli.changes_to_allow import Checks, refusal
from cli.run_events import Event, command_of


@cache
def last_run() -> dict[str, dict[str, Any]]:
    """Return the stack's resources by URN, as the last run left them. Raises RuntimeError if they cannot be read."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    done = subprocess.run(["pulumi", "stack", "export", "--stack", stack], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the state of stack {stack} cannot be read: {done.stderr.strip()}")
    resources = json.loads(done.stdout)["deployment"].get("resources") or ()
    return {resource["urn"]: resource for resource in resources if not resource.get("delete")}


@cache
def checks() -> Checks:
    """Return the rules of this run, with the changes that the stack's config allows."""
    return Checks(pulumi.Config("tailrack").get_object("allow") or ())


def check(event: Event, report: ReportViolation) -> None:
    """Report new findings of an event that the config does not allow."""
    known = checks().refused
    checks().on_event(event)
    for finding in checks().refused:
        if finding not in known:
            report(refusal(finding), None)


def event_of(urn: str, type_: str, old: Mapping[str, Any], after: Mapping[str, Any] | None) -> Event:
    """Return the start of a change. `after` is None for a resource that the program no longer has."""
    before = old.get("inputs", {})
    operation = "delete" if after is None else "update" if old else "create"
    inputs = {"command": command_of(after or before), "before": before, "after": after or {}}
    return Event("start", operation, urn, urn.rpartition("::")[2], type_, outputs=old.get("outputs", {}), **inputs)


def plain(value: Any) -> Any:
    """Return inputs with UNKNOWN for those that a preview does not know. The SDK raises an error for each."""

    def item(key: Any) -> Any:
        try:
            return plain(value[key])
        except UnknownValueError:
            return UNKNOWN

    if isinstance(value, Mapping):
        return {key: item(key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [item(index) for index in range(len(value))]
    return value


def changed(args: ResourceValidationArgs, report: ReportViolation) -> None:
    """Check a resource that the program has."""
    old = next((last_run()[urn] for urn in (args.urn, *args.opts.aliases) if urn in last_run()), {})
    check(event_of(args.urn, args.resource_type, old, plain(args.props)), report)


def removed(args: StackValidationArgs, report: ReportViolation) -> None:
    """Check the resources that the program no longer has."""
    kept = {urn for resource in args.resources for urn in (resource.urn, *resource.opts.aliases)}
    for urn, old in last_run().items():
        if urn not in kept:
            check(event_of(urn, old["type"], old, None), report)


PolicyPack(
    "tailrack",
    [
        ResourceValidationPolicy("changed", "Changes that must be allowed by name.", changed),
        StackValidationPolicy("removed", "Removals that must be allowed by name.", removed),
    ],
    EnforcementLevel.MANDATORY,
)
