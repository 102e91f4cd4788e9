"""Join the tailnet: tailscaled with its state on disk, a fixed host name and a tag."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from components.node import files, folders, packages, systemd
from components.node.failure import Failure
from components.node.fetch import fetch_failure
from components.node.log import STATE_DIR, note
from components.node.packages import os_release
from components.node.run import attempt, exists, run, succeeds
from components.node.step.step import Step
from components.node.waiting import wait_for, wait_until
from components.roles.network.tailnet import tailscale
from components.roles.network.tailnet.membership import (
    RECORD,
    MembershipValues,
    let_leaving_end,
    line_of,
    refuse_another_tailnet,
    require_adoptable,
)
from components.roles.network.tailnet.tailscale import Tailscale

# Behind systemd-resolved's stub, the second has its upstream servers.
_LISTS = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
_SOURCES = "/etc/apt/sources.list"
_SOURCE = re.compile(r"^(?:deb |URIs:).*?https?://([^/ :\s]+)", re.MULTILINE)
# Names of package sources to try.
_MOST_NAMES = 3
_LIMIT_SECONDS = 10
# Seconds for the control server to answer a join.
_JOIN_SECONDS = 60
# Seconds for a name to resolve after a join.
NAMES_SECONDS = 30
_DAEMON_BEFORE = f"{STATE_DIR}/tailnet-daemon"
_NAME_BEFORE = f"{STATE_DIR}/tailnet-name-before"
_SOURCE_LINE = "https://pkgs.tailscale.com/stable"
KEYRING = "/usr/share/keyrings/tailscale-archive-keyring.gpg"
SOURCE_LIST = "/etc/apt/sources.list.d/tailscale.list"
_DROP_IN = "/etc/systemd/system/tailscaled.service.d/tailrack.conf"
_UNIT = "tailrack-tailnet.service"
_DAEMON = "tailscaled.service"
# States in which tailscaled has settled.
_DECIDED = {"Running", "NeedsLogin", "NeedsMachineAuth", "Stopped"}
# The auth key is passed in a file in memory: ps shows arguments.
_KEY_FOLDER, _KEY_PREFIX = "/run", "tailrack-key."


def dns_servers() -> list[str]:
    """Return the addresses of the DNS servers."""
    texts = (folders.read_theirs(files.followed(path)) or "" for path in _LISTS)
    words = (line.split() for text in texts for line in text.splitlines())
    return list(dict.fromkeys(word[1] for word in words if len(word) > 1 and word[0] == "nameserver"))


def resolves(name: str) -> bool:
    """Return whether DNS knows a name. /etc/hosts would answer without it."""
    return succeeds("getent", "-s", "dns", "hosts", name, limit=_LIMIT_SECONDS)


def name_that_resolves(control_url: str) -> str:
    """Return a name that resolves now, from the package sources or the control server; empty without one."""
    return next((name for name in _names(control_url) if resolves(name)), "")


def _names(control_url: str) -> Iterator[str]:
    folder = f"{_SOURCES}.d"
    paths = [_SOURCES, *(f"{folder}/{name}" for name in files.names_in(folder))]
    found = {name for path in paths for name in _SOURCE.findall(files.read(path) or "")}
    yield from sorted(found)[:_MOST_NAMES]
    if name := urlsplit(control_url).hostname:
        yield name


@dataclass(frozen=True)
class JoinValues(MembershipValues):
    """The wanted membership, and how to get it.

    tailnet_auth_key   secret, empty if the control server needs none
    node_relay_port    UDP port on which the machine relays connections between other nodes, empty for none
    """

    tailnet_auth_key: str
    node_relay_port: str


def join(step: Step, values: JoinValues) -> None:
    """Make the machine a member of the tailnet, and report how others reach it."""
    remove_keys()
    if values.node_adopt:
        now = Tailscale()
        require_adoptable(now, values, step.host)
        _require_relay(now, values, step.host)
    else:
        install(step.host)
        let_leaving_end(step.host)
        now = _join(step, values)
        _offer_relay(now, values, step.host)
    systemd.write_restart(_DAEMON)
    systemd.reload(_UNIT)
    systemd.enable(_UNIT, now=True)
    step.result("tailnet_ip", now.address)
    step.result("firewall", own_firewalls(now))
    step.result("tailscale_version", tailscale.version())


def remove_keys() -> None:
    """Remove auth keys that a killed step may have left."""
    for name in files.names_in(_KEY_FOLDER):
        if name.lstrip(".").startswith(_KEY_PREFIX):  # with a dot: it was being written
            files.remove(f"{_KEY_FOLDER}/{name}")


def install(host: str) -> None:
    """Install tailscale unless the machine has it."""
    if files.exists("/usr/sbin/tailscaled") and tailscale.is_installed():
        return
    packages.ensure(host, "curl", "ca-certificates")
    release = os_release()
    system, codename = (release.get(key, "") for key in ("ID", "VERSION_CODENAME"))
    address = f"{_SOURCE_LINE}/{system}/{codename}.noarmor.gpg"
    ended = attempt("curl", "-fsS", "--retry", "3", "--max-time", "60", "-o", KEYRING, address, keep_errors=True)
    if not ended.ok:
        by_hand = f"install tailscale on {host} by hand, then run up again"
        raise fetch_failure("Tailscale's package source does not answer", ended.errors, by_hand, host)
    # A file from an earlier attempt keeps its mode, and apt reads it as another account.
    files.set_mode(KEYRING, 0o644)
    files.write(SOURCE_LIST, f"deb [signed-by={KEYRING}] {_SOURCE_LINE}/{system} {codename} main")
    packages.ensure(host, "tailscale")


def _join(step: Step, values: JoinValues) -> Tailscale:
    """Join, and return tailscale's answers after that."""
    host = step.host
    _remember_daemon()
    _lead_through_proxy()
    systemd.enable(_DAEMON, now=True)
    if not wait_until(lambda: systemd.is_active("tailscaled"), 30):
        raise Failure("tailscaled does not start", f"see 'journalctl -u tailscaled' on {host}")
    # After a restart the daemon reconnects; do not log in again meanwhile.
    now = wait_for(lambda: _answers(lambda now: now.state in _DECIDED), 15)
    if now is None:
        note("tailscaled is still starting")
        now = Tailscale()
    refuse_another_tailnet(now, host)
    if joined_as_asked(now, values, host):
        now = now if now.granted_name else named()
        _require_name(now, host, just_joined=False)
        _require_names(host)
        return now
    # Record the membership before the join, or a killed join would look like someone else's. The previous line stays
    # beside it.
    membership = line_of(values.wanted_server, host)
    files.add_line(RECORD, membership)
    before = now.address
    if not files.exists(_NAME_BEFORE):
        files.write(_NAME_BEFORE, name_that_resolves(values.tailnet_control_url))
    log_in(now, values, host)
    now = named()
    _require_name(now, host, just_joined=True)
    files.write(RECORD, membership)
    _require_names(host)
    if now.address != before:
        # Restart, in order, the units that are bound to an address of an earlier membership.
        systemd.reload(_UNIT)
        run("systemctl", "restart", _UNIT)
    return now


