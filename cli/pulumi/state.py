"""Resources of a stack as the Pulumi CLI exports them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pulumi.runtime.rpc import is_rpc_secret

from cli.run_events import HIDDEN, Made, command_of

STACK_TYPE = "pulumi:pulumi:Stack"


def resources(exported: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the resources of an exported stack, without the stack itself."""
    listed = exported["deployment"].get("resources") or []
    return [resource for resource in listed if resource["type"] != STACK_TYPE]


def made_of(exported: Mapping[str, Any]) -> Made:
    """Return a resource of an export with secrets; its connection is decrypted, other secrets are hidden."""
    inputs, stdout = shown(exported.get("inputs")), (exported.get("outputs") or {}).get("stdout", "")
    read = (urn for urns in (exported.get("propertyDependencies") or {}).values() for urn in urns or ())
    return Made(
        exported["urn"],
        command_of(inputs),
        str(inputs.get("stdin", "")),
        json.loads(stdout["plaintext"]) if is_rpc_secret(stdout) else str(stdout),
        sorted(set(read)),
        _opened((exported.get("inputs") or {}).get("connection")) or {},
        _opened((exported.get("inputs") or {}).get("stdin")) or "",
    )


def _opened(value: Any) -> Any:
    """Return a value of an export with secrets as plain values."""
    if is_rpc_secret(value):
        return _opened(json.loads(value["plaintext"]))
    return {key: _opened(item) for key, item in value.items()} if isinstance(value, dict) else value


def shown(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return inputs or outputs with every secret hidden."""
    return {key: HIDDEN if is_rpc_secret(value) else value for key, value in (values or {}).items()}
