"""What to do about a machine that could not be reached. A script's own failures say it themselves."""

from __future__ import annotations

import re
from dataclasses import replace

from engine.events import Failure, Summary

# What SSH says, in the words of the CLI's provider and of the in-process engine; and the remedy.
_REMEDIES = (
    (
        r"host key mismatch|host key is not trusted",
        "{machine} shows another host key than the one in the config, and nothing was run on it. Compare host_key with "
        "/etc/ssh/ssh_host_ed25519_key.pub on {machine} itself: correct the config if that is the one, and find out "
        "who answers at the address if it is not; then run up again",
    ),
    (
        r"unable to authenticate|permission denied for user",
        "see user and private_key_file of {machine} in the config, and ~/.ssh/authorized_keys there; then run up again",
    ),
    (
        r"failed attempts|connection lost|without exit status",
        "see that {machine} is switched on and that ssh reaches it from here, then run up again; "
        "a machine that is gone for good is removed from the config",
    ),
)


def with_remedies(summary: Summary, head: str) -> Summary:
    """Add a line `next: ...` to the failures of steps whose machine could not be reached.

    head   name of the head node, where steps about other machines run too
    """
    summary.failures = [_explained(failure, head) for failure in summary.failures]
    return summary


def _explained(failure: Failure, head: str) -> Failure:
    if not failure.urn or "next: " in failure.message:
        return failure
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, failure.message, re.IGNORECASE):
            text = remedy.format(machine=_machine(failure.urn.rsplit("::", 1)[-1], head))
            return replace(failure, message=f"{failure.message}\nnext: {text}")
    return failure


def _machine(step: str, head: str) -> str:
    """The machine that a step of this name runs on."""
    if step.startswith("validate-") or step.endswith("-member"):
        return head
    return step.rpartition("-")[0]
