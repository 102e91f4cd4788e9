"""The outputs in a file of Terraform or OpenTofu: a state, or what `terraform output -json` prints.

Pulumi's own reader of these states is a provider, which only the CLI can run, and which reads only local files and HCP.
A file works with both engines and with commands that run no program, and every backend can print it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stacks.sites.hosts.outputs import OtherStack
from stacks.yaml_file import FileError, plain_file

STATE_VERSION = 4  # of Terraform since 0.12 and of OpenTofu
_NO_OUTPUTS = "is neither a state (version 4) nor what `terraform output -json` prints"


def read_outputs(file: Path) -> OtherStack:
    """Return the outputs in a file; those that Terraform calls sensitive are secrets."""
    try:
        content = json.loads(plain_file(file))
    except FileError as error:
        return OtherStack(error=str(error))
    except OSError as error:
        return OtherStack(error=f"{file.name} cannot be read: {error.strerror}")
    except (ValueError, RecursionError):
        return OtherStack(error=f"{file.name} is not JSON")
    outputs = _outputs(content)
    if outputs is None:
        return OtherStack(error=f"{file.name} {_NO_OUTPUTS}")
    secrets = frozenset(name for name, output in outputs.items() if output.get("sensitive", False) is not False)
    return OtherStack({name: output["value"] for name, output in outputs.items()}, secrets)


def _outputs(content: object) -> Mapping[str, Mapping[str, Any]] | None:
    """Return the outputs with their types and values; None if the content has no outputs in a known shape."""
    if not isinstance(content, dict):
        return None
    outputs = content.get("outputs") if content.get("version") == STATE_VERSION else content
    if not isinstance(outputs, dict):
        return None
    return outputs if all(isinstance(value, dict) and "value" in value for value in outputs.values()) else None
