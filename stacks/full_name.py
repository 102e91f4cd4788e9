"""The full name of a stack: its outputs are those of the last run until this one ends."""

import pulumi


def full_name(stack: str) -> str:
    """Return `organization/project/stack`."""
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
