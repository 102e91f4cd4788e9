"""All config keys with type, default and text, for `make config-help`."""

import difflib
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache

from components.settings.problems import ROOT, child_path, shown
from components.settings.section import Key, Section, keys_of
from components.validation.model import format_size
from stacks.config.model import POOL, PoolConfig, StackConfig


def reference(wanted: str = "") -> str:
    """Return the keys at and below `wanted` as text; all of them if it is empty. Raises KeyError with a sentence."""
    known: dict[str, str] = {}
    for model in (StackConfig, PoolConfig):
        for path, key in _keys(model, ROOT):
            known.setdefault(path, _entry(path, key, model))
    name = _plain(wanted)
    found = [entry for path, entry in known.items() if not name or f"{_plain(path)}.".startswith(f"{name}.")]
    if not found:
        near = difflib.get_close_matches(name, map(_plain, known), 1, 0.5)
        raise KeyError(f"there is no key {wanted!r}" + f"; did you mean {near[0]}?" * bool(near))
    return "\n".join(found)


@cache
def paths_of(name: str) -> list[str]:
    """Return the paths of all keys of a cluster's config with this name."""
    return [path for path, _ in _keys(StackConfig, ROOT) if path.endswith((f".{name}", f":{name}"))]


def _plain(path: str) -> str:
    return re.sub(r"\[[^]]*\]", "", path.removeprefix(ROOT))


def _keys(model: type[Section], path: str) -> Iterator[tuple[str, Key]]:
    for name, key in keys_of(model).items():
        key_path = child_path(path, name)
        yield key_path, key
        for tag, section in key.sections.items():
            place = f"[{key.discriminator}: {tag}]" if tag else "[]" * key.many
            yield from _keys(section, key_path + place)


def _entry(path: str, key: Key, model: type[Section]) -> str:
    default = "required" if key.info.is_required() else f"default: {_default(path, key)}"
    if key.sections and not key.many:
        default = "see its keys"
    kind = f" (a stack of kind {POOL})" if model is PoolConfig else ""
    fix = key.remedy(path.replace("[]", "[0]"))
    if key.help.fix:
        text = f"{key.description} {fix[0].upper()}{fix[1:]}{'.' * (not fix.startswith('run: '))}"
    else:
        text = f"{key.description} A Pulumi secret; {fix}"
    indented = (f"{key.help.wants}; {default}", *textwrap.wrap(text, 96))
    return "\n    ".join((path + kind, *indented)) + "\n"


def _default(path: str, key: Key) -> str:
    default = key.info.default
    if key.info.default_factory is not None or default in (None, (), {}, ""):
        return key.help.default_text
    if key.help.wants.startswith("a size "):
        return format_size(default).removesuffix("iB").replace(" ", "")
    return shown(default) if isinstance(default, bool) else str(default)


def main() -> None:
    """Print the keys that the argument names."""
    try:
        sys.stdout.write(reference(*sys.argv[1:2]))
    except KeyError as error:
        sys.exit(f"{error.args[0]}\nnext: `make config-help` prints all keys")
