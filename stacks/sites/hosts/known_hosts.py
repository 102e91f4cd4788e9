"""Host keys that a person has looked at, in a file as OpenSSH keeps them: known_hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from components.settings.public_key import KINDS
from stacks.yaml_file import FileError, plain_file

if TYPE_CHECKING:
    from asyncssh import SSHKnownHosts

# The kinds that a server is asked for, best first; none keeps its key in a security key.
TRUSTED = tuple(kind for kind in KINDS if not kind.startswith("sk-"))


class KnownHosts:
    """The keys of a known_hosts file; hashed names are understood, lines of authorities are left out."""

    def __init__(self, entries: SSHKnownHosts | None = None) -> None:
        self._entries = entries

    @classmethod
    def of(cls, base_dir: Path, name: object) -> KnownHosts:
        """The keys of a file; none where there is no such file yet. Whether it can be read, its field says."""
        if not isinstance(name, str):
            return cls()
        from asyncssh import import_known_hosts  # only where it is needed: it takes a fifth of a second

        def read(text: str) -> SSHKnownHosts | None:
            try:
                return import_known_hosts(text)
            except ValueError:
                return None

        try:
            text = plain_file(base_dir / Path(name).expanduser()).decode()
        except (FileError, OSError, ValueError, RuntimeError):
            return cls()
        if (entries := read(text)) is None:
            # As OpenSSH, pass over a line that is none, such as git's between two sides. One with a mark may have been
            # there to revoke a key.
            bad = {line for line in text.splitlines() if read(line) is None}
            if not any(line.lstrip().startswith("@") for line in bad):
                entries = read("\n".join(line for line in text.splitlines() if line not in bad))
        return cls(entries)

    def key_of(self, address: object, port: object) -> str | None:
        """The host's key as `TYPE BASE64`, the best kind that is there; None where none is, or it was revoked."""
        if self._entries is None or not isinstance(address, str) or not isinstance(port, int):
            return None
        # As OpenSSH: another port is another server, and has a line of its own.
        name = address.lower().rstrip(".")
        keys, _authorities, revoked, *_ = self._entries.match(name if port == 22 else f"[{name}]:{port}", "", None)
        lines = [key.export_public_key().decode().split()[:2] for key in keys if key not in revoked]
        for kind in TRUSTED:
            for found, text in lines:
                if found == kind:
                    return f"{found} {text}"
        return None
