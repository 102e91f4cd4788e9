"""Secrets in the config of a cluster under test, as `pulumi config set --secret` writes them."""

import base64
import os

import yaml
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from tests.lab.cluster import ClusterUnderTest


class Sealer:
    """Seals config values as `pulumi config set --secret` does with a passphrase (format v1)."""

    def __init__(self, passphrase: str, salt: bytes = b"") -> None:
        salt = salt or os.urandom(8)
        self._key = PBKDF2HMAC(SHA256(), 32, salt, 1_000_000).derive(passphrase.encode())
        self.salt_line = f"encryptionsalt: v1:{base64.b64encode(salt).decode()}:{self.seal('pulumi')}\n"

    def seal(self, text: str) -> str:
        """Return the text of a `secure:` value."""
        nonce = os.urandom(12)
        sealed = AESGCM(self._key).encrypt(nonce, text.encode(), None)
        return f"v1:{base64.b64encode(nonce).decode()}:{base64.b64encode(sealed).decode()}"


def sealer_of(cluster: ClusterUnderTest) -> tuple[str, Sealer]:
    """Return the passphrase of a stack, and who seals with it; the salt is the CLI's where that has written one."""
    workspace = cluster.deployment().workspace
    passphrase = workspace.passphrase_file.read_text(encoding="utf-8").strip()
    written = yaml.safe_load(workspace.config_copy.read_text(encoding="utf-8")).get("encryptionsalt", "")
    if written:
        return passphrase, Sealer(passphrase, base64.b64decode(written.split(":")[1]))
    sealer = Sealer(passphrase)
    with workspace.config_copy.open("a", encoding="utf-8") as copy:
        copy.write(sealer.salt_line)
    return passphrase, sealer
