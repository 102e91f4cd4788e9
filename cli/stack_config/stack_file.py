"""A stack's config file, for both engines: its shape, its secrets and its size are judged before either one starts.

The CLI's own words for what is wrong with them name neither the key nor what to do.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from cli.pulumi.workspace import CliError
from components.settings.problems import below, shown
from engine.events import Config
from stacks.yaml_file import read_yaml, told

# A value as the passphrase provider, and those of clouds, seal it: nonce and box.
_SEALED = re.compile(r"v1:([A-Za-z0-9+/]+={0,2}):([A-Za-z0-9+/]+={0,2})")
# How the CLI hands a config to the program: one variable of the environment, of which Linux takes no longer one
# (MAX_ARG_STRLEN, with its name and the byte after it).
LARGEST = 512 * 1024  # bytes of a stack's file, with its comments; it is read some times in a run
_VARIABLE, _LONGEST = "PULUMI_CONFIG=", 128 * 1024 - 1


class ConfigSecrets:
    """Opens `secure:` values of the CLI's passphrase provider, format v1: PBKDF2-SHA256, then AES-256-GCM.

    environment   has the passphrase, as `passphrase` reads it
    """

    def __init__(
        self, encryption_salt: object, file: str = "the state", environment: Mapping[str, str] | None = None
    ) -> None:
        """encryption_salt: the `encryptionsalt` of the file called `file`, or an empty text where it has none."""
        self._encryption_salt, self._file, self._environment = encryption_salt, file, environment

    @cached_property
    def salt(self) -> bytes:
        """The salt. CliError where it is none."""
        try:
            if not isinstance(self._encryption_salt, str):
                raise ValueError(told(self._encryption_salt))
            version, salt, *_ = self._encryption_salt.split(":")
            if version != "v1":
                raise ValueError(version)
            return base64.b64decode(salt, validate=True)
        except ValueError:
            raise CliError(
                f"{self._file}: encryptionsalt is not as Pulumi wrote it (v1:...:v1:...); put the old line back, or "
                f"delete it and set each secret again: {self._command('KEY')}"
            ) from None

    @cached_property
    def _key(self) -> bytes:
        return PBKDF2HMAC(SHA256(), 32, self.salt, 1_000_000).derive(passphrase(self._environment).encode())

    def open(self, key: str, text: object) -> str:
        """Return the text of config value `key`; CliError naming the key, never the value."""
        sealed = _SEALED.fullmatch(text) if isinstance(text, str) else None
        if not sealed:
            self._refuse(
                key,
                "is not sealed as Pulumi seals a secret with a passphrase (an example has a placeholder there)",
                f"set it (docs/own-machines.md, State and secrets): {self._command(key)}",
            )
        if not self._encryption_salt:
            why = "is encrypted, and the file has no encryptionsalt to open it"
            self._refuse(key, why, f"put its old line back, or set the value again: {self._command(key)}")
        try:
            nonce, box = (base64.b64decode(part, validate=True) for part in sealed.groups())
            return AESGCM(self._key).decrypt(nonce, box, None).decode()
        except InvalidTag:
            fix = "set PULUMI_CONFIG_PASSPHRASE_FILE to the one it was made with"
            self._refuse(key, "is not opened by the passphrase", fix)
        except ValueError:
            self._refuse(key, "is encrypted, and damaged", f"set it again: {self._command(key)}")

    def _refuse(self, key: str, why: str, fix: str) -> NoReturn:
        raise CliError(f"{self._file}: config value {key} {why}; {fix}") from None

    def _command(self, key: str) -> str:
        """What sets a value anew, quoted for a shell."""
        stack = re.fullmatch(r"Pulumi\.(.+)\.yaml", self._file)
        words = ["pulumi", "config", "set", *(["--stack", stack[1]] if stack else []), "--path", "--secret", key]
        return shlex.join(words)


def read_stack_file(path: Path) -> dict[str, Any]:
    """Return a stack's config file, its `config` a mapping whose keys have a namespace.

    A file that is not there is an empty one, as for the CLI. Raises CliError for what cannot be read.
    """
    if path.exists() and path.stat().st_size > LARGEST:
        raise CliError(
            f"{path.name} has more than {LARGEST} bytes, which would take minutes to read; list the hosts of a site in "
            "a file of their own, and name that as its hosts_file (docs/config.md)"
        )
    content = read_yaml(path) if path.exists() else {}
    config = content["config"] = {} if content.get("config") is None else content["config"]
    if not isinstance(config, dict):
        raise CliError(
            f"{path.name}: config is {told(config)}, not a mapping; write the stack's keys below it, as in "
            "`config:` and, indented in the next line, `tailrack:cluster: {name: lab}`"
        )
    for key in config:
        if not all(key.partition(":")):
            what = f"{path.name}: config has the key {shown(key)}, which has no namespace"
            raise CliError(f"{what}; write {shown('tailrack:' + key.strip(':'))}, or the provider's name before it")
        for place, value in _numbers(key, config[key]):
            if not math.isfinite(value):
                what = f"{path.name}: {place} is {value}, which is no number to the Pulumi CLI"
                raise CliError(f"{what}; write digits, or leave the key out")
    return content


def _numbers(place: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers with a fraction in a value, each with its path."""
    if isinstance(value, float):
        yield place, value
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(below(place, name), item)


