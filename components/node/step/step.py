"""The step that a phase belongs to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.node import files
from components.node.declared import Record
from components.node.failure import Failure
from components.node.files import File
from components.node.locks import Lock
from components.node.log import LOG_DIR as LOG_DIR
from components.node.log import STATE_DIR as STATE_DIR


@dataclass
class Step:
    """The values and functions that a phase uses.

    host     the machine that the step runs on
    name     the step's name, also its log's
    repair   a text of the config whose change runs the step again, or empty
    changed  whether one of the files of the phase's role, written just before the phase, changed
    locked   whether the step has the host's lock
    foreign  what the checks have found of another cluster (role foreign_cluster)
    record   what the roles of this step have on the machine
    perform  a function that runs another action of the plan with some values changed
    """

    host: str
    name: str
    repair: str = ""
    changed: bool = False
    locked: bool = False
    foreign: list[str] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    at_end: list[Callable[[], None]] = field(default_factory=list)
    later: list[Callable[[], object]] = field(default_factory=list)
    record: Record | None = None
    perform: Callable[[str, Mapping[str, Any]], None] = lambda action, values: None
    _lock: Lock | None = None

    @property
    def here_file(self) -> str:
        """Return the path of a file that exists if the last step of this name was local."""
        return f"{STATE_DIR}/here/{self.name}"

    def result(self, name: str, value: Any) -> None:
        """Add a key and its value to the answer."""
        if value is None:
            raise Failure(f"the step found no {name} on {self.host}")
        self.results[name] = value

    def declare(self, *items: File | str) -> bool:
        """Write files that the phase wants; return whether a text changed. Others of the role go.

        A text is a path that programs make, or an account (node/declared.py). A step without a record only writes.
        """
        if self.record:
            self.record.add(*(item.path if isinstance(item, File) else item for item in items))
        return files.write_all([item for item in items if isinstance(item, File)])

    def take_lock(self, name: str = "tailrack") -> None:
        """Let no other step change this host from now to the end of the step. Further calls do nothing."""
        if not self.locked:
            self._lock = Lock(name)
            self.locked = True

    def release(self) -> None:
        """Give the lock back."""
        if self._lock:
            self._lock.release()
            self._lock, self.locked = None, False
