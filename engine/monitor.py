"""The services Pulumi's Python runtime talks to, here in this process: resource monitor and engine log."""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]
from pulumi.runtime.proto import alias_pb2, engine_pb2, resource_pb2

from engine.commands import CONNECTION_DEFAULTS, LOCAL, REMOTE
from engine.copies import COPY, hashed, problem
from engine.events import EngineError, Event
from engine.lifecycle import Lifecycle
from engine.state import Resource
from engine.values import as_secret, plain, secret_lines

STACK, READ_OUTPUTS = "pulumi:pulumi:Stack", "pulumi:pulumi:readStackOutputs"
GET_CLI = "Pulumi's own CLI can: https://www.pulumi.com/docs/install/, then `pulumi up`."
# What the runtime may send; what of it cannot be done is then refused by name.
SENT = ("SECRETS", "RESOURCE_REFERENCES", "ALIAS_SPECS", "REPLACEMENT_TRIGGER", "DELETED_WITH", "TRANSFORMS")
FEATURES = [resource_pb2.ResourceMonitorFeature.Value(f"RESOURCE_MONITOR_FEATURE_{name}") for name in SENT]
# Fields of a registration that are no options, or options that are done, or of no effect on commands in the CLI too.
DONE = {
    *("type", "name", "parent", "custom", "object", "dependencies", "propertyDependencies", "deletedWith"),
    *("deleteBeforeReplace", "deleteBeforeReplaceDefined", "additionalSecretOutputs", "retainOnDelete", "version"),
    *("acceptSecrets", "acceptResources", "supportsPartialValues", "supportsResultReporting", "sourcePosition"),
    *("stackTrace", "packageRef", "customTimeouts", "hideDiffs", "replaceOnChanges"),
    *("aliases", "aliasURNs", "aliasSpecs"),
}
KEYS = {"privateKey", "privateKeyPassword"}  # without the first, an agent's
UNSUPPORTED_INPUTS = {LOCAL: ("archivePaths", "assetPaths"), REMOTE: ("environment",), COPY: ()}


