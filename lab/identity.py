"""Names of the lab of this checkout, its containers and its networks."""

import hashlib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
"""The checkout this package lies in."""

LABEL = "tailrack.lab"
"""Docker label on everything a lab owns; its value is the lab's id."""

NODE_LABEL = "tailrack.node"
SITE_LABEL = "tailrack.site"
POOL_LABEL = "tailrack.pool"
"""Docker label on the networks that a pool's stack has added to a lab; its value is the stack's name."""


def lab_id(path: Path, suffix: str = "") -> str:
    """Return the lab id of the checkout at `path`: six hex digits of the SHA-256 of its absolute path, then `suffix`.

    Two checkouts on one machine have two labs; a suffix gives a checkout a further one, for tests.
    """
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:6] + suffix


def lock_path(state_dir: Path, lab: str) -> Path:
    """Return the file whose lock is held while a lab's containers and networks are being created or removed."""
    return state_dir / f"{lab}.lock"


def container_name(lab: str, node: str) -> str:
    """Return the name of the container (and the stem of its volumes' names) of a node of a lab."""
    return f"tailrack-{lab}-{node}"


def network_name(lab: str, site: str) -> str:
    """Return the name of the Docker network of a site of a lab."""
    return f"tailrack-{lab}-{site}"


def fabric_name(lab: str, site: str) -> str:
    """Return the name of the second, private Docker network of a site; no site can be called so."""
    return f"{network_name(lab, site)}.fabric"


def control_name(lab: str) -> str:
    """Return the name of the container that runs a lab's control server."""
    return container_name(lab, "control")
