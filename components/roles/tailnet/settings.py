"""The network that joins the nodes: the section `tailnet`, and whether there is a way into it."""

import re
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from pydantic import AfterValidator, SecretStr

from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import Section, key, keys_of, named, number
from components.settings.types import NodeName, Whole, refuse

WIREGUARD_PORT = 41641
_OAUTH = "tskey-client-"
_COMMAND = "pulumi config set --path --secret tailrack:tailnet.auth_key"


def _control_url(value: str) -> str:
    found = re.fullmatch(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?/?", value)
    if not found or len(value) > 300:
        refuse("is not the http:// or https:// address of a control server")
    if found["port"] is not None and not 1 <= int(found["port"]) <= 65535:
        refuse("has a port that is not from 1 to 65535")
    return value.rstrip("/")


def _auth_key(value: SecretStr, ephemeral: bool = False) -> SecretStr:
    key = value.get_secret_value()
    if not key.isprintable() or not key or " " in key:
        refuse("is empty, or has spaces or line breaks in it")
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


def _auth_key_key(description: str) -> Any:
    words = f"a key on one line; the nodes could not join the tailnet; run: {_COMMAND}"
    return key(description, words, secret=True, default=None)


class Relay(Section):
    """A member of the tailnet that carries what finds no direct path between others."""

    node: NodeName = named(
        "the node that is the relay; its UDP port must be open to the nodes of all sites",
        "nothing would be relayed; write the name of a node, such as the head node's",
    )
    port: Whole = number(
        "the relay's UDP port; to be let in by whatever firewall stands before the node",
        1024,
        65535,
        "another daemon may have it",
        40000,
    )


class Tailnet(Section):
    """The network that joins the nodes."""

    tag: str = key(
        "the tag that every node carries in the tailnet",
        "a tag such as tag:cluster; the tailnet's rules could not tell the nodes from people's devices; write tag: "
        "and a name of lowercase letters, digits and hyphens",
        pattern=r"^tag:[a-z][a-z0-9-]{0,48}$",
        default="tag:cluster",
    )
    control_url: ControlUrl | None = key(
        "the tailnet's control server; left out, Tailscale's own, or the lab's in a stack with a lab site",
        "the URL of a control server; the nodes could not join the tailnet; write a URL such as "
        "https://headscale.example.org, or leave it out to use Tailscale's own",
        otherwise="Tailscale's own",
        default=None,
    )
    auth_key: AuthKey | None = _auth_key_key(
        f"key that lets nodes join; a Pulumi secret (`{_COMMAND}`); "
        "needed where no site is a lab and no control_url is set"
    )
    relay: Relay | None = key(
        "a relay of the cluster's own for nodes that find no direct path "
        "([operations.md](operations.md#a-relay-of-ones-own)); left out, it is the control server's relays",
        default=None,
    )


class PoolTailnet(Section):
    """A pool's way into the tailnet of its cluster."""

    auth_key: PoolAuthKey | None = _auth_key_key(
        f"key that lets the pool's nodes join the cluster's tailnet; a Pulumi secret (`{_COMMAND}`); best one of "
        "ephemeral machines, as an OAuth client's secret makes them here; needed where no site is a lab"
    )


def check_tailnet(tailnet: Draft, no_control_server: bool, report: Report) -> None:
    """Report a key in plain text, and nodes without a way into a tailnet.

    no_control_server   no site brings one of its own
    """
    at = tailnet.at("auth_key")
    if "auth_key" in tailnet.raw and not report.hides(at):
        breaks = "whoever reads the file, or the repository's past, can join the tailnet"
        fix = f"revoke this key, make another and give it to: {_COMMAND}"
        report.add(at, "[secret] is plain text in the config", breaks, fix)
    if no_control_server and "auth_key" not in tailnet.raw and "control_url" not in tailnet.raw:
        own = (
            " (or set control_url, for a control server of your own)" if "control_url" in keys_of(tailnet.model) else ""
        )
        fix = f"run: {_COMMAND}{own}"
        report.add(at, "missing", "no node could join Tailscale's tailnet", fix)
    relay = tailnet.values.get("relay")
    if isinstance(relay, Draft) and relay.whole("port") == WIREGUARD_PORT:
        at, breaks = relay.at("port"), "the node could be a member or a relay, and not both"
        report.add(at, f"{WIREGUARD_PORT} is tailscaled's own port", breaks, "write another, such as 40000")