class Monitor:
    """Receives what the program registers. `refused` names what this engine cannot run, `outputs` are the stack's.

    `unreadable` says which stacks have no outputs that can be read, and why. `outputs_of` gives those of a stack of the
    same project by its name, or raises EngineError.
    """

    def __init__(
        self, lifecycle: Lifecycle, project: str, stack: str, outputs_of: Callable[[str], dict[str, Any]]
    ) -> None:
        self.refused, self.unreadable, self.outputs = list[str](), list[str](), dict[str, Any]()
        self._lifecycle, self._outputs_of = lifecycle, outputs_of
        self._project, self._stack = project, stack

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> resource_pb2.RegisterResourceResponse:
        """Bring one resource to what the program asks for. Blocks until it is there."""
        urn = self._urn(request.type, request.name, request.parent)
        response = resource_pb2.RegisterResourceResponse(urn=urn, unknown=True)
        inputs = _python(request.object)
        if problems := _problems(request, inputs):
            self.refused.append(f"{request.type} {request.name}: {', '.join(problems)}")
            return response
        if isinstance(connection := plain(inputs.get("connection")), dict):
            # As the provider's check does: it has its defaults, and is a secret as a whole.
            inputs["connection"] = as_secret({**CONNECTION_DEFAULTS, **connection})
        if request.type == COPY:
            inputs["source"] = hashed(inputs["source"])
        asked: dict[str, Any] = {key: getattr(request, key) for key in ("type", "name", "custom")}
        asked |= {"deleted_with": request.deletedWith, "retain_on_delete": request.retainOnDelete, "inputs": inputs}
        asked |= {"secret_outputs": sorted(request.additionalSecretOutputs)}
        asked |= {"needs": sorted({*request.dependencies, request.parent, request.deletedWith} - {""})}
        asked |= {"values_of": sorted({urn for each in request.propertyDependencies.values() for urn in each.urns})}
        asked |= {"triggered_by": sorted(request.propertyDependencies["triggers"].urns)}
        goal = Resource(urn, **asked)
        if made := self._lifecycle.register(goal, request.deleteBeforeReplace, self._aliases(request)):
            # Without this, what a failed or skipped resource would have given is unknown to the program, which goes on.
            response.unknown, response.id = False, made.id if made.custom else ""
            outputs = {**made.inputs, **made.outputs}
            outputs |= {key: as_secret(outputs[key]) for key in made.secret_outputs if key in outputs}
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
        secret = sorted(key for key, value in outputs.items() if plain(value) != value)
        response = resource_pb2.ResourceInvokeResponse()
        answer = {"name": name, "outputs": outputs, "secretOutputNames": secret}
        json_format.ParseDict(answer, getattr(response, "return"))
        return response

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> empty_pb2.Empty:
        """Keep the stack's outputs; a component's are for people who look at it, and nothing here shows them."""
        if request.urn.split("::")[2] == STACK:
            self.outputs = _python(request.outputs)
        return empty_pb2.Empty()

    def GetDeploymentInfo(self, _request: empty_pb2.Empty) -> resource_pb2.DeploymentInfo:
        """Say what the runtime may send."""
        return resource_pb2.DeploymentInfo(supportedFeatures=FEATURES)

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:
        """Pass on what the program logs; debug messages are the runtime's own."""
        if request.severity != engine_pb2.DEBUG:
            self._lifecycle.tell(Event("message", urn=request.urn, text=request.message))
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, _request: empty_pb2.Empty) -> empty_pb2.Empty:
        """Nothing calls back into the program after its end."""
        return empty_pb2.Empty()

    def __getattr__(self, method: str) -> Callable[[Any], NoReturn]:
        """Refuse every other call: reads, packages, hooks, transforms."""
        return lambda request: self._refuse(method, request)

    def _refuse(self, method: str, request: Any) -> NoReturn:
        name = getattr(request, "tok", "") or f"{getattr(request, 'type', '')} {getattr(request, 'name', '')}"
        self.refused.append(f"{method} {name}".strip())
        raise EngineError(self.refusal())

    def refusal(self) -> str:
        """Say which stacks cannot be read, what this engine cannot run, by name, and what can; else an empty text."""
        first = "this engine runs commands and copies folders (pulumi-command) alone, and cannot run:"
        return "\n".join([*self.unreadable, *(["\n  ".join([first, *self.refused, GET_CLI])] if self.refused else [])])

    def _urn(self, type_: str, name: str, parent: str, stack: str = "", project: str = "") -> str:
        above = parent.split("::")[2] if parent else STACK
        qualified = type_ if above == STACK else f"{above}${type_}"
        return f"urn:pulumi:{stack or self._stack}::{project or self._project}::{qualified}::{name}"

    def _aliases(self, request: resource_pb2.RegisterResourceRequest) -> list[str]:
        """Return the URNs of a resource's aliases, then those that it has because its parent was renamed."""
        specs = (alias.urn or self._from_spec(alias.spec, request) for alias in request.aliases)
        aliases = [*request.aliasURNs, *specs]
        if parent := self._lifecycle.aliases.get(request.parent):
            before, now = parent.split("::", 3)[3], request.parent.split("::", 3)[3]
            urns = [self._urn(request.type, request.name, request.parent), *aliases]
            for _, _, types, name in (urn.split("::", 3) for urn in urns):
                # A child that is called after its parent was called after it before.
                formerly = before + name.removeprefix(now) if name.startswith(now) else name
                aliases.append(self._urn(types.rpartition("$")[2], formerly, parent))
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
    *before, stack = reference.split("/")
    if before not in ([], ["organization"], ["organization", project]):
        raise EngineError(f"this engine reads stacks of its own project alone: organization/{project}/<stack>")
    if not re.fullmatch(r"[\w-][\w.-]*", stack, re.ASCII):
        raise EngineError("a stack's name has letters, digits, dots, hyphens and underscores alone")
    return stack


def _python(properties: struct_pb2.Struct) -> dict[str, Any]:
    # The wire knows only floating-point numbers; the CLI gives whole ones as integers.
    text = json_format.MessageToJson(properties)
    return dict(json.loads(text, parse_float=lambda n: int(float(n)) if float(n).is_integer() else float(n)))


def _problems(request: resource_pb2.RegisterResourceRequest, inputs: dict[str, Any]) -> list[str]:
    """Return what about a resource this engine cannot do."""
    if request.custom and request.type not in UNSUPPORTED_INPUTS:
        return ["this type of resource"]
    # An empty message prints as nothing: the SDK always sends one for hooks.
    options = sorted({field.name for field, value in request.ListFields() if str(value)} - DONE)
    found = ["option " + re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name) for name in options]
    # The SDK itself asks for `triggers[*]`.
    found += [f"option replace_on_changes of {path}" for path in request.replaceOnChanges if path != "triggers[*]"]
    found += [f"input {key}" for key in UNSUPPORTED_INPUTS.get(request.type, ()) if key in inputs]
    found += [why] if request.type == COPY and (why := problem(inputs.get("source"))) else []
    if isinstance(connection := plain(inputs.get("connection")), dict):
        found += _connection_problems(connection, "connection", {"proxy"})
        if isinstance(proxy := plain(connection.get("proxy")), dict):
            found += _connection_problems(proxy, "proxy", set())
    return found


def _connection_problems(connection: dict[str, Any], what: str, besides: set[str]) -> list[str]:
    needed = {"host", "hostKey"}
    found = [f"{what} without {key}" for key in sorted(needed) if not connection.get(key)]
    return found + [
        f"{what} with {key}" for key in sorted({*connection} - needed - KEYS - besides - {*CONNECTION_DEFAULTS})
    ]
