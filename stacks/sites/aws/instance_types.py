"""What the name of an instance type says of its machine. Pure.

`tests/unit/stacks/test_aws_types.py` holds it against EC2's own table (DescribeInstanceTypes).
"""

import re

# Graviton has a g after its generation (c7gn, g5g, t4g), Grace after a hyphen (p6e-gb200); a1 came before both.
_ARM = re.compile(r"a1\.|[a-z]+\d+[a-z-]*g[^.]*\.")
# From Turing on, which NVIDIA's open kernel modules need. Those of AMD have `ad` after their generation (g4ad).
_NVIDIA = re.compile(r"(p|gr?)[4-9](?!ad)")
# "Placement strategies for your placement groups": not burstable and flex types, Macs and old ones.
_NEVER_CLOSE = re.compile(r"(c1|m[1-3]|v?t\d+[a-z]*|mac\d?[^.]*|[^.]+-flex)\.")


def is_arm(instance_type: str) -> bool:
    """Whether its processors are arm64."""
    return _ARM.match(instance_type) is not None


def has_nvidia_gpus(instance_type: str) -> bool:
    """Whether it has GPUs that NVIDIA's open kernel modules drive."""
    return _NVIDIA.match(instance_type) is not None


def stands_close(instance_type: str) -> bool:
    """Whether its instances may be in a placement group of the strategy `cluster`."""
    return _NEVER_CLOSE.match(instance_type) is None
