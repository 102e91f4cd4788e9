"""The two services Pulumi's Python runtime talks to, here in this process: resource monitor and engine log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]
from pulumi.runtime.proto import engine_pb2, resource_pb2

from engine.commands import CONNECTION_DEFAULTS, LOCAL, REMOTE
from engine.events import EngineError, Event
from engine.lifecycle import Lifecycle
from engine.state import Resource
from engine.values import as_secret, plain

STACK = "pulumi:pulumi:Stack"
GET_CLI = "Pulumi's own CLI can: https://www.pulumi.com/docs/install/, then `pulumi up`."
UNSUPPORTED_OPTIONS = {
    "aliases": "aliases",
    "aliasURNs": "aliases",
    "envVarMappings": "env_var_mappings",
    "ignoreChanges": "ignore_changes",
    "importId": "import_",
    "protect": "protect",
    "provider": "provider",
    "providers": "providers",
    "remote": "remote components",
    "replace_with": "replace_with",
    "transforms": "transforms",
}
UNSUPPORTED_INPUTS = {LOCAL: ("archivePaths", "assetPaths"), REMOTE: ("environment",)}
FEATURES = [
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACEMENT_TRIGGER,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_TRANSFORMS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_PARAMETERIZATION,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS,
]


class Monitor:
    """Receives what the program registers. `refused` names what this engine cannot run, `outputs` are the stack's."""

    def __init__(self, lifecycle: Lifecycle, project: str, stack: str, collect: bool) -> None:
        """`collect`: go on after a refusal, so that all of them are found (a preview)."""
        self._collect = collect
        self.refused: list[str] = []
        self.outputs: dict[str, Any] = {}
        self._lifecycle, self._owner = lifecycle, f"urn:pulumi:{stack}::{project}::"

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> resource_pb2.RegisterResourceResponse:
        """Bring one resource to what the program asks for. Blocks until it is there."""
        qualified = request.type
        if request.parent and (above := request.parent.split("::")[2]) != STACK:
            qualified = f"{above}${request.type}"
        response = resource_pb2.RegisterResourceResponse(urn=f"{self._owner}{qualified}::{request.name}")
        for key, urns in request.propertyDependencies.items():
            response.propertyDependencies[key].urns.extend(urns.urns)
        inputs = _python(request.object)
        if problems := _problems(request, inputs):
            self._refuse(f"{request.type} {request.name}: {', '.join(problems)}")
            return response
        goal = Resource(
            urn=response.urn,
            type=request.type,
            custom=request.custom,
            parent=request.parent,
            inputs=_checked(inputs),
            dependencies=sorted(request.dependencies),
            property_dependencies={key: sorted(urns.urns) for key, urns in request.propertyDependencies.items()},
            deleted_with=request.deletedWith,
            retain_on_delete=request.retainOnDelete,
            # The SDK itself asks for `triggers[*]`.
            replace_on=sorted(path.removesuffix("[*]") for path in request.replaceOnChanges),
            secret_outputs=sorted(request.additionalSecretOutputs),
        )
        made = self._lifecycle.register(goal, request.deleteBeforeReplace)
        # What a failed or skipped resource would have given is unknown to the program, which so goes on.
        response.unknown = made is None
        if made and made.custom:
            response.id = made.id
            outputs = {**made.inputs, **made.outputs}
            outputs |= {key: as_secret(outputs[key]) for key in made.secret_outputs if key in outputs}
            json_format.ParseDict(outputs, response.object)
        return response

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> empty_pb2.Empty:
        """Keep the stack's outputs; a component's are for people who look at it, and nothing here shows them."""
        if request.urn.split("::")[2] == STACK:
            self.outputs = _python(request.outputs)
        return empty_pb2.Empty()

    def GetDeploymentInfo(self, _request: empty_pb2.Empty) -> resource_pb2.DeploymentInfo:
        """Say what the runtime may send. What is then refused is refused by name."""
        return resource_pb2.DeploymentInfo(supportedFeatures=FEATURES)

    def SignalAndWaitForShutdown(self, _request: empty_pb2.Empty) -> empty_pb2.Empty:
        """Nothing calls back into the program after its end."""
        return empty_pb2.Empty()

    def __getattr__(self, method: str) -> Callable[[Any], NoReturn]:
        """Refuse every other call: functions, reads (stack references), packages, hooks, transforms."""

        def refuse(request: Any) -> NoReturn:
            name = getattr(request, "tok", "") or f"{getattr(request, 'type', '')} {getattr(request, 'name', '')}"
            self._refuse(f"{method} {name}".strip())
            raise EngineError(self.refused[-1])

        return refuse

    def _refuse(self, what: str) -> None:
        self.refused.append(what)
        if not self._collect:
            raise EngineError(refusal(self.refused))


def refusal(refused: list[str]) -> str:
    """Say what this engine cannot run, by name, and what can."""
    return "\n  ".join(["this engine runs commands (pulumi-command) alone, and cannot run:", *refused, GET_CLI])


def _python(properties: struct_pb2.Struct) -> dict[str, Any]:
    return dict(json_format.MessageToDict(properties))


def _problems(request: resource_pb2.RegisterResourceRequest, inputs: dict[str, Any]) -> list[str]:
    """Return what about a resource this engine cannot do."""
    if request.custom and request.type not in UNSUPPORTED_INPUTS:
        return ["this type of resource"]
    found = [f"option {name}" for attribute, name in UNSUPPORTED_OPTIONS.items() if getattr(request, attribute)]
    nested = [path for path in request.replaceOnChanges if not path.removesuffix("[*]").isidentifier()]
    found += [f"option replace_on_changes of {path}" for path in nested]
    found += ["option hooks"] if request.hooks.ByteSize() else []
    found += ["option replacement_trigger"] if request.HasField("replacement_trigger") else []
    found += [f"input {key}" for key in UNSUPPORTED_INPUTS.get(request.type, ()) if key in inputs]
    connection = plain(inputs.get("connection"))
    while isinstance(connection, dict):
        found += [] if connection.get("hostKey") else ["connection without hostKey"]
        connection = connection.get("proxy")
    return found


def _checked(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs as the provider's check does: a connection has its defaults, and is a secret as a whole."""
    if "connection" not in inputs:
        return inputs
    connection = plain(inputs["connection"])
    if isinstance(connection, dict):
        connection = {**CONNECTION_DEFAULTS, **connection}
        if isinstance(connection.get("proxy"), dict):
            connection["proxy"] = {**CONNECTION_DEFAULTS, **connection["proxy"]}
    return {**inputs, "connection": as_secret(connection)}


class Log:
    """Receives what the program logs."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:
        """Pass a message on; debug messages are the runtime's own."""
        if request.severity != engine_pb2.DEBUG:
            self._on_event(Event("message", urn=request.urn, text=request.message))
        return empty_pb2.Empty()

    def RequirePulumiVersion(self, _request: Any) -> empty_pb2.Empty:
        """Any version will do: there is no CLI here."""
        return empty_pb2.Empty()
