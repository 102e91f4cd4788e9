"""The network that joins the nodes: the section `tailnet`, and whether there is a way into it."""

import re
from collections.abc import Collection
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import AfterValidator, SecretStr

from components.settings.section import Section, key, named, number, secret_text
from components.settings.types import NodeName, Whole, refuse

WIREGUARD_PORT = 41641
# Kinds of tailnet.
TAILSCALE, CONTROL_URL, EXISTING, OF_A_SITE = "tailscale", "control_url", "existing", "lab"
CREDENTIALS = ("api_key", "oauth_client_id", "oauth_client_secret", "identity_token", "audience")
SECRETS = ("auth_key", "api_key", "oauth_client_secret", "identity_token")
_OAUTH = "tskey-client-"
API = "https://api.tailscale.com"


def secret_command(name: str) -> str:
    """How a secret of this section is set."""
    return f"pulumi config set --path --secret tailrack:tailnet.{name}"


def _control_url(value: str) -> str:
    found = re.fullmatch(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?/?", value)
    if not found or len(value) > 300:
        refuse("is not the http:// or https:// address of a control server")
    if found["port"] is not None and not 1 <= int(found["port"]) <= 65535:
        refuse("has a port that is not from 1 to 65535")
    return value.rstrip("/")


def _base_url(value: str) -> str:
    """Tailscale's own API, or this machine: a preview sends the credentials there, before anyone approves a change."""
    value = _control_url(value)
    if value != API and not loopback(urlsplit(value).hostname or ""):
        refuse(f"is neither {API} nor on this machine")
    return value


def loopback(host: str) -> bool:
    """Whether a host is this very machine, by its address or as localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _one_word(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.isprintable() or not text or " " in text:
        refuse("is empty, or has spaces or line breaks in it")
    return value


def _auth_key(value: SecretStr, ephemeral: bool = False) -> SecretStr:
    key = _one_word(value).get_secret_value()
    if key.startswith("tskey-api-"):
        refuse(
            "is an API access token, not an auth key",
            "no node can join with it",
            "make an auth key in the admin console, or an OAuth client's secret (tskey-client-...)",
        )
    return SecretStr(_for_nodes(key, ephemeral)) if key.startswith(_OAUTH) else value


def _for_nodes(secret: str, ephemeral: bool) -> str:
    """An OAuth client's secret with what the nodes' own keys are made as; tailscale's CLI takes that behind a `?`.

    Left out, they would be ephemeral, so that a node is forgotten while it is off, and would wait for approval.
    """
    client, _, text = secret.partition("?")
    wanted = {
        "ephemeral": str(ephemeral).lower(),
        "preauthorized": "true",
        **dict(parse_qsl(text, keep_blank_values=True)),
    }
    if wanted.keys() - {"ephemeral", "preauthorized", "baseURL"}:
        refuse(
            "has something behind its ? that tailscale does not know",
            fix="leave out the ? and what follows: it is put there",
        )
    return f"{client}?{urlencode(wanted, safe=':/')}"


ControlUrl = Annotated[str, AfterValidator(_control_url)]
AuthKey = Annotated[SecretStr, AfterValidator(_auth_key)]
PoolAuthKey = Annotated[SecretStr, AfterValidator(partial(_auth_key, ephemeral=True))]
Secret = Annotated[SecretStr, AfterValidator(_one_word)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]


def _auth_key_key(description: str) -> Any:
    return key(
        description,
        wants="a key on one line",
        breaks="the nodes could not join the tailnet",
        fix=f"run: {secret_command('auth_key')}",
        secret=True,
        default=None,
    )


def _credential(name: str, what: str) -> Any:
    breaks = "Tailscale's API would refuse every call"
    return secret_text(f"kind tailscale: {what}", breaks=breaks, command=secret_command(name))


class Relay(Section):
    """A member of the tailnet that carries what finds no direct path between others."""

    node: NodeName = named(
        "the node that is the relay; its UDP port must be open to the nodes of all sites",
        breaks="nothing would be relayed",
        fix="write the name of a node, such as the head node's",
    )
    port: Whole = number(
        "the relay's UDP port; to be let in by whatever firewall stands before the node",
        1024,
        65535,
        breaks="another daemon may have it",
        default=40000,
    )


class WayToTailnet(Section):
    """How the machines of a stack get into a tailnet."""

    kind: Literal["tailscale", "control_url", "existing", "lab"] | None = key(
        "`tailscale`: the stack makes its keys by Tailscale's API; `control_url`: a control server and a key of yours; "
        "`existing`: every machine is a member already and stays one; `lab`: that of the lab's sites",
        wants="tailscale, control_url, existing or lab",
        breaks="nobody would know how nodes get into the tailnet",
        fix="write one of them, or leave it out",
        otherwise="by what else is set",
        default=None,
    )
    api_key: Secret | None = _credential("api_key", "an API access token, which ends after 90 days at most")
    oauth_client_id: str | None = key(
        "kind tailscale: id of an OAuth client or of a federated identity, with one of the next three",
        wants="the id of an OAuth client or a federated identity",
        breaks="Tailscale's API would refuse every call",
        fix="copy it from the admin console, Settings, Trust credentials",
        pattern=r"^[A-Za-z0-9_/.-]{1,200}$",
        default=None,
    )
    oauth_client_secret: Secret | None = _credential("oauth_client_secret", "the OAuth client's secret")
    identity_token: Secret | None = _credential(
        "identity_token", "a federated identity's token (JWT), which whoever runs the stack has to renew"
    )
    audience: str | None = key(
        "kind tailscale: a federated identity's audience; the token is then asked for where the stack runs (GitHub)",
        wants="the audience of a federated identity",
        breaks="no token could be asked for",
        fix="copy it from the admin console, Settings, Trust credentials",
        pattern=r"^[A-Za-z0-9_/.:-]{1,200}$",
        default=None,
    )
    organization: str = key(
        "kind tailscale: the tailnet's id; `-` is the one that the credentials belong to",
        wants="a tailnet's id",
        breaks="another tailnet would be meant, or none",
        fix="write - or copy it from the admin console, Settings, General",
        pattern=r"^[A-Za-z0-9@._-]{1,200}$",
        default="-",
    )
    base_url: BaseUrl = key(
        "kind tailscale: where the API is; for tests, an address of this machine (127.0.0.1, [::1] or localhost)",
        wants="the address of Tailscale's API",
        breaks="a preview would send the tailnet's credentials elsewhere",
        fix="leave it out",
        default=API,
    )

    def kind_where(self, brought: bool) -> str:
        """The kind, also where it is left out. `brought`: a site brings a tailnet."""
        return self.kind or derived_kind({name for name, value in self if value is not None}, brought)


class Tailnet(WayToTailnet):
    """The network that joins the nodes."""

    tag: str = key(
        "the tag that every node carries in the tailnet",
        wants="a tag such as tag:cluster",
        breaks="the tailnet's rules could not tell the nodes from people's devices",
        fix="write tag: and a name of lowercase letters, digits and hyphens",
        pattern=r"^tag:[a-z][a-z0-9-]{0,48}$",
        default="tag:cluster",
    )
    control_url: ControlUrl | None = key(
        "the tailnet's control server; left out, Tailscale's own, or the lab's in a stack with a lab site",
        wants="the URL of a control server",
        breaks="the nodes could not join the tailnet",
        fix="write a URL such as https://headscale.example.org, or leave it out to use Tailscale's own",
        otherwise="Tailscale's own",
        default=None,
    )
    auth_key: AuthKey | None = _auth_key_key(
        f"key that lets nodes join; a Pulumi secret (`{secret_command('auth_key')}`); "
        "needed where no site is a lab and no control_url is set"
    )
    policy: Literal["print", "own"] = key(
        "kind tailscale: `print`: what the policy file has to hold is an output of the stack, and is looked for before "
        "any node joins; `own`: the stack writes the whole policy file of the tailnet",
        wants="print or own",
        breaks="nobody would look after the policy",
        fix="write print, or own for a tailnet of this cluster alone",
        default="print",
    )
    relay: Relay | None = key(
        "a relay of the cluster's own for nodes that find no direct path "
        "([day-2.md](day-2.md#a-relay-of-ones-own)); left out, it is the control server's relays",
        default=None,
    )


class PoolTailnet(WayToTailnet):
    """A pool's way into the tailnet of its cluster."""

    auth_key: PoolAuthKey | None = _auth_key_key(
        f"key that lets the pool's nodes join the cluster's tailnet; a Pulumi secret (`{secret_command('auth_key')}`); "
        "best one of ephemeral machines, as an OAuth client's secret makes them here; needed where no site is a lab"
    )


def derived_kind(given: Collection[str], brought: bool) -> str:
    """The kind of a tailnet by the keys that are given."""
    if not {*CREDENTIALS}.isdisjoint(given):
        return TAILSCALE
    return OF_A_SITE if brought and "control_url" not in given else CONTROL_URL
