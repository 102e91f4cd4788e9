"""Checks of the section `tailnet`: one way into one tailnet, and no key in plain text."""

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
from components.settings.draft import Draft, check_secret
from components.settings.problems import Report, show_name, shown
from components.settings.section import keys_of

# The keys of each kind, besides `kind` and `tag`, and why other keys have no effect.
_API = (*CREDENTIALS, "organization", "base_url", "policy")
_KEYS = {
    TAILSCALE: (_API, "the stack creates its own keys for Tailscale's control server"),
    CONTROL_URL: (("control_url", "auth_key"), "the stack would not use Tailscale's API"),
    EXISTING: (("control_url",), "no machine joins a tailnet, so it would not be used"),
    OF_A_SITE: (("auth_key",), "the nodes join the control server of the sites"),
}
_WAYS = "an API key, or an OAuth client's id and secret, or a federated identity's id and its token or audience"


@dataclass(frozen=True)
class Sites:
    """The sites, as far as the tailnet needs them.

    readable   whether every site's kind could be read
    brings     whether a site brings a tailnet
    makes      names of sites whose machines the stack creates
    """

    readable: bool
    brings: bool
    makes: Sequence[str]


def check_tailnet(tailnet: Draft, sites: Sites, report: Report) -> None:
    """Report plain-text secrets, nodes without a way into a tailnet, and contradictory keys."""
    keys = tailnet.raw
    for name in SECRETS:
        breaks = "anyone who reads the file or the repository's history could join the tailnet"
        fix = f"revoke this key, create another, and run: {secret_command(name)}"
        check_secret(tailnet, name, breaks, fix, report)
    relay = tailnet.values.get("relay")
    if isinstance(relay, Draft) and relay.whole("port") == WIREGUARD_PORT:
        path, breaks = relay.path_of("port"), "the node could not be a member and a relay at the same time"
        report.add(path, f"{WIREGUARD_PORT} is tailscaled's own port", breaks, "write another, such as 40000")
    url = tailnet.values.get("control_url")
    if isinstance(url, str) and url.startswith("http:") and not loopback(urlsplit(url).hostname or ""):
        report.warn(
            tailnet.path_of("control_url"),
            f"{shown(url)} is neither encrypted nor authenticated: an attacker in the network could pose as the "
            "control server and get the auth key; give the server a certificate, and write https://",
        )
    kind = tailnet.text("kind") or derived_kind(keys, sites.brings)
    if kind not in _KEYS:
        return
    allowed, breaks = _KEYS[kind]
    for name in keys:
        if (
            name in keys_of(tailnet.model)
            and any(name in kind_keys for kind_keys, _ in _KEYS.values())
            and name not in allowed
        ):
            kinds = [other for other, (kind_keys, _) in _KEYS.items() if name in kind_keys]
            fix = f"remove it, or write kind: {' or '.join(kinds)}"
            report.add(tailnet.path_of(name), f"is not a key of a tailnet of kind {kind}", breaks, fix)
    if kind == TAILSCALE:
        _check_credentials(tailnet, report)
    if sites.readable:
        _check_sites(tailnet, kind, sites, report)


def _check_credentials(tailnet: Draft, report: Report) -> None:
    keys = {*CREDENTIALS} & tailnet.raw.keys()
    path, id_path = tailnet.path_of("kind"), tailnet.path_of("oauth_client_id")
    with_id = keys - {"api_key", "oauth_client_id"}
    rejected = "Tailscale's API would reject every call"
    if not keys:
        report.add(path, "tailscale without credentials", "no key could be created", f"set {_WAYS}")
    elif "api_key" in keys and len(keys) > 1:
        problem = f"is set together with {', '.join(sorted(keys - {'api_key'}))}"
        report.add(tailnet.path_of("api_key"), problem, "only one of them can be used", "remove one of the two")
    elif "api_key" not in keys and "oauth_client_id" not in keys:
        report.add(id_path, f"is missing, but {', '.join(sorted(keys))} is set", rejected, f"set {_WAYS}")
    elif "oauth_client_id" in keys and len(with_id) != 1:
        problem = f"is set with {', '.join(sorted(with_id)) or 'nothing else'}"
        report.add(id_path, problem, rejected, "set one of oauth_client_secret, identity_token and audience")


def _check_sites(tailnet: Draft, kind: str, sites: Sites, report: Report) -> None:
    path = tailnet.path_of("kind")
    if kind == CONTROL_URL and "auth_key" not in tailnet.raw and "control_url" not in tailnet.raw:
        # A pool uses the cluster's control server.
        alternative = " (or set control_url, for your own control server)" if _has_control_url(tailnet) else ""
        fix = f"run: {secret_command('auth_key')}{alternative}"
        report.add(tailnet.path_of("auth_key"), "missing", "no node could join Tailscale's tailnet", fix)
    elif kind == OF_A_SITE and not sites.brings:
        breaks = "there would be no control server to join"
        report.add(path, f"{kind}, but no site brings a tailnet", breaks, f"leave it out, or write {TAILSCALE}")
    elif kind == EXISTING and sites.makes:
        problem = f"{kind}, but the stack creates the machines of site {show_name(sites.makes[0])}"
        report.add(path, problem, "a new machine is in no tailnet", "leave it out, or list existing machines")
    elif kind == TAILSCALE and sites.brings:
        problem = f"{kind}, but a site brings its own tailnet"
        report.add(path, problem, "its machines join that one", f"write {OF_A_SITE}, or remove the site")


def _has_control_url(tailnet: Draft) -> bool:
    return "control_url" in keys_of(tailnet.model)
