"""The reader of the config: it reads raw values into drafts, and reports each invalid field."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from components.settings.draft import Draft, suggest
from components.settings.problems import MASK, KeyHelp, Report, child_path, shown
from components.settings.section import Section, keys_of
from stacks.config.model import POOL, PoolConfig, StackConfig
from stacks.sites import KINDS
from stacks.sites.kind import UNREAD, Site


def _without_nulls(raw: Mapping[str, object]) -> dict[str, object]:
    """Return the keys with a value: a null, as YAML reads `key:`, means that the key is left out."""
    return {key: value for key, value in raw.items() if value is not None}


class Reader:
    """Reads raw values into drafts. Relative paths start at `base_dir`."""

    def __init__(self, report: Report, base_dir: Path) -> None:
        self._report = report
        self._context = {"base_dir": base_dir}

    def section(self, model: type[Section], raw: object, path: str, unread: frozenset[str] = frozenset()) -> Draft:
        """Return a mapping read as `model`. Keys in `unread` are skipped."""
        keys = keys_of(model)
        if not isinstance(raw, Mapping):
            problem = f"{self._report.value(path, raw)} is not a mapping"
            fix = f"write KEY: VALUE pairs of {', '.join(keys)}"
            self._report.add(path, problem, "none of its keys can be read", fix)
            return Draft(path, model)
        lacks = getattr(raw, "lacks", {})
        raw = {
            name: _without_nulls(value) if isinstance(value, Mapping) else value
            for name, value in _without_nulls(raw).items()
        }
        for name in raw:
            if name not in keys and name not in unread:
                self._report_unknown(model, str(name), child_path(path, str(name)))
        values: dict[str, object] = {}
        for name, key in keys.items():
            if name in unread or raw.get(name) is UNREAD:
                continue
            if name not in raw:
                if key.info.is_required():
                    problem, fix = lacks.get(name, ("missing", key.help.fix))
                    self._report.add(child_path(path, name), problem, key.help.breaks, fix)
            elif key.section is not None and not key.many:
                values[name] = self.section(key.section, raw[name], child_path(path, name))
            else:
                try:
                    value = key.adapter.validate_python(raw[name], context=self._context)
                except ValidationError as error:
                    for detail in error.errors(include_url=False):
                        self._report_invalid(key.help, detail, child_path(path, name))
                    continue
                if key.section is not None:
                    list_path, section = child_path(path, name), key.section
                    value = tuple(
                        self._item(section, item, getattr(item, "place", child_path(list_path, index)))
                        for index, item in enumerate(value)
                    )
                values[name] = value
        return Draft(path, model, raw, values)

    def _item(self, model: type[Section], raw: object, path: str) -> Draft:
        if model is not Site or not isinstance(raw, Mapping):
            return self.section(model, raw, path)
        kind = raw.get("kind")
        if isinstance(kind, str) and kind in KINDS:
            site = KINDS[kind].complete(raw, path, self._context["base_dir"], self._report)
            return self.section(KINDS[kind].model, site, path)
        kind_path = child_path(path, "kind")
        problem = f"{self._report.value(kind_path, kind)} is not a kind of site" if kind is not None else "missing"
        kinds = (f"{name} ({keys_of(entry.model)['kind'].info.description})" for name, entry in KINDS.items())
        self._report.add(kind_path, problem, "the site would have no machines", f"write {' or '.join(kinds)}")
        site_keys = frozenset(name for entry in KINDS.values() for name in keys_of(entry.model))
        return self.section(Site, raw, path, unread=site_keys - {"name"})

    def _report_unknown(self, model: type[Section], key: str, path: str) -> None:
        if model is PoolConfig and key in keys_of(StackConfig):
            breaks = "the pool takes it from its cluster, so it would have no effect"
            self._report.add(path, "is a section of the cluster's stack", breaks, "remove it here")
            return
        fix: str | Callable[[], str] = partial(suggest, key, keys_of(model))
        if model is StackConfig and key in keys_of(PoolConfig):
            fix = f"it belongs to a stack of kind {POOL}"
        for kind, entry in KINDS.items():
            if issubclass(model, Site) and key in keys_of(entry.model):
                fix = f"it belongs to a site of kind {kind}"
        self._report.add(path, "unknown key", "it would have no effect", model.absent.get(key, fix))

    def _report_invalid(self, key_help: KeyHelp, detail: ErrorDetails, path: str) -> None:
        inside = [part for part in detail["loc"] if part != "[key]"]
        for part in inside:
            path = child_path(path, part)
        context = detail.get("ctx", {})
        breaks, fix = key_help.breaks, key_help.fix
        hidden = key_help.secret or self._report.hides(path)
        if detail["type"] == "refused" and (key_help.secret or not hidden):
            problem = context["problem"]
            breaks, fix = context["breaks"] or breaks, context["fix"] or fix
        elif detail["type"] == "string_too_long":
            problem = f"is longer than {context['max_length']} characters"
        else:
            problem = f"does not fit in {key_help.wants}" if inside else f"is not {key_help.wants}"
        seen = MASK if hidden or context.get("hide") else shown(detail["input"])
        self._report.add(path, f"{seen} {problem}", breaks, fix)
