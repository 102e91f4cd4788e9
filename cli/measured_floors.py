"""`make floors`: write floors from the last measurement into the stack's config file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.output.make_command import Make
from cli.pulumi.workspace import CliError
from cli.report.facts import all_scopes, scopes, single_nodes
from cli.stack_config.edit import write_section
from components.settings.types import NODE

FRACTION = 0.9  # of the lowest run; sound runs of one machine differ by up to 13 % over sockets


def floors(outputs: Mapping[str, Any], make: Make = Make()) -> dict[str, Any]:
    """Return floors from the last measurement as keys of the section `validation`.

    `floors_gb_per_s` has GB/s by scope; `node` is the floor of every single node, from the slowest one. With a training
    measurement, `training` has images per second of each rank.

    Raises CliError if any measurement is not sound enough for a floor.
    """
    measured = all_scopes(outputs)
    if not measured:
        raise CliError(f"nothing has been measured: run {make('up')} first")
    trained = outputs.get("training")
    refused = [f"{scope.title}: {why}" for scope in measured if (why := unsound(scope.result))]
    if trained and (why := unsound(trained)):
        refused.append(f"training: {why}")
    if refused:
        raise CliError(
            f"no floors are written, because of {'; '.join(refused)}. Fix this, change tailrack:validation.rerun in "
            f"the config, run {make('up')}, and then {make('floors')} again"
        )
    by_scope = {scope.name: _floor(scope.result["busbw_gb_per_s"], scope.result) for scope in scopes(outputs)}
    if nodes := single_nodes(outputs):
        by_scope[NODE] = min(_floor(scope.result["busbw_gb_per_s"], scope.result) for scope in nodes)
    section: dict[str, Any] = {"floors_gb_per_s": by_scope}
    if trained:
        floor = _floor(trained["images_per_second"], trained, trained["ranks"])
        section["training"] = {"floor_images_per_second": floor}
    return section


def unsound(result: Mapping[str, Any]) -> str:
    """Return why a measurement or a training benchmark cannot give a floor; "" if it can."""
    if result["verdict"] not in ("PASS", "UNJUDGED"):
        return f"its verdict is {result['verdict']}"
    if "busbw_gb_per_s" in result and (result["busbw_gb_per_s"] is None or result["wrong"] != 0):
        return "it has no bandwidth with correct data"
    if result["left_out"]:
        return f"{', '.join(result['left_out'])} did not take part"
    if suspects := result.get("suspects"):
        return f"{' and '.join(suspects[0]['nodes'])} held the others back"
    return ""


def _floor(figure: float, result: Mapping[str, Any], ranks: int = 1) -> float:
    """Return a floor for each of `ranks` from the lowest run, with three digits and never above that."""
    value = FRACTION * (min(spread["runs"]) if (spread := result.get("spread")) else figure) / ranks
    power = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / power + 1e-9) * power:.3g}")


def write(path: Path, section: Mapping[str, Any], source: str) -> str:
    """Write floors and their source into a stack's config file, and keep the rest. Return the lines of YAML.

    Raises CliError with the lines to paste if the file cannot be edited safely.
    """
    return write_section(path, "tailrack:validation", {**section, "floors_from": source}, "the floors")
