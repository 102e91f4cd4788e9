"""The one wrapper around remote commands: what it sends, and what it makes of the answer."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.host import Connection, Host
from components.steps.command_line import read_request, render_request, whole_command
from components.steps.composition import Script
from components.steps.results import NOTHING, Answer
from components.steps.step import Step, parse_result
from tests.unit.recorded import Parent, record

HOST = Host(name="a1", site="rack", connection=Connection("192.0.2.2", 2222, "ops", "", "ssh-ed25519 AAAA"))
NO_NUL = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


def script_that_reads(names: Iterable[str], *, undo: bool = False) -> Script:
    return Script({"up": (), **({"down": ()} if undo else {})}, frozenset(names))


@pytest.fixture
def step() -> Callable[..., Any]:
    """Make one step of a script, as step(values, **options); the answer is `{"cpus": 4}`."""

    def make(values: dict[str, Any], **options: Any) -> Any:
        def program() -> dict[str, Any]:
            options.setdefault("parent", Parent())
            options.setdefault("answer", Answer({"cpus": lambda value: value}))
            script = script_that_reads({*values, *options.get("secrets", {})}, undo=options.pop("undo", False))
            return {"result": Step("a1-node", HOST, script, values, label="a1: users", **options).result}

        return record(program, answers={"a1-node": '{"cpus": 4}'})

    return make


def test_a_step_with_secrets_hides_its_whole_input_and_has_a_plain_result(step: Callable[..., Any]) -> None:
    made = step({"users": "ada 6001 6001"}, secrets={"auth_key": "tskey-x"})
    assert "stdin" in made["a1-node"].secret_paths
    assert "tskey-x" not in made["a1-node"].in_plain_state
    assert made.header("a1-node")["auth_key"] == "tskey-x"
    assert made.secret_outputs == set()


def test_a_step_receives_only_the_values_that_its_script_reads() -> None:
    script = script_that_reads({"users_lines"})

    def program() -> dict[str, Any]:
        values, secrets = {"users_lines": "x", "OTHER": "y"}, {"munge_key": "hush"}
        how: dict[str, Any] = {"label": "", "answer": NOTHING, "parent": Parent(), "secrets": secrets}
        return {"result": Step("a1-node", HOST, script, values, **how).result}

    made = record(program, answers={"a1-node": "{}"})
    assert made.header("a1-node").keys() == {"users_lines"}
    assert made["a1-node"].secret_paths.isdisjoint({"stdin"})


def test_a_script_that_reads_a_missing_value_is_rejected_by_name() -> None:
    script = script_that_reads({"FORGOTTEN_WIRE"})
    with pytest.raises(ValueError, match="step a1-node reads FORGOTTEN_WIRE, which it is not given"):
        record(lambda: {"result": Step("a1-node", HOST, script, {}, label="", answer=NOTHING, parent=Parent()).result})


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("root", "answer=$(timeout -k 30 60 python3 -I -S -c "),
        ("ops", "answer=$(sudo -n timeout -k 30 60 python3 -I -S -c "),
    ],
)
def test_a_command_with_its_own_program_uses_sudo_unless_the_login_is_root(user: str, words: str) -> None:
    assert words in whole_command(user, "up", 60)


@settings(max_examples=60)
@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{3,8}", fullmatch=True), NO_NUL, min_size=1, max_size=6))
@example({"quotes": 'it\'s "$(touch /tmp/x)" `id` ${HOME} \\ \n\r\n!!', "end": "\n", "dash": "-n", "empty": ""})
def test_any_text_in_a_request_is_read_as_it_was(values: dict[str, str]) -> None:
    assert read_request(render_request("a1-node", "a1", "", "", values)) == values


@pytest.mark.parametrize(
    "text", ["", "no", "[1]", '"text"', "1", "null", "{} trailing", '{"a": 1', "NaN", '{"private_key": "hush-hush']
)
def test_an_answer_that_is_not_one_json_object_is_refused_by_its_length_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="a step must print one JSON object; this one printed") as refused:
        parse_result(text)
    assert f" {len(text)} characters" in str(refused.value)
    assert "hush" not in str(refused.value)
