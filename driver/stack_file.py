"""A stack's config file: its shape, for both engines, and its values as the Pulumi CLI reads them, for our own."""

from __future__ import annotations

import base64
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from components.settings.problems import shown
from driver.workspace import DriverError
from engine.events import Config
from stacks.yaml_file import read_yaml, told


class ConfigSecrets:
    """Opens `secure:` values of the CLI's passphrase provider, format v1: PBKDF2-SHA256, then AES-256-GCM."""

    def __init__(self, encryption_salt: object, file: str = "the state") -> None:
        """encryption_salt: the `encryptionsalt` of the file called `file`, or an empty text where it has none."""
        self._encryption_salt, self._file = encryption_salt, file

    @cached_property
    def _key(self) -> bytes:
        try:
            if not isinstance(self._encryption_salt, str):
                raise ValueError(told(self._encryption_salt))
            version, salt, *_ = self._encryption_salt.split(":")
            if version != "v1":
                raise ValueError(version)
            salted = base64.b64decode(salt, validate=True)
        except ValueError:
            raise DriverError(
                f"{self._file}: encryptionsalt is not as Pulumi wrote it (v1:...:v1:...); put the old line back, or "
                "delete it and set each secret again: pulumi config set --path --secret KEY"
            ) from None
        return PBKDF2HMAC(SHA256(), 32, salted, 1_000_000).derive(passphrase().encode())

    def open(self, key: str, text: object) -> str:
        """Return the text of config value `key`; DriverError naming the key, never the value."""
        if not self._encryption_salt:
            raise DriverError(
                f"{self._file}: config value {key} is encrypted, and the file has no encryptionsalt to open it; "
                f"put its old line back, or set the value again: pulumi config set --path --secret {key}"
            )
        try:
            if not isinstance(text, str):
                raise ValueError(told(text))
            version, nonce, sealed = (part.encode() for part in text.split(":"))
            if version != b"v1":
                raise ValueError(version)
            box = base64.b64decode(nonce, validate=True), base64.b64decode(sealed, validate=True)
            return AESGCM(self._key).decrypt(*box, None).decode()
        except InvalidTag:
            raise DriverError(
                f"{self._file}: the passphrase does not open config value {key}; "
                "set PULUMI_CONFIG_PASSPHRASE_FILE to the one it was made with"
            ) from None
        except ValueError:
            raise DriverError(
                f"{self._file}: config value {key} is encrypted in a way the in-process engine cannot open; "
                f"set it again: pulumi config set --path --secret {key}"
            ) from None


def read_stack_file(path: Path) -> dict[str, Any]:
    """Return a stack's config file, its `config` a mapping whose keys have a namespace.

    A file that is not there is an empty one, as for the CLI. Raises DriverError for what cannot be read.
    """
    content = read_yaml(path) if path.exists() else {}
    config = content["config"] = {} if content.get("config") is None else content["config"]
    if not isinstance(config, dict):
        raise DriverError(
            f"{path.name}: config is {told(config)}, not a mapping; write the stack's keys below it, as in "
            "`config:` and, indented in the next line, `tailrack:cluster: {name: lab}`"
        )
    for key in config:
        if not all(key.partition(":")):
            what = f"{path.name}: config has the key {shown(key)}, which has no namespace"
            raise DriverError(f"{what}; write {shown('tailrack:' + key.strip(':'))}, or the provider's name before it")
    return content


def load_config(project_dir: Path, config_file: Path) -> Config:
    """Return the config of a stack; DriverError for what cannot be read, opened or understood, by file or key.

    A config file that is not there is an empty one, as for the CLI.
    """
    project = read_yaml(project_dir / "Pulumi.yaml")
    if "config" in project:
        raise DriverError(
            "Pulumi.yaml has 'config', which only the Pulumi CLI understands; move it to the stack's file"
        )
    if not isinstance(project.get("name"), str):
        raise DriverError("Pulumi.yaml has no name; put the file back as it was: git checkout Pulumi.yaml")
    stack_file = read_stack_file(config_file)
    opener = ConfigSecrets(stack_file.get("encryptionsalt") or "", config_file.name)
    values: dict[str, str] = {}
    secrets: dict[str, list[str]] = {}
    for key, value in stack_file["config"].items():
        found: list[str] = []
        values[key] = _text(_opened(key, value, opener, found))
        if found:
            secrets[key] = found
    texts = [text for found in secrets.values() for text in found]
    return Config(project["name"], passphrase(), values, list(secrets), texts)


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
    except UnicodeDecodeError:
        raise DriverError(
            "the file of PULUMI_CONFIG_PASSPHRASE_FILE is no text; name the one with the passphrase"
        ) from None


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
