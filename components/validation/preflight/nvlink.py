"""Parse and check `nvidia-smi nvlink -s`: the state of each GPU's links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.preflight.health import CommandResult

NVLINK = "NVLink"
_GPU = re.compile(r"GPU (\d{1,3}): (.{0,100}?)(?: \(UUID.*)?", re.ASCII)
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:(\d{1,4}(?:\.\d{1,6})?) GB/s|(\S.*))\s*", re.ASCII)
# Replaces the list for a GPU without any link that is up.
_ALL_DOWN = re.compile(r"\s*NVML: Unable to retrieve NVLink information as all links are in-?active\W*", re.IGNORECASE)
_REMEDY = (
    "see 'nvidia-smi nvlink -e' and 'dmesg | grep -i xid' (74) on the node; restart it, and reseat links still down"
)


@dataclass
class Links:
    """A GPU's product name, the state of each link, and whether nvidia-smi reports all as down."""

    name: str
    up: dict[int, bool] = field(default_factory=dict)
    all_down: bool = False

    @property
    def count(self) -> int:
        return sum(self.up.values())


def read_links(text: str) -> dict[int, Links]:
    """Return the links by GPU. Other lines are ignored."""
    gpus: dict[int, Links] = {}
    links: Links | None = None
    for line in text.splitlines():
        if gpu := _GPU.fullmatch(line.rstrip()):
            links = gpus.setdefault(int(gpu[1]), Links(gpu[2]))
        elif links is not None and (link := _LINK.fullmatch(line)):
            links.up[int(link[1])] = link[2] is not None and float(link[2]) > 0
        elif links is not None and _ALL_DOWN.fullmatch(line):
            links.all_down = True
    return gpus


def check_links(result: CommandResult | None, switches: int) -> Iterator[Finding]:
    """Check for links that are down. Behind NVSwitches all should be up; elsewhere as many as on similar GPUs.

    (A GPU that is bridged to one other GPU does not use its other links.)
    """
    if result is None:
        return
    gpus = read_links(result.output)
    most: dict[str, int] = {}
    for links in gpus.values():
        most[links.name] = max(most.get(links.name, 0), links.count)
    if switches and not any(links.up or links.all_down for links in gpus.values()):
        output = " ".join(result.output.split())[:200] or "nothing"
        yield unjudged(
            NVLINK, f"{switches} NVSwitches, but 'nvidia-smi nvlink -s' prints {output!r}", "run it on the node"
        )
    nothing_up = not any(most.values())
    for gpu, links in sorted(gpus.items()):
        best = most[links.name]
        # A small card beside GPUs on switches reports all links as down if it has none.
        has_links = bool(links.up) or (links.all_down and bool(best or (switches and nothing_up)))
        down = sorted(link for link, up in links.up.items() if not up)
        if has_links and (links.count < best or (switches and (down or links.all_down))):
            which = ", ".join(map(str, down)) or ("all" if links.all_down else "?")
            seen = f"GPU {gpu}: {links.count} of {len(links.up) or best or 'its'} links are up"
            yield finding("error", NVLINK, f"{seen} (down: {which}; most: {best})", _REMEDY)
