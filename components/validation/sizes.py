"""Message sizes in nccl-tests' notation: `512`, `64K`, `4M`, `1G`, powers of 1024.

Source: `parsesize` in nccl-tests' src/common.cu. It also accepts fractions, which are refused here: a size must be a
whole number of bytes.
"""

import re

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>[KMG]?)", re.ASCII | re.IGNORECASE)


def parse_size(text: str | int) -> int:
    """Return the bytes of `64K`, `4M`, `1G` or a plain number. Raises ValueError with the accepted forms."""
    match = _SIZE.fullmatch(str(text).strip())
    size = int(match["number"]) * _UNITS[match["unit"].upper()] if match else 0
    if size <= 0 or isinstance(text, bool):
        raise ValueError(
            f"{text!r} is not a message size: write a positive number of bytes,"
            " with K, M or G for powers of 1024 (64K, 4M, 1G)"
        )
    return size


def sizes_between(minimum: int, maximum: int, factor: int) -> tuple[int, ...]:
    """Return the sizes in bytes that nccl-tests measures for `-b minimum -e maximum -f factor`, smallest first."""
    if factor < 2:
        raise ValueError(f"the factor is {factor}: it must be 2 or more, else the size does not grow")
    if minimum < 1:
        raise ValueError(f"the smallest size is {minimum} bytes: it must be at least 1")
    if maximum < minimum:
        raise ValueError(f"the largest size, {maximum} bytes, is below the smallest, {minimum} bytes")
    sizes = [minimum]
    while sizes[-1] * factor <= maximum:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def format_size(size_bytes: int) -> str:
    """Return `65536` as `64 KiB`; a size that is not a multiple of 1024 stays in bytes."""
    for unit, scale in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes >= scale and size_bytes % scale == 0:
            return f"{size_bytes // scale} {unit}"
    return f"{size_bytes} B"
