"""The services that Pulumi's Python runtime calls, in this process: resource monitor and engine log."""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]
from pulumi.runtime.proto import alias_pb2, engine_pb2, resource_pb2

from cli.run_events import EngineError, Event
from engine.commands import CONNECTION_DEFAULTS, LOCAL, REMOTE
from engine.copies import COPY, hashed, problem
from engine.lifecycle import Lifecycle
from engine.state import Resource
from engine.values import as_secret, plain, secret_lines

STACK, READ_OUTPUTS = "pulumi:pulumi:Stack", "pulumi:pulumi:readStackOutputs"
GET_CLI = "Pulumi's own CLI can: https://www.pulumi.com/docs/install/, then `pulumi up`."
# Features that the runtime may use. The monitor refuses by name what it cannot do.
SENT = ("SECRETS", "RESOURCE_REFERENCES", "ALIAS_SPECS", "REPLACEMENT_TRIGGER", "DELETED_WITH", "TRANSFORMS")
FEATURES = [resource_pb2.ResourceMonitorFeature.Value(f"RESOURCE_MONITOR_FEATURE_{name}") for name in SENT]
# Fields of a registration that are not options, that this engine supports, or that do nothing for commands in the CLI.
DONE = {
    *("type", "name", "parent", "custom", "object", "dependencies", "propertyDependencies", "deletedWith"),
    *("deleteBeforeReplace", "deleteBeforeReplaceDefined", "additionalSecretOutputs", "retainOnDelete", "version"),
    *("acceptSecrets", "acceptResources", "supportsPartialValues", "supportsResultReporting", "sourcePosition"),
    *("stackTrace", "packageRef", "customTimeouts", "hideDiffs", "replaceOnChanges"),
    *("aliases", "aliasURNs", "aliasSpecs", "ignoreChanges"),
}
KEYS = {"privateKey", "privateKeyPassword"}  # without the first, an agent logs in
UNSUPPORTED_INPUTS = {LOCAL: ("archivePaths", "assetPaths"), REMOTE: ("environment",), COPY: ()}


class Monitor:
    """Receives the program's registrations.

    refused      what this engine cannot run
    unreadable   the stacks whose outputs it cannot read, and why
    outputs      of the stack
    outputs_of   returns the outputs of another stack of the project by its name, or raises EngineError
    """

    def __init__(
        self, lifecycle: Lifecycle, project: str, stack: str, outputs_of: Callable[[str], dict[str, Any]]
    ) -> None:
        self.refused, self.unreadable, self.outputs = list[str](), list[str](), dict[str, Any]()
        self._lifecycle, self._outputs_of = lifecycle, outputs_of
        self._project, self._stack = project, stack

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> resource_pb2.RegisterResourceResponse:
        """Bring one resource to the state that the program describes. Blocks until that is done."""
        urn = self._urn(request.type, request.name, request.parent)
        response = resource_pb2.RegisterResourceResponse(urn=urn, unknown=True)
        inputs = _python(request.object)
        if problems := _problems(request, inputs):
            self.refused.append(f"{request.type} {request.name}: {', '.join(problems)}")
            return response
        if isinstance(connection := plain(inputs.get("connection")), dict):
            # As in the provider: a connection gets its defaults, and is secret as a whole.
            inputs["connection"] = as_secret({**CONNECTION_DEFAULTS, **connection})
        if request.type == COPY:
            inputs["source"] = hashed(inputs["source"])
        goal = Resource(
            urn,
            request.type,
            request.name,
            request.custom,
            inputs=inputs,
            needs=sorted({*request.dependencies, request.parent, request.deletedWith} - {""}),
            values_of=sorted({urn for property_ in request.propertyDependencies.values() for urn in property_.urns}),
            triggered_by=sorted(request.propertyDependencies["triggers"].urns),
            deleted_with=request.deletedWith,
            retain_on_delete=request.retainOnDelete,
            secret_outputs=sorted(request.additionalSecretOutputs),
        )
        aliases, ignored = self._aliases(request), list(request.ignoreChanges)
        if result := self._lifecycle.register(goal, request.deleteBeforeReplace, aliases, ignored):
            # The outputs of a failed or skipped resource stay unknown to the program, which continues.
            response.unknown, response.id = False, result.id if result.custom else ""
            outputs = {**result.inputs, **result.outputs}
            outputs |= {key: as_secret(outputs[key]) for key in result.secret_outputs if key in outputs}
            json_format.ParseDict(outputs, response.object)
        return response

    def Invoke(self, request: resource_pb2.ResourceInvokeRequest) -> resource_pb2.ResourceInvokeResponse:
        """Return the outputs of a stack, named as the CLI names it; refuse every other function."""
        if request.tok != READ_OUTPUTS:
            self._refuse("Invoke", request)
        name = request.args["name"]
        try:
            outputs = self._outputs_of(stack_of(name, self._project))
        except EngineError as error:
            self.unreadable.append(f"stack {name!r}, whose outputs this one reads, cannot be read: {error}")
            raise
        self._lifecycle.secrets |= secret_lines(outputs)
        secret_names = sorted(key for key, value in outputs.items() if plain(value) != value)
        response = resource_pb2.ResourceInvokeResponse()
        answer = {"name": name, "outputs": outputs, "secretOutputNames": secret_names}
        json_format.ParseDict(answer, getattr(response, "return"))
        return response

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> empty_pb2.Empty:
        """Keep the stack's outputs. No one can see a component's outputs in this engine."""
        if request.urn.split("::")[2] == STACK:
            self.outputs = _python(request.outputs)
        return empty_pb2.Empty()

    def GetDeploymentInfo(self, _request: empty_pb2.Empty) -> resource_pb2.DeploymentInfo:
        """Return the features that the runtime may use."""
        return resource_pb2.DeploymentInfo(supportedFeatures=FEATURES)

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:
        """Pass on the program's messages, but not the runtime's debug messages."""
        if request.severity != engine_pb2.DEBUG:
            self._lifecycle.tell(Event("message", urn=request.urn, text=request.message))
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, _request: empty_pb2.Empty) -> empty_pb2.Empty:
        """Return at once: the engine makes no calls to the program after its end."""
        return empty_pb2.Empty()

    def __getattr__(self, method: str) -> Callable[[Any], NoReturn]:
        """Refuse every other call: reads, packages, hooks, transforms."""
        return lambda request: self._refuse(method, request)

    def _refuse(self, method: str, request: Any) -> NoReturn:
        name = getattr(request, "tok", "") or f"{getattr(request, 'type', '')} {getattr(request, 'name', '')}"
        self.refused.append(f"{method} {name}".strip())
        raise EngineError(self.refusal())

    def refusal(self) -> str:
        """Return which stacks cannot be read, what this engine cannot run, and what can; empty if there is nothing."""
        first = "this engine only runs commands and copies folders (pulumi-command). It cannot run:"
        return "\n".join([*self.unreadable, *(["\n  ".join([first, *self.refused, GET_CLI])] if self.refused else [])])

    def _urn(self, type_: str, name: str, parent: str, stack: str = "", project: str = "") -> str:
        above = parent.split("::")[2] if parent else STACK
        qualified = type_ if above == STACK else f"{above}${type_}"
        return f"urn:pulumi:{stack or self._stack}::{project or self._project}::{qualified}::{name}"

    def _aliases(self, request: resource_pb2.RegisterResourceRequest) -> list[str]:
        """Return the URNs of a resource's aliases, then those that it gets because its parent was renamed."""
        specs = (alias.urn or self._from_spec(alias.spec, request) for alias in request.aliases)
        aliases = [*request.aliasURNs, *specs]
        if parent := self._lifecycle.aliases.get(request.parent):
            old_name, new_name = parent.split("::", 3)[3], request.parent.split("::", 3)[3]
            urns = [self._urn(request.type, request.name, request.parent), *aliases]
            for _, _, types, name in (urn.split("::", 3) for urn in urns):
                # Like the CLI, assume that a child whose name begins with its parent's name was renamed with it.
                old_child = old_name + name.removeprefix(new_name) if name.startswith(new_name) else name
                aliases.append(self._urn(types.rpartition("$")[2], old_child, parent))
        return aliases

    def _from_spec(self, spec: alias_pb2.Alias.Spec, request: resource_pb2.RegisterResourceRequest) -> str:
        parent = self._lifecycle.aliases.get(spec.parentUrn, spec.parentUrn) or request.parent
        return self._urn(
            spec.type or request.type,
            spec.name or request.name,
            "" if spec.noParent else parent,
            spec.stack,
            spec.project,
        )


