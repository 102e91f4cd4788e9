"""Replacements of functions of Pulumi's SDK: for many hosts only, and each one checked against the pinned SDK."""

import copy
import hashlib
import inspect
import runpy
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pulumi
import pytest

from stacks import runtime_tuning
from stacks.config import parse
from stacks.runtime_tuning import REPLACEMENTS, tune_sdk
from tests.unit.configs import HOSTS
from tests.unit.recorded import record

PROJECT = Path(__file__).parents[3]
# Of each function of the SDK: the SHA-256 of its source, how the SDK must use it, and what breaks if it does not.
SDK = {
    "pulumi.log.debug": (
        "381cd6115cca",
        "takes a message and options, and returns None; the replacement drops messages that something reads",
    ),
    "pulumi.runtime.resource.create_urn": (
        "b4efa209c920",
        "makes URNs that are read only for a mock of the engine, and for an engine without alias specs "
        "(prepare_aliases); aliases would have no URN, and steps would run again",
    ),
    "pulumi.runtime.rpc.declare_dependency": (
        "8acf8b90a08a",
        "returns False only for a circle, and does nothing else; depends_on would be lost",
    ),
    "pulumi._types.resource_types": (
        "36ca79dc260a",
        "depends on the class alone, and no one changes the result; outputs would have another resource's types",
    ),
    "pulumi.runtime.rpc.transfer_properties": (
        "0e7c02ffa04f",
        "returns a resolver for each key of the inputs, and sets that Output on the resource (`stdout` of a command); "
        "a run would wait for an Output without an end",
    ),
    "pulumi.runtime.rpc.resolve_outputs": (
        "18f65c1be3ad",
        "reads the inputs and outputs of the engine's answer only for keys that have a resolver; outputs would be "
        "missing",
    ),
}


@pytest.fixture(autouse=True)
def _own_functions_afterwards() -> Iterator[None]:
    yield
    tune_sdk(0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of each replacement."""
    counts = Counter[str]()

    def counted(name: str, replacement: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return replacement(*args, **kwargs)

        call.__wrapped__ = replacement.__wrapped__  # type: ignore[attr-defined]
        return call

    for (module, name), replacement in REPLACEMENTS.items():
        monkeypatch.setitem(REPLACEMENTS, (module, name), counted(f"{module.__name__}.{name}", replacement))
    return counts


def run_program(hosts: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the program, `build` of __main__.py, for so many hosts; returns the names of its resources."""
    monkeypatch.setattr(pulumi, "run", lambda main: None)
    main = runpy.run_path(str(PROJECT / "__main__.py"))
    raw = copy.deepcopy(HOSTS)
    (site,) = raw["sites"]
    door = site["hosts"][0]
    others = [{**door, "name": f"n{number}", "address": f"10.0.0.{number}"} for number in range(1, hosts)]
    site["hosts"] = [door, *others]
    config = parse(raw, base_dir=folder, secret_keys=frozenset({"tailnet"}))
    monkeypatch.setitem(main["build"].__globals__, "load", lambda *_: config)

    async def program() -> dict[str, Any]:
        await main["build"]()
        return {}

    monkeypatch.setattr(pulumi, "export", lambda name, value: None)
    return record(program).names


@pytest.mark.parametrize("function", SDK)
def test_the_pinned_sdk_has_the_functions_that_the_replacements_were_written_for(function: str) -> None:
    digest, demand = SDK[function]
    module, _, name = function.rpartition(".")
    wrapped = {(where.__name__, what): each.__wrapped__ for (where, what), each in REPLACEMENTS.items()}
    own = wrapped[module, name]
    assert own.__module__.partition(".")[0] == "pulumi", "the SDK's own function"
    found = hashlib.sha256(inspect.getsource(own).encode()).hexdigest()[:12]
    assert found == digest, (
        f"{function} differs in pulumi {version('pulumi')}. Read it and its callers in the SDK, and check that it "
        f"still {demand}. Adapt its replacement in stacks/runtime_tuning.py, run tests/engine/test_many_hosts.py and "
        f"tests/engine/test_preview.py, then write {found} here"
    )


def test_each_replacement_matches_the_sdk_and_accepts_its_arguments() -> None:
    assert {f"{module.__name__}.{name}" for module, name in REPLACEMENTS} == {*SDK}
    for replacement in REPLACEMENTS.values():
        names = [*inspect.signature(replacement.__wrapped__).parameters]
        inspect.signature(replacement, follow_wrapped=False).bind(*names)


def test_many_hosts_use_each_replacement(
    calls: Counter[str], key_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_tuning, "MANY_HOSTS", 2)
    names = run_program(3, key_folder, monkeypatch)
    assert "n2-node" in names
    assert {name for name, count in calls.items() if count} == {*SDK}
