"""An `up` at sites with `fewer: warn` whose clouds had no machine for some nodes: it runs again without these nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence

from cli.run_events import Failure, Summary
from stacks.config import PoolConfig, StackConfig
from stacks.rented import LEFT_OUT
from stacks.sites.rented.model import WARN, RentedSite


def with_fewer(
    first: Summary,
    config: Callable[[], StackConfig | PoolConfig],
    run: Callable[[], Summary],
    tell: Callable[[str], None],
) -> Summary:
    """Return the summary of all runs; the first one's if a run without nodes cannot help.

    In the last run nothing fails for want of a machine, so it measures and deletes as after any other change.

    config   reads the stack's config
    run      runs `up` again
    tell     prints a warning
    """
    missing: dict[str, str] = {}
    summary = first
    # Under the CLI, a run ends before it rents all machines of a large site.
    while new := without_machine(summary.failures, config, missing):
        for node, reason in new.items():
            tell(f"{node} is left out (fewer: warn): {reason}")
        missing |= new
        os.environ[LEFT_OUT] = ",".join(missing)
        try:
            summary = _both(summary, run())
        finally:
            del os.environ[LEFT_OUT]
    # Without any machine, only the first run's failures say why.
    if missing and not summary.ok:
        summary.failures[:0] = first.failures
    return summary


def _both(first: Summary, second: Summary) -> Summary:
    """Return the counts and seconds of both runs, and the failures of the second one."""
    counts = {operation: first.counts[operation] + count for operation, count in second.counts.items()}
    # The second run finds unchanged whatever the first one has done.
    counts["same"] = max(counts["same"] - sum(first.counts.values()), 0)
    return Summary(counts, second.failures, first.seconds + second.seconds)


def without_machine(
    failures: Sequence[Failure], read_config: Callable[[], StackConfig | PoolConfig], before: Collection[str]
) -> dict[str, str]:
    """Return the nodes without which a run can succeed, with reasons; empty if another step failed too.

    before   nodes that earlier runs have left out
    """
    reasons: dict[str, str] = {}
    for failure in failures:
        name = _name(failure).removesuffix("-machine")
        if reason := re.search(rf"no machine for {re.escape(name)} at .*", failure.message):
            reasons[name] = reason[0]
    # The CLI also reports the run as a whole, components and steps that need the machine.
    others = [failure for failure in failures if failure.command and not _is_of(_name(failure), reasons)]
    if not reasons or others:
        return {}
    config = read_config()
    sites = {site.name for site in config.sites if isinstance(site, RentedSite) and site.fewer == WARN}
    accepted = {node.name for node in config.nodes() if node.site in sites and not node.is_head}
    return reasons if reasons.keys() <= accepted - {*before} else {}


def _name(failure: Failure) -> str:
    return failure.urn.rpartition("::")[2]


def _is_of(resource: str, nodes: Collection[str]) -> bool:
    return any(resource.startswith(f"{node}-") for node in nodes)
