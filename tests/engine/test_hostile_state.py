"""Files of the driver's and the engine's own that hold something else: one sentence, nothing touched."""

import json
from pathlib import Path

import pytest

from cli.pulumi.stack_locks import Lock
from cli.pulumi.workspace import CliError
from cli.run_events import EngineError
from engine.state import State
from tests.engine.conftest import Deploy
from tests.engine.stack_under_test import Stack

OWNER = "trial/dev"
GOOD = {"owner": OWNER, "salt": "00", "sealed": ""}
WRONG = (5, None, [1], {"a": 1})
OTHER = {
    "a list": b"[]",
    "a number": b"5",
    "null": b"null",
    "no keys": b"{}",
    "another program's": b'{"version": 3, "checkpoint": {}}',
    "half of it": b'{"owner": "trial/dev", "sa',
    "no UTF-8": b"\xff\xfe",
    "nested 100,000 deep": b"[" * 100_000,
    "a number of 5,000 digits": b"9" * 5000,
    **{f"{key} is {value!r}": json.dumps({**GOOD, key: value}).encode() for key in GOOD for value in WRONG},
    "a salt that is no number": json.dumps({**GOOD, "salt": "zz"}).encode(),
}
RENAME = """
pulumi.export("cluster", {"name": json.loads(pulumi.Config("tailrack").require("cluster"))["name"]})
"""


@pytest.mark.parametrize("what", OTHER)
def test_a_state_file_that_is_other_json_is_refused_in_a_sentence(tmp_path: Path, what: str) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(OTHER[what])
    with pytest.raises(EngineError, match="is damaged") as refused:
        State(path, OWNER, "x")
    said = str(refused.value)
    assert str(path) in said
    assert "put a copy of it back" in said
    assert len(said.splitlines()) == 1
    assert path.read_bytes() == OTHER[what]


def test_a_sealed_state_of_other_rows_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = State(path, OWNER, "x")
    for content in (b"5", b'{"live": 5}', b'{"live": [{"urn": "u", "other": 1}]}', b'{"condemned": [5]}'):
        sealed = state._fernet.encrypt(content).decode()
        path.write_text(json.dumps({**state._file, "sealed": sealed}))
        with pytest.raises(EngineError, match="is damaged"):
            State(path, OWNER, "x")


@pytest.mark.parametrize("content", [b"", b"[]", b"5", b"{}", b'{"pid": "x"}', b"\xff", b"{", b"[" * 100_000])
def test_a_truncated_lock_of_the_cli_names_no_holder(content: bytes) -> None:
    lock = Lock.of_file(content)
    assert lock == Lock()
    assert not lock.held
    assert not lock.elsewhere


def test_a_renamed_cluster_is_refused_before_anything_is_touched(stack: Stack, deploy: Deploy) -> None:
    stack.write(RENAME)
    config = stack.folder / "Pulumi.dev.yaml"
    config.write_text("config:\n  tailrack:cluster: {name: one}\n")
    assert deploy("dev", []).up().ok
    config.write_text("config:\n  tailrack:cluster: {name: two}\n")
    for operation in (deploy("dev", []).preview, deploy("dev", []).up):
        with pytest.raises(CliError, match=r"named 'one'.*has 'two'.*write 'one' again"):
            operation()
    assert deploy("dev", []).outputs() == {"cluster": {"name": "one"}}
    config.write_text("config:\n  tailrack:cluster: {name: one}\n")
    assert deploy("dev", []).up().ok
    config.write_text("config:\n  tailrack:cluster: {name: two}\n")
    assert deploy("dev", []).destroy().ok
    assert deploy("dev", []).up().ok


@pytest.mark.parametrize(
    "text", ["config:\n  tailrack:sites: 5\n  tailrack:users: [5]\n  tailrack:head: [x]\n", "config:\n"]
)
def test_hints_from_a_config_of_another_shape_are_the_defaults(stack: Stack, deploy: Deploy, text: str) -> None:
    stack.write("")
    (stack.folder / "Pulumi.dev.yaml").write_text(text)
    written = deploy("dev", []).written
    assert (written.uses_lab, written.first_user, written.head_name) == (False, "USER", "head")
