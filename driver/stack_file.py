"""A stack's config file, read as the Pulumi CLI reads it, for the in-process engine."""

from __future__ import annotations

import base64
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from driver.workspace import DriverError
from engine import Config


class ConfigSecrets:
    """Opens `secure:` values of the CLI's passphrase provider, format v1: PBKDF2-SHA256, then AES-256-GCM."""

    def __init__(self, encryption_salt: str) -> None:
        """encryption_salt: the file's `encryptionsalt`, or an empty text where it has none."""
        self._encryption_salt = encryption_salt

    @cached_property
    def _key(self) -> bytes:
        salt = base64.b64decode(self._encryption_salt.split(":")[1])
        return PBKDF2HMAC(SHA256(), 32, salt, 1_000_000).derive(passphrase().encode())

    def open(self, key: str, text: str) -> str:
        """Return the text of config value `key`; DriverError naming the key, never the value."""
        if not self._encryption_salt:
            raise DriverError(f"config value {key} is encrypted, and the file has no encryptionsalt to open it")
        try:
            version, nonce, sealed = text.split(":")
            if version != "v1":
                raise ValueError
            opened = AESGCM(self._key).decrypt(base64.b64decode(nonce), base64.b64decode(sealed), None)
        except InvalidTag:
            raise DriverError(
                f"the passphrase does not open config value {key}; "
                "set PULUMI_CONFIG_PASSPHRASE_FILE to the one it was made with"
            ) from None
        except ValueError:
            raise DriverError(f"config value {key} is encrypted in a way the in-process engine cannot open") from None
        return opened.decode()


def load_config(project_dir: Path, config_file: Path) -> Config:
    """Return the config of a stack; DriverError for what cannot be read, opened or understood, by file or key.

    A config file that is not there is an empty one, as for the CLI.
    """
    project = _read(project_dir / "Pulumi.yaml")
    if "config" in project:
        raise DriverError(
            "Pulumi.yaml has 'config', which only the Pulumi CLI understands; move it to the stack's file"
        )
    stack_file = _read(config_file) if config_file.exists() else {}
    opener = ConfigSecrets(stack_file.get("encryptionsalt", ""))
    values: dict[str, str] = {}
    secrets: dict[str, list[str]] = {}
    for key, value in (stack_file.get("config") or {}).items():
        found: list[str] = []
        values[key] = _text(_opened(key, value, opener, found))
        if found:
            secrets[key] = found
    texts = [text for found in secrets.values() for text in found]
    return Config(str(project["name"]), passphrase(), values, list(secrets), texts)


def passphrase() -> str:
    """Return the passphrase of PULUMI_CONFIG_PASSPHRASE or the file of PULUMI_CONFIG_PASSPHRASE_FILE.

    Raises DriverError where there is none.
    """
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return os.environ["PULUMI_CONFIG_PASSPHRASE"]
    try:
        return Path(os.environ["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text(encoding="utf-8").strip()
    except KeyError:
        raise DriverError("no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE (or PULUMI_CONFIG_PASSPHRASE)") from None
    except OSError as error:
        raise DriverError(f"PULUMI_CONFIG_PASSPHRASE_FILE cannot be read: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise DriverError(f"{path.name} cannot be read: {error}") from None
    return content if isinstance(content, dict) else {}


def _opened(key: str, value: Any, opener: ConfigSecrets, found: list[str]) -> Any:
    """Return value with its `secure:` parts opened; their texts are added to `found`."""
    if isinstance(value, list):
        return [_opened(key, item, opener, found) for item in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["secure"]:
        found.append(opener.open(key, value["secure"]))
        return found[-1]
    return {name: _opened(key, item, opener, found) for name, item in value.items()}


def _text(value: Any) -> str:
    """Return value as the CLI gives it to a program: JSON for everything but texts and numbers."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return str(value)
