"""The name of another stack, as the config has it."""

import re
from typing import Annotated

from pydantic import Field

from components.settings.types import must

LONGEST = 300  # characters


def is_stack_name(value: str) -> bool:
    """Return whether a text is `STACK`, `ORGANIZATION/STACK` or `ORGANIZATION/PROJECT/STACK`."""
    if len(value) > LONGEST or set(value.split("/")) & {".", ".."}:
        return False
    return re.fullmatch(r"([A-Za-z0-9_.-]+/){0,2}[A-Za-z0-9_.-]+", value) is not None


StackName = Annotated[str, Field(max_length=LONGEST), must(is_stack_name, "is not the name of a stack")]
