"""Read a stack's config file for both engines, and check its shape, secrets and size before an engine starts.

The CLI's own errors name neither the key nor the remedy.
"""

import base64
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from cli.pulumi.workspace import CliError
from cli.run_events import Config
from components.settings.problems import child_path, secret_command, shown
from stacks.yaml_file import describe_type, read_yaml

# A value encrypted by the passphrase provider, or a cloud's: nonce and ciphertext.
_ENCRYPTED = re.compile(r"v1:([A-Za-z0-9+/]+={0,2}):([A-Za-z0-9+/]+={0,2})")
_ROOT_KEYS = {"config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider"}  # the CLI's
# The CLI passes the config to the program in one environment variable, which Linux limits (MAX_ARG_STRLEN, including
# its name and the final byte).
LARGEST = 512 * 1024  # bytes of a stack's file with comments; a run reads it several times
_HOSTS_FILE = "list the hosts of a site in a file, and set hosts_file to its name (docs/config.md)"
Secrets = dict[str, list[tuple[str, str]]]  # by top-level key: each one's path and text; odd keys may share a path
_VARIABLE, _LONGEST = "PULUMI_CONFIG=", 128 * 1024 - 1


@dataclass
class ConfigSecrets:
    """A decrypter of `secure:` values of the CLI's passphrase provider, format v1: PBKDF2-SHA256, then AES-256-GCM."""

    encryption_salt: object  # the `encryptionsalt` of the file, or an empty text without one
    file: str = "the state"
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)  # with the passphrase

    @cached_property
    def salt(self) -> bytes:
        """Return the salt; CliError if it is invalid."""
        match = re.match(r"v1:([^:]*):", self.encryption_salt) if isinstance(self.encryption_salt, str) else None
        with suppress(ValueError):
            return base64.b64decode(match[1] if match else "?", validate=True)
        raise CliError(
            f"{self.file}: encryptionsalt is damaged (Pulumi writes v1:...:v1:...); restore the old line, or "
            f"delete it and set each secret again: {self._command('KEY')}"
        )

    @cached_property
    def _key(self) -> bytes:
        return PBKDF2HMAC(SHA256(), 32, self.salt, 1_000_000).derive(passphrase(self.environment).encode())

    def open(self, key: str, text: object) -> str:
        """Return the text of config value `key`; CliError naming the key, never the value."""
        encrypted = _ENCRYPTED.fullmatch(text) if isinstance(text, str) else None
        fix = f"set it (docs/first-cluster.md, The config): {self._command(key)}"
        if not encrypted:
            problem = "is not a secret that Pulumi encrypted with a passphrase (examples have a placeholder there)"
        elif not self.encryption_salt:
            problem, fix = "is encrypted, but the file has no encryptionsalt", f"restore its old line, or {fix}"
        else:
            try:
                nonce, ciphertext = (base64.b64decode(part, validate=True) for part in encrypted.groups())
                return AESGCM(self._key).decrypt(nonce, ciphertext, None).decode()
            except InvalidTag:
                problem = "cannot be decrypted with this passphrase"
                fix = "set PULUMI_CONFIG_PASSPHRASE_FILE to the file with the original passphrase"
            except ValueError:
                problem = "is encrypted and damaged"
        raise CliError(f"{self.file}: config value {key} {problem}; {fix}")

    def _command(self, key: str) -> str:
        stack = re.fullmatch(r"Pulumi\.(.+)\.yaml", self.file)
        return secret_command(key, stack[1] if stack else "")


def read_stack_file(path: Path) -> dict[str, Any]:
    """Return a stack's config file, empty if it is missing, with a mapping `config`. Raises CliError otherwise."""
    if path.exists() and path.stat().st_size > LARGEST:
        problem = f"{path.name} has more than {LARGEST} bytes, which would take minutes to read"
        raise CliError(f"{problem}; {_HOSTS_FILE}")
    content = read_yaml(path) if path.exists() else {}
    # Other keys may hold what `config` repeats by an alias.
    for key in sorted(key for key in content.keys() - _ROOT_KEYS if ":" in key or "config" not in content):
        fix = "write `config:` once, with all keys of the stack indented below it"
        raise CliError(f"{path.name}: {shown(key)} is not below config:, so it would have no effect; {fix}")
    config = content["config"] = {} if content.get("config") is None else content["config"]
    if not isinstance(config, dict):
        fix = "write the stack's keys below it, such as `tailrack:cluster: {name: lab}`, indented"
        raise CliError(f"{path.name}: config is {describe_type(config)}, not a mapping; {fix}")
    for key in config:
        if not all(key.partition(":")):
            problem = f"{path.name}: config has the key {shown(key)}, which has no namespace"
            raise CliError(f"{problem}; write {shown('tailrack:' + key.strip(':'))}, or the provider's name before it")
    return content


