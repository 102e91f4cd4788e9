"""Parts of the work of leaving: an error in one does not end the others."""

from __future__ import annotations

from collections.abc import Callable

from components.node.failure import Failure
from components.node.log import note


def do_each(*parts: Callable[[], object]) -> None:
    """Call functions, and log their errors."""
    for part in parts:
        try:
            part()
        except (Failure, OSError) as error:
            note(str(error))
