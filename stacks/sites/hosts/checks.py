"""Checks of hosts sites: no machine twice, a usable key per log-in, and the head node among its site's hosts."""

import re
from collections.abc import Sequence

from components.settings.cluster import Head
from components.settings.problems import ROOT, Report, secret_command, show_name, show_names
from components.settings.section import Section, keys_of
from stacks.sites.hosts.inventory import PASSPHRASE
from stacks.sites.hosts.model import Bastion, HostConfig, HostsSite
from stacks.sites.hosts.pods import check_pods
from stacks.sites.hosts.ssh_types import is_locked, opens, public_half


def check(sites: Sequence[HostsSite], head: Head, report: Report) -> None:
    """Report log-ins without a key, duplicate machines, and a head node that is not a host of its site."""
    for site in sites:
        check_pods(site, head, report)
        logins: list[Bastion | HostConfig] = [*([site.bastion] if site.bastion else []), *site.hosts]
        for login in logins:
            _check_key(login, report)
    _warn_about_shared_keys(sites, report)
    first: dict[tuple[str | None, str, int], HostConfig] = {}
    for owner, host in ((site, host) for site in sites for host in site.hosts):
        # Behind another bastion, the same address is another machine.
        bastion_address = owner.bastion.address if owner.bastion else None
        if (twin := first.setdefault((bastion_address, host.address, host.port), host)) is not host:
            place = report.at(twin).removeprefix(ROOT)
            breaks = "one machine would be set up as two nodes, and each would undo the other"
            fix = "write the address of the other machine, or delete one of the two"
            report.bad((host, "address"), f"with port {host.port} is also {place}", breaks, fix)
    for site in sites:
        names = {host.name for host in site.hosts}
        if site.name == head.site and head.name not in names and len(names) == len(site.hosts):  # no duplicate
            problem = f"is not a host of site {show_name(head.site)} (its hosts are {show_names(names)})"
            report.bad((head, "name"), problem, "no machine would be the head node", "write the name of one of them")


def _warn_about_shared_keys(sites: Sequence[HostsSite], report: Report) -> None:
    """Warn about a host key that several machines have."""
    holders: dict[str, list[HostConfig]] = {}
    for host in (host for site in sites for host in site.hosts):
        holders.setdefault(host.host_key, []).append(host)
    for hosts in holders.values():
        if len(hosts) > 1:
            report.warn(
                report.at(hosts[0], "host_key"),
                f"{show_names({host.name for host in hosts})} have the same host key, so each can pose as the others; "
                "check for a copy mistake in the config. If the machines are clones of one image, run on each: "
                "rm /etc/ssh/ssh_host_*_key*, ssh-keygen -A, and restart sshd",
            )


def check_one_key(login: Section, report: Report) -> None:
    """Report a log-in without a key, or with two."""
    file, agent = (getattr(login, name) for name in ("private_key_file", "agent"))
    if file is None and not agent:
        key_help = keys_of(type(login))["private_key_file"].help
        fix = f"{key_help.fix}, or write `agent: true` if an ssh-agent has it"
        report.add((login, "private_key_file"), "missing", key_help.breaks, fix)
    if file is not None and agent:
        problem, breaks = "is true, but private_key_file is also set", "the log-in can use only one of them"
        report.add((login, "agent"), problem, breaks, "delete one of the two")


def _check_key(login: Bastion | HostConfig, report: Report) -> None:
    """Report a log-in without a key, with two, or with a locked key that the passphrase does not open."""
    check_one_key(login, report)
    file, passphrase = login.private_key_file, login.private_key_passphrase
    if file is None:
        return
    path = report.at(login, "private_key_file")
    if login.host_key.partition(" ")[2] == public_half(file):
        problem = f"is the public half of {report.value(path, str(file))}"
        breaks = "this key belongs to the account that logs in, so the machine would not be recognized"
        report.add((login, "host_key"), problem, breaks, keys_of(type(login))["host_key"].help.fix)
    if not is_locked(file):
        return
    command = secret_command(_place(report.at(login, PASSPHRASE)))
    if passphrase is None:
        breaks = "no one can type the passphrase when tailrack logs in"
        fix = (
            f"run: {command}; or add the key to an agent (`ssh-add FILE`) and write "
            "`agent: true` instead; or create a key without a passphrase for this cluster: ssh-keygen -t ed25519 -N "
            "'' -f FILE"
        )
        report.bad((login, "private_key_file"), "is locked with a passphrase", breaks, fix)
    elif not opens(file, passphrase.get_secret_value()):
        problem = f"[secret] does not open {report.value(path, str(file))}"
        report.add((login, PASSPHRASE), problem, "tailrack could not log in", f"run: {command}")


def _place(path: str) -> str:
    """Return where a secret is set: at the site for a host in a file or an output, which have no secrets."""
    return re.sub(r"\.hosts_file\[.*?\](\.hosts\[\d+\])?|\.hosts_from\.output\[\d+\]", "", path)
