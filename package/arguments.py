"""The arguments of the components: their types, made from the config's schema, and the config that they stand for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pulumi
from pulumi.runtime.rpc import contains_unknowns

from components.settings.problems import ROOT
from components.settings.serialize import whole_numbers
from stacks.config.schema import schema as config_schema
from stacks.release import RELEASE

T = TypeVar("T")
SCHEMA = Path(__file__).with_name("schema.json")
CLUSTER, POOL = "tailrack:index:Cluster", "tailrack:index:Pool"
STACKS = {CLUSTER: "StackConfig", POOL: "PoolConfig"}  # the sections with a component's arguments
SITE_KINDS = ("hosts", "local")  # other kinds make machines, which programs do with their clouds' own packages
ELSEWHERE = {  # keys of rented machines, other stacks and commands
    "StackConfig": ("kind", "api_keys"),
    "PoolConfig": ("kind", "cluster", "api_keys", "elastic", "idle_limit_minutes"),
    "HostsSite": ("hosts_from",),
}
JOINED = {
    "cluster": "the output `cluster` of the cluster's stack: the `summary` of a `Cluster`",
    "headLink": "the output `head_link` of the cluster's stack: the `headLink` of a `Cluster`",
}
CONNECTION = {"address": "host", "host_key": "host_key", "private_key": "private_key"}  # of a host, by key
_PRIVATE_KEY = "the private key for the log-in, a secret; in place of `private_key_file`"
_KINDS = {"type": "string", "description": "`hosts`: your own machines by SSH, or `local`: this machine"}
_RECEIVERS = {"type": "string", "description": "How alerts are sent: `webhook`, `slack` or `mail`."}


def camel(name: str) -> str:
    """Return a key of the config as Pulumi's schemas write it."""
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _definitions() -> dict[str, Any]:
    """Return the config's sections by name. `Site` and `Receiver` have the keys of all kinds that a program may use."""
    whole = config_schema()
    sections: dict[str, Any] = whole["$defs"]
    for section, form in zip(STACKS.values(), ("else", "then"), strict=True):
        stack = whole["properties"]["config"][form]
        properties = {name.removeprefix(ROOT): value for name, value in stack["properties"].items()}
        required = [name for key in stack["required"] if (name := key.removeprefix(ROOT)) not in ELSEWHERE[section]]
        sections[section] = {"properties": properties, "required": required}
        properties["sites"] = {**properties["sites"], "items": {"$ref": "Site"}}
    for section, keys in ELSEWHERE.items():
        for name in keys:
            del sections[section]["properties"][name]
    sections["HostConfig"]["properties"]["private_key"] = {"writeOnly": True, "description": _PRIVATE_KEY}
    sections["Monitoring"]["properties"]["receivers"]["items"] = {"$ref": "Receiver"}
    for name, members, kind, required in (
        ("Site", ("LocalSite", "HostsSite"), _KINDS, ["name", "kind"]),
        ("Receiver", ("MailReceiver", "Webhook"), _RECEIVERS, ["kind"]),
    ):
        merged = {key: value for member in members for key, value in sections[member]["properties"].items()}
        sections[name] = {"properties": {**merged, "kind": kind}, "required": required}
    return sections


SECTIONS = _definitions()


