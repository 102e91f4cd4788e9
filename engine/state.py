"""The state: all resources in one file of mode 0600, encrypted, and written atomically after every step."""

import itertools
import json
import os
import tempfile
import threading
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from cli.run_events import EngineError


@dataclass(eq=False)
class Resource:
    """A resource as its last step left it. `needs`, `values_of`, `triggered_by` and `deleted_with` are URNs."""

    urn: str
    type: str
    name: str
    custom: bool
    id: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    needs: list[str] = field(default_factory=list)
    values_of: list[str] = field(default_factory=list)
    triggered_by: list[str] = field(default_factory=list)
    deleted_with: str = ""
    retain_on_delete: bool = False
    secret_outputs: list[str] = field(default_factory=list)


class State:
    """Live resources by URN, `condemned` ones (replaced, but not deleted yet), and the stack's outputs."""

    def __init__(self, path: Path, owner: str, passphrase: str, dry_run: bool = False) -> None:
        """Read the file of `owner`, which is `project/stack`. A dry run never writes it.

        Raises EngineError if it is damaged, belongs to another stack, or does not open with the passphrase.
        """
        self._path, self._dry_run, self._lock = path, dry_run, threading.Lock()
        self._changes, self._saved = itertools.count(1), 0  # numbers of changes; the file has those below `saved`
        empty = {"owner": owner, "salt": os.urandom(16).hex(), "sealed": ""}
        self._file = _read(path) if path.exists() else empty
        if self._file["owner"] != owner:
            raise EngineError(f"{path} holds the state of {self._file['owner']}, not of {owner}")
        try:
            salt = bytes.fromhex(self._file["salt"])
            key = Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase.encode())
            self._fernet = Fernet(urlsafe_b64encode(key))
            content = json.loads(self._fernet.decrypt(self._file["sealed"])) if self._file["sealed"] else {}
            self.live = {row["urn"]: Resource(**row) for row in content.get("live", [])}
            self.condemned = [Resource(**row) for row in content.get("condemned", [])]
        except InvalidToken:
            raise EngineError("the passphrase does not open the state; set the passphrase of its first run") from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise _damaged(path, "its content is not a state of this engine") from None
        self.outputs: dict[str, Any] = content.get("outputs", {})

    def put(self, resource: Resource, replaces: Resource | None = None, alias: str = "") -> None:
        """Record a finished step, and condemn the resource that it replaces. Write the file if anything changed.

        alias   the URN that the resource has in the state so far, if that is another one
        """
        if alias:
            self._rename(alias, resource)
        old, self.live[resource.urn] = self.live.get(resource.urn), resource
        self.condemned += [replaces] if replaces else []
        if alias or not old or vars(old) != vars(resource):
            self._save()

    def _rename(self, old: str, goal: Resource) -> None:
        """Give a resource the URN of its goal, also in all resources that refer to it."""
        with self._lock:  # no file may contain half of it
            if renamed := self.live.pop(old, None):
                self.live[goal.urn] = renamed
            for resource in (*self.live.values(), *self.condemned):
                if resource.urn == old:
                    resource.urn, resource.name, resource.type = goal.urn, goal.name, goal.type
                resource.deleted_with = goal.urn if resource.deleted_with == old else resource.deleted_with
                for urns in (resource.needs, resource.values_of, resource.triggered_by):
                    urns[:] = sorted(goal.urn if urn == old else urn for urn in urns)

    def remove(self, resource: Resource) -> None:
        """Record a deletion."""
        if self.live.get(resource.urn) is resource:
            del self.live[resource.urn]
        self.condemned = [other for other in self.condemned if other is not resource]
        self._save()

    def put_outputs(self, outputs: dict[str, Any]) -> None:
        """Record the stack's outputs."""
        if outputs != self.outputs:
            self.outputs = outputs
            self._save()

    def _save(self) -> None:
        if self._dry_run:
            return
        change = next(self._changes)
        with self._lock:
            # While one thread writes, others make changes, and the next file has all of them. Each file is the whole
            # state, tens of megabytes for tens of hosts.
            if change < self._saved:
                return
            newest = next(self._changes)
            resources = {"live": [*map(vars, [*self.live.values()])], "condemned": [*map(vars, [*self.condemned])]}
            content = json.dumps({**resources, "outputs": self.outputs}).encode()
            self._file["sealed"] = self._fernet.encrypt(content).decode()
            # Write a new file and rename it over the old one, so that a killed run leaves one of them whole.
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:  # mode 0600
                json.dump(self._file, file)
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(self._path)
            self._saved = newest


def _read(path: Path) -> dict[str, str]:
    """Return a state file's owner, salt and encrypted content. Raises EngineError if it has no such content."""
    try:
        file = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({type(error).__name__})") from None
    if not isinstance(file, dict) or not all(isinstance(file.get(key), str) for key in ("owner", "salt", "sealed")):
        raise _damaged(path, "it is JSON, but not a state of this engine")
    return file


def _damaged(path: Path, reason: str) -> EngineError:
    remedy = "put a copy of it back; without a copy, move it away, and `up` creates everything again"
    return EngineError(f"{path} is damaged: {reason}; {remedy}")
