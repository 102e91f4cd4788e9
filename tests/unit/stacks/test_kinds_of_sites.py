"""A kind of site whose word is a keyword of Python, in a package of another name."""

from __future__ import annotations

import copy
import keyword
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.config import parse
from stacks.sites import KINDS
from stacks.sites.machines import machines
from tests.unit.configs import LAB, RawConfig

MODEL = """
from typing import Literal

from components.settings.section import key
from stacks.sites.kind import Kind, NodeSpec, Site, kind_key


def nodes(site, head):
    return [NodeSpec.of(site, head, f"{site.name}-{number}") for number in range(site.count)]


class LambdaSite(Site):
    kind: Literal["lambda"] = kind_key("lambda", "instances of a cloud")
    count: int = key("number of nodes", wants="a whole number", breaks="there would be no nodes", fix="write 1")


KIND = Kind(LambdaSite, lambda site, head: [], lambda sites, head, report: None, nodes, "lambda_cloud.machines")
"""
MACHINES = """
from stacks.sites.machines import Machines, host_of


def machines(sites, nodes, stack):
    return Machines({node.name: host_of(node, None) for node in nodes})
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawConfig]:
    """The config of a lab with a site of kind lambda, whose code is in a package `lambda_cloud`."""
    folder = tmp_path / "lambda_cloud"
    folder.mkdir()
    (folder / "__init__.py").write_text(MODEL)
    (folder / "machines.py").write_text(MACHINES)
    monkeypatch.syspath_prepend(str(tmp_path))
    import lambda_cloud  # type: ignore[import-not-found]

    monkeypatch.setitem(KINDS, "lambda", lambda_cloud.KIND)
    raw = copy.deepcopy(LAB)
    raw["sites"].append({"name": "gpus", "kind": "lambda", "count": 2})
    yield raw
    for name in [name for name in sys.modules if name.partition(".")[0] == "lambda_cloud"]:
        del sys.modules[name]


def test_a_kind_that_is_a_keyword_of_python_is_read_and_its_machines_are_made(
    config: RawConfig, tmp_path: Path
) -> None:
    assert keyword.iskeyword("lambda")
    parsed = parse(config, base_dir=tmp_path)
    (site,) = (site for site in parsed.sites if site.kind == "lambda")
    nodes = [node for node in parsed.nodes() if node.site == site.name]
    assert [node.name for node in nodes] == ["gpus-0", "gpus-1"]
    assert machines([site], nodes, "dev").hosts.keys() == {"gpus-0", "gpus-1"}