def load_config(project_dir: Path, config_file: Path) -> Config:
    """Return the config of a stack; CliError for what cannot be read, opened or understood, by file or key.

    A config file that is not there is an empty one, as for the CLI.
    """
    project = read_yaml(project_dir / "Pulumi.yaml")
    if "config" in project:
        raise CliError("Pulumi.yaml has 'config', which only the Pulumi CLI understands; move it to the stack's file")
    if not isinstance(project.get("name"), str):
        raise CliError("Pulumi.yaml has no name; put the file back as it was: git checkout Pulumi.yaml")
    values, secrets = _values(config_file, read_stack_file(config_file), os.environ)
    texts = [text for found in secrets.values() for text in found]
    return Config(project["name"], passphrase(), values, list(secrets), texts)


def config_values(config_file: Path, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return what a program is given of a stack's config, text by key, and the keys that hold secrets.

    environment   has the passphrase. CliError for what cannot be read or opened
    """
    values, secrets = _values(config_file, read_stack_file(config_file), environment)
    return values, list(secrets)


def check_for_cli(config_file: Path, environment: Mapping[str, str]) -> None:
    """Raise CliError for what the Pulumi CLI would refuse in words of its own: secrets, and a config too large.

    environment   the CLI's. Secrets that another provider than that of passphrases keeps are left to the CLI.
    """
    content = read_stack_file(config_file)
    elsewhere = {"encryptedkey", "secretsprovider"} & content.keys()
    of_a_service = environment["PULUMI_BACKEND_URL"].startswith("http") and "encryptionsalt" not in content
    if elsewhere or of_a_service:
        return
    values, _ = _values(config_file, content, environment)
    # As Go writes JSON.
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    length = len(_VARIABLE) + len(text.encode()) + 5 * sum(map(text.count, "<>&"))
    if length > _LONGEST:
        largest = max(values, key=lambda key: len(values[key]))
        fix = f"write less in {shown(largest)}"
        if largest == "tailrack:sites":
            fix = "list the hosts of a site in a file, and name that as its hosts_file (docs/config.md)"
        raise CliError(
            f"{config_file.name}: the config has {length // 1024 + 1} KiB, most of it in {shown(largest)}, and the "
            f"Pulumi CLI can hand a program no more than {_LONGEST // 1024 + 1}; {fix}"
        )


def _values(
    file: Path, content: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The texts that a program is given, by key, and the secret ones among them by the key that they are in."""
    opener = ConfigSecrets(content.get("encryptionsalt") or "", file.name, environment)
    if "encryptionsalt" in content:
        _ = opener.salt
    values: dict[str, str] = {}
    secrets: dict[str, list[str]] = {}
    for key, value in content["config"].items():
        found: list[str] = []
        values[key] = _text(_opened(key, value, opener, found))
        if found:
            secrets[key] = found
    return values, secrets


def passphrase(environment: Mapping[str, str] | None = None) -> str:
    """Return the passphrase of PULUMI_CONFIG_PASSPHRASE or the file of PULUMI_CONFIG_PASSPHRASE_FILE.

    environment   another one than that of this process. Raises CliError where there is none.
    """
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
        raise CliError(
            "the file of PULUMI_CONFIG_PASSPHRASE_FILE is no text; name the one with the passphrase"
        ) from None


def _opened(path: str, value: Any, opener: ConfigSecrets, found: list[str]) -> Any:
    """Return the value at a path with its `secure:` parts opened; their texts are added to `found`."""
    if isinstance(value, list):
        return [_opened(below(path, index), item, opener, found) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if list(value) == ["secure"]:
        found.append(opener.open(path, value["secure"]))
        return found[-1]
    return {name: _opened(below(path, name), item, opener, found) for name, item in value.items()}


def _text(value: Any) -> str:
    """Return value as the CLI gives it to a program: JSON for everything but texts and numbers."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return str(value)
