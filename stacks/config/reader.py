"""The one walker over the config: reads raw values into drafts, and reports each field that does not hold."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from components.settings.draft import Draft, meant
from components.settings.problems import MASK, KeyHelp, Report, below, shown
from components.settings.section import Section, keys_of
from stacks.config.model import POOL, PoolConfig, StackConfig
from stacks.sites import KINDS
from stacks.sites.kind import UNREAD, Site


def _given(raw: Mapping[str, object]) -> dict[str, object]:
    """The keys that have a value: a null is a key left out, as YAML's `key:` means it."""
    return {key: value for key, value in raw.items() if value is not None}


class Reader:
    """Reads raw values into drafts; relative paths start at `base_dir`."""

    def __init__(self, report: Report, base_dir: Path) -> None:
        self._report = report
        self._context = {"base_dir": base_dir}

    def section(self, model: type[Section], raw: object, path: str, unread: frozenset[str] = frozenset()) -> Draft:
        """A mapping read as `model`; keys in `unread` are let pass unread."""
        keys = keys_of(model)
        if not isinstance(raw, Mapping):
            what = f"{self._report.value(path, raw)} is not a mapping"
            self._report.add(path, what, "none of its keys can be read", f"write KEY: VALUE pairs of {', '.join(keys)}")
            return Draft(path, model)
        raw = {name: _given(value) if isinstance(value, Mapping) else value for name, value in _given(raw).items()}
        for name in raw:
            if name not in keys and name not in unread:
                self._unknown(model, str(name), below(path, str(name)))
        values: dict[str, object] = {}
        for name, key in keys.items():
            if name in unread or raw.get(name) is UNREAD:
                continue
            if name not in raw:
                if key.info.is_required():
                    self._report.add(below(path, name), "missing", key.help.breaks, key.help.fix)
            elif key.section is not None and not key.many:
                values[name] = self.section(key.section, raw[name], below(path, name))
            else:
                try:
                    value = key.adapter.validate_python(raw[name], context=self._context)
                except ValidationError as error:
                    for detail in error.errors(include_url=False):
                        self._refused(key.help, detail, below(path, name))
                    continue
                if key.section is not None:
                    at, section = below(path, name), key.section
                    value = tuple(
                        self._item(section, item, getattr(item, "place", below(at, index)))
                        for index, item in enumerate(value)
                    )
                values[name] = value
        return Draft(path, model, raw, values)

    def _item(self, model: type[Section], raw: object, path: str) -> Draft:
        if model is not Site or not isinstance(raw, Mapping):
            return self.section(model, raw, path)
        kind = raw.get("kind")
        if isinstance(kind, str) and kind in KINDS:
            whole = KINDS[kind].complete(raw, path, self._context["base_dir"], self._report)
            return self.section(KINDS[kind].model, whole, path)
        at = below(path, "kind")
        what = f"{self._report.value(at, kind)} is not a kind of site" if kind is not None else "missing"
        kinds = (f"{name} ({keys_of(each.model)['kind'].info.description})" for name, each in KINDS.items())
        self._report.add(at, what, "nobody knows where its nodes come from", f"write {' or '.join(kinds)}")
        known = frozenset(name for each in KINDS.values() for name in keys_of(each.model))
        return self.section(Site, raw, path, unread=known - {"name"})

    def _unknown(self, model: type[Section], key: str, path: str) -> None:
        if model is PoolConfig and key in keys_of(StackConfig):
            breaks = "the pool has it from its cluster, and this would change nothing"
            self._report.add(path, "is a section of the cluster's own stack", breaks, "take it out here")
            return
        remedy: str | Callable[[], str] = partial(meant, key, keys_of(model))
        if model is StackConfig and key in keys_of(PoolConfig):
            remedy = f"it belongs to a stack of kind {POOL}"
        for kind, other in KINDS.items():
            if issubclass(model, Site) and key in keys_of(other.model):
                remedy = f"it belongs to a site of kind {kind}"
        self._report.add(path, "unknown key", "it would change nothing, without a word", remedy)

    def _refused(self, words: KeyHelp, detail: ErrorDetails, path: str) -> None:
        inside = [part for part in detail["loc"] if part != "[key]"]
        for part in inside:
            path = below(path, part)
        context = detail.get("ctx", {})
        breaks, fix = words.breaks, words.fix
        hidden = words.secret or self._report.hides(path)
        if detail["type"] == "refused" and (words.secret or not hidden):
            what = context["what"]
            breaks, fix = context["breaks"] or breaks, context["fix"] or fix
        elif detail["type"] == "string_too_long":
            what = f"is longer than {context['max_length']} characters"
        else:
            what = f"does not fit in {words.wants}" if inside else f"is not {words.wants}"
        self._report.add(path, f"{MASK if hidden else shown(detail['input'])} {what}", breaks, fix)
