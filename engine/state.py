"""The state: what exists, in one file of mode 0600, written atomically after every step, its secrets sealed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from engine.events import EngineError
from engine.secrets import Vault
from engine.values import SECRET, SIGNATURE, map_secrets

VERSION = 1


@dataclass(frozen=True)
class Resource:
    """A resource as it was last made: its inputs, what came out of it, and what it needs (URNs)."""

    urn: str
    type: str
    custom: bool
    parent: str = ""
    id: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    dependencies: list[str] = field(default_factory=list)
    property_dependencies: dict[str, list[str]] = field(default_factory=dict)
    deleted_with: str = ""
    retain_on_delete: bool = False
    replace_on: list[str] = field(default_factory=list)
    secret_outputs: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name the program gave it."""
        return self.urn.rpartition("::")[2]

    def needs(self) -> set[str]:
        """URNs that must exist as long as this resource does."""
        return {*self.dependencies, *chain(*self.property_dependencies.values()), self.parent, self.deleted_with}


class State:
    """Live resources by URN, `condemned` ones (replaced, their delete still to run), and the stack's outputs."""

    def __init__(self, path: Path, owner: str) -> None:
        """Read the file, if there is one. `owner` is `project/stack`; EngineError where it is another's."""
        self.path = path
        self.live: dict[str, Resource] = {}
        self.condemned: list[Resource] = []
        self.outputs: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._rows: dict[int, tuple[Resource, dict[str, Any]]] = {}
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            saved = {"version": VERSION, "owner": owner, "salt": b64encode(os.urandom(16)).decode()}
        except ValueError as error:
            raise EngineError(f"{path} is damaged ({error}); {path}.bak is from before the last run") from None
        if (saved["version"], saved["owner"]) != (VERSION, owner):
            raise EngineError(f"{path} holds the state of {saved['owner']} (version {saved['version']}), not {owner}'s")
        self._head = {key: saved[key] for key in ("version", "owner", "salt")}
        self._vault = Vault(b64decode(saved["salt"]))
        # A value only the right passphrase opens, so that a state without secrets is refused with a wrong one too.
        self._head["check"] = saved.get("check") or self._vault.seal(owner)
        self._vault.open(self._head["check"])
        self._outputs = saved.get("outputs", {})
        self.outputs = self._open(self._outputs)
        for row in saved.get("resources", []):
            condemned = row.pop("condemned")
            resource = Resource(**self._open(row))
            self._rows[id(resource)] = (resource, row)
            if condemned:
                self.condemned.append(resource)
            else:
                self.live[resource.urn] = resource

    def put(self, resource: Resource, replaces: Resource | None = None) -> None:
        """Record a finished step. A resource it replaces is condemned. Nothing is written where nothing changed."""
        with self._lock:
            if replaces:
                self.condemned.append(replaces)
            elif self.live.get(resource.urn) == resource:
                return
            self.live[resource.urn] = resource
            self._save()

    def remove(self, resource: Resource) -> None:
        """Record a deletion."""
        with self._lock:
            if self.live.get(resource.urn) is resource:
                del self.live[resource.urn]
            self.condemned = [other for other in self.condemned if other is not resource]
            self._save()

    def put_outputs(self, outputs: dict[str, Any]) -> None:
        """Record the stack's outputs."""
        with self._lock:
            if outputs != self.outputs:
                self.outputs, self._outputs = outputs, self._seal(outputs)
                self._save()

    def _save(self) -> None:
        # A new file, flushed to disk and renamed over the old one: a run killed here leaves one or the other whole.
        rows = [self._row(resource, False) for resource in self.live.values()]
        rows += [self._row(resource, True) for resource in self.condemned]
        head = json.dumps({**self._head, "outputs": self._outputs})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f'{head[:-1]}, "resources": [\n' + ",\n".join(rows) + "\n]}\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(self.path)

    def _row(self, resource: Resource, condemned: bool) -> str:
        # Kept by identity: resources never change, and sealing all of them at every step would cost the square.
        if id(resource) not in self._rows:
            self._rows[id(resource)] = (resource, self._seal(asdict(resource)))
        return json.dumps({"condemned": condemned, **self._rows[id(resource)][1]})

    def _seal(self, value: Any) -> Any:
        return map_secrets(value, lambda secret: {SIGNATURE: SECRET, "sealed": self._vault.seal(secret["value"])})

    def _open(self, value: Any) -> Any:
        return map_secrets(value, lambda secret: {SIGNATURE: SECRET, "value": self._vault.open(secret["sealed"])})


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the state against a second run, and keep a copy of it from before this one (`.bak`).

    The lock belongs to the process: the kernel frees it when its owner dies, even by SIGKILL.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(handle, "r+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineError(f"another run (process {lock.read()}) works on {path}; wait for it or stop it") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        if path.exists():
            shutil.copy2(path, f"{path}.bak")
        yield
