"""Parse a machine's package sources in both of apt's formats (man 5 sources.list)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """Binary packages of some suites (`bookworm`, `bookworm-security`) at an address without a slash at its end."""

    uri: str
    suites: tuple[str, ...]

    @property
    def security(self) -> bool:
        """Return whether these are security updates, which have a separate archive."""
        return any(suite.endswith(("-security", "/updates")) for suite in self.suites)


def read_one_line(text: str) -> list[Source]:
    """Return the sources of a *.list file: `deb [options] URI suite component ...`. Media that need hands are none."""
    sources = []
    for line in text.splitlines():
        entry = re.fullmatch(r"deb\s+(?:\[[^]]*\]\s*)?(https?://\S+)\s+(\S+)(?:\s.*)?", line.partition("#")[0].strip())
        sources += [Source(entry[1].rstrip("/"), (entry[2],))] if entry else []
    return sources


def read_deb822(text: str) -> list[Source]:
    """Return the sources of a *.sources file: stanzas of fields, some of them on several lines, some not enabled."""
    sources = []
    for stanza in _stanzas(text):
        if "deb" not in stanza.get("types", "").split() or stanza.get("enabled", "yes").lower() in ("no", "false"):
            continue
        uris = [uri.rstrip("/") for uri in stanza.get("uris", "").split() if re.match("https?://", uri)]
        sources += [Source(uri, tuple(stanza.get("suites", "").split())) for uri in uris]
    return sources


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each stanza by lower-case name."""
    uncommented = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in re.split(r"\n\s*\n", uncommented):
        fields = re.findall(r"^([\w-]+):(.*(?:\n[ \t].*)*)", block, re.MULTILINE)
        yield {name.lower(): value.strip() for name, value in fields}


def read_folder(apt: Path) -> list[Source]:
    """Return all sources that a machine's folder /etc/apt names."""
    lists = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]
    sources = [source for file in lists if file.is_file() for source in read_one_line(file.read_text(encoding="utf-8"))]
    for file in sorted((apt / "sources.list.d").glob("*.sources")):
        sources += read_deb822(file.read_text(encoding="utf-8"))
    return sources
