"""Names of container images in Docker's and Enroot's spelling."""

import re

# Docker Hub's names; Enroot expects no registry for it.
_HUB = ("docker.io/", "index.docker.io/")
# A registry before a slash. Docker recognizes one by a dot, a port, or the name localhost.
_REGISTRY = re.compile(
    r"((?:[^@/#]+@)?(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]+)?|[A-Za-z0-9-]+:[0-9]+|localhost))/([^#]+)"
)


def enroot_image(text: str) -> str:
    """Return an image in Enroot's spelling, REGISTRY#IMAGE, from either spelling."""
    for hub in _HUB:
        text = text.removeprefix(hub)
    match = _REGISTRY.fullmatch(text)
    return f"{match[1]}#{match[2]}" if match else text
