"""Checks of sites whose machines the stack rents: an API key, one log-in key, at least one node."""

from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from components.settings.cluster import Head
from components.settings.problems import ROOT, Report, child_path, secret_command, show_names
from stacks.sites.login_key import check_login_key
from stacks.sites.pools import check_not_empty
from stacks.sites.rented.model import RentedPool, RentedSite, attempts


def check(sites: Sequence[RentedSite], head: Head, report: Report) -> None:
    """Report what a cloud would reject, or what costs money without use."""
    for site in sites:
        check_not_empty(site, site.pools, head, report)
        check_login_key(site, "machines", report)
        if head.site == site.name and site.head is None:
            breaks, fix = "the cloud would not know which machine to rent", "write head: {type: TYPE}"
            report.add((site, "head"), "missing, but the head node is at this site", breaks, fix)
        for pool in site.pools:
            _check_attempts(site, pool, report)


def _check_attempts(site: RentedSite, pool: RentedPool, report: Report) -> None:
    """Report an attempt that names nothing, and one that is listed twice."""
    seen = set[tuple[str, str]]()
    for attempt in attempts(pool):
        path = report.at(attempt)
        if attempt.type is None and attempt.region is None:
            breaks, fix = "it would be the same place as the pool's own", "write type, region or both, or delete it"
            report.add(path, "names neither a type nor a region", breaks, fix)
            continue
        place = (attempt.type or pool.type, attempt.region or site.region)
        if place in seen:
            report.add(path, "is in the list twice", "the same place would be tried twice", "delete one of them")
        seen.add(place)


def check_api_keys(given: Mapping[str, SecretStr], kinds: Sequence[str], clouds: Sequence[str], report: Report) -> None:
    """Report missing API keys, and those of unknown clouds.

    kinds    the kinds of the stack's sites that rent
    clouds   all kinds that rent
    """
    path = ROOT + "api_keys"
    for name in given:
        if name not in clouds:
            breaks, fix = "it would have no effect", f"write one of: {show_names(clouds)}"
            report.add(child_path(path, name), "is not a kind of site that needs an API key", breaks, fix)
    for kind in dict.fromkeys(kinds):
        if kind not in given:
            fix = f"run: {secret_command(child_path(path, kind))}"
            report.add(child_path(path, kind), "missing", "the cloud would reject every call", fix)
