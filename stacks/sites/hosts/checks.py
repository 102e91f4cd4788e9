"""What hosts sites must be to one another: each machine once, and the head node among its site's hosts."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from components.settings.draft import Draft, check_hidden
from components.settings.problems import ROOT, Report, bare, listed
from components.settings.section import keys_of
from components.settings.types import Gpu
from stacks.sites.hosts.inventory import OPENED, PASSPHRASE
from stacks.sites.hosts.ssh_types import is_locked, opens, public_half
from stacks.sites.kind import Claim


def claims(site: Draft, head: Draft) -> list[Claim]:
    """The hosts of the site; the head node among them runs jobs if the config says so."""
    head_name = head.text("name") if head.text("site") == site.text("name") else None
    found = []
    for host in site.items("hosts"):
        name, gpu = host.text("name"), host.value("gpu")
        compute = head.value("compute") is not False or name is None or name != head_name
        found.append(Claim(name, host.at("name"), compute, gpu if isinstance(gpu, Gpu) else None, host.text("user")))
    return found


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report log-ins without a key, machines that are there twice, and a head node that is none of its site's hosts."""
    for site in sites:
        _check_plain(site, report)
        through = site.section("bastion")
        logins = [*([through] if through.raw else []), *site.items("hosts")]
        for login in logins:
            _check_key(login, report)
            if login.raw.get(PASSPHRASE) is not site.raw.get(PASSPHRASE):
                _check_plain(login, report)
    _doubt_keys(sites, report)
    first: dict[tuple[object, str, int], Draft] = {}
    for owner, host in ((site, host) for site in sites for host in site.items("hosts")):
        address, port = host.value("address"), host.whole("port")
        if not isinstance(address, str) or port is None:
            continue
        # Behind another bastion the same address is another machine.
        behind = owner.section("bastion").values.get("address")
        if (other := first.setdefault((behind, address, port), host)) is not host:
            place = other.path
            what = f"{report.value(host.path, address)} with port {port} is {place.removeprefix(ROOT)} too"
            breaks = "one machine would be set up as two nodes, each undoing the other"
            fix = "write the address of the other machine, or delete one of the two"
            report.add(host.at("address"), what, breaks, fix)
    name, at_site = head.text("name"), head.text("site")
    for site in sites:
        names = [host.text("name") for host in site.items("hosts")]
        known = {name for name in names if name is not None}
        if at_site is None or site.text("name") != at_site or name is None or name in known:
            continue
        if 0 < len(known) == len(names):  # each has a name of its own
            what = (
                f"{report.value(head.path, name)} is not a host of site {bare(at_site)} (its hosts are {listed(known)})"
            )
            report.add(head.at("name"), what, "no machine would be the head node", "write the name of one of them")


def _doubt_keys(sites: Sequence[Draft], report: Report) -> None:
    """Warn about a host key that several machines have."""
    holders: dict[str, list[Draft]] = {}
    for host in (host for site in sites for host in site.items("hosts")):
        if isinstance(key := host.value("host_key"), str):
            holders.setdefault(key, []).append(host)
    for first, *others in holders.values():
        if others:
            names = listed({host.text("name") or "" for host in (first, *others)})
            report.warn(
                first.at("host_key"),
                f"{names} have one host key, so each of them can pose as the others; see that it was not copied in the "
                "config, and where the machines were (clones of one image): on each, rm /etc/ssh/ssh_host_*_key*, "
                "ssh-keygen -A, and restart sshd",
            )


def _check_plain(login: Draft, report: Report) -> None:
    """Report a passphrase in plain text."""
    fix = f"change it (ssh-keygen -p -f FILE), then run: {_command(login.at(PASSPHRASE))}"
    check_hidden(login, PASSPHRASE, OPENED, fix, report)


def check_one_key(login: Draft, report: Report) -> None:
    """Report a log-in that has no key, or two."""
    if "private_key_file" not in login.raw and login.value("agent") is False:
        key_help = keys_of(login.model)["private_key_file"].help
        fix = f"{key_help.fix}, or `agent: true` where an ssh-agent has it"
        report.add(login.at("private_key_file"), "missing", key_help.breaks, fix)
    if login.value("private_key_file") is not None and login.value("agent") is True:
        what = "is true, and there is a private_key_file"
        report.add(login.at("agent"), what, "nobody knows which of the two opens it", "delete one of the two")


def _check_key(login: Draft, report: Report) -> None:
    """Report a log-in that has no key, or two, or one that nothing opens."""
    check_one_key(login, report)
    file, passphrase = login.value("private_key_file"), login.value(PASSPHRASE)
    if not isinstance(file, Path):
        return
    host_key = login.value("host_key")
    if isinstance(host_key, str) and host_key.partition(" ")[2] == public_half(file):
        what = f"is the public half of {report.value(login.at('private_key_file'), str(file))}"
        breaks = "that is who logs in, not the machine, which would be taken for another"
        report.add(login.at("host_key"), what, breaks, keys_of(login.model)["host_key"].help.fix)
    if not is_locked(file):
        return
    if passphrase is None and PASSPHRASE not in login.raw:
        what = f"{report.value(login.at('private_key_file'), str(file))} is locked with a passphrase"
        breaks = "nobody is there to type it when the program logs in"
        fix = (
            f"run: {_command(login.at(PASSPHRASE))}; or give the key to an agent (`ssh-add FILE`) and write `agent: "
            "true` in its place; or make one without for this cluster: ssh-keygen -t ed25519 -N '' -f FILE"
        )
        report.add(login.at("private_key_file"), what, breaks, fix)
    elif isinstance(passphrase, SecretStr) and not opens(file, passphrase.get_secret_value()):
        what = f"[secret] does not open {report.value(login.at('private_key_file'), str(file))}"
        breaks = "the program could not log in"
        report.add(login.at(PASSPHRASE), what, breaks, f"run: {_command(login.at(PASSPHRASE))}")


def _command(path: str) -> str:
    """The command that sets the secret. Of a host in a file, the one for its site: a file has no secrets."""
    place = re.sub(r"\.hosts_file\[.*?\](\.hosts\[\d+\])?", "", path)
    return f"pulumi config set --path --secret '{place}'"
