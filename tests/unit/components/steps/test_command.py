"""pulumi-command's resources as the engine is told of them: the same as by the provider's own classes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]
from pulumi.runtime import mocks
from pulumi_command import local, remote

from components.host import Connection
from components.steps.resource import COPY, LOCAL, REMOTE, CommandResource, Options
from components.steps.step import connection_inputs
from tests.unit.configs import HOST_KEY
from tests.unit.recorded import record


def way(*, bastion: bool) -> Connection:
    def one(host: str, through: Connection | None = None) -> Connection:
        return Connection(host, 22, "ops", pulumi.Output.secret("a key"), HOST_KEY, through, pulumi.Output.secret("pw"))

    return one("192.0.2.7", one("192.0.2.1") if bastion else None)


def args(kind: Any, to: Connection) -> Any:
    words: dict[str, Any] = {"host": to.host, "port": float(to.port), "user": to.user, "host_key": to.host_key}  # type: ignore[arg-type]
    words |= {"private_key": to.private_key, "private_key_password": to.passphrase}
    words |= {"dial_error_limit": 5, "per_dial_timeout": 10}
    if to.bastion:
        words["proxy"] = args(remote.ProxyConnectionArgs, to.bastion)
    return kind(**words)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the engine is asked to register."""
    asked: list[dict[str, Any]] = []
    register = mocks.MockMonitor.RegisterResource

    def kept(self: mocks.MockMonitor, request: Any) -> Any:
        asked.append(json_format.MessageToDict(request))
        return register(self, request)

    monkeypatch.setattr(mocks.MockMonitor, "RegisterResource", kept)
    return asked


@pytest.mark.parametrize("bastion", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("kind", [LOCAL, REMOTE, COPY])
def test_the_engine_is_asked_for_the_same_as_by_the_providers_own_class(
    kind: str, unknown: bool, bastion: bool, requests: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    own: dict[str, Callable[[pulumi.Resource, list[Any], Connection], Any]] = {
        LOCAL: lambda parent, needs, _: local.Command(
            "a", dir="/", create="true", delete="false", stdin=pulumi.Output.secret("hush"), triggers=["x", {"a_b": 1}],
            logging=local.Logging.NONE, add_previous_output_in_env=False, opts=options(parent, needs),
        ),
        REMOTE: lambda parent, needs, to: remote.Command(
            "a", connection=args(remote.ConnectionArgs, to), create="true", update="u", stdin="in", triggers=[],
            logging=remote.Logging.NONE, add_previous_output_in_env=False, opts=options(parent, needs),
        ),
        COPY: lambda parent, needs, to: remote.CopyToRemote(
            "a", connection=args(remote.ConnectionArgs, to), source=pulumi.FileArchive(str(tmp_path)),
            remote_path="to", triggers=["x"],
            opts=pulumi.ResourceOptions(parent=parent, depends_on=needs),
        ),
    }  # fmt: skip

    def options(parent: pulumi.Resource, needs: list[Any]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=parent, depends_on=needs, additional_secret_outputs=["stdout"], delete_before_replace=True,
            ignore_changes=["stdin"],
        )  # fmt: skip

    ours: dict[str, Callable[[pulumi.Resource, list[Any], Connection], Any]] = {
        LOCAL: lambda parent, needs, _: CommandResource(
            LOCAL, "a",
            {"dir": "/", "create": "true", "delete": "false", "stdin": pulumi.Output.secret("hush"),
             "triggers": ["x", {"a_b": 1}], "logging": "none", "addPreviousOutputInEnv": False, "update": None},
            Options(parent, needs, None, ["stdout"], True, ["stdin"]),
        ),
        REMOTE: lambda parent, needs, to: CommandResource(
            REMOTE, "a",
            {"connection": connection_inputs(to), "create": "true", "update": "u", "stdin": "in", "triggers": [],
             "logging": "none", "addPreviousOutputInEnv": False},
            Options(parent, needs, None, ["stdout"], True, ["stdin"]),
        ),
        COPY: lambda parent, needs, to: CommandResource(
            COPY, "a",
            {"connection": connection_inputs(to), "source": pulumi.FileArchive(str(tmp_path)), "remotePath": "to",
             "triggers": ["x"]},
            Options(parent, needs),
        ),
    }  # fmt: skip

    for makers in (own, ours):

        def program(make: Any = makers[kind]) -> dict[str, Any]:
            parent = pulumi.ComponentResource("trial:node:Node", "parent")
            first = local.Command("first", create="true")
            made = make(parent, [first], way(bastion=bastion))
            return {} if kind == COPY else {"stdout": made.stdout}

        made = record(program, answers={"a": "{}", "first": "{}"}, unknown=unknown)
        assert made.outputs.keys() == ({"stdout"} if kind != COPY and not unknown else set())
    by_own, by_ours = ([request for request in requests if request["name"] == "a"][index] for index in range(2))
    for request in (by_own, by_ours):
        # Where in a program it was made.
        request.pop("sourcePosition", None)
        request.pop("stackTrace", None)
        request["propertyDependencies"] = {
            name: urns for name, urns in request.get("propertyDependencies", {}).items() if urns
        }
    assert by_ours == by_own
