"""The section `tailnet`: the network between the nodes, how nodes join it, and checks of it."""

from collections.abc import Collection
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from components.settings.problems import Report, Stack, secret_command, show_name, shown
from components.settings.rules import Kinds, check_kinds, check_known
from components.settings.section import Help, Section, key, keys_of
from components.settings.types import PORT, NodeName, Whole, full, must, refuse, without_slash

WIREGUARD_PORT = 41641
Kind = Literal["tailscale", "control_url", "existing", "lab"]  # of tailnet
TAILSCALE, CONTROL_URL, EXISTING, OF_A_SITE = "tailscale", "control_url", "existing", "lab"
CREDENTIALS = ("api_key", "oauth_client_id", "oauth_client_secret", "identity_token", "audience")
API = "https://api.tailscale.com"
LAB_CONTROL = "control.lab"  # containers of one machine
_CREDENTIALS = "copy it from the admin console, Settings, Trust credentials"

_URL = rf"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)({PORT})?/?"


def is_here(url: str) -> bool:
    """Return whether the host of a URL is this machine, by address or as localhost."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


# The auth key is sent to a control server by TLS, or without leaving this machine.
ControlUrl = Annotated[
    str,
    Field(max_length=300),
    must(full(_URL), "is not the http:// or https:// address of a control server, with a port from 1 to 65535 or none"),
    must(
        # is_here comes first: it rejects brackets without an IPv6 address in them.
        lambda url: is_here(url) or url.startswith("https:") or urlsplit(url).hostname == LAB_CONTROL,
        "is http://, so the auth key would cross the network in plain text",
    ),
    without_slash,
]
# A preview sends credentials there before anyone approves it.
BaseUrl = Annotated[
    str,
    must(full(_URL), "is no http:// or https:// address"),
    without_slash,
    must(lambda url: url == API or is_here(url), f"is neither {API} nor on this machine"),
]


def _auth_key(value: SecretStr, ephemeral: bool = False) -> SecretStr:
    """Return a key; to an OAuth client's secret, add options for the nodes' keys, which tailscale expects after a `?`.

    By default, keys would be ephemeral, so the tailnet would forget a node that is off, and nodes would need approval.
    """
    key, _, text = value.get_secret_value().partition("?")
    if key.startswith("tskey-api-"):
        fix = "create an auth key in the admin console, or use an OAuth client's secret (tskey-client-...)"
        refuse("is an API access token, not an auth key", "no node can join with it", fix)
    if not key.startswith("tskey-client-"):
        return value
    options = {"ephemeral": str(ephemeral).lower(), "preauthorized": "true"}
    options |= dict(parse_qsl(text, keep_blank_values=True))
    if options.keys() - {"ephemeral", "preauthorized", "baseURL"}:
        refuse("has unknown options after its ?", fix="remove the ? and everything after it; tailrack adds its options")
    return SecretStr(f"{key}?{urlencode(options, safe=':/')}")


Secret = Annotated[
    SecretStr,
    must(lambda text: text and text.isprintable() and " " not in text, "is empty, or contains spaces or line breaks"),
    Help(leaked="revoke this key, create another"),
]
AuthKey = Annotated[Secret, AfterValidator(_auth_key)]
PoolAuthKey = Annotated[Secret, AfterValidator(partial(_auth_key, ephemeral=True))]
Identity = Annotated[str, Field(pattern=r"^[A-Za-z0-9_/.:-]{1,200}$")]


class Relay(Section):
    """[Your own relay](day-2.md#a-relay-of-ones-own) for nodes without a direct path, besides the control server's."""

    node: NodeName = key(fix="write the name of a node, such as the head node's")
    """The relay node; its UDP port must be open to the nodes of all sites."""
    port: Whole = key(ge=1024, le=65535, default=40000)
    """The relay's UDP port; the node's firewall must let it in."""

    def check(self, stack: Stack, report: Report) -> None:
        names = {node.name for node in stack.nodes}
        check_known(self, "node", names, "is not a node of this stack", "there would be no relay", report)
        if self.port == WIREGUARD_PORT:
            breaks = "the node could not be a member and a relay at the same time"
            report.bad((self, "port"), "is tailscaled's own port", breaks, "write another, such as 40000")


class WayToTailnet(Section):
    """How the machines of a stack join a tailnet."""

    kind: Kind | None = key(default_text="by the other keys", default=None)
    """`tailscale`: keys by Tailscale's API; `control_url`: your control server; `existing`: all are members; `lab`."""
    api_key: Secret | None = None
    """Kind tailscale: an API access token; it expires after at most 90 days."""
    oauth_client_id: Identity | None = key("the id of a client or an identity", _CREDENTIALS, default=None)
    """Kind tailscale: the id of an OAuth client or a federated identity; needs one of the next three keys."""
    oauth_client_secret: Secret | None = None
    """Kind tailscale: the OAuth client's secret."""
    identity_token: Secret | None = None
    """Kind tailscale: a federated identity's token (JWT), which you have to renew."""
    audience: Identity | None = key("the audience of a federated identity", _CREDENTIALS, default=None)
    """Kind tailscale: a federated identity's audience; tailrack requests the token where the stack runs (GitHub)."""
    organization: Annotated[str, Field(pattern=r"^[A-Za-z0-9@._-]{1,200}$")] = key(
        "a tailnet's id", "write - or copy it from the admin console, Settings, General", default="-"
    )
    """Kind tailscale: the tailnet's id; `-`: the tailnet of the credentials."""
    base_url: BaseUrl = key(
        "the address of Tailscale's API", "leave it out", "a preview would send credentials elsewhere", default=API
    )
    """Kind tailscale: address of the API; for tests, an address of this machine (127.0.0.1, [::1] or localhost)."""

    def kind_where(self, brought: bool) -> str:
        """Return the kind, or the one derived from the other keys. `brought`: a site brings a tailnet."""
        return self.kind or derived_kind({name for name, value in self if value is not None}, brought)

    def check(self, stack: Stack, report: Report) -> None:
        kind, given = self.kind_where(stack.brings_tailnet), self.model_fields_set
        check_kinds(self, kind, _KINDS, _NO_EFFECT[kind], report)
        if kind == TAILSCALE:
            self._check_credentials(report)
        if kind == CONTROL_URL and not {"auth_key", "control_url"} & given:
            # A pool uses the cluster's control server.
            other = " (or set control_url, for your own control server)" if "control_url" in keys_of(type(self)) else ""
            fix = f"run: {secret_command(report.at(self, 'auth_key'))}{other}"
            report.add((self, "auth_key"), "missing", "no node could join Tailscale's tailnet", fix)
        elif kind == OF_A_SITE and not stack.brings_tailnet:
            problem, fix = f"{kind}, but no site brings a tailnet", f"leave it out, or write {TAILSCALE}"
            report.add((self, "kind"), problem, "there would be no control server to join", fix)
        elif kind == EXISTING and stack.made:
            problem = f"{kind}, but the stack creates the machines of site {show_name(stack.made[0])}"
            report.add((self, "kind"), problem, "a new machine is in no tailnet", "leave it out, or list your machines")
        elif kind == TAILSCALE and stack.brings_tailnet:
            problem, fix = f"{kind}, but a site brings its own tailnet", f"write {OF_A_SITE}, or remove the site"
            report.add((self, "kind"), problem, "its machines join that one", fix)

    def _check_credentials(self, report: Report) -> None:
        keys = {*CREDENTIALS} & self.model_fields_set
        name = "api_key" if "api_key" in keys else "oauth_client_id"
        others = ", ".join(sorted(keys - {name})) or "nothing else"
        if not keys:
            report.add((self, "kind"), "tailscale without credentials", "no key could be created", f"set {_WAYS}")
        elif name not in keys:
            report.add((self, name), f"is missing, but {others} is set", _REJECTED, f"set {_WAYS}")
        elif len(keys) != (1 if name == "api_key" else 2):
            report.add((self, name), f"is set with {others}", _REJECTED, f"set only {_WAYS}")


class Tailnet(WayToTailnet):
    """The network between the nodes."""

    tag: Annotated[str, Field(pattern=r"^tag:[a-z][a-z0-9-]{0,48}$")] = key(
        "a tag such as tag:cluster", "write tag: and lowercase letters, digits and hyphens", default="tag:cluster"
    )
    """The tag of every node in the tailnet."""
    control_url: ControlUrl | None = key("a URL", "write a URL such as https://headscale.example.org", default=None)
    """The tailnet's control server; default: Tailscale's, or the lab's in a stack with a lab site."""
    auth_key: AuthKey | None = None
    """Key with which nodes join; required unless there is a lab site or a control_url."""
    policy: Literal["print", "own"] = key(breaks="the policy would not be checked", default="print")
    """Kind tailscale: `print` the required policy and check the tailnet's; or `own` (write) the whole policy file."""
    relay: Relay | None = None

    def check(self, stack: Stack, report: Report) -> None:
        super().check(stack, report)
        url = self.control_url
        if url is not None and url.startswith("http:") and not is_here(url):
            text = (
                f"{shown(url)} is neither encrypted nor authenticated: an attacker in the network could pose as the "
                "control server and get the auth key; give the server a certificate, and write https://"
            )
            report.warn(report.at(self, "control_url"), text)


class PoolTailnet(WayToTailnet):
    """How a pool's machines join the tailnet of the cluster."""

    auth_key: PoolAuthKey | None = None
    """Key with which the pool's nodes join, best for ephemeral machines; required unless there is a lab site."""


def derived_kind(keys: Collection[str], brought: bool) -> str:
    """Return the kind of a tailnet that follows from the keys in the config."""
    if not {*CREDENTIALS}.isdisjoint(keys):
        return TAILSCALE
    return OF_A_SITE if brought and "control_url" not in keys else CONTROL_URL


# The kinds of the keys that not every kind has, and why other keys have no effect.
_OF_API: Kinds = dict.fromkeys((*CREDENTIALS, "organization", "base_url", "policy"), (TAILSCALE,))
_KINDS: Kinds = {**_OF_API, "control_url": (CONTROL_URL, EXISTING), "auth_key": (CONTROL_URL, OF_A_SITE)}
_NO_EFFECT = {
    TAILSCALE: "the stack creates its own keys for Tailscale's control server",
    CONTROL_URL: "the stack would not use Tailscale's API",
    EXISTING: "no machine joins a tailnet, so it would not be used",
    OF_A_SITE: "the nodes join the control server of the sites",
}
_WAYS = "an API key, or an OAuth client's id and secret, or a federated identity's id and its token or audience"
_REJECTED = "Tailscale's API would reject every call"
