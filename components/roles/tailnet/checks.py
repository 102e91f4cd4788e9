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
    Tailnet,
    WayToTailnet,
    derived_kind,
    loopback,
)
from components.settings.problems import Report, secret_command, show_name, shown
from components.settings.section import check_secret

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

    brings   whether a site brings a tailnet
    makes    names of sites whose machines the stack creates
    """

    brings: bool
    makes: Sequence[str]


def check_tailnet(tailnet: WayToTailnet, sites: Sites, report: Report) -> None:
    """Report plain-text secrets, nodes without a way into a tailnet, and contradictory keys."""
    keys = sorted(tailnet.model_fields_set)
    for name in SECRETS:
        breaks = "anyone who reads the file or the repository's history could join the tailnet"
        check_secret(tailnet, name, breaks, report, "revoke this key, create another")
    relay = tailnet.relay if isinstance(tailnet, Tailnet) else None
    if relay is not None and relay.port == WIREGUARD_PORT:
        path, breaks = report.at(relay, "port"), "the node could not be a member and a relay at the same time"
        report.add(path, f"{WIREGUARD_PORT} is tailscaled's own port", breaks, "write another, such as 40000")
    url = tailnet.control_url if isinstance(tailnet, Tailnet) else None
    if url is not None and url.startswith("http:") and not loopback(urlsplit(url).hostname or ""):
        report.warn(
            report.at(tailnet, "control_url"),
            f"{shown(url)} is neither encrypted nor authenticated: an attacker in the network could pose as the "
            "control server and get the auth key; give the server a certificate, and write https://",
        )
    kind = tailnet.kind or derived_kind(keys, sites.brings)
    allowed, breaks = _KEYS[kind]
    for name in keys:
        kinds = [other for other, (kind_keys, _) in _KEYS.items() if name in kind_keys]
        if kinds and name not in allowed:
            fix = f"remove it, or write kind: {' or '.join(kinds)}"
            report.add(report.at(tailnet, name), f"is not a key of a tailnet of kind {kind}", breaks, fix)
    if kind == TAILSCALE:
        _check_credentials(tailnet, report)
    _check_sites(tailnet, kind, sites, report)


def _check_credentials(tailnet: WayToTailnet, report: Report) -> None:
    keys = {*CREDENTIALS} & tailnet.model_fields_set
    path, id_path = report.at(tailnet, "kind"), report.at(tailnet, "oauth_client_id")
    with_id = keys - {"api_key", "oauth_client_id"}
    rejected = "Tailscale's API would reject every call"
    if not keys:
        report.add(path, "tailscale without credentials", "no key could be created", f"set {_WAYS}")
    elif "api_key" in keys and len(keys) > 1:
        problem = f"is set together with {', '.join(sorted(keys - {'api_key'}))}"
        report.add(report.at(tailnet, "api_key"), problem, "only one of them can be used", "remove one of the two")
    elif "api_key" not in keys and "oauth_client_id" not in keys:
        report.add(id_path, f"is missing, but {', '.join(sorted(keys))} is set", rejected, f"set {_WAYS}")
    elif "oauth_client_id" in keys and len(with_id) != 1:
        problem = f"is set with {', '.join(sorted(with_id)) or 'nothing else'}"
        report.add(id_path, problem, rejected, "set one of oauth_client_secret, identity_token and audience")


def _check_sites(tailnet: WayToTailnet, kind: str, sites: Sites, report: Report) -> None:
    path, given = report.at(tailnet, "kind"), tailnet.model_fields_set
    if kind == CONTROL_URL and not {"auth_key", "control_url"} & given:
        # A pool uses the cluster's control server.
        alternative = " (or set control_url, for your own control server)" if isinstance(tailnet, Tailnet) else ""
        path = report.at(tailnet, "auth_key")
        fix = f"run: {secret_command(path)}{alternative}"
        report.add(path, "missing", "no node could join Tailscale's tailnet", fix)
    elif kind == OF_A_SITE and not sites.brings:
        breaks = "there would be no control server to join"
        report.add(path, f"{kind}, but no site brings a tailnet", breaks, f"leave it out, or write {TAILSCALE}")
    elif kind == EXISTING and sites.makes:
        problem = f"{kind}, but the stack creates the machines of site {show_name(sites.makes[0])}"
        report.add(path, problem, "a new machine is in no tailnet", "leave it out, or list existing machines")
    elif kind == TAILSCALE and sites.brings:
        problem = f"{kind}, but a site brings its own tailnet"
        report.add(path, problem, "its machines join that one", f"write {OF_A_SITE}, or remove the site")
