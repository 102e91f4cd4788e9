"""The section `tailnet`: the network between the nodes, and how nodes join it."""

import re
from collections.abc import Collection
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import AfterValidator, SecretStr

from components.settings.section import Section, key
from components.settings.types import NodeName, Whole, refuse

WIREGUARD_PORT = 41641
# Kinds of tailnet.
TAILSCALE, CONTROL_URL, EXISTING, OF_A_SITE = "tailscale", "control_url", "existing", "lab"
CREDENTIALS = ("api_key", "oauth_client_id", "oauth_client_secret", "identity_token", "audience")
SECRETS = ("auth_key", "api_key", "oauth_client_secret", "identity_token")
_OAUTH = "tskey-client-"
API = "https://api.tailscale.com"
LAB_CONTROL = "control.lab"  # containers of one machine


def _control_url(value: str) -> str:
    match = re.fullmatch(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?/?", value)
    if not match or len(value) > 300:
        refuse("is not the http:// or https:// address of a control server")
    if match["port"] is not None and not 1 <= int(match["port"]) <= 65535:
        refuse("has a port that is not from 1 to 65535")
    return value.rstrip("/")


def _private_control_url(value: str) -> str:
    """Return the address of a control server to which the auth key is sent by TLS, or without leaving this machine."""
    value = _control_url(value)
    parts = urlsplit(value)
    if parts.scheme == "http" and not loopback(parts.hostname or "") and parts.hostname != LAB_CONTROL:
        refuse("is http://, so the auth key would cross the network in plain text")
    return value


def _base_url(value: str) -> str:
    """Return the address of Tailscale's API or of this machine: a preview sends credentials before anyone approves."""
    value = _control_url(value)
    if value != API and not loopback(urlsplit(value).hostname or ""):
        refuse(f"is neither {API} nor on this machine")
    return value


def loopback(host: str) -> bool:
    """Return whether a host is this machine, by address or as localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _one_word(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.isprintable() or not text or " " in text:
        refuse("is empty, or contains spaces or line breaks")
    return value


def _auth_key(value: SecretStr, ephemeral: bool = False) -> SecretStr:
    key = _one_word(value).get_secret_value()
    if key.startswith("tskey-api-"):
        refuse(
            "is an API access token, not an auth key",
            "no node can join with it",
            "create an auth key in the admin console, or use an OAuth client's secret (tskey-client-...)",
        )
    return SecretStr(_for_nodes(key, ephemeral)) if key.startswith(_OAUTH) else value


def _for_nodes(secret: str, ephemeral: bool) -> str:
    """Return an OAuth client's secret with options for the nodes' keys, which tailscale's CLI expects after a `?`.

    By default, keys would be ephemeral, so the tailnet would forget a node that is off, and nodes would need approval.
    """
    client, _, text = secret.partition("?")
    options = {
        "ephemeral": str(ephemeral).lower(),
        "preauthorized": "true",
        **dict(parse_qsl(text, keep_blank_values=True)),
    }
    if options.keys() - {"ephemeral", "preauthorized", "baseURL"}:
        refuse("has unknown options after its ?", fix="remove the ? and everything after it; tailrack adds its options")
    return f"{client}?{urlencode(options, safe=':/')}"


ControlUrl = Annotated[str, AfterValidator(_private_control_url)]
AuthKey = Annotated[SecretStr, AfterValidator(_auth_key)]
PoolAuthKey = Annotated[SecretStr, AfterValidator(partial(_auth_key, ephemeral=True))]
Secret = Annotated[SecretStr, AfterValidator(_one_word)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]


class Relay(Section):
    """A relay in the tailnet for pairs of nodes without a direct path."""

    node: NodeName = key(fix="write the name of a node, such as the head node's")
    """The relay node; its UDP port must be open to the nodes of all sites."""
    port: Whole = key(ge=1024, le=65535, default=40000)
    """The relay's UDP port; the node's firewall must let it in."""


class WayToTailnet(Section):
    """How the machines of a stack join a tailnet."""

    kind: Literal["tailscale", "control_url", "existing", "lab"] | None = key(
        default_text="depends on the other keys", default=None
    )
    """`tailscale`: the stack creates keys with Tailscale's API; `control_url`: your control server and key;
    `existing`: every machine is already a member and stays one; `lab`: the lab's tailnet."""
    api_key: Secret | None = None
    """Kind tailscale: an API access token; it expires after at most 90 days."""
    oauth_client_id: str | None = key(
        wants="the id of an OAuth client or a federated identity",
        fix="copy it from the admin console, Settings, Trust credentials",
        pattern=r"^[A-Za-z0-9_/.-]{1,200}$",
        default=None,
    )
    """Kind tailscale: the id of an OAuth client or a federated identity; needs one of the next three keys."""
    oauth_client_secret: Secret | None = None
    """Kind tailscale: the OAuth client's secret."""
    identity_token: Secret | None = None
    """Kind tailscale: a federated identity's token (JWT), which you have to renew."""
    audience: str | None = key(
        wants="the audience of a federated identity",
        fix="copy it from the admin console, Settings, Trust credentials",
        pattern=r"^[A-Za-z0-9_/.:-]{1,200}$",
        default=None,
    )
    """Kind tailscale: a federated identity's audience; tailrack requests the token where the stack runs (GitHub)."""
    organization: str = key(
        wants="a tailnet's id",
        fix="write - or copy it from the admin console, Settings, General",
        pattern=r"^[A-Za-z0-9@._-]{1,200}$",
        default="-",
    )
    """Kind tailscale: the tailnet's id; `-`: the tailnet of the credentials."""
    base_url: BaseUrl = key(
        wants="the address of Tailscale's API",
        breaks="a preview would send the tailnet's credentials elsewhere",
        fix="leave it out",
        default=API,
    )
    """Kind tailscale: address of the API; for tests, an address of this machine (127.0.0.1, [::1] or localhost)."""

    def kind_where(self, brought: bool) -> str:
        """Return the kind, or the one derived from the other keys. `brought`: a site brings a tailnet."""
        return self.kind or derived_kind({name for name, value in self if value is not None}, brought)


class Tailnet(WayToTailnet):
    """The network between the nodes."""

    tag: str = key(
        wants="a tag such as tag:cluster",
        fix="write tag: and a name of lowercase letters, digits and hyphens",
        pattern=r"^tag:[a-z][a-z0-9-]{0,48}$",
        default="tag:cluster",
    )
    """The tag of every node in the tailnet."""
    control_url: ControlUrl | None = key(
        wants="the URL of a control server",
        fix="write a URL such as https://headscale.example.org, or leave it out to use Tailscale's own",
        default_text="Tailscale's own",
        default=None,
    )
    """The tailnet's control server; default: Tailscale's, or the lab's in a stack with a lab site."""
    auth_key: AuthKey | None = None
    """Key with which nodes join; required unless there is a lab site or a control_url."""
    policy: Literal["print", "own"] = key(breaks="the policy would not be checked", default="print")
    """Kind tailscale: with `print`, the required policy is an output of the stack, and a check runs before any node
    joins; with `own`, the stack writes the tailnet's whole policy file."""
    relay: Relay | None = None
    """Your own relay for nodes without a direct path ([day-2.md](day-2.md#a-relay-of-ones-own)); default: the control
    server's relays."""


class PoolTailnet(WayToTailnet):
    """How a pool's machines join the tailnet of the cluster."""

    auth_key: PoolAuthKey | None = None
    """Key with which the pool's nodes join the cluster's tailnet; best for ephemeral machines, as tailrack sets for
    an OAuth client's secret; required unless there is a lab site."""


def derived_kind(keys: Collection[str], brought: bool) -> str:
    """Return the kind of a tailnet that follows from the keys in the config."""
    if not {*CREDENTIALS}.isdisjoint(keys):
        return TAILSCALE
    return OF_A_SITE if brought and "control_url" not in keys else CONTROL_URL