def _answers(enough: Callable[[Tailscale], bool]) -> Tailscale | None:
    """Return tailscale's answers if they are enough."""
    now = Tailscale()
    return now if enough(now) else None


def joined_as_asked(now: Tailscale, values: JoinValues, host: str) -> bool:
    """Return whether the machine is in the tailnet with the settings of the config."""
    return (
        now.state == "Running"
        and now.preferences.get("Hostname") == host
        and now.control_url == values.wanted_server
        and now.wanted_tags == values.tailnet_tag
        and now.preferences.get("CorpDNS") is False
        and not now.shields_up
    )


def _remember_daemon() -> None:
    """Remember whether tailscaled started at boot before, for the day when the machine leaves."""
    if not files.exists(_DAEMON_BEFORE):
        files.write(_DAEMON_BEFORE, attempt("systemctl", "is-enabled", "tailscaled").output.strip())


def _lead_through_proxy() -> None:
    """Give tailscaled the proxy in /etc/environment for the control server and relays; nothing else does."""
    if re.search(r"^(export )?(https?|all)_proxy=", files.read("/etc/environment") or "", re.IGNORECASE | re.MULTILINE):
        text = "# Written by tailrack: the proxy that is named there.\n[Service]\nEnvironmentFile=-/etc/environment"
        changed = files.write(_DROP_IN, text)
    else:
        changed = files.remove(_DROP_IN)
    if changed:
        run("systemctl", "daemon-reload")
        run("systemctl", "try-restart", "tailscaled")


