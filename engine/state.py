"""The state: what exists, in one file of mode 0600, sealed with the passphrase, written atomically after every step."""

import fcntl
import json
import os
import secrets
import tempfile
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from engine.events import EngineError

VERSION = "1"  # of the file's format


@dataclass(frozen=True, eq=False)
class Resource:
    """A resource as it was last made. `needs`, `triggered_by` (of `needs`) and `deleted_with` are URNs."""

    urn: str
    custom: bool
    id: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    needs: list[str] = field(default_factory=list)
    triggered_by: list[str] = field(default_factory=list)
    deleted_with: str = ""
    retain_on_delete: bool = False
    secret_outputs: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name the program gave it."""
        return self.urn.rpartition("::")[2]

    @property
    def type(self) -> str:
        """Its type, without those of its parents."""
        return self.urn.split("::")[2].rpartition("$")[2]


class State:
    """Live resources by URN, `condemned` ones (replaced, their delete still to run), and the stack's outputs."""

    def __init__(self, path: Path, owner: str, dry_run: bool = False) -> None:
        """Read the file of `owner`, which is `project/stack`; a dry run never writes it.

        EngineError where it is damaged, is another stack's, or does not open with the passphrase.
        """
        self._path, self._dry_run, self._lock = path, dry_run, threading.RLock()
        new = {"version": VERSION, "owner": owner, "salt": secrets.token_hex(16), "sealed": ""}
        try:
            self._file: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else new
        except ValueError as error:
            raise EngineError(f"{path} is damaged: {error}") from None
        if (self._file["version"], self._file["owner"]) != (VERSION, owner):
            raise EngineError(
                f"{path} holds the state of {self._file['owner']} ({self._file['version']}), not {owner}'s"
            )
        key = Scrypt(salt=bytes.fromhex(self._file["salt"]), length=32, n=2**15, r=8, p=1).derive(passphrase())
        self._fernet = Fernet(urlsafe_b64encode(key))
        try:
            content = json.loads(self._fernet.decrypt(self._file["sealed"])) if self._file["sealed"] else {}
        except InvalidToken:
            raise EngineError("the passphrase does not open the state; set the one it was made with") from None
        self.live = {row["urn"]: Resource(**row) for row in content.get("live", [])}
        self.condemned = [Resource(**row) for row in content.get("condemned", [])]
        self.outputs: dict[str, Any] = content.get("outputs", {})

    def put(self, resource: Resource, replaces: Resource | None = None) -> None:
        """Record a finished step. A resource it replaces is condemned. Nothing is written where nothing changed."""
        with self._lock:
            old = self.live.get(resource.urn)
            self.live[resource.urn] = resource
            self.condemned += [replaces] if replaces else []
            if not old or vars(old) != vars(resource):
                self._save()

    def remove(self, resource: Resource) -> None:
        """Record a deletion."""
        with self._lock:
            if resource in self.condemned:
                self.condemned.remove(resource)
            else:
                del self.live[resource.urn]
            self._save()

    def put_outputs(self, outputs: dict[str, Any]) -> None:
        """Record the stack's outputs."""
        with self._lock:
            if outputs != self.outputs:
                self.outputs = outputs
                self._save()

    def _save(self) -> None:
        if self._dry_run:
            return
        live, condemned = ([vars(resource) for resource in them] for them in (self.live.values(), self.condemned))
        content = json.dumps({"live": live, "condemned": condemned, "outputs": self.outputs})
        self._file["sealed"] = self._fernet.encrypt(content.encode()).decode()
        # A new file, flushed to disk and renamed over the old one: a run killed here leaves one or the other whole.
        handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(self._file, file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(self._path)


def passphrase() -> bytes:
    """Return the passphrase of PULUMI_CONFIG_PASSPHRASE or the file of PULUMI_CONFIG_PASSPHRASE_FILE."""
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return os.environ["PULUMI_CONFIG_PASSPHRASE"].encode()
    try:
        return Path(os.environ["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_bytes().strip()
    except KeyError:
        raise EngineError("no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE (or PULUMI_CONFIG_PASSPHRASE)") from None
    except OSError as error:
        raise EngineError(f"PULUMI_CONFIG_PASSPHRASE_FILE cannot be read: {error}") from None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the state against a second run. The kernel frees the lock when its owner dies, even by SIGKILL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineError(f"another run works on {path}; wait for it or stop it") from None
        yield
