"""The rows of a result as text, for a terminal or a page; the caller draws the table."""

from collections.abc import Mapping
from typing import Any

from components.validation.sizes import format_size
from components.validation.verdict import HalfResult, Result

COLUMNS = ("size", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "in-place busbw (GB/s)", "wrong")


def scopes_of(validation: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return every result of the output `validation` with its name: single nodes as `node a1`, then sites, then
    cross-site.
    """
    results = {f"node {name}": result for name, result in validation.get("node", {}).items()}
    sites = {name: result for name, result in validation.items() if name not in ("node", "cross-site")}
    cross_site = {name: result for name, result in validation.items() if name == "cross-site"}
    return [*sorted(results.items()), *sorted(sites.items()), *cross_site.items()]


def table_rows(result: Result) -> list[tuple[str, ...]]:
    """Return one row of texts per size, in the order of `COLUMNS`; out of place unless the column names in-place."""
    return [
        (
            format_size(row["bytes"]),
            f"{row['out_of_place']['time_us']:,.2f}",
            bandwidth(row["out_of_place"]["algbw_gb_per_s"]),
            bandwidth(row["out_of_place"]["busbw_gb_per_s"]),
            bandwidth(row["in_place"]["busbw_gb_per_s"]),
            _wrong(row["out_of_place"], row["in_place"]),
        )
        for row in result["rows"]
    ]


def bandwidth(gb_per_s: float) -> str:
    """Return GB/s as text: two decimals for fast links, five for slow links between sites."""
    return f"{gb_per_s:.2f}" if gb_per_s >= 1 else f"{gb_per_s:.5f}"


def _wrong(*halves: HalfResult) -> str:
    counts = [half["wrong"] for half in halves]
    return "not counted" if None in counts else str(sum(count for count in counts if count is not None))