def log_in(now: Tailscale, values: JoinValues, host: str) -> None:
    """Log in with the wanted settings. Raises Failure."""
    options = ["--reset", "--accept-dns=false", f"--hostname={host}", f"--timeout={_JOIN_SECONDS}s"]
    if values.tailnet_control_url:
        options.append(f"--login-server={values.tailnet_control_url}")
    if values.tailnet_tag:
        options.append(f"--advertise-tags={values.tailnet_tag}")
    # Another control server needs a new login.
    if now.state == "Running":
        options.append("--force-reauth")
    # Without a key, a placeholder keeps tailscale from waiting for a login in a browser.
    key_file = f"{_KEY_FOLDER}/{_KEY_PREFIX}{files.random_name()}"
    files.write(key_file, values.tailnet_auth_key or "tskey-none", 0o600)
    try:
        login = attempt(
            "tailscale", "up", *options, f"--auth-key=file:{key_file}", limit=_JOIN_SECONDS + 10, keep_errors=True
        )
    finally:
        files.remove(key_file)
    answer = f"{login.output}{login.errors}".strip()
    note(f"tailscale up: {answer or 'joined'}")
    if not login.ok:
        raise Failure(
            f"the tailnet did not accept this machine: {answer or f'no answer in {_JOIN_SECONDS}s'}",
            f"make a new auth key for the tag {values.tailnet_tag} and set it with 'pulumi config set --secret --path "
            "tailrack:tailnet.auth_key'; where the stack makes its keys (tailnet.kind tailscale), run 'pulumi up "
            "--refresh'",
        )


def _require_name(now: Tailscale, host: str, *, just_joined: bool) -> None:
    """Fail if the control server gave another name: for a taken name it appends a number.

    Others would reach the wrong machine.
    """
    granted = now.granted_name
    if granted == host:
        return
    if just_joined:
        # Undo the join, so that the next run asks for the name again.
        if not attempt("tailscale", "logout").ok:
            note("tailscale could not log out")
        run("systemctl", "disable", "-q", "--now", "tailscaled")
        # The daemon then starts without a login.
        files.remove(tailscale.STATE_FILE)
        files.remove(RECORD)
    raise name_is_taken(host, granted)


def named() -> Tailscale:
    """Return tailscale's answers once the control server has given a name, which may take a moment."""
    return wait_for(lambda: _answers(lambda now: bool(now.granted_name)), 10) or Tailscale()


def name_is_taken(host: str, granted: str) -> Failure:
    """Return the failure of a machine that has another name in the tailnet."""
    return Failure(
        f"the name {host} is taken in the tailnet; this machine got the name {granted or '(none)'} there",
        f"remove the machine called {host} (and {granted or 'it'}) from the tailnet, in the control server's list of "
        "machines, or give this host another name; then run up again",
    )


def _require_names(host: str) -> None:
    """Fail if DNS stopped working after the join. The name is kept until it resolves, so the next run checks again."""
    text = files.read(_NAME_BEFORE)
    if text is None:
        return
    name = text.strip()
    if name and not wait_until(lambda: resolves(name), NAMES_SECONDS):
        raise Failure(
            f"DNS stopped working when this machine joined the tailnet: {name} resolved before and does not now",
            f"its DNS servers are {' '.join(dns_servers())}; see 'resolvectl status' and 'tailscale status' on {host}, "
            "give it others (/etc/systemd/resolved.conf), then run up again",
        )
    files.remove(_NAME_BEFORE)


def _offer_relay(now: Tailscale, values: JoinValues, host: str) -> None:
    """Make a machine that the cluster joined a relay or not, as the config says."""
    port = values.node_relay_port
    if now.relay_port == port:
        return
    ended = attempt("tailscale", "set", f"--relay-server-port={port}", keep_errors=True)
    if not ended.ok:
        raise Failure(
            f"tailscale on {host} does not take '{port}' as its relay's UDP port: "
            f"{f'{ended.output}{ended.errors}'.strip()}",
            f"see 'journalctl -u tailscaled' on {host}",
        )


def _require_relay(now: Tailscale, values: JoinValues, host: str) -> None:
    """Require that an adopted machine is the relay of the config. It is not changed: its owner makes it one."""
    port = values.node_relay_port
    if port and now.relay_port != port:
        raise Failure(
            f"adopt: true, and this machine is no relay at UDP port {port}, as tailnet.relay has it",
            f"run 'tailscale set --relay-server-port={port}' on {host}, or name another node",
        )


def own_firewalls(now: Tailscale) -> str:
    """Return their names with `+` between."""
    found = {
        "firewalld": exists("firewalld") and systemd.is_active("firewalld"),
        "ufw": exists("ufw") and re.search("^Status: active", attempt("ufw", "status", quiet=True).output, re.M),
        "nftables": exists("nft") and _drops_by_default(),
        "shields-up": now.shields_up,
    }
    return "+".join(name for name, there in found.items() if there)


def _drops_by_default() -> bool:
    """Return whether an nftables input chain drops by default. ufw's and iptables' chains are such chains too."""
    rules = attempt("nft", "list", "ruleset", quiet=True).output
    return any("hook input " in line and "policy drop" in line for line in rules.splitlines())
