"""The folders that `command:remote:CopyToRemote` copies, compared by the hash of their content."""

import hashlib
from pathlib import Path
from typing import Any

from pulumi.runtime.rpc import _special_archive_sig, _special_sig_key

COPY = "command:remote:CopyToRemote"


def problem(source: Any) -> str:
    """Return why a source cannot be copied; empty if it can."""
    folder = isinstance(source, dict) and source.get(_special_sig_key) == _special_archive_sig and source.get("path")
    return "" if folder and Path(folder).is_dir() else "a source that is no folder here"


def hashed(source: dict[str, Any]) -> dict[str, Any]:
    """Return a source with its hash. The CLI's hash differs, because it packs the folder first."""
    folder, content = Path(source["path"]), hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for part in (path.relative_to(folder).as_posix().encode(), path.read_bytes()):
            content.update(len(part).to_bytes(8, "big") + part)
    return {**source, "hash": content.hexdigest()}


def comparable(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs as the CLI compares them: a folder by its hash, whatever its path."""
    source = inputs.get("source")
    return {**inputs, "source": source["hash"]} if isinstance(source, dict) and "hash" in source else inputs


def moved(old_inputs: dict[str, Any], new_inputs: dict[str, Any]) -> bool:
    """Return whether an update copies again. As in the provider, another connection is no reason."""
    old, new = comparable(old_inputs), comparable(new_inputs)
    return any(old.get(key) != new.get(key) for key in ("source", "remotePath"))
