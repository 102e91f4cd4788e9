"""The reader of the config: pydantic checks each value, and this module says each error in the words of its key."""

import difflib
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from components.settings.mask_secrets import MASK
from components.settings.problems import ROOT, Report, child_path, shown, suggest
from components.settings.section import Key, Section, keys_of, located
from stacks.config.model import POOL, AnyConfig, PoolConfig, StackConfig
from stacks.config.reference import paths_of
from stacks.sites import KINDS
from stacks.sites.kind import UNREAD

_UNKNOWN = ("extra_forbidden", "invalid_key")  # errors of pydantic about keys
_MOST_PATHS = 6  # places to offer for a key that is in the wrong one


def read(model: type[AnyConfig], raw: Mapping[str, Any], base_dir: Path, report: Report) -> AnyConfig | None:
    """Return the config, or None after each invalid value was reported. Relative paths start at `base_dir`."""
    sites = raw.get("sites")
    if isinstance(sites, list | tuple):
        raw = {**raw, "sites": [_complete(site, index, base_dir, report) for index, site in enumerate(sites)]}
    try:
        config = model.model_validate(_without_nulls(raw), context={"base_dir": base_dir})
    except ValidationError as error:
        _report_all(model, raw, error.errors(include_url=False), report)
        return None
    if report.problems:
        return None
    report.paths = {id(section): path for section, path in located(config, ROOT)}
    for site, entry in zip(config.sites, raw["sites"], strict=True):
        # Hosts of a file or an output are not where the config has a host.
        for host, written in zip(getattr(site, "hosts", ()), entry.get("hosts", ()), strict=False):
            report.paths |= {id(section): path for section, path in located(host, written.place)}
    return config


def _complete(site: Any, index: int, base_dir: Path, report: Report) -> Any:
    kind = KINDS.get(str(site.get("kind"))) if isinstance(site, Mapping) else None
    return kind.complete(site, child_path(f"{ROOT}sites", index), base_dir, report) if kind else site


def _without_nulls(raw: Any) -> Any:
    """Return the values but those that are null or already reported: `key:` in YAML means that the key is left out."""
    if isinstance(raw, Mapping):
        return {key: _without_nulls(value) for key, value in raw.items() if value is not None and value is not UNREAD}
    return [_without_nulls(item) for item in raw] if isinstance(raw, list | tuple) else raw


def _report_all(model: type[Section], raw: Any, errors: Sequence[ErrorDetails], report: Report) -> None:
    # A misspelt key is not reported as missing too.
    unknown = [detail["loc"] for detail in errors if detail["type"] in _UNKNOWN]
    wrong = {detail["loc"] for detail in errors}
    for detail in errors:
        *above, name = detail["loc"]
        near = [str(key) for *place, key in unknown if place == above] if detail["type"] == "missing" else []
        if not difflib.get_close_matches(str(name), near):
            _report(model, raw, detail, wrong, report)


def _report(model: type[Section], raw: Any, detail: ErrorDetails, wrong: Container[Any], report: Report) -> None:
    """Report one error of pydantic at the key that it is about. `wrong` has the places of all errors."""
    section: type[Section] | None = model
    key: Key | None = None
    path, tag = ROOT, ""
    inside: list[object] = []
    lacks: Mapping[str, tuple[str, str, tuple[str, ...]]] = {}
    sections: Mapping[str, type[Section]] = {}
    for part in detail["loc"]:
        if part in getattr(raw, "inherited", ()):
            return  # reported at the site
        if section is not None and part in (keys := keys_of(section)):
            lacks, key, path = getattr(raw, "lacks", {}), keys[str(part)], child_path(path, part)
            sections, section, tag = key.sections, None if key.many else key.sections.get(""), ""
            raw = raw.get(part) if isinstance(raw, Mapping) else None
        elif key is not None and key.many and isinstance(part, int):
            raw = raw[part] if isinstance(raw, Sequence) else None
            section, path = sections.get(""), getattr(raw, "place", child_path(path, part))
        elif section is None and part in sections:
            tag = str(part)
            section = sections[tag]
        elif part != "[key]":
            inside.append(part)
            path = child_path(path, part)
    name, kind, context = str(detail["loc"][-1]), detail["type"], detail.get("ctx", {})
    # The others are reported: pydantic counts only valid items, and computes no default from an invalid value.
    too_few = kind == "too_short" and len(detail["input"]) >= context["min_length"]
    if raw is UNREAD or kind == "default_factory_not_called" or too_few:
        return
    if kind in _UNKNOWN and section is not None:
        _report_unknown(section, name, path, key if tag else None, tag, report)
    elif sections and kind in ("model_type", "model_attributes_type"):
        fix = f"write KEY: VALUE pairs of {', '.join(keys_of(section or next(iter(sections.values()))))}"
        report.add(path, f"{report.value(path, detail['input'])} is not a mapping", "", fix)
    elif key is not None and kind in ("union_tag_invalid", "union_tag_not_found"):
        path, value = child_path(path, key.discriminator), detail["input"].get(key.discriminator)
        problem = "missing" if value is None else f"{report.value(path, value)} is not a valid {key.discriminator}"
        report.add(path, problem, "", suggest(str(value), sections))
    elif key is not None and kind == "missing":
        remedy = key.remedy(path).replace("one of them", key.help.wants)
        problem, fix, causes = lacks.get(name, ("missing", remedy, ()))
        if not any((*detail["loc"][:-1], cause) in wrong for cause in causes):
            report.add(path, problem, key.help.breaks, fix)
    elif key is not None:
        _report_invalid(key, detail, path, bool(inside), report)


def _report_unknown(model: type[Section], key: str, path: str, union: Key | None, tag: str, report: Report) -> None:
    problem, breaks = "unknown key", "it would have no effect"
    fix: str | Callable[[], str] = partial(suggest, key, keys_of(model))
    others = paths_of(key)
    if model is PoolConfig and key in keys_of(StackConfig):
        problem, fix = "is a section of the cluster's stack", "remove it here"
        breaks = "the pool takes it from its cluster, so it would have no effect"
    elif union and (kinds := [name for name, section in union.sections.items() if key in keys_of(section)]):
        problem = f"is not a key of {union.discriminator} {tag}"
        fix = f"remove it, or write {union.discriminator}: {' or '.join(kinds)}"
    elif model is StackConfig and key in keys_of(PoolConfig):
        fix = f"it belongs to a stack of kind {POOL}"
    elif (first := re.split(r"[.\[]", key)[0]) != key and first in keys_of(model):
        problem, fix = "is one key, not a path", f"write it in {first}, or set it with `pulumi config set --path`"
    elif 0 < len(others) <= _MOST_PATHS and not difflib.get_close_matches(key, keys_of(model), 1, 0.8):
        fix = f"did you mean {' or '.join(others)}?"
    report.add(path, problem, breaks, model.absent.get(key, fix))


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
