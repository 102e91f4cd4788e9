"""Properties of a machine that follow from its instance type's name. Pure.

`tests/unit/stacks/test_aws_types.py` compares them with EC2's table (DescribeInstanceTypes).
"""

import re

# Graviton types have a g after the generation (c7gn, g5g, t4g), Grace types after a hyphen (p6e-gb200); a1 is older.
_ARM = re.compile(r"a1\.|[a-z]+\d+[a-z-]*g[^.]*\.")
# NVIDIA's open kernel modules support GPUs from Turing on. AMD types have `ad` after the generation (g4ad).
_NVIDIA = re.compile(r"(p|gr?)[4-9](?!ad)")
# From "Placement strategies for your placement groups": burstable and flex types, Macs and old types.
_NEVER_CLOSE = re.compile(r"(c1|m[1-3]|v?t\d+[a-z]*|mac\d?[^.]*|[^.]+-flex)\.")


def is_arm(instance_type: str) -> bool:
    """Return whether the type has arm64 processors."""
    return _ARM.match(instance_type) is not None


def has_nvidia_gpus(instance_type: str) -> bool:
    """Return whether the type has GPUs that NVIDIA's open kernel modules support."""
    return _NVIDIA.match(instance_type) is not None


def stands_close(instance_type: str) -> bool:
    """Return whether instances of the type can be in a placement group of strategy `cluster`."""
    return _NEVER_CLOSE.match(instance_type) is None
