"""Checks of hosts sites: no machine twice, a usable key per log-in, and the head node among its site's hosts."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from components.settings.draft import Draft, check_secret
from components.settings.problems import ROOT, Report, show_name, show_names
from components.settings.section import keys_of
from components.settings.types import Gpu
from stacks.sites.hosts.inventory import OPENED, PASSPHRASE
from stacks.sites.hosts.pods import check_pods
from stacks.sites.hosts.ssh_types import is_locked, opens, public_half
from stacks.sites.kind import Claim


def claims(site: Draft, head: Draft) -> list[Claim]:
    """Return the hosts of the site; the head node among them runs jobs only if the config allows it."""
    head_name = head.text("name") if head.text("site") == site.text("name") else None
    nodes = []
    for host in site.items("hosts"):
        name, gpu, path = host.text("name"), host.value("gpu"), host.path_of("name")
        compute = head.value("compute") is not False or name is None or name != head_name
        nodes.append(Claim(name, path, compute, gpu if isinstance(gpu, Gpu) else None, host.text("user")))
    return nodes


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report log-ins without a key, duplicate machines, and a head node that is not a host of its site."""
    for site in sites:
        check_pods(site, head, report)
        _check_plain(site, report)
        bastion = site.section("bastion")
        logins = [*([bastion] if bastion.raw else []), *site.items("hosts")]
        for login in logins:
            _check_key(login, report)
            if login.raw.get(PASSPHRASE) is not site.raw.get(PASSPHRASE):
                _check_plain(login, report)
    _warn_about_shared_keys(sites, report)
    first: dict[tuple[object, str, int], Draft] = {}
    for owner, host in ((site, host) for site in sites for host in site.items("hosts")):
        address, port = host.value("address"), host.whole("port")
        if not isinstance(address, str) or port is None:
            continue
        # Behind another bastion, the same address is another machine.
        bastion_address = owner.section("bastion").values.get("address")
        if (twin := first.setdefault((bastion_address, address, port), host)) is not host:
            place = twin.path.removeprefix(ROOT)
            problem = f"{report.value(host.path, address)} with port {port} is also {place}"
            breaks = "one machine would be set up as two nodes, and each would undo the other"
            fix = "write the address of the other machine, or delete one of the two"
            report.add(host.path_of("address"), problem, breaks, fix)
    name, head_site = head.text("name"), head.text("site")
    for site in sites:
        names = [host.text("name") for host in site.items("hosts")]
        valid = {name for name in names if name is not None}
        if head_site is None or site.text("name") != head_site or name is None or name in valid:
            continue
        if 0 < len(valid) == len(names):  # no duplicate and no unreadable name
            hosts = f"its hosts are {show_names(valid)}"
            problem = f"{report.value(head.path, name)} is not a host of site {show_name(head_site)} ({hosts})"
            breaks = "no machine would be the head node"
            report.add(head.path_of("name"), problem, breaks, "write the name of one of them")


def _warn_about_shared_keys(sites: Sequence[Draft], report: Report) -> None:
    """Warn about a host key that several machines have."""
    holders: dict[str, list[Draft]] = {}
    for host in (host for site in sites for host in site.items("hosts")):
        if isinstance(key := host.value("host_key"), str):
            holders.setdefault(key, []).append(host)
    for hosts in holders.values():
        if len(hosts) > 1:
            names = show_names({host.text("name") or "" for host in hosts})
            report.warn(
                hosts[0].path_of("host_key"),
                f"{names} have the same host key, so each can pose as the others; check for a copy mistake in the "
                "config. If the machines are clones of one image, run on each: rm /etc/ssh/ssh_host_*_key*, "
                "ssh-keygen -A, and restart sshd",
            )


def _check_plain(login: Draft, report: Report) -> None:
    """Report a passphrase in plain text."""
    fix = f"change it (ssh-keygen -p -f FILE), then run: {_command(login.path_of(PASSPHRASE))}"
    check_secret(login, PASSPHRASE, OPENED, fix, report)


def check_one_key(login: Draft, report: Report) -> None:
    """Report a log-in without a key, or with two."""
    if "private_key_file" not in login.raw and login.value("agent") is False:
        key_help = keys_of(login.model)["private_key_file"].help
        fix = f"{key_help.fix}, or write `agent: true` if an ssh-agent has it"
        report.add(login.path_of("private_key_file"), "missing", key_help.breaks, fix)
    if login.value("private_key_file") is not None and login.value("agent") is True:
        problem = "is true, but private_key_file is also set"
        report.add(login.path_of("agent"), problem, "the log-in can use only one of them", "delete one of the two")


def _check_key(login: Draft, report: Report) -> None:
    """Report a log-in without a key, with two, or with a locked key that the passphrase does not open."""
    check_one_key(login, report)
    file, passphrase = login.value("private_key_file"), login.value(PASSPHRASE)
    if not isinstance(file, Path):
        return
    host_key = login.value("host_key")
    if isinstance(host_key, str) and host_key.partition(" ")[2] == public_half(file):
        problem = f"is the public half of {report.value(login.path_of('private_key_file'), str(file))}"
        breaks = "this key belongs to the account that logs in, so the machine would not be recognized"
        report.add(login.path_of("host_key"), problem, breaks, keys_of(login.model)["host_key"].help.fix)
    if not is_locked(file):
        return
    if passphrase is None and PASSPHRASE not in login.raw:
        problem = f"{report.value(login.path_of('private_key_file'), str(file))} is locked with a passphrase"
        breaks = "no one can type the passphrase when tailrack logs in"
        fix = (
            f"run: {_command(login.path_of(PASSPHRASE))}; or add the key to an agent (`ssh-add FILE`) and write "
            "`agent: true` instead; or create a key without a passphrase for this cluster: ssh-keygen -t ed25519 -N "
            "'' -f FILE"
        )
        report.add(login.path_of("private_key_file"), problem, breaks, fix)
    elif isinstance(passphrase, SecretStr) and not opens(file, passphrase.get_secret_value()):
        problem = f"[secret] does not open {report.value(login.path_of('private_key_file'), str(file))}"
        breaks = "tailrack could not log in"
        report.add(login.path_of(PASSPHRASE), problem, breaks, f"run: {_command(login.path_of(PASSPHRASE))}")


def _command(path: str) -> str:
    """Return the command that sets the secret: the site's for a host in a file or an output, which have no secrets."""
    place = re.sub(r"\.hosts_file\[.*?\](\.hosts\[\d+\])?|\.hosts_from\.output\[\d+\]", "", path)
    return f"pulumi config set --path --secret '{place}'"
