"""What `command:remote:CopyToRemote` copies: a folder here, known by the hash of what is in it."""

import hashlib
from pathlib import Path
from typing import Any

from pulumi.runtime.rpc import _special_archive_sig, _special_sig_key

COPY = "command:remote:CopyToRemote"


def problem(source: Any) -> str:
    """Why something cannot be copied; nothing where it can."""
    folder = isinstance(source, dict) and source.get(_special_sig_key) == _special_archive_sig and source.get("path")
    return "" if folder and Path(folder).is_dir() else "a source that is no folder here"


def hashed(source: dict[str, Any]) -> dict[str, Any]:
    """Return a source with its hash. It is not the CLI's, which packs a folder first."""
    folder, content = Path(source["path"]), hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for part in (path.relative_to(folder).as_posix().encode(), path.read_bytes()):
            content.update(len(part).to_bytes(8, "big") + part)
    return {**source, "hash": content.hexdigest()}


def comparable(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs as the CLI compares them: what is copied by its hash, wherever it lies."""
    source = inputs.get("source")
    return {**inputs, "source": source["hash"]} if isinstance(source, dict) and "hash" in source else inputs


def moved(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether an update copies, as the provider decides: not for another connection."""
    old, new = comparable(before), comparable(after)
    return any(old.get(key) != new.get(key) for key in ("source", "remotePath"))
