"""Edit `Pulumi.<stack>.yaml`: set keys of one section, and keep everything else, comments included."""

from collections.abc import Mapping, Sequence
from functools import reduce
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
    target = path.resolve()
    fresh = target.with_name(f"{target.name}.new")
    try:
        text, expected = target.read_bytes().decode(), dict(old)
        for key, value in added.items():
            expected[key] = {**(old.get(key) or {}), **value} if isinstance(value, dict) else value
            for name, item in value.items() if isinstance(value, dict) else [("", value)]:
                text = _edited(text, ["config", section, key, *filter(None, [name])], item)
        fresh.write_bytes(text.encode())
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


def _edited(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at a path, at the place that YAML's parser finds; ValueError if unsafe."""
    child: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, key in enumerate(path, 1):
        mapping = child
        if not isinstance(mapping, yaml.MappingNode):
            raise ValueError(f"no mapping above {shown(key)}")
        child = next((item for name, item in mapping.value if name.value == key), None)
        if child is None or child.tag == "tag:yaml.org,2002:null" or (child.tag.endswith(":map") and not child.value):
            value = reduce(lambda inner, name: {name: inner}, reversed(path[depth:]), value)
            break
    if child is None:
        return _inserted(text, mapping, key, value)
    start = child.start_mark.index
    if isinstance(child, yaml.CollectionNode) and not child.flow_style:
        # A block begins on the line after its key.
        start = next(name for name, item in mapping.value if item is child).end_mark.index
        if text[start : child.start_mark.index].strip() != ":":
            raise ValueError(f"a comment before the value of {shown(key)}")
        start += text[start:].index(":") + 1
    blank = "" if text[start - 1].isspace() else " "  # a key without a value ends with its colon
    return text[:start] + blank + _flow(value) + text[_end(text, child) :]


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
    line_end = f"{text}\n".index("\n", end)
    added = "".join(f"\n{indent}{line}" for line in _yaml({key: value}).splitlines())
    return text[:line_end] + added + text[line_end:]


def _flow(value: Any) -> str:
    return _yaml(value, flow=True).removesuffix("\n").removesuffix("\n...")


def _yaml(value: Any, flow: bool = False) -> str:
    return str(yaml.safe_dump(value, default_flow_style=flow, width=10**6, sort_keys=False))
