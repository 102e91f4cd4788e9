"""Fixtures of the unit tests; what they are made of is in configs.py, recorded.py and shell.py."""

import asyncio
import copy
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from components.node.install import install
from components.roles.program import program
from components.steps import delivery
from stacks.config import parse
from tests.unit.configs import AUTH_KEY, HOSTS, LAB, LAB_PRIVATE_KEY, MUNGE_KEY, PRIVATE_KEY, RawConfig
from tests.unit.recorded import Build, Recorded, record_cluster
from tests.unit.shell import TOOLS, Shell, machine

# Garbage collection reports futures that nobody awaited. A traceback formatted there breaks a running ast.parse.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)

_LOOP = asyncio.new_event_loop()


def pytest_runtest_setup() -> None:
    """Give Pulumi's mocks the thread's event loop, which asyncio.run of an earlier test has taken away."""
    asyncio.set_event_loop(_LOOP)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let the second process import all tests from the last one on, so that each process compiles half of them."""
    folder = Path(__file__).parent
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and session.config.args == ["tests/unit"]:
        for path in sorted(folder.rglob("test_*.py"), reverse=True):
            import_module(".".join(("tests.unit", *path.relative_to(folder).with_suffix("").parts)))


@pytest.fixture(scope="session")
def key_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a private key, as a stack config of kind hosts names it."""
    folder = tmp_path_factory.mktemp("keys")
    (folder / "key").write_text(PRIVATE_KEY)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the test's own with that key."""
    (tmp_path / "key").write_text(PRIVATE_KEY)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def scripts_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Scripts on their way to machines lie elsewhere than those of this checkout's stacks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "FOLDER", tmp_path_factory.mktemp("scripts"))
        yield


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has the program as it is on machines, under its digest (components/node/install.py)."""
    folder = tmp_path_factory.mktemp("program")
    install(program().archive, program().digest, str(folder))
    return folder


@pytest.fixture(scope="session")
def secret_texts() -> dict[str, str]:
    """What the mocks give out that nobody may see."""
    return {"munge key": MUNGE_KEY, "lab private key": LAB_PRIVATE_KEY, "auth key": AUTH_KEY}


@pytest.fixture(scope="session")
def build(key_folder: Path) -> Build:
    """See recorded.Build."""
    built: dict[str, Recorded] = {}

    def run(raw: RawConfig, *, again: bool = False, **how: Any) -> Recorded:
        key = json.dumps([raw, how], sort_keys=True)
        if again or key not in built:
            built[key] = anew(raw, **how)
        return built[key]

    def anew(raw: RawConfig, *, secret: Sequence[str] = (), **how: Any) -> Recorded:
        config = parse(copy.deepcopy(raw), base_dir=key_folder, secret_keys=frozenset({"tailnet", *secret}))
        return record_cluster(config, **how)

    return run


@pytest.fixture
def lab_config() -> RawConfig:
    """Two lab sites of one node each; the head node computes."""
    return copy.deepcopy(LAB)


@pytest.fixture
def hosts_config() -> RawConfig:
    """One site of four machines, three of them with GPUs; the head node does not compute; an auth key."""
    return copy.deepcopy(HOSTS)


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the commands that scripts may really run."""
    folder = tmp_path_factory.mktemp("tools")
    for name in TOOLS.split():
        found = shutil.which(name)
        assert found, f"this machine has no {name}, which the scripts use"
        (folder / name).symlink_to(found)
    (folder / "sleep").symlink_to(shutil.which("true") or "")  # a stub: scripts poll without pausing
    return folder


@pytest.fixture
def shell(tmp_path: Path, tools: Path) -> Shell:
    """Bash in an empty folder that stands for the whole machine, with stubs for what would need root."""
    return machine(tmp_path, tools)
