"""Host keys that a person has verified, in OpenSSH's known_hosts format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from components.settings.ssh_keys import KINDS
from stacks.yaml_file import FileError, plain_file

if TYPE_CHECKING:
    from asyncssh import SSHKnownHosts

# Kinds to request from a server, best first, without those of security keys.
TRUSTED = tuple(kind for kind in KINDS if not kind.startswith("sk-"))


class KnownHosts:
    """The keys of a known_hosts file. Hashed names work; lines of certificate authorities are ignored."""

    def __init__(self, entries: SSHKnownHosts | None = None) -> None:
        self._entries = entries

    @classmethod
    def load(cls, base_dir: Path, name: object) -> KnownHosts:
        """Return the keys of a file; none if it does not exist yet. Its field reports an unreadable file."""
        if not isinstance(name, str):
            return cls()
        from asyncssh import import_known_hosts  # imported here because it takes a fifth of a second

        def parse(text: str) -> SSHKnownHosts | None:
            try:
                return import_known_hosts(text)
            except ValueError:
                return None

        try:
            text = plain_file(base_dir / Path(name).expanduser()).decode("utf-8-sig", "replace")
        except (FileError, OSError, ValueError, RuntimeError):
            return cls()
        lines = [_plain(line) for line in text.split("\n")]
        if (entries := parse("\n".join(lines))) is None:
            # Like OpenSSH, skip invalid lines, such as git's conflict markers. But an invalid line with a marker (@)
            # may have revoked a key, so it invalidates the file.
            bad = {line for line in lines if parse(line) is None}
            if not any(line.startswith("@") for line in bad):
                entries = parse("\n".join(line for line in lines if line not in bad))
        return cls(entries)

    def key_of(self, address: object, port: object) -> str | None:
        """Return the host's key as `TYPE BASE64`, of the best kind; None without a key, or if it was revoked."""
        if self._entries is None or not isinstance(address, str) or not isinstance(port, int):
            return None
        # Like OpenSSH: another port is another server with its own line.
        name = address.lower().rstrip(".")
        keys, _authorities, revoked, *_ = self._entries.match(name if port == 22 else f"[{name}]:{port}", "", None)
        lines = [key.export_public_key().decode().split()[:2] for key in keys if key not in revoked]
        for kind in TRUSTED:
            for line_kind, text in lines:
                if line_kind == kind:
                    return f"{line_kind} {text}"
        return None


def _plain(line: str) -> str:
    """Return a line without its comment, with names in lower case: OpenSSH ignores both, asyncssh neither."""
    words = re.split(r"[ \t]+", line.strip(" \t\r"))
    marker = words[:1] if words[0].startswith("@") else []
    names, *key = words[len(marker) :] or [""]
    if names.startswith("#"):
        return ""
    # A hashed name is base64.
    return " ".join([*marker, names if names.startswith("|") else names.lower(), *key[:2]])
