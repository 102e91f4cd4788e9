"""`nvidia-smi nvlink -s`: which links of each GPU are up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.validation.preflight.findings import Finding, finding

NVLINK = "NVLink"
_GPU = re.compile(r"GPU (\d{1,3}): ", re.ASCII)
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:(\d{1,4}(?:\.\d{1,6})?) GB/s|(<inactive>))\s*", re.ASCII)


def read_links(text: str) -> dict[int, dict[int, bool]]:
    """Return GPU to link to whether it is up. A line that is neither a GPU's nor a link's says nothing."""
    found: dict[int, dict[int, bool]] = {}
    links: dict[int, bool] | None = None
    for line in text.splitlines():
        if gpu := _GPU.match(line):
            links = found.setdefault(int(gpu[1]), {})
        elif links is not None and (link := _LINK.fullmatch(line)):
            links[int(link[1])] = link[3] is None and float(link[2]) > 0
    return found


def check_links(text: str, switches: int) -> Iterator[Finding]:
    """Links that are down: all should be up behind NVSwitches; elsewhere a GPU should have as many as the others.

    (A GPU that is bridged to one other leaves the rest of its links unused, and so do all of its kind in the node.)
    """
    found = {gpu: links for gpu, links in read_links(text).items() if links}
    most = max((sum(links.values()) for links in found.values()), default=0)
    if not most and not switches:
        return
    for gpu, links in sorted(found.items()):
        down = sorted(link for link, up in links.items() if not up)
        if (down and switches) or sum(links.values()) < most:
            which, up = ", ".join(map(str, down)) or "?", sum(links.values())
            yield finding(
                "error", NVLINK, f"GPU {gpu}: {up} of {len(links)} links are up (down: {which}; most: {most})",
                "see 'nvidia-smi nvlink -e' and 'dmesg | grep -i xid' (74) on the node, restart it; reseat or replace "
                "what stays down",
            )  # fmt: skip
