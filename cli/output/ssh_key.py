"""Public SSH keys as people compare them."""

import base64
import hashlib
from contextlib import suppress


def described(key: str) -> str:
    """Return a key's type, fingerprint (`ssh-keygen -l` prints it) and comment."""
    kind, text, *comment = [*key.split(None, 2), "", ""]
    fingerprint = "of an unknown format"
    with suppress(ValueError):
        if blob := base64.b64decode(text, validate=True):
            fingerprint = f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"
    return f"{kind} {fingerprint}" + (f" ({comment[0]})" if comment[0] else "")
