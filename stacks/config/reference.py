"""Every key of the config as a table, for docs/config.md."""

from collections.abc import Iterator

from components.settings.problems import ROOT, below, shown
from components.settings.section import Key, Section, keys_of
from components.validation.sizes import format_size
from stacks.config.model import StackConfig
from stacks.sites import KINDS
from stacks.sites.kind import Site


def reference() -> str:
    """Every key of the config as a Markdown table: key, type, default, description."""
    rows = ["| key | type | default | what it is |", "|---|---|---|---|", *_rows(StackConfig, ROOT)]
    return "\n".join(rows) + "\n"


def _rows(model: type[Section], path: str) -> Iterator[str]:
    for name, key in keys_of(model).items():
        at = below(path, name)
        if key.section is Site:
            for kind, site in KINDS.items():
                yield from _rows(site.model, f"{at}[kind: {kind}]")
        elif key.section is not None:
            yield from _rows(key.section, f"{at}[]" if key.many else at)
        else:
            cells = (f"`{at}`", key.says.wants, _default(name, key), key.info.description or "")
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(name: str, key: Key) -> str:
    if key.info.is_required():
        return "required"
    default = key.info.default
    if key.info.default_factory is not None or default in (None, (), {}, ""):
        return key.says.otherwise
    if isinstance(default, str):
        return f"`{default}`"
    if name.endswith("_bytes"):
        return f"`{format_size(default).removesuffix('iB').replace(' ', '')}`"
    return f"`{shown(default)}`"
