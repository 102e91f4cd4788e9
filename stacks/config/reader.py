"""The reader of the config: pydantic checks each value, and this module says each error in the words of its key."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from components.settings.problems import MASK, ROOT, Report, child_path, shown, suggest
from components.settings.section import Key, Section, keys_of, located
from stacks.config.model import POOL, PoolConfig, StackConfig
from stacks.config.reference import paths_of
from stacks.sites import KINDS
from stacks.sites.kind import UNREAD, Site

S = TypeVar("S", bound=Section)
# A site that could not be read, and is reported: the rest of the config is read without it.
_NO_SITE = Site.model_construct()
_UNKNOWN = ("extra_forbidden", "invalid_key")  # errors of pydantic about keys
_MOST_PATHS = 6  # places to offer for a key that is in the wrong one


def read(model: type[S], raw: Mapping[str, object], base_dir: Path, report: Report) -> S | None:
    """Return the config, or None after each invalid value was reported. Relative paths start at `base_dir`."""
    sites = raw.get("sites")
    if isinstance(sites, list | tuple):
        parsed = [_site(site, child_path(f"{ROOT}sites", index), base_dir, report) for index, site in enumerate(sites)]
        raw = {**raw, "sites": parsed}
    config = _section(model, raw, ROOT, base_dir, report)
    if config is None or report.problems:
        return None
    report.paths = {id(section): path for section, path in located(config, ROOT)} | report.paths
    return config


def _site(raw: object, path: str, base_dir: Path, report: Report) -> Site:
    if not isinstance(raw, Mapping):
        return _section(Site, raw, path, base_dir, report) or _NO_SITE
    kind = raw.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        raw = KINDS[kind].complete(raw, path, base_dir, report)
        site = _section(KINDS[kind].model, raw, path, base_dir, report)
        hosts = raw.get("hosts")
        for host, entry in zip(getattr(site, "hosts", ()), hosts if isinstance(hosts, list) else (), strict=False):
            report.paths.update((id(section), place) for section, place in located(host, getattr(entry, "place", "")))
        return site or _NO_SITE
    kind_path = child_path(path, "kind")
    problem = f"{report.value(kind_path, kind)} is not a kind of site" if kind is not None else "missing"
    report.add(kind_path, problem, "the site would have no machines", suggest(str(kind), KINDS))
    unread = {name for entry in KINDS.values() for name in keys_of(entry.model)} - {"name"}
    known = {"kind": "", **{key: raw[key] for key in raw.keys() - unread}}
    return _section(Site, known, path, base_dir, report) or _NO_SITE


def _section(model: type[S], raw: object, path: str, base_dir: Path, report: Report) -> S | None:
    try:
        return model.model_validate(_without_nulls(raw), context={"base_dir": base_dir})
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # A misspelt key is not reported as missing too.
        unknown = [detail["loc"] for detail in errors if detail["type"] in _UNKNOWN]
        for detail in errors:
            *above, name = detail["loc"]
            near = [str(key) for *place, key in unknown if place == above] if detail["type"] == "missing" else []
            if not difflib.get_close_matches(str(name), near):
                _report(model, raw, detail, path, report)
    return None


def _without_nulls(raw: Any) -> Any:
    """Return the values but those that are null or already reported: `key:` in YAML means that the key is left out."""
    if isinstance(raw, Mapping):
        return {key: _without_nulls(value) for key, value in raw.items() if value is not None and value is not UNREAD}
    return [_without_nulls(item) for item in raw] if isinstance(raw, list | tuple) else raw


def _report(model: type[Section], raw: Any, detail: ErrorDetails, path: str, report: Report) -> None:
    """Report one error of pydantic at the key that it is about."""
    section: type[Section] | None = model
    key: Key | None = None
    inside: list[object] = []
    lacks: Mapping[str, tuple[str, str]] = {}
    for part in detail["loc"]:
        if part in getattr(raw, "inherited", ()):
            return  # reported at the site
        if section is not None and part in (keys := keys_of(section)):
            lacks, key, path = getattr(raw, "lacks", {}), keys[str(part)], child_path(path, part)
            section = None if key.many else key.section
            raw = raw.get(part) if isinstance(raw, Mapping) else None
        elif key is not None and key.many and isinstance(part, int):
            raw = raw[part] if isinstance(raw, Sequence) else None
            section, path = key.section, getattr(raw, "place", child_path(path, part))
        elif part != "[key]":
            inside.append(part)
            path = child_path(path, part)
    name = str(detail["loc"][-1]) if detail["loc"] else ""
    kind = detail["type"]
    context = detail.get("ctx", {})
    # The others are reported: pydantic counts only valid items, and computes no default from an invalid value.
    too_few = kind == "too_short" and len(detail["input"]) >= context["min_length"]
    if raw is UNREAD or kind == "default_factory_not_called" or too_few:
        return
    if kind in _UNKNOWN and section is not None:
        _report_unknown(section, name, path, report)
    elif section is not None and kind == "model_type":
        fix = f"write KEY: VALUE pairs of {', '.join(keys_of(section))}"
        report.add(path, f"{report.value(path, detail['input'])} is not a mapping", "", fix)
    elif key is not None and kind == "missing":
        problem, fix = lacks.get(name, ("missing", key.remedy(path)))
        report.add(path, problem, key.help.breaks, fix)
    elif key is not None:
        _report_invalid(key, detail, path, bool(inside), report)


def _report_unknown(model: type[Section], key: str, path: str, report: Report) -> None:
    if model is PoolConfig and key in keys_of(StackConfig):
        breaks = "the pool takes it from its cluster, so it would have no effect"
        report.add(path, "is a section of the cluster's stack", breaks, "remove it here")
        return
    fix: str | Callable[[], str] = partial(suggest, key, keys_of(model))
    others = paths_of(key)
    if model is StackConfig and key in keys_of(PoolConfig):
        fix = f"it belongs to a stack of kind {POOL}"
    elif 0 < len(others) <= _MOST_PATHS and not difflib.get_close_matches(key, keys_of(model), 1, 0.8):
        fix = f"did you mean {' or '.join(others)}?"
    report.add(path, "unknown key", "it would have no effect", model.absent.get(key, fix))


def _report_invalid(key: Key, detail: ErrorDetails, path: str, inside: bool, report: Report) -> None:
    context = detail.get("ctx", {})
    breaks, fix = key.help.breaks, key.remedy(path)
    hidden = key.secret or report.hides(path)
    if detail["type"] == "refused" and (key.secret or not hidden):
        problem = context["problem"]
        breaks, fix = context["breaks"] or breaks, context["fix"] or fix
    elif detail["type"] == "string_too_long":
        problem = f"is longer than {context['max_length']} characters"
    else:
        problem = f"does not fit in {key.help.wants}" if inside else f"is not {key.help.wants}"
        choices = [] if hidden else re.findall(r"'([^']*)'", context.get("expected", ""))
        for similar in difflib.get_close_matches(str(detail["input"])[:100].lower(), choices, 1, 0.75):
            fix = f"did you mean {shown(similar)}?"
    seen = MASK if hidden or context.get("hide") else shown(detail["input"])
    report.add(path, f"{seen} {problem}", breaks, fix)
