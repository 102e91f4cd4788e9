"""Edit `Pulumi.<stack>.yaml`: set keys of one section, and keep everything else, comments included."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cli.pulumi.workspace import CliError
from cli.stack_config.stack_file import read_stack_file
from components.settings.problems import shown
from stacks.yaml_file import FileError


def write_section(path: Path, section: str, added: Mapping[str, Any], subject: str) -> str:
    """Set keys of a section, such as tailrack:validation. Return the lines of YAML.

    subject   names the keys in an error. Raises CliError with the lines to paste if the file cannot be edited safely.
    """
    before = read_stack_file(path)
    present = before["config"].get(section)
    old = present if isinstance(present, dict) else {}
    lines = _yaml({section: dict(added)})
    expected = dict(old)
    for key, value in added.items():
        expected[key] = {**(old.get(key) or {}), **value} if isinstance(value, dict) else value
    target = path.resolve()
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.write_bytes(_edited(target.read_bytes().decode(), section, added).encode())
        if read_stack_file(fresh) != {**before, "config": {**before["config"], section: expected}}:
            raise ValueError("the edit would change other keys")
        fresh.chmod(target.stat().st_mode & 0o777)
        fresh.replace(target)
    except (ValueError, TypeError, FileError, yaml.YAMLError):
        raise CliError(
            f"{subject} cannot be added to {path.name} without changing other parts of it; write these lines below "
            f"config: yourself\n\n{lines}"
        ) from None
    finally:
        fresh.unlink(missing_ok=True)
    return lines


def _edited(text: str, section: str, added: Mapping[str, Any]) -> str:
    """Return the text with the section's keys set, at the places that YAML's parser finds; ValueError if unsafe."""
    path = ("config", section)
    if _is_empty(_value(_mapping(text, "config"), section)):
        return _with(text, ("config",), section, dict(added))
    for key, value in added.items():
        old = _value(_mapping(text, *path), key)
        if isinstance(value, dict) and isinstance(old, yaml.MappingNode) and old.value:
            for name, item in value.items():
                text = _with(text, (*path, key), name, item)
        else:
            text = _with(text, path, key, value)
    return text


def _with(text: str, path: tuple[str, ...], key: str, value: Any) -> str:
    mapping = _mapping(text, *path)
    old = _value(mapping, key)
    if old is None:
        return _inserted(text, mapping, key, value)
    start = old.start_mark.index
    if isinstance(old, yaml.CollectionNode) and not old.flow_style:
        # A block begins on the line after its key.
        start = next(name for name, value in mapping.value if value is old).end_mark.index
        if text[start : old.start_mark.index].strip() != ":":
            raise ValueError(f"a comment before the value of {shown(key)}")
        start += text[start:].index(":") + 1
    blank = "" if text[start - 1].isspace() else " "  # a key without a value ends with its colon
    return text[:start] + blank + _flow(value) + text[_end(text, old) :]


def _is_empty(node: yaml.Node | None) -> bool:
    """Return whether a key is missing, or has no value or an empty mapping."""
    if isinstance(node, yaml.ScalarNode):
        return node.tag == "tag:yaml.org,2002:null"
    return node is None or (isinstance(node, yaml.MappingNode) and not node.value)


def _mapping(text: str, *keys: str) -> yaml.MappingNode:
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in keys:
        node = _value(node, key) if isinstance(node, yaml.MappingNode) else None
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise ValueError(f"no mapping at {shown('.'.join(keys))}")
    return node


def _value(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in mapping.value if name.value == key), None)


def _end(text: str, node: yaml.Node) -> int:
    """Return where a value's text ends: a block's end mark lies after the comments and blanks that follow it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return len(text[: node.end_mark.index].rstrip()) if isinstance(node, yaml.ScalarNode) else node.end_mark.index


def _inserted(text: str, mapping: yaml.MappingNode, key: str, value: Any) -> str:
    end = _end(text, mapping)
    if mapping.flow_style:
        inside = end - 1  # before the brace
        while text[inside - 1].isspace() or text[inside - 1] == ",":
            inside -= 1
        return f"{text[:inside]}, {_flow(key)}: {_flow(value)}{text[inside:]}"
    indent = " " * mapping.value[0][0].start_mark.column
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    added = "".join(f"\n{indent}{line}" for line in _yaml({key: value}).splitlines())
    return text[:line_end] + added + text[line_end:]


def _flow(value: Any) -> str:
    return _yaml(value, flow=True).removesuffix("\n").removesuffix("\n...")


def _yaml(value: Any, flow: bool = False) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=flow, width=10**6, sort_keys=False)
    return text
