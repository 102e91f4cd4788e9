"""tailscale's answers about this machine. One call of each kind is enough for a look: each starts a Go program."""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from components.node import files, systemd
from components.node.run import attempt, exists

# Tailscale's own control server, which has two addresses.
OWN_SERVER = "https://controlplane.tailscale.com"
_OWN_LOGIN = "https://login.tailscale.com"
STATE_FILE = "/var/lib/tailscale/tailscaled.state"
_SOCKET = "/var/run/tailscale/tailscaled.sock"


def is_installed() -> bool:
    """Return whether this machine has the program."""
    return exists("tailscale")


def is_joined(answer: Mapping[str, Any]) -> bool:
    """Return whether this machine is in a tailnet, at the address that an earlier join reported."""
    now = Tailscale()
    return now.state == "Running" and now.address == answer["tailnet_ip"]


def version() -> str:
    """Return the program's version."""
    return attempt("tailscale", "version").output.partition("\n")[0].strip()


def address() -> str:
    """Return this machine's IPv4 address in the tailnet; empty without one."""
    return attempt("tailscale", "ip", "-4", quiet=True).output.strip()


def status_of_all() -> dict[str, Any] | None:
    """Return the status with all peers; None if tailscaled does not answer."""
    return _json("status", "--json")


def peers_at(address: str) -> list[dict[str, Any]] | None:
    """Return the tailnet's machines with an address; None if tailscaled does not answer."""
    status = status_of_all()
    if status is None:
        return None
    return [peer for peer in (status.get("Peer") or {}).values() if address in (peer.get("TailscaleIPs") or ())]


def _json(*words: str) -> dict[str, Any] | None:
    ended = attempt("tailscale", *words, quiet=True)
    try:
        answer = json.loads(ended.output) if ended.ok else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


class Tailscale:
    """The state of this machine's tailscaled at the time of the first question.

    status        the answer of `tailscale status`, without peers
    preferences   the answer of `tailscale debug prefs`
    """

    @cached_property
    def status(self) -> dict[str, Any]:
        return _json("status", "--json", "--peers=false") or {}

    @cached_property
    def preferences(self) -> dict[str, Any]:
        return _json("debug", "prefs") or {}

    @property
    def state(self) -> str:
        """Return `Running`, `NeedsLogin` and so on; empty without an answer."""
        return str(self.status.get("BackendState") or "")

    @property
    def address(self) -> str:
        """Return this machine's IPv4 address in the tailnet; empty without one."""
        return next((str(ip) for ip in self.status.get("TailscaleIPs") or () if "." in str(ip)), "")

    @property
    def dns_name(self) -> str:
        """Return the whole name that the control server gave, with a final dot."""
        return str((self.status.get("Self") or {}).get("DNSName") or "")

    @property
    def granted_name(self) -> str:
        """Return the name that the control server gave, which differs from the requested one if that was taken."""
        return self.dns_name.partition(".")[0]

    @property
    def tags(self) -> list[str]:
        """Return the tags that the machine has in its tailnet."""
        return [str(tag) for tag in (self.status.get("Self") or {}).get("Tags") or ()]

    @property
    def wanted_tags(self) -> str:
        """Return the tags that it asks for, with commas between."""
        return ",".join(map(str, self.preferences.get("AdvertiseTags") or ()))

    @property
    def control_url(self) -> str:
        """Return the control server in use; empty without an answer."""
        url = str(self.preferences.get("ControlURL") or "")
        return OWN_SERVER if url == _OWN_LOGIN else url.removesuffix("/")

    @property
    def relay_port(self) -> str:
        """Return the UDP port on which it relays connections of others; empty if it does not."""
        port = self.preferences.get("RelayServerPort")
        return "" if port is None else str(port)

    @property
    def shields_up(self) -> bool:
        """Return whether it lets no connection in."""
        return self.preferences.get("ShieldsUp") is True

    @cached_property
    def has_login(self) -> bool:
        """Return whether the machine has a login, also a stopped or expired one."""
        # Without its daemon, tailscale would wait two seconds.
        if files.exists(_SOCKET) or systemd.is_active("tailscaled"):
            logged_out = self.preferences.get("LoggedOut")
            if isinstance(logged_out, bool):
                return not logged_out
        # The daemon does not run: read the state with which it would start.
        return bool(re.search('"profile-', files.read(STATE_FILE) or ""))
