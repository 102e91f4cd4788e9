"""The rented machines of a stack: place, price, and the places that had none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cli.money.amounts import amount
from cli.output.terminal import one_line


def rented_rows(outputs: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Give a row for each rented machine. Its texts are the cloud's."""
    rented = outputs.get("rented")
    for node, facts in sorted(rented.items()) if isinstance(rented, dict) else ():
        price, currency = facts.get("price_per_hour"), str(facts.get("currency", ""))
        yield {
            "node": one_line(str(node)),
            "type": one_line(str(facts.get("type", ""))),
            "region": one_line(str(facts.get("region", ""))),
            "an hour": amount(price, one_line(currency)) if isinstance(price, int | float) else "unknown",
            "tried before": one_line("; ".join(map(str, facts.get("tried") or []))) or "-",
        }
