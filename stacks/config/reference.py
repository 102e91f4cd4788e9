"""The reference of all config keys, for docs/config.md."""

from collections.abc import Iterator

from components.settings.problems import ROOT, child_path, show_names, shown
from components.settings.section import Key, Section, keys_of
from components.validation.sizes import format_size
from stacks.config.model import PoolConfig, StackConfig
from stacks.sites import KINDS
from stacks.sites.kind import Site


def reference() -> str:
    """Return a Markdown table of all config keys: key, type, default, description."""
    head = ["| key | type | default | description |", "|---|---|---|---|"]
    shared = [name for name, key in keys_of(PoolConfig).items() if key.section and key.section is _section(name)]
    pools = [
        "",
        f"A stack of kind `pool` ([pools.md](pools.md)) has {show_names(shared)} as above, and:",
        "",
        *head,
        *(row for name in keys_of(PoolConfig) if name not in shared for row in _rows(PoolConfig, ROOT, name)),
    ]
    return "\n".join([*head, *_rows(StackConfig, ROOT), *pools]) + "\n"


def _section(name: str) -> type[Section] | None:
    key = keys_of(StackConfig).get(name)
    return key.section if key else None


def _rows(model: type[Section], path: str, only: str = "") -> Iterator[str]:
    for name, key in keys_of(model).items():
        if only not in ("", name):
            continue
        key_path = child_path(path, name)
        if key.section is Site:
            for kind, site in KINDS.items():
                yield from _rows(site.model, f"{key_path}[kind: {kind}]")
        elif key.section is not None:
            yield from _rows(key.section, f"{key_path}[]" if key.many else key_path)
        else:
            cells = (f"`{key_path}`", key.help.wants, _default(name, key), key.info.description or "")
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(name: str, key: Key) -> str:
    if key.info.is_required():
        return "required"
    default = key.info.default
    if key.info.default_factory is not None or default in (None, (), {}, ""):
        return key.help.default_text
    if isinstance(default, str):
        return f"`{default}`"
    if name.endswith("_bytes"):
        return f"`{format_size(default).removesuffix('iB').replace(' ', '')}`"
    return f"`{shown(default)}`"
