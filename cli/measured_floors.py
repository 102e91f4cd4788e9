"""`make floors`: what this cluster has measured becomes what it is held against, in the stack's own config file."""

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
FRACTION = 0.9  # of the lowest of the runs: sound runs of one machine differ by up to 13 % over sockets
_SECTION, _FLOORS, _FROM = "tailrack:validation", "floors_gb_per_s", "floors_from"
_TRAINING, _TRAINING_FLOOR = "training", "floor_images_per_second"


@dataclass(frozen=True)
class Floors:
    """What is written into the config.

    by_scope   GB/s by scope; `node` stands for every node by itself, and is that of the slowest
    training   images a second of each rank; None where no training was measured
    """

    by_scope: Mapping[str, float] = field(default_factory=dict)
    training: float | None = None

    def section(self, source: str) -> dict[str, Any]:
        """The keys of the section `validation` that say them."""
        trained = {} if self.training is None else {_TRAINING: {_TRAINING_FLOOR: self.training}}
        return {_FLOORS: dict(self.by_scope), **trained, _FROM: source}


def floors(outputs: Mapping[str, Any], make: Make = _NO_STACK) -> Floors:
    """Return floors of what was measured last.

    Raises CliError, and returns none at all, where a measurement is not one to hold others against.
    """
    everything = all_scopes(outputs)
    if not everything:
        raise CliError(f"nothing has been measured: run {make('up')} first")
    trained = outputs.get("training")
    refused = [f"{scope.title}: {why}" for scope in everything if (why := unsound(scope))]
    if trained and (why := unsound_training(trained)):
        refused.append(f"training: {why}")
    if refused:
        raise CliError(
            f"no floors are written, because of {'; '.join(refused)}. Repair that, change tailrack:validation.rerun in "
            f"the config, run {make('up')}, and then {make('floors')} again"
        )
    found = {scope.name: _floor(scope) for scope in scopes(outputs)}
    if alone := single_nodes(outputs):
        found[NODE] = min(_floor(scope) for scope in alone)
    return Floors(found, _training_floor(trained) if trained else None)


def unsound(scope: Scope) -> str:
    """Return why a measurement cannot be what others are held against; "" where it can."""
    result, spread = scope.result, scope.optional.get("spread")
    if result["verdict"] not in ("PASS", "UNJUDGED"):
        return f"its verdict is {result['verdict']}"
    if result["busbw_gb_per_s"] is None or result["wrong"] != 0:
        return "it has no figure of data that was right"
    if result["left_out"]:
        return f"{', '.join(result['left_out'])} did not take part"
    if scope.suspects:
        return f"{' and '.join(scope.suspects[0]['nodes'])} held the others back"
    # Outputs of an earlier version know no UNSTABLE.
    if spread and spread["relative"] > largest_spread(scope.optional.get("transport")):
        return f"its runs differ by {spread['relative']:.0%}"
    return ""


def unsound_training(result: Mapping[str, Any]) -> str:
    """Return why a training benchmark cannot be what others are held against; "" where it can."""
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
    """Three digits are enough, and a floor is never above what it was made of."""
    power = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / power + 1e-9) * power:.3g}")


def write(path: Path, found: Floors, source: str) -> str:
    """Put floors, and where they are from, into a stack's config file; all else stays. Return the lines that say it.

    Raises CliError, with the lines to paste, where the file is written in a way that cannot be added to safely.
    """
    before = read_stack_file(path)
    section = before["config"].get(_SECTION)
    known = section if isinstance(section, dict) else {}
    added = found.section(source)
    lines = _yaml({_SECTION: added})
    wanted = {**known, **{key: _merged(known.get(key), value) for key, value in added.items()}}
    place = path.resolve()
    fresh = place.with_name(f"{place.name}.new")
    try:
        fresh.write_bytes(_edited(place.read_bytes().decode(), added).encode())
        if read_stack_file(fresh) != {**before, "config": {**before["config"], _SECTION: wanted}}:
            raise ValueError("the file would say something else")
        fresh.chmod(place.stat().st_mode & 0o777)
        fresh.replace(place)
    except (ValueError, TypeError, CliError, yaml.YAMLError):
        raise CliError(
            f"{path.name} is written in a way that floors cannot be put into without touching the rest; write them "
            f"below config: yourself\n\n{lines}"
        ) from None
    finally:
        fresh.unlink(missing_ok=True)
    return lines


def _merged(old: Any, new: Any) -> Any:
    return {**(old or {}), **new} if isinstance(new, dict) else new


def _edited(text: str, added: Mapping[str, Any]) -> str:
    """The text with keys of the section, where YAML's parser finds their places. ValueError where none is safe."""
    at = ("config", _SECTION)
    if _value(_mapping(text, "config"), _SECTION) is None:
        return _with(text, ("config",), _SECTION, dict(added))
    for key, value in added.items():
        old = _value(_mapping(text, *at), key)
        if isinstance(value, dict) and isinstance(old, yaml.MappingNode) and old.value:
            for name, each in value.items():
                text = _with(text, (*at, key), name, each)
        else:
            text = _with(text, at, key, value)
    return text


def _with(text: str, at: tuple[str, ...], key: str, value: Any) -> str:
    """The text with a key of the mapping at `at` set."""
    mapping = _mapping(text, *at)
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
    """Where a value's own text ends: a block's end mark lies behind the comments and blanks that follow it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return len(text[: node.end_mark.index].rstrip()) if isinstance(node, yaml.ScalarNode) else node.end_mark.index


def _inserted(text: str, mapping: yaml.MappingNode, key: str, value: Any) -> str:
    """The text with one more key at a mapping's end."""
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
