"""Hosts that are the output of another stack (`hosts_from`), such as a program that rents machines.

Reading an output needs Pulumi, so the caller of `stacks.config.load` reads it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.settings.problems import MASK, Report, child_path, show_names
from components.settings.serialize import whole_numbers
from stacks.stack_name import is_stack_name
from stacks.yaml_file import describe_type

OUTPUT = "hosts"  # the default of `output`
_NO_MACHINES = "the site would have no machines"


@dataclass(frozen=True)
class OtherStack:
    """The outputs of another stack, by name, without those that are unknown.

    secrets   the names of those that are secret or contain a secret
    error     the reason why they cannot be read; empty if they can
    """

    outputs: Mapping[str, Any] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    error: str = ""


class _Read(dict[str, object]):
    """The mapping at `hosts_from`, with the outputs of the stack that it names."""

    def __init__(self, values: Mapping[str, object], stack: OtherStack) -> None:
        super().__init__(values)
        self.stack = stack


def stacks_read(raw: Mapping[str, object]) -> list[str]:
    """Return the stacks whose outputs a raw config needs, each once; invalid names are left out."""
    return list(dict.fromkeys(name for site in _sites(raw) if (name := _stack_of(site))))


def with_other_stacks(raw: Mapping[str, object], stacks: Mapping[str, OtherStack]) -> Mapping[str, object]:
    """Return a raw config whose `hosts_from` mappings have the outputs of their stacks."""
    if not stacks:
        return raw
    sites: list[object] = []
    for site in _sites(raw):
        if isinstance(site, Mapping) and _stack_of(site):
            site = {**site, "hosts_from": with_outputs(site["hosts_from"], stacks.__getitem__)}
        sites.append(site)
    return {**raw, "sites": sites}


def with_outputs(hosts_from: object, other_stack: Callable[[str], OtherStack]) -> object:
    """Return the value at `hosts_from` with the outputs of its stack, if it names one."""
    if isinstance(hosts_from, Mapping) and (name := _stack_name(hosts_from)):
        return _Read(hosts_from, other_stack(name))
    return hosts_from


def hosts_of(hosts_from: object, path: str, report: Report) -> list[tuple[Mapping[str, object], str]] | None:
    """Return the hosts of a `hosts_from`, each with its path; None if there are none, for a reason that is reported.

    The fields of `hosts_from` report what is not even a stack's name or an output's.
    """
    if not isinstance(hosts_from, Mapping) or not isinstance(output := hosts_from.get("output") or OUTPUT, str):
        return None
    if not (name := _stack_name(hosts_from)):
        return None
    stack = hosts_from.stack if isinstance(hosts_from, _Read) else OtherStack(error="its outputs were not read")
    stack_path, output_path = child_path(path, "stack"), child_path(path, "output")
    shown_stack, shown_output = report.value(stack_path, name), report.value(output_path, output)
    if stack.error:
        reason = MASK if report.hides(stack_path) else " ".join(stack.error.split())
        fix = (
            "write ORGANIZATION/PROJECT/STACK (with state in a folder or a bucket, organization/PROJECT/STACK), use "
            "the backend and passphrase of that stack, and bring it up first"
        )
        report.add(stack_path, f"{shown_stack} cannot be read: {reason}", _NO_MACHINES, fix)
        return None
    hosts = stack.outputs.get(output)
    if output in stack.secrets:
        problem = f"{shown_output} is a secret of stack {shown_stack}, or contains one"
        breaks = "names and addresses of hosts are in labels and messages, where a secret must not be"
        fix = "export names, addresses and public host keys only, and write keys and passphrases for the site here"
        report.add(output_path, problem, breaks, fix)
    elif output not in stack.outputs:
        names = MASK if report.hides(output_path) else show_names(stack.outputs.keys()) or "none"
        problem = f"{shown_output} is not an output of stack {shown_stack}, or not known yet (its outputs: {names})"
        fix = "export a list of hosts there, as in docs/own-machines.md, and bring that stack up"
        report.add(output_path, problem, _NO_MACHINES, fix)
    elif not isinstance(hosts, list | tuple):
        problem = f"{shown_output} of stack {shown_stack} is {describe_type(hosts)}, not a list"
        report.add(output_path, problem, _NO_MACHINES, "export a list with a mapping for each host: name, address")
    elif not hosts:
        problem = f"{shown_output} of stack {shown_stack} is an empty list"
        fix = "bring machines up in that stack; or, if the site has none any more, delete the site"
        report.add(output_path, problem, _NO_MACHINES, fix)
    else:
        return list(_placed(hosts, output_path, report)) or None
    return None


def _placed(hosts: Any, path: str, report: Report) -> Iterator[tuple[Mapping[str, object], str]]:
    for index, host in enumerate(whole_numbers(list(hosts))):
        place = child_path(path, index)
        if isinstance(host, Mapping):
            yield host, place
        else:
            problem = f"{report.value(place, host)} is not a mapping"
            report.add(place, problem, _NO_MACHINES, "export a mapping for each host, with at least name and address")


def _sites(raw: Mapping[str, object]) -> list[object]:
    sites = raw.get("sites")
    return sites if isinstance(sites, list) else []


def _stack_of(site: object) -> str:
    return _stack_name(site.get("hosts_from")) if isinstance(site, Mapping) else ""


def _stack_name(hosts_from: object) -> str:
    name = hosts_from.get("stack") if isinstance(hosts_from, Mapping) else None
    return name if isinstance(name, str) and is_stack_name(name) else ""
