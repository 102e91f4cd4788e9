"""What a preview's change makes of a stack's costs an hour."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from cli.money.amounts import Prices, amount
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError


def change(deployment: Deployment) -> list[str]:
    """Return the sentences for a stack, from its last `up` to its config; one that says why, where there are none."""
    try:
        return list(told(Prices.made(deployment.outputs()), Prices.configured(deployment.config())))
    except CliError as error:
        # A config that is wrong has failed the preview; what is left are secrets that only the CLI opens.
        return [f"What it costs is not known here: {error}"]


def told(before: Prices, after: Prices) -> Iterator[str]:
    """Give sentences: what it costs an hour now and then, and what makes the difference; nothing without a price.

    before   of the last `up`
    after    of the config
    """
    if not before.of and not after.of:
        return
    now, then = amount(before.total, before.currency), amount(after.total, after.currency)
    if before.currency != after.currency and before.of and after.of:
        yield f"{now} an hour now, {then} an hour then: the currency is another, and nothing is exchanged."
    elif before.total == after.total and before.of.keys() == after.of.keys():
        yield f"{now} an hour now, and the same then."
    else:
        parts = list(_parts(before, after))
        difference = amount(after.total - before.total, after.currency, signed=True)
        why = f": {', '.join(parts)}" if parts else ""
        yield f"{difference} an hour ({now} now, {then} then){why}."
    if after.unpriced:
        yield f"Without what {_count(len(after.unpriced))} cost that the config gives no price_per_hour."


def _parts(before: Prices, after: Prices) -> Iterator[str]:
    """`+2 nodes: +4.10 USD`, `-1 node: ...`, `2 nodes with another price: ...`."""
    # Nodes that were there without a price do not come: their price does.
    there, stays = {*before.of, *before.unpriced}, {*after.of, *after.unpriced}
    comes = [after.of[name] for name in after.of if name not in there]
    goes = [before.of[name] for name in before.of if name not in stays]
    both = there & stays
    others = [after.of.get(name, 0.0) - before.of.get(name, 0.0) for name in both]
    changed = [each for each in others if each]
    if comes:
        yield f"+{_count(len(comes))}: {amount(sum(comes), after.currency, signed=True)}"
    if goes:
        yield f"-{_count(len(goes))}: {amount(-sum(goes), before.currency, signed=True)}"
    for up, each in groupby(sorted(changed), lambda step: step > 0):
        steps = list(each)
        kind = "dearer" if up else "cheaper"
        yield f"{_count(len(steps))} {kind}: {amount(sum(steps), after.currency, signed=True)}"


def _count(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"
