"""The JSON schema of Pulumi.<stack>.yaml for editors. `parse` also checks what depends on other keys and files."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from components.settings.problems import ROOT
from components.settings.section import Section, keys_of
from stacks.config.model import POOL, PoolConfig, StackConfig

FILE = "schema.json"
# As `pulumi config set --secret` writes a value.
_SECRET: dict[str, Any] = {"type": "object", "properties": {"secure": {"type": "string"}}, "required": ["secure"]}
_SECRET |= {"additionalProperties": False}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
_IS_POOL = {"properties": {f"{ROOT}kind": {"const": POOL}}, "required": [f"{ROOT}kind"]}


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title would repeat the key

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        # pydantic writes a bound beside a validator of ours by its own name, which no editor knows.
        return {_BOUNDS.get(name, name): value for name, value in super().generate_inner(schema).items()}

    def str_schema(self, schema: Any) -> dict[str, Any]:
        numbers = {"type": ["string", "number"]} if schema.get("coerce_numbers_to_str") else {}
        return super().str_schema(schema) | numbers


def text() -> str:
    """Return the schema as the file has it."""
    # Each text is on one line: editors show a line break of a docstring as one.
    return re.sub(r"(?<!\\)\\n", " ", json.dumps(schema(), indent=1)) + "\n"


def schema() -> dict[str, Any]:
    """Return the schema of the stack files of clusters and pools."""
    models: list[type[Section]] = [StackConfig, PoolConfig]
    _, whole = models_json_schema([(model, "validation") for model in models], schema_generator=_Untitled)
    definitions: dict[str, Any] = whole["$defs"]
    for model in {*models, *(section for one in models for section in sections(one))}:
        _complete(model, definitions[model.__name__])
    kinds = [_stack_file(definitions.pop(model.__name__)) for model in models]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"config": {"if": _IS_POOL, "then": kinds[1], "else": kinds[0]}},
        "$defs": definitions,
    }


def sections(model: type[Section]) -> set[type[Section]]:
    """Return all sections within a section."""
    inside = {section for key in keys_of(model).values() for section in key.sections.values()}
    return inside.union(*map(sections, inside))


def _complete(model: type[Section], definition: dict[str, Any]) -> None:
    """Describe keys that are sections, and allow encrypted secrets."""
    properties = definition["properties"]
    for name, key in keys_of(model).items():
        properties[name].setdefault("description", key.description)
        if key.secret and properties[name].get("type") == "object":
            properties[name] = {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, _SECRET]}}
        elif key.secret:
            properties[name] = {"anyOf": [properties[name], _SECRET]}


def _stack_file(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of Pulumi's config, whose other keys are those of providers."""
    return {
        "type": "object",
        "properties": {ROOT + name: value for name, value in definition["properties"].items()},
        "patternProperties": {f"^(?!{ROOT})": {}},
        "additionalProperties": False,
        "required": [ROOT + name for name in definition["required"]],
    }


if __name__ == "__main__":
    Path(FILE).write_text(text(), encoding="utf-8")
