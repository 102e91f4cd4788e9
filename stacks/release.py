"""Which release of tailrack this is: written into a stack's outputs, so that an older one leaves its state alone."""

from __future__ import annotations

RELEASE = "0.2.0"
"""As in pyproject.toml and CHANGELOG.md."""


def is_newer(release: object) -> bool:
    """Whether a release, as a stack's outputs have it, came after this one. A stack of 0.1 has none."""
    parts = release.split(".") if isinstance(release, str) else []
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        return False
    return [int(part) for part in parts] > [int(part) for part in RELEASE.split(".")]
