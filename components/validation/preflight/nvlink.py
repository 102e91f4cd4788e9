"""`nvidia-smi nvlink -s`: which links of each GPU are up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.preflight.health import Look

NVLINK = "NVLink"
_GPU = re.compile(r"GPU (\d{1,3}): (.{0,100}?)(?: \(UUID.*)?", re.ASCII)
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:(\d{1,4}(?:\.\d{1,6})?) GB/s|(\S.*))\s*", re.ASCII)
# In the place of the list, of a GPU of which no link is up.
_ALL_DOWN = re.compile(r"\s*NVML: Unable to retrieve NVLink information as all links are in-?active\W*", re.IGNORECASE)
_REMEDY = "see 'nvidia-smi nvlink -e' and 'dmesg | grep -i xid' (74) on the node, restart it; reseat what stays down"


@dataclass
class Links:
    """Of a GPU: its product name, whether each of its links is up, and whether it says of all that they are down."""

    name: str
    up: dict[int, bool] = field(default_factory=dict)
    all_down: bool = False

    @property
    def count(self) -> int:
        return sum(self.up.values())


def read_links(text: str) -> dict[int, Links]:
    """Return GPU to its links. A line that is neither a GPU's nor a link's says nothing."""
    found: dict[int, Links] = {}
    links: Links | None = None
    for line in text.splitlines():
        if gpu := _GPU.fullmatch(line.rstrip()):
            links = found.setdefault(int(gpu[1]), Links(gpu[2]))
        elif links is not None and (link := _LINK.fullmatch(line)):
            links.up[int(link[1])] = link[2] is not None and float(link[2]) > 0
        elif links is not None and _ALL_DOWN.fullmatch(line):
            links.all_down = True
    return found


def check_links(look: Look | None, switches: int) -> Iterator[Finding]:
    """Links that are down: all should be up behind NVSwitches; elsewhere a GPU should have as many as its like.

    (A GPU that is bridged to one other leaves the rest of its links unused, and so do all of its kind in the node.)
    """
    if look is None:
        return
    every = read_links(look.output)
    most: dict[str, int] = {}
    for links in every.values():
        most[links.name] = max(most.get(links.name, 0), links.count)
    if switches and not any(links.up or links.all_down for links in every.values()):
        words = " ".join(look.output.split())[:200] or "nothing"
        yield unjudged(
            NVLINK, f"{switches} NVSwitches, and 'nvidia-smi nvlink -s' says {words!r}", "run it on the node"
        )
    nothing_up = not any(most.values())
    for gpu, links in sorted(every.items()):
        best = most[links.name]
        # A small card beside those on the switches may say that all of its links are down: it has none.
        has_links = bool(links.up) or (links.all_down and bool(best or (switches and nothing_up)))
        down = sorted(link for link, up in links.up.items() if not up)
        if has_links and (links.count < best or (switches and (down or links.all_down))):
            which = ", ".join(map(str, down)) or ("all" if links.all_down else "?")
            seen = f"GPU {gpu}: {links.count} of {len(links.up) or best or 'its'} links are up"
            yield finding("error", NVLINK, f"{seen} (down: {which}; most: {best})", _REMEDY)
