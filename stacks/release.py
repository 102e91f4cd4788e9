"""This release of tailrack. Stack outputs contain it, so that an older release does not touch their state."""

RELEASE = "0.2.0"
"""The same as in pyproject.toml and CHANGELOG.md."""


def is_newer(release: object) -> bool:
    """Return whether a release in a stack's outputs is newer than this one. Stacks of 0.1 have none."""
    parts = release.split(".") if isinstance(release, str) else []
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        return False
    return [int(part) for part in parts] > [int(part) for part in RELEASE.split(".")]
