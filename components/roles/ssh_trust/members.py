"""Send requests from the head node to all members in parallel (ask.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from components.node import files
from components.node.failure import Failure
from components.node.run import Ended
from components.roles.ssh_trust import ask
from components.roles.ssh_trust.ask import MEMBERS as MEMBERS

_ASKED_AT_ONCE = 64
# The key must be valid until the last member is asked, even if all others are silent.
_MINUTES = 10


def members_except(host: str) -> list[str]:
    """Return the names of all members but one."""
    return [node for node in files.read_in_folders(MEMBERS, "address") if node != host]


def ask_members(texts: Mapping[str, str], *request: str, known_hosts: str = "") -> dict[str, Ended]:
    """Send a request to members, and return their answers by name.

    texts         the stdin of each member's request
    request       the words of the request
    known_hosts   see `ask`
    """
    if not texts:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    try:
        with (
            ask.asking_key(_MINUTES + len(texts) // _ASKED_AT_ONCE) as key,
            ThreadPoolExecutor(_ASKED_AT_ONCE) as pool,
        ):
            requests = {
                node: pool.submit(ask.ask, key, node, *request, text=text, known_hosts=known_hosts)
                for node, text in texts.items()
            }
            return {node: answer.result() for node, answer in requests.items()}
    except Failure as failure:
        return dict.fromkeys(texts, Ended(ask.NO_ANSWER, "", failure.reason))


def ask_all(nodes: Iterable[str], *request: str, text: str = "") -> dict[str, Ended]:
    """Send a request with the same stdin to members."""
    return ask_members(dict.fromkeys(nodes, text), *request)


def last_error(answer: Ended | None) -> str:
    """Return the last line of a member's errors."""
    lines = answer.errors.splitlines() if answer else []
    return lines[-1] if lines else ""
