"""Whether the section `tailnet` holds together: one way into one tailnet, and no key in plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from components.roles.tailnet.settings import (
    CONTROL_URL,
    CREDENTIALS,
    EXISTING,
    OF_A_SITE,
    SECRETS,
    TAILSCALE,
    WIREGUARD_PORT,
    derived_kind,
    loopback,
    secret_command,
)
from components.settings.draft import Draft, check_hidden
from components.settings.problems import Report, bare, shown
from components.settings.section import keys_of

# Keys of a kind, beside `kind` and `tag`; and the reason why other keys have no effect.
_API = (*CREDENTIALS, "organization", "base_url", "policy")
_KEYS = {
    TAILSCALE: (_API, "the stack makes its own keys for Tailscale's own control server"),
    CONTROL_URL: (("control_url", "auth_key"), "nobody would ask Tailscale's API"),
    EXISTING: (("control_url",), "no machine joins anything, so nobody would use it"),
    OF_A_SITE: (("auth_key",), "the nodes join the control server that comes with the sites"),
}
_WAYS = "an API key, or an OAuth client's id and secret, or a federated identity's id and its token or audience"


@dataclass(frozen=True)
class Sites:
    """The properties of the sites that matter to the tailnet.

    known      whether every site has a valid kind
    brings     whether one of them brings a tailnet
    makes      names of the sites whose machines the stack creates
    """

    known: bool
    brings: bool
    makes: Sequence[str]


def check_tailnet(tailnet: Draft, sites: Sites, report: Report) -> None:
    """Report a secret in plain text, nodes without a way into a tailnet, and ways that cannot both be meant."""
    given = tailnet.raw
    for name in SECRETS:
        breaks = "whoever reads the file, or the repository's past, can join the tailnet"
        fix = f"revoke this key, make another and give it to: {secret_command(name)}"
        check_hidden(tailnet, name, breaks, fix, report)
    relay = tailnet.values.get("relay")
    if isinstance(relay, Draft) and relay.whole("port") == WIREGUARD_PORT:
        at, breaks = relay.at("port"), "the node could be a member or a relay, and not both"
        report.add(at, f"{WIREGUARD_PORT} is tailscaled's own port", breaks, "write another, such as 40000")
    url = tailnet.values.get("control_url")
    if isinstance(url, str) and url.startswith("http:") and not loopback(urlsplit(url).hostname or ""):
        report.warn(
            tailnet.at("control_url"),
            f"{shown(url)} is not encrypted, and nothing says who answers there: whoever is on the way can pose as the "
            "control server, and be given the auth key; give the server a certificate, and write https://",
        )
    kind = tailnet.text("kind") or derived_kind(given, sites.brings)
    if kind not in _KEYS:
        return
    own, breaks = _KEYS[kind]
    for name in given:
        if name in keys_of(tailnet.model) and any(name in keys for keys, _ in _KEYS.values()) and name not in own:
            others = [other for other, (keys, _) in _KEYS.items() if name in keys]
            fix = f"take it out, or write kind: {' or '.join(others)}"
            report.add(tailnet.at(name), f"is no key of a tailnet of kind {kind}", breaks, fix)
    if kind == TAILSCALE:
        _check_credentials(tailnet, report)
    if sites.known:
        _check_sites(tailnet, kind, sites, report)


def _check_credentials(tailnet: Draft, report: Report) -> None:
    given = {*CREDENTIALS} & tailnet.raw.keys()
    at = tailnet.at("kind")
    with_id = given - {"api_key", "oauth_client_id"}
    if not given:
        report.add(at, "tailscale without credentials", "no key could be made", f"give {_WAYS}")
    elif "api_key" in given and len(given) > 1:
        others = ", ".join(sorted(given - {"api_key"}))
        what = f"there is {others} with it"
        report.add(tailnet.at("api_key"), what, "nobody knows which one counts", "take one of the two out")
    elif "api_key" not in given and "oauth_client_id" not in given:
        what = f"missing, and there is {', '.join(sorted(given))}"
        report.add(tailnet.at("oauth_client_id"), what, "Tailscale's API would refuse every call", f"give {_WAYS}")
    elif "oauth_client_id" in given and len(with_id) != 1:
        what = f"has {', '.join(sorted(with_id)) or 'nothing'} with it"
        fix = "give oauth_client_secret, identity_token or audience, one of them"
        report.add(tailnet.at("oauth_client_id"), what, "Tailscale's API would refuse every call", fix)


def _check_sites(tailnet: Draft, kind: str, sites: Sites, report: Report) -> None:
    at = tailnet.at("kind")
    if kind == CONTROL_URL and "auth_key" not in tailnet.raw and "control_url" not in tailnet.raw:
        # A pool has the cluster's control server.
        own = (
            " (or set control_url, for a control server of your own)" if "control_url" in keys_of(tailnet.model) else ""
        )
        fix = f"run: {secret_command('auth_key')}{own}"
        report.add(tailnet.at("auth_key"), "missing", "no node could join Tailscale's tailnet", fix)
    elif kind == OF_A_SITE and not sites.brings:
        breaks = "there would be no control server to join"
        report.add(at, f"{kind}, and no site brings a tailnet", breaks, f"leave it out, or write {TAILSCALE}")
    elif kind == EXISTING and sites.makes:
        what = f"{kind}, and the machines of site {bare(sites.makes[0])} are made with the stack"
        report.add(at, what, "a new machine is a member of nothing", "leave it out, or list machines of your own")
    elif kind == TAILSCALE and sites.brings:
        what = f"{kind}, and a site brings a tailnet of its own"
        report.add(at, what, "its machines join that one", f"write {OF_A_SITE}, or take the site out")
