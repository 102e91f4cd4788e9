"""Names of container images, as people write them and as Enroot takes them."""

import re

# Docker's and Enroot's name for Docker Hub: to Enroot an image without a registry.
_HUB = ("docker.io/", "index.docker.io/")
# A registry before a slash, which Docker tells from a part of the image's name: it has a dot, a port or is localhost.
_REGISTRY = re.compile(
    r"((?:[^@/#]+@)?(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]+)?|[A-Za-z0-9-]+:[0-9]+|localhost))/([^#]+)"
)


def enroot_image(text: str) -> str:
    """Return an image in Enroot's spelling, REGISTRY#IMAGE, also where it is in Docker's, REGISTRY/IMAGE."""
    for hub in _HUB:
        text = text.removeprefix(hub)
    found = _REGISTRY.fullmatch(text)
    return f"{found[1]}#{found[2]}" if found else text
