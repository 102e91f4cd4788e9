"""An `up` at sites with `fewer: warn` whose clouds had no machine for some nodes: it runs again without these nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from engine.events import Failure, Summary
from stacks.config import PoolConfig, StackConfig
from stacks.rented import LEFT_OUT
from stacks.sites.rented.model import WARN, RentedSite


def with_fewer(
    first: Summary, config: StackConfig | PoolConfig, run: Callable[[], Summary], tell: Callable[[str], None]
) -> Summary:
    """Return the summary of both runs; the first one's if a run without nodes cannot help.

    In the second run nothing fails for want of a machine, so it measures and deletes as after any other change.

    run    runs `up` again
    tell   prints a warning
    """
    missing = without_machine(first.failures, config)
    if not missing:
        return first
    for node, reason in missing.items():
        tell(f"{node} is left out (fewer: warn): {reason}")
    os.environ[LEFT_OUT] = ",".join(missing)
    try:
        second = run()
    finally:
        del os.environ[LEFT_OUT]
    changed = {operation: first.counts[operation] + count for operation, count in second.counts.items()}
    # The second run finds unchanged whatever the first one has done.
    counts = changed | {"same": max(changed["same"] - sum(first.counts.values()), 0)}
    # Without any machine, only the first run's failures say why.
    failures = first.failures + second.failures if second.failures else []
    return Summary(counts, failures, first.seconds + second.seconds)


def without_machine(failures: Sequence[Failure], config: StackConfig | PoolConfig) -> dict[str, str]:
    """Return the nodes without which a run can succeed, with reasons; empty if another step failed too."""
    sites = {site.name for site in config.sites if isinstance(site, RentedSite) and site.fewer == WARN}
    names = [node.name for node in config.nodes() if node.site in sites and not node.is_head]
    reasons: dict[str, str] = {}
    # The CLI also reports the run as a whole, without a URN.
    for failure in (failure for failure in failures if failure.urn):
        name = failure.urn.rpartition("::")[2].removesuffix("-machine")
        reason = re.search(rf"no machine for {re.escape(name)} at .*", failure.message)
        if name not in names or reason is None:
            return {}
        reasons[name] = reason[0]
    return reasons
