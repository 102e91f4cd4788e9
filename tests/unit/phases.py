"""The phases that a step calls."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from components.roles.order import ROLES

ORDER = [make.__name__ if (folder := make.__module__.split(".")[-2]) == "roles" else folder for make in ROLES]
# The phase that a function undoes, with what it does then.
_UNDOES = {
    "release": "register/release",
    "forget": "register/forget",
    "pod_release": "pod_register/release",
    "pod_forget": "pod_register/forget",
}
Calls = Mapping[str, Iterable[Any]]


def inner_calls(calls: Calls) -> Iterator[Any]:
    """Every call of a plan, those inside of other calls included."""
    for call in (call for action in calls.values() for call in action):
        yield from {"checks": call[1:], "where": call[2:], "join": call[4:]}.get(call[0], [call])


def called(calls: Calls, action: str = "up") -> list[str]:
    """The phases that an action calls, `role/phase`, a part of one as `role/phase/part`."""
    found = []
    for call in inner_calls({action: calls[action]}):
        if call[0] == "python" and call[1].startswith("components.roles."):
            role, name = call[1].split(".")[3], call[2]
            found.append(f"{role}/{_UNDOES.get(name, name)}")
    return found
