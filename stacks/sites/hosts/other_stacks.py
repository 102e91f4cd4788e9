"""Hosts that are the output of another program (`hosts_from`), such as one that rents machines.

Reading the output of a stack needs Pulumi, so the caller of `stacks.config.load` reads it before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from components.settings.problems import Report, child_path, show_names
from components.settings.serialize import whole_numbers
from stacks.sites.hosts import terraform
from stacks.sites.hosts.outputs import OtherStack
from stacks.stack_name import is_stack_name
from stacks.yaml_file import describe_type, inside

OUTPUT = "hosts"  # the default of `output`
STACK, TERRAFORM = "stack", "terraform"
FROM_TERRAFORM = ("name", "address", "port", "user", "host_key")
_NO_MACHINES = "the site would have no machines"
_READ_STACK = (
    "write ORGANIZATION/PROJECT/STACK (with state in a folder or a bucket, organization/PROJECT/STACK), use the "
    "backend and passphrase of that stack, and bring it up first"
)
_READ_FILE = "write the path of terraform.tfstate, or of a file made by: terraform output -json >FILE"


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


def hosts_of(
    hosts_from: object, path: str, base_dir: Path, report: Report
) -> list[tuple[Mapping[str, object], str]] | None:
    """Return the hosts of a `hosts_from`, each with its path; None if there are none, for a reason that is reported.

    The fields of `hosts_from` report the name of a stack, a file or an output that is none. A relative path of a file
    starts at `base_dir`.
    """
    if not isinstance(hosts_from, Mapping) or not isinstance(output := hosts_from.get("output") or OUTPUT, str):
        return None
    written = [key for key in (STACK, TERRAFORM) if hosts_from.get(key) is not None]
    if len(written) != 1:
        problem = "has both `stack` and `terraform`" if written else "has neither `stack` nor `terraform`"
        report.add(path, problem, "it would be unclear where the hosts are", "write one of them")
        return None
    if not (source := _source(hosts_from, written[0], base_dir)):
        return None
    stack, what, name, fix = source
    source_path, output_path = child_path(path, written[0]), child_path(path, "output")
    shown_name, shown_output = report.value(source_path, name), report.value(output_path, output)
    if stack.error:
        reason = report.value(source_path, stack.error.split(), " ".join)
        report.add(source_path, f"{shown_name} cannot be read: {reason}", _NO_MACHINES, fix)
        return None
    hosts = stack.outputs.get(output)
    where = f"{what} {shown_name}"
    if output in stack.secrets:
        problem = f"{shown_output} is a secret of {where}, or contains one"
        breaks = "names and addresses of hosts are in labels and messages, where a secret must not be"
        fix = "export names, addresses and public host keys only, and write keys and passphrases for the site here"
        report.add(output_path, problem, breaks, fix)
    elif output not in stack.outputs:
        names = report.value(output_path, stack.outputs.keys(), show_names) or "none"
        problem = f"{shown_output} is not an output of {where}, or not known yet (its outputs: {names})"
        fix = "export a list of hosts there, as in docs/first-cluster.md, and bring that program's machines up"
        report.add(output_path, problem, _NO_MACHINES, fix)
    elif not isinstance(hosts, list | tuple):
        problem = f"{shown_output} of {where} is {describe_type(hosts)}, not a list"
        report.add(output_path, problem, _NO_MACHINES, "export a list with a mapping for each host: name, address")
    elif not hosts:
        problem = f"{shown_output} of {where} is an empty list"
        fix = "bring machines up in that program; or, if the site has none any more, delete the site"
        report.add(output_path, problem, _NO_MACHINES, fix)
    else:
        placed = list(_placed(hosts, output_path, report))
        if written[0] == TERRAFORM and _report_decisions(placed, report):
            return None
        return placed or None
    return None


def _report_decisions(hosts: Sequence[tuple[Mapping[str, object], str]], report: Report) -> bool:
    """Report keys that a Terraform state may not choose; return whether there are any.

    A state has no more protection than the folder or bucket where it is: it may not choose the private key that root's
    log-in uses, or that a machine of others is taken over.
    """
    found = False
    for host, place in hosts:
        for key in sorted(str(key) for key, value in host.items() if value is not None and key not in FROM_TERRAFORM):
            found = True
            breaks = "anyone who can change the state would decide it for you"
            fix = f"write it for the site, or list the hosts here; a state has {', '.join(FROM_TERRAFORM)} only"
            report.add(child_path(place, key), "is not a key that a Terraform state may choose", breaks, fix)
    return found


def _source(hosts_from: Mapping[str, object], key: str, base_dir: Path) -> tuple[OtherStack, str, str, str] | None:
    """Return the outputs, what has them, its name, and how to correct the name; None for a name that none can have."""
    if key == STACK:
        outputs = hosts_from.stack if isinstance(hosts_from, _Read) else OtherStack(error="its outputs were not read")
        return (outputs, "stack", name, _READ_STACK) if (name := _stack_name(hosts_from)) else None
    file = hosts_from[key]
    if not isinstance(file, str) or not file.isprintable():
        return None
    return terraform.read_outputs(inside(base_dir, file)), "file", file, _READ_FILE


def _placed(hosts: Sequence[object], path: str, report: Report) -> Iterator[tuple[Mapping[str, object], str]]:
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
