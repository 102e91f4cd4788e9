"""Checks of sites whose machines the stack rents: an API key, one log-in key, at least one node."""

from collections.abc import Mapping, Sequence

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report, child_path, show_names
from stacks.sites.hosts.checks import check_one_key
from stacks.sites.login_key import check_public_key
from stacks.sites.pools import check_not_empty
from stacks.sites.rented.model import secret_command


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report what a cloud would reject, or what costs money without use."""
    for site in sites:
        check_not_empty(site, head, report)
        check_one_key(site, report)
        check_public_key(site, "machines", report)
        head_here = head.text("site") is not None and head.text("site") == site.text("name")
        if head_here and site.raw.get("head") is None:
            breaks, fix = "the cloud would not know which machine to rent", "write head: {type: TYPE}"
            report.add(site.path_of("head"), "missing, but the head node is at this site", breaks, fix)
        for pool in site.items("pools"):
            _check_attempts(site, pool, report)


def _check_attempts(site: Draft, pool: Draft, report: Report) -> None:
    """Report an attempt that names nothing, and one that is listed twice."""
    seen = set[tuple[str | None, str | None]]()
    for attempt in pool.items("try"):
        if not {"type", "region"} & attempt.raw.keys():
            breaks, fix = "it would be the same place as the pool's own", "write type, region or both, or delete it"
            report.add(attempt.path, "names neither a type nor a region", breaks, fix)
            continue
        place = (attempt.text("type") or pool.text("type"), attempt.text("region") or site.text("region"))
        if place in seen:
            report.add(
                attempt.path, "is in the list twice", "the same place would be tried twice", "delete one of them"
            )
        seen.add(place)


def check_api_keys(keys: object, raw: object, kinds: Sequence[str], clouds: Sequence[str], report: Report) -> None:
    """Report missing API keys, those of unknown clouds, and those in plain text.

    kinds    the kinds of the stack's sites that rent
    clouds   all kinds that rent
    """
    path = ROOT + "api_keys"
    given = raw if isinstance(raw, Mapping) else {}
    for name in given:
        if name not in clouds:
            breaks, fix = "it would have no effect", f"write one of: {show_names(clouds)}"
            report.add(child_path(path, name), "is not a kind of site that needs an API key", breaks, fix)
    for kind in dict.fromkeys(kinds):
        if isinstance(keys, Mapping) and kind not in given:
            fix = f"run: {secret_command(kind)}"
            report.add(child_path(path, kind), "missing", "the cloud would reject every call", fix)
    if given and not report.hides(path):
        breaks = "anyone who reads the file or the repository's history could rent machines at your cost"
        fix = f"revoke this key, create another, and run: {secret_command(str(next(iter(given))))}"
        report.add(path, "[secret] is plain text in the config", breaks, fix)