def load_config(project_dir: Path, config_file: Path) -> Config:
    """Return the config of a stack; CliError with the file or key that cannot be read, decrypted or parsed."""
    project = read_yaml(project_dir / "Pulumi.yaml")
    if "config" in project:
        raise CliError("Pulumi.yaml has 'config', which only the Pulumi CLI understands; move it to the stack's file")
    if not isinstance(project.get("name"), str):
        raise CliError("Pulumi.yaml has no name; restore the file: git checkout Pulumi.yaml")
    values, secrets = config_values(config_file, os.environ)
    texts = [text for inside in secrets.values() for _, text in inside]
    return Config(project["name"], passphrase(), values, list(secrets), texts)


def check_for_cli(config_file: Path, environment: Mapping[str, str]) -> None:
    """Raise CliError for damaged secrets of the passphrase provider, and for a config that is too large for the CLI.

    environment   the CLI's
    """
    content = read_stack_file(config_file)
    other_provider = {"encryptedkey", "secretsprovider"} & content.keys()
    managed_by_service = environment["PULUMI_BACKEND_URL"].startswith("http") and "encryptionsalt" not in content
    if other_provider or managed_by_service:
        return
    values, _ = config_values(config_file, environment, content)
    # The length of the JSON as Go writes it.
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    length = len(_VARIABLE) + len(text.encode()) + 5 * sum(map(text.count, "<>&"))
    if length > _LONGEST:
        largest = max(values, key=lambda key: len(values[key]))
        fix = _HOSTS_FILE if largest == "tailrack:sites" else f"write less in {shown(largest)}"
        raise CliError(
            f"{config_file.name}: the config has {length // 1024 + 1} KiB, most of it in {shown(largest)}, and the "
            f"Pulumi CLI can pass at most {_LONGEST // 1024 + 1} KiB to a program; {fix}"
        )


def config_values(
    file: Path, environment: Mapping[str, str], content: Mapping[str, Any] | None = None
) -> tuple[dict[str, str], Secrets]:
    """Return a stack's config as a program receives it: texts by key, and the secrets in it with their paths.

    environment   contains the passphrase. Raises CliError for a value that cannot be read or decrypted.
    content       the file's, if it is read already
    """
    content = read_stack_file(file) if content is None else content
    opener = ConfigSecrets(content.get("encryptionsalt") or "", file.name, environment)
    if "encryptionsalt" in content:
        _ = opener.salt
    secrets: Secrets = {key: [] for key in content["config"]}
    values = {key: _text(_decrypted(key, item, opener, secrets[key])) for key, item in content["config"].items()}
    return values, {key: inside for key, inside in secrets.items() if inside}


def passphrase(environment: Mapping[str, str] | None = None) -> str:
    """Return the passphrase of an environment, by default this process's. Raises CliError without one."""
    environment = os.environ if environment is None else environment
    if "PULUMI_CONFIG_PASSPHRASE" in environment:
        return environment["PULUMI_CONFIG_PASSPHRASE"]
    try:
        return Path(environment["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text(encoding="utf-8").strip()
    except KeyError:
        raise CliError("no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE (or PULUMI_CONFIG_PASSPHRASE)") from None
    except OSError as error:
        raise CliError(f"PULUMI_CONFIG_PASSPHRASE_FILE cannot be read: {error}") from None
    except UnicodeDecodeError:
        raise CliError("PULUMI_CONFIG_PASSPHRASE_FILE is not text; set it to the file with the passphrase") from None


def _decrypted(path: str, value: Any, opener: ConfigSecrets, secrets: list[tuple[str, str]]) -> Any:
    """Return the value at a path with its `secure:` parts decrypted, and add their paths and texts to `secrets`."""
    if isinstance(value, list):
        return [_decrypted(child_path(path, index), item, opener, secrets) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if list(value) == ["secure"]:
        secrets.append((path, opener.open(path, value["secure"])))
        return secrets[-1][1]
    return {name: _decrypted(child_path(path, name), item, opener, secrets) for name, item in value.items()}


def _text(value: Any) -> str:
    """Return a value as the CLI passes it to a program: JSON for everything except texts and numbers."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return str(value)