def stack_of(reference: str, project: str) -> str:
    """Return the stack's name in a reference: `stack`, `organization/stack` or `organization/project/stack`."""
    *qualifiers, stack = reference.split("/")
    if qualifiers not in ([], ["organization"], ["organization", project]):
        raise EngineError(f"this engine only reads stacks of its own project: organization/{project}/<stack>")
    if not re.fullmatch(r"[\w-][\w.-]*", stack, re.ASCII):
        raise EngineError("the name of a stack may only have letters, digits, dots, hyphens and underscores")
    return stack


def _python(properties: struct_pb2.Struct) -> dict[str, Any]:
    # The protocol has only floating-point numbers; the CLI passes on whole ones as integers.
    text = json_format.MessageToJson(properties)
    return dict(json.loads(text, parse_float=lambda n: int(float(n)) if float(n).is_integer() else float(n)))


def _problems(request: resource_pb2.RegisterResourceRequest, inputs: dict[str, Any]) -> list[str]:
    """Return the parts of a resource that this engine cannot do."""
    if request.custom and request.type not in UNSUPPORTED_INPUTS:
        return ["this type of resource"]
    # An empty message prints as an empty text. The SDK always sends one for hooks.
    options = sorted({field.name for field, value in request.ListFields() if str(value)} - DONE)
    problems = ["option " + re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name) for name in options]
    # The SDK always sends `triggers[*]`.
    problems += [f"option ignore_changes of {path}" for path in request.ignoreChanges if not path.isidentifier()]
    problems += [f"option replace_on_changes of {path}" for path in request.replaceOnChanges if path != "triggers[*]"]
    problems += [f"input {key}" for key in UNSUPPORTED_INPUTS.get(request.type, ()) if key in inputs]
    problems += [reason] if request.type == COPY and (reason := problem(inputs.get("source"))) else []
    if isinstance(connection := plain(inputs.get("connection")), dict):
        problems += _connection_problems(connection, "connection", {"proxy"})
        if isinstance(proxy := plain(connection.get("proxy")), dict):
            problems += _connection_problems(proxy, "proxy", set())
    return problems


def _connection_problems(connection: dict[str, Any], name: str, more_keys: set[str]) -> list[str]:
    required = {"host", "hostKey"}
    unsupported = {*connection} - required - KEYS - more_keys - {*CONNECTION_DEFAULTS}
    return [
        *(f"{name} without {key}" for key in sorted(required) if not connection.get(key)),
        *(f"{name} with {key}" for key in sorted(unsupported)),
    ]
