"""Public SSH keys as people compare them."""

import asyncssh


def described(key: str) -> str:
    """Return a key's type, fingerprint (`ssh-keygen -l` prints it) and comment."""
    kind, _, *comment = [*key.split(None, 2), "", ""]
    try:
        fingerprint = asyncssh.import_public_key(key).get_fingerprint()
    except asyncssh.KeyImportError:
        fingerprint = "of an unknown format"
    return f"{kind} {fingerprint}" + (f" ({comment[0]})" if comment[0] else "")