def _choices(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the types that a key may have, without null and without the form of a secret in the stack's file."""
    if "anyOf" in value:
        for choice in value["anyOf"]:
            yield from _choices(choice)
    elif value.get("type") != "null" and "secure" not in value.get("properties", {}):
        yield value


def _is_secret(value: Mapping[str, Any]) -> bool:
    return '"writeOnly": true' in json.dumps(value)


def _section(value: Mapping[str, Any]) -> str:
    """Return the name of a key's section, or of the sections in its list; empty if it has none."""
    for choice in _choices(value):
        if reference := choice.get("items", choice).get("$ref"):
            return str(reference).rpartition("/")[2]
    return ""


def _type(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of a key for Pulumi."""
    first, *others = _choices(value)
    kind = "string" if _is_secret(value) or isinstance(first.get("type"), list) else first.get("type", "string")
    if "$ref" in first:
        return {"$ref": f"#/types/{_token(_section(first))}"}
    if others and not _is_secret(value):
        return {"$ref": "pulumi.json#/Any"}
    inside = {"array": "items", "object": "additionalProperties"}.get(kind)
    return {"type": kind, **({inside: {**_type(first[inside]), "plain": True}} if inside else {})}


def _token(section: str) -> str:
    return f"tailrack:index:{section.removesuffix('Config')}Settings"


def _properties(section: str) -> dict[str, Any]:
    """Return a section's keys for Pulumi. Only secrets and what leads to a machine may be Outputs."""
    found = {}
    for name, value in SECTIONS[section]["properties"].items():
        late = _is_secret(value) or (section == "HostConfig" and name in CONNECTION)
        texts = [choice["description"] for choice in (value, *value.get("anyOf", ())) if "description" in choice]
        text = (texts or [name])[0]
        kind = {"type": "string"} if late else {**_type(value), "plain": True}
        found[camel(name)] = {**kind, **({"secret": True} if _is_secret(value) else {}), "description": text}
    return found


def schema(last: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of the package with the arguments of the config. Its outputs are written by hand."""
    types: dict[str, Any] = {}
    names = [*STACKS.values()]
    for section in names:
        required = [camel(name) for name in SECTIONS[section].get("required", ())]
        kind = {"type": "object", "properties": _properties(section)}
        types[section] = {**kind, **({"required": required} if required else {})}
        inner = map(_section, SECTIONS[section]["properties"].values())
        names += [name for name in dict.fromkeys(inner) if name and name not in names]
    resources = {}
    for token, section in STACKS.items():
        arguments, others = types.pop(section), JOINED if token == POOL else {}
        properties = {name: {"$ref": "pulumi.json#/Any", "description": text} for name, text in others.items()}
        properties |= arguments["properties"]
        inputs = {"inputProperties": properties, "requiredInputs": [*others, *arguments["required"]]}
        resources[token] = {**last["resources"][token], **inputs}
    return {**last, "version": RELEASE, "resources": resources, "types": {_token(name): types[name] for name in types}}


def text() -> str:
    """Return the schema as the file has it."""
    return json.dumps(schema(json.loads(SCHEMA.read_text(encoding="utf-8"))), indent=1) + "\n"


@dataclass
class Config:
    """The config of a cluster or a pool, from the component's arguments.

    raw           values by top-level key
    secret_keys   top-level keys that contain a secret
    connections   Outputs that lead to a host: by its name, and by the field of its Connection
    """

    raw: dict[str, Any] = field(default_factory=dict)
    secret_keys: set[str] = field(default_factory=set)
    connections: dict[str, dict[str, pulumi.Input[Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: Mapping[str, Any], token: str = CLUSTER) -> Config:
        """Read the arguments. Raises InputPropertyError for a value that must be known before the program runs."""
        config = cls()
        keys = SECTIONS[STACKS[token]]["properties"]
        names = {camel(name): name for name in keys}
        for argument, value in arguments.items():
            name = names.get(argument, argument)
            spec = keys.get(name, {})
            config.raw[name] = whole_numbers(config._read(value, name, spec, argument))
        config.secret_keys = {names.get(argument, argument) for argument in config.secret_keys}
        return config

    def _read(self, value: Any, name: str, spec: Mapping[str, Any], path: str) -> Any:
        """Return the value of a key, or a stand-in for one that a preview does not know."""
        value, known, secret = _settled(value)
        if secret and name not in CONNECTION:
            self.secret_keys.add(path.partition(".")[0].partition("[")[0])
        if not known:
            return _stand_in(name, spec, path)
        if isinstance(value, list):
            return [self._read(item, name, spec, f"{path}[{index}]") for index, item in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        section = _section(spec)
        properties = SECTIONS[section]["properties"] if section else {}
        names: dict[str, str] = {camel(inner): inner for inner in properties}
        found = {}
        for key, item in value.items():
            inner = names.get(key, str(key))
            found[inner] = self._read(item, inner, properties.get(inner, {}), f"{path}.{key}")
        if section == "Site" and found.get("kind") not in SITE_KINDS:
            advice = "make the machines in this program, and list them as hosts of a site of kind hosts"
            raise pulumi.InputPropertyError(f"{path}.kind", f"is not {' or '.join(SITE_KINDS)}; {advice}")
        if section == "HostConfig":
            late = {key: value[camel(key)] for key in CONNECTION if isinstance(value.get(camel(key)), pulumi.Output)}
            if (private_key := found.pop("private_key", None)) is not None:
                late["private_key"] = pulumi.Output.secret(late.get("private_key", private_key))
                found.setdefault("agent", True)  # the config knows keys in files and in an agent
            self.connections[str(found.get("name"))] = {CONNECTION[key]: output for key, output in late.items()}
        return found


def of_another_stack(value: Any, path: str) -> Any:
    """Return an output of another stack. Raises InputPropertyError for one of this stack, which is not known early."""
    resources: set[pulumi.Resource] = set()

    def whole(value: Any) -> Any:
        if isinstance(value, pulumi.Output):
            resources.update(_now(value.resources()))
            value, known, _ = _settled(value)
            return whole(value) if known else pulumi.UNKNOWN
        if isinstance(value, Mapping):
            return {key: whole(item) for key, item in value.items()}
        return [whole(item) for item in value] if isinstance(value, list) else value

    value = whole(value)
    types = {str(_now(resource.urn.future())).split("::")[2] for resource in resources}
    if contains_unknowns(value) or types - {"pulumi:pulumi:StackReference"}:
        advice = "read it with a StackReference, or write the machines as a site of the Cluster"
        raise pulumi.InputPropertyError(path, f"is not a known output of another stack; {advice}")
    return whole_numbers(value)


def _settled(value: Any) -> tuple[Any, bool, bool]:
    """Return a value, whether it is known, and whether it is secret. The Outputs of arguments never wait."""
    if not isinstance(value, pulumi.Output):
        return value, True, False

    async def settle() -> tuple[Any, bool, bool]:
        settled = await value.future()
        return settled, await value.is_known() and settled is not None, await value.is_secret()

    return _now(settle())


def _now(value: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that need not wait."""
    try:
        value.send(None)
    except StopIteration as result:
        return result.value
    raise RuntimeError("an argument waits for its value")


def _stand_in(name: str, spec: Mapping[str, Any], path: str) -> str:
    """Return a valid value for one that a preview does not know. Raises InputPropertyError where none is possible."""
    mark = hashlib.sha256(path.encode()).hexdigest()
    if name == "host_key":
        return f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA{mark[:42]}"
    if name == "address" or _is_secret(spec):
        return f"unknown-{mark[:16]}"
    sort = "only addresses, host keys and secrets may come from resources of the same run"
    raise pulumi.InputPropertyError(path, f"is not known before the program runs; {sort}")


if __name__ == "__main__":
    SCHEMA.write_text(text(), encoding="utf-8")
