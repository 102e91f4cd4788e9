"""Records of this node about its copies: when their sums were last compared, and since when a version is replaced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from components.node import files
from components.roles.datasets.paths import STATE

_FILE = f"{STATE}/known.json"


@dataclass
class Row:
    """A data set: times in Unix seconds by version, and the version that the link leads to.

    forgotten   number of requests to read all files again
    failed      the last failure: `version`, `at`, `done` and `error`; empty without one
    """

    checked: dict[str, float] = field(default_factory=dict)
    replaced: dict[str, float] = field(default_factory=dict)
    pointed: str = ""
    forgotten: int = 0
    failed: dict[str, Any] = field(default_factory=dict)


@dataclass
class Known:
    """The records by data set."""

    rows: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Known:
        """Return the records on the disk."""
        try:
            data: dict[str, Any] = json.loads(files.read(_FILE) or "{}")
            return cls({name: Row(**row) for name, row in data.items()})
        except (ValueError, TypeError):
            return cls()

    def of(self, name: str) -> Row:
        return self.rows.setdefault(name, Row())

    def forget_checks(self, names: Sequence[str]) -> None:
        """Forget when the files of data sets, by default of all, were read."""
        for name in names or [*self.rows]:
            row = self.of(name)
            row.checked, row.forgotten = {}, row.forgotten + 1

    def write(self) -> None:
        """Write the records. A request that came meanwhile stays."""
        for name, row in Known.read().rows.items():
            if name in self.rows and row.forgotten != self.rows[name].forgotten:
                self.rows[name].checked, self.rows[name].forgotten = {}, row.forgotten
        files.write(_FILE, json.dumps({name: asdict(row) for name, row in self.rows.items()}), 0o600)
