"""`make floors`: write floors from the last measurement into the stack's config file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cli.output.make_command import Make
from cli.pulumi.workspace import CliError
from cli.report.facts import Scope, all_scopes, scopes, single_nodes
from cli.stack_config.stack_file import read_stack_file
from components.settings.problems import shown
from components.settings.types import NODE
from components.validation.figures import largest_spread

_NO_STACK = Make()
FRACTION = 0.9  # of the lowest run; sound runs of one machine differ by up to 13 % over sockets
_SECTION, _FLOORS, _FROM = "tailrack:validation", "floors_gb_per_s", "floors_from"
_TRAINING, _TRAINING_FLOOR = "training", "floor_images_per_second"


@dataclass(frozen=True)
class Floors:
    """The floors to write into the config.

    by_scope   GB/s by scope; `node` is the floor of every single node, from the slowest one
    training   images per second of each rank; None without a training measurement
    """

    by_scope: Mapping[str, float] = field(default_factory=dict)
    training: float | None = None

    def section(self, source: str) -> dict[str, Any]:
        """Return them as keys of the section `validation`."""
        trained = {} if self.training is None else {_TRAINING: {_TRAINING_FLOOR: self.training}}
        return {_FLOORS: dict(self.by_scope), **trained, _FROM: source}


def floors(outputs: Mapping[str, Any], make: Make = _NO_STACK) -> Floors:
    """Return floors from the last measurement.

    Raises CliError if any measurement is not sound enough for a floor.
    """
    measured = all_scopes(outputs)
    if not measured:
        raise CliError(f"nothing has been measured: run {make('up')} first")
    trained = outputs.get("training")
    refused = [f"{scope.title}: {why}" for scope in measured if (why := unsound(scope))]
    if trained and (why := unsound_training(trained)):
        refused.append(f"training: {why}")
    if refused:
        raise CliError(
            f"no floors are written, because of {'; '.join(refused)}. Fix this, change tailrack:validation.rerun in "
            f"the config, run {make('up')}, and then {make('floors')} again"
        )
    by_scope = {scope.name: _floor(scope) for scope in scopes(outputs)}
    if nodes := single_nodes(outputs):
        by_scope[NODE] = min(_floor(scope) for scope in nodes)
    return Floors(by_scope, _training_floor(trained) if trained else None)


def unsound(scope: Scope) -> str:
    """Return why a measurement cannot give a floor; "" if it can."""
    result, spread = scope.result, scope.optional.get("spread")
    if result["verdict"] not in ("PASS", "UNJUDGED"):
        return f"its verdict is {result['verdict']}"
    if result["busbw_gb_per_s"] is None or result["wrong"] != 0:
        return "it has no bandwidth with correct data"
    if result["left_out"]:
        return f"{', '.join(result['left_out'])} did not take part"
    if scope.suspects:
        return f"{' and '.join(scope.suspects[0]['nodes'])} held the others back"
    # Outputs of earlier versions have no verdict UNSTABLE.
    if spread and spread["relative"] > largest_spread(scope.optional.get("transport")):
        return f"its runs differ by {spread['relative']:.0%}"
    return ""


def unsound_training(result: Mapping[str, Any]) -> str:
    """Return why a training benchmark cannot give a floor; "" if it can."""
    if result["verdict"] not in ("PASS", "UNJUDGED"):
        return f"its verdict is {result['verdict']}"
    if result["left_out"]:
        return f"{', '.join(result['left_out'])} did not take part"
    return ""


def _training_floor(result: Mapping[str, Any]) -> float:
    lowest = min(result["spread"]["runs"]) if result["spread"] else result["images_per_second"]
    return _rounded_down(FRACTION * lowest / result["ranks"])


def _floor(scope: Scope) -> float:
    spread, figure = scope.optional.get("spread"), scope.result["busbw_gb_per_s"]
    lowest = min(spread["runs"]) if spread else figure or 0.0
    return _rounded_down(FRACTION * lowest)


def _rounded_down(value: float) -> float:
    """Return the value with three digits, never above the original."""
    power = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / power + 1e-9) * power:.3g}")


def write(path: Path, floors_: Floors, source: str) -> str:
    """Write floors and their source into a stack's config file, and keep the rest. Return the lines of YAML.

    Raises CliError with the lines to paste if the file cannot be edited safely.
    """
    before = read_stack_file(path)
    section = before["config"].get(_SECTION)
    old = section if isinstance(section, dict) else {}
    added = floors_.section(source)
    lines = _yaml({_SECTION: added})
    expected = {**old, **{key: _merged(old.get(key), value) for key, value in added.items()}}
    target = path.resolve()
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.write_bytes(_edited(target.read_bytes().decode(), added).encode())
        if read_stack_file(fresh) != {**before, "config": {**before["config"], _SECTION: expected}}:
            raise ValueError("the edit would change other keys")
        fresh.chmod(target.stat().st_mode & 0o777)
        fresh.replace(target)
    except (ValueError, TypeError, CliError, yaml.YAMLError):
        raise CliError(
            f"the floors cannot be added to {path.name} without changing other parts of it; write these lines below "
            f"config: yourself\n\n{lines}"
        ) from None
    finally:
        fresh.unlink(missing_ok=True)
    return lines


def _merged(old: Any, new: Any) -> Any:
    return {**(old or {}), **new} if isinstance(new, dict) else new


def _edited(text: str, added: Mapping[str, Any]) -> str:
    """Return the text with the section's keys set, at the places that YAML's parser finds; ValueError if unsafe."""
    path = ("config", _SECTION)
    if _value(_mapping(text, "config"), _SECTION) is None:
        return _with(text, ("config",), _SECTION, dict(added))
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
    blank = "" if text[start - 1].isspace() else " "  # a key without a value ends with its colon
    return text[:start] + blank + _flow(value) + text[_end(text, old) :]


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
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
        .removesuffix("\n")
        .removesuffix("\n...")
    )


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=False, width=10**6, sort_keys=False)
    return text
