"""Encryption with the stack's passphrase: the state's own secrets, and `secure:` values the CLI wrote."""

from __future__ import annotations

import base64
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from engine.events import EngineError

WRONG = "the passphrase does not open {}; set PULUMI_CONFIG_PASSPHRASE_FILE to the one it was made with"


def passphrase() -> bytes:
    """Return the passphrase of PULUMI_CONFIG_PASSPHRASE or the file of PULUMI_CONFIG_PASSPHRASE_FILE."""
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return os.environ["PULUMI_CONFIG_PASSPHRASE"].encode()
    if path := os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE"):
        try:
            return Path(path).read_bytes().strip()
        except OSError as error:
            raise EngineError(f"PULUMI_CONFIG_PASSPHRASE_FILE cannot be read: {error}") from None
    raise EngineError("no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE (or PULUMI_CONFIG_PASSPHRASE)")


class Vault:
    """Seals JSON values for the state file: Fernet, its key from the passphrase by scrypt (n=2^15, r=8, p=1)."""

    def __init__(self, salt: bytes) -> None:
        key = Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase())
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def seal(self, value: Any) -> str:
        """Return value as encrypted text."""
        return self._fernet.encrypt(json.dumps(value).encode()).decode()

    def open(self, text: str) -> Any:
        """Return the value that `seal` was given; EngineError with another passphrase."""
        try:
            return json.loads(self._fernet.decrypt(text))
        except InvalidToken:
            raise EngineError(WRONG.format("the state")) from None


class ConfigSecrets:
    """Opens `secure:` values of the CLI's passphrase provider, format v1: PBKDF2-SHA256, then AES-256-GCM."""

    def __init__(self, encryption_salt: str) -> None:
        self._encryption_salt = encryption_salt

    @cached_property
    def _key(self) -> bytes:
        salt = base64.b64decode(self._encryption_salt.split(":")[1])
        return PBKDF2HMAC(SHA256(), 32, salt, 1_000_000).derive(passphrase())

    def open(self, key: str, text: str) -> str:
        """Return the text of config value `key`; EngineError naming the key, never the value."""
        if not self._encryption_salt:
            raise EngineError(f"config value {key} is encrypted, and the file has no encryptionsalt to open it")
        try:
            version, nonce, sealed = text.split(":")
            if version != "v1":
                raise ValueError
            opened = AESGCM(self._key).decrypt(base64.b64decode(nonce), base64.b64decode(sealed), None)
        except InvalidTag:
            raise EngineError(WRONG.format(f"config value {key}")) from None
        except ValueError:
            raise EngineError(f"config value {key} is encrypted in a way this engine cannot open") from None
        return opened.decode()
