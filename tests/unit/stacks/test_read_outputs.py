"""The outputs that the last run of a stack left, read by a function of the engine."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from stacks.read_outputs import StackOutputs, read_outputs


def read(monkeypatch: pytest.MonkeyPatch, outputs: dict[str, Any], *secrets: str) -> StackOutputs:
    """Read outputs of a stack whose engine returns these."""

    async def invoke(token: str, arguments: dict[str, str]) -> dict[str, Any]:
        assert (token, arguments) == ("pulumi:pulumi:readStackOutputs", {"name": "org/tailrack/dev"})
        return {**arguments, "outputs": outputs, "secretOutputNames": list(secrets)}

    monkeypatch.setattr("pulumi.runtime.get_root_resource", lambda: None)
    monkeypatch.setattr("pulumi.runtime.invoke_async", invoke)
    return asyncio.run(read_outputs("org/tailrack/dev"))


def parts(outputs: StackOutputs, name: str) -> tuple[Any, bool, bool]:
    """The value of an output, whether it is known, and whether it is secret."""

    async def of_output() -> tuple[Any, bool, bool]:
        output = outputs.output(name)
        return await output.future(), await output.is_known(), await output.is_secret()

    return asyncio.run(of_output())


# A preview reads an output that a failed step left unknown as Unknown, and `up` as None.
def test_a_secret_output_stays_secret_and_an_unknown_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = pulumi.output.Unknown()
    outputs = read(monkeypatch, {"validation": {"rack": 1}, "token": "hush", "training": {"a": unknown}}, "token")
    assert parts(outputs, "validation") == ({"rack": 1}, True, False)
    assert parts(outputs, "token") == ("hush", True, True)
    assert parts(outputs, "training") == parts(outputs, "none") == (None, True, False)
    assert outputs.outputs.keys() == {"validation", "token"}


# The engine writes the state when the stack is registered, and a read at that moment may fail.
def test_the_outputs_are_read_once_the_stack_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    async def registered() -> None:
        await asyncio.sleep(0)
        order.append("registered")

    async def invoke(*_: Any) -> dict[str, Any]:
        order.append("read")
        return {"outputs": {}, "secretOutputNames": []}

    root = SimpleNamespace(urn=SimpleNamespace(future=registered))
    monkeypatch.setattr("pulumi.runtime.get_root_resource", lambda: root)
    monkeypatch.setattr("pulumi.runtime.invoke_async", invoke)
    asyncio.run(read_outputs("dev"))
    assert order == ["registered", "read"]


def test_outputs_that_cannot_be_read_are_one_sentence_that_names_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    async def invoke(token: str, _: Any) -> None:
        raise Exception(f'invoke of {token} failed: invocation of {token} returned an error: unknown stack "dev"')

    monkeypatch.setattr("pulumi.runtime.get_root_resource", lambda: None)
    monkeypatch.setattr("pulumi.runtime.invoke_async", invoke)
    with pytest.raises(pulumi.RunError, match=r"^the outputs of stack 'dev' cannot be read: unknown stack \"dev\"$"):
        asyncio.run(read_outputs("dev"))
