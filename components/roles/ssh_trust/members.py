"""Send requests from the head node to all members in parallel (tailrack-ask)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from components.node import files
from components.node.run import Ended, attempt
from components.node.step.step import STATE_DIR

MEMBERS = f"{STATE_DIR}/members"
_ASKED_AT_ONCE = 64
_LIMIT_SECONDS = 20


def members_except(host: str) -> list[str]:
    """Return the names of all members but one."""
    return [node for node in files.read_in_folders(MEMBERS, "address") if node != host]


def ask_members(
    texts: Mapping[str, str], *request: str, environment: Mapping[str, str] | None = None
) -> dict[str, Ended]:
    """Send a request to members, and return their answers by name.

    texts    the stdin of each member's request
    request  the words of the request
    """

    def ask(node: str) -> Ended:
        words = ("tailrack-ask", node, *request)
        return attempt(*words, stdin=texts[node], limit=_LIMIT_SECONDS, environment=environment, keep_errors=True)

    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return dict(zip(texts, pool.map(ask, texts), strict=True))


def ask_all(nodes: Iterable[str], *request: str, text: str = "") -> dict[str, Ended]:
    """Send a request with the same stdin to members."""
    return ask_members(dict.fromkeys(nodes, text), *request)


def last_error(answer: Ended | None) -> str:
    """Return the last line of a member's errors."""
    lines = answer.errors.splitlines() if answer else []
    return lines[-1] if lines else ""
