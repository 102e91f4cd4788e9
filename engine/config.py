"""The project file and a stack's config file, read as the CLI reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine.events import EngineError
from engine.secrets import ConfigSecrets


@dataclass
class Config:
    """`project` is the project's name; `values` are texts by `project:key`; `secrets` are the secret texts in them."""

    project: str
    values: dict[str, str] = field(default_factory=dict)
    secret_keys: list[str] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)


def load_config(project_dir: Path, stack: str, config_file: Path) -> Config:
    """Return the config of a stack; EngineError for what is missing or cannot be opened, by key."""
    project_file = _read(project_dir / "Pulumi.yaml")
    stack_file = _read(config_file) if config_file.exists() else {}
    config = Config(str(project_file["name"]))
    secrets = ConfigSecrets(stack_file.get("encryptionsalt", ""))
    given: dict[str, Any] = stack_file.get("config") or {}
    declared: dict[str, Any] = project_file.get("config") or {}
    for short, schema in declared.items():
        key = short if ":" in short else f"{config.project}:{short}"
        if key in given:
            continue
        if not isinstance(schema, dict):
            given[key] = schema
        elif "value" in schema or "default" in schema:
            given[key] = schema.get("value", schema.get("default"))
        else:
            raise EngineError(f"Stack '{stack}' is missing configuration value '{short}'")
    for key, value in given.items():
        found: set[str] = set()
        opened = _open(key, value, secrets, found)
        config.values[key] = _text(opened)
        if found:
            config.secret_keys.append(key)
            config.secrets |= {line for text in found for line in text.splitlines()}
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise EngineError(f"{path.name} cannot be read: {error}") from None
    return content if isinstance(content, dict) else {}


def _open(key: str, value: Any, secrets: ConfigSecrets, found: set[str]) -> Any:
    if isinstance(value, list):
        return [_open(key, item, secrets, found) for item in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["secure"]:
        text = secrets.open(key, value["secure"])
        found.add(text)
        return text
    return {name: _open(key, item, secrets, found) for name, item in value.items()}


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return str(value)
