"""What a stack's own outputs were when its last run ended."""

from __future__ import annotations

import pulumi

from stacks.stack_outputs import full_name


async def last_run(stack: str) -> pulumi.StackReference:
    """Return a reference to a stack's own outputs, which has been read when this returns.

    To be awaited before anything else is registered. Backends in files and buckets write a state in two steps, itself
    and its attributes (gocloud.dev, fileblob/attrs.go), at each resource that changes: who reads in between finds no
    attributes, and the whole run fails, "failed to load checkpoint: EOF".
    """
    reference = pulumi.StackReference("last-run", stack_name=full_name(stack))
    await reference.outputs.future()
    return reference
