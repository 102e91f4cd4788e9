"""The stack config: what the user writes in Pulumi.<stack>.yaml, checked as a whole before any host is touched.

`parse` gives a `StackConfig` or a `ConfigError` with every problem at once. Nothing here imports pulumi.
"""

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import overload

from components.roles.enroot_pyxis.settings import ARTIFACTS_VARIABLE
from components.roles.order import roles
from components.roles.slurm.files import refused_keys
from components.settings.problems import ROOT, ConfigError, Report, shown
from stacks.config.checks import check
from stacks.config.model import PoolConfig, StackConfig, model_of
from stacks.config.provider_keys import check_provider_keys
from stacks.config.reader import Reader
from stacks.config.reference import reference
from stacks.sites import KINDS

__all__ = ["ConfigError", "PoolConfig", "StackConfig", "from_pulumi", "load", "parse", "reference"]


def load(
    values: Mapping[str, str],
    secret_keys: Iterable[str],
    base_dir: Path,
    warn: Callable[[str], object] = lambda warning: None,
) -> StackConfig | PoolConfig:
    """The checked config of a stack, from Pulumi's own: text by `tailrack:<key>`, and the keys that are secret.

    Relative paths start at `base_dir`, where Pulumi.<stack>.yaml lies. Raises ConfigError with every problem found.
    `warn` is given what is no problem, and was hardly meant.
    """
    report = Report(frozenset(key.removeprefix(ROOT) for key in secret_keys if key.startswith(ROOT)))
    _check_namespaces(values, report)
    check_provider_keys(values, report)
    raw = with_containers(from_pulumi(values, ROOT.removesuffix(":")))
    config = _checked(raw, model_of(raw.get("kind")), base_dir, report)
    for warning in report.warnings:
        warn(str(warning))
    return config


def with_containers(raw: Mapping[str, object]) -> Mapping[str, object]:
    """The config of a stack of lab sites alone, with containers where the environment has what they are made of.

    Nobody has these files by default, so the stacks that come with the project cannot ask for them.
    """
    sites = raw.get("sites")
    kinds = [site.get("kind") for site in sites if isinstance(site, Mapping)] if isinstance(sites, list) else []
    lab = bool(kinds) and all(isinstance(kind, str) and kind in KINDS and KINDS[kind].uses_lab for kind in kinds)
    return {"containers": {}, **raw} if lab and os.environ.get(ARTIFACTS_VARIABLE) else raw


@overload
def parse(raw: Mapping[str, object], *, base_dir: Path, secret_keys: frozenset[str] = frozenset()) -> StackConfig: ...
@overload
def parse(
    raw: Mapping[str, object], model: type[PoolConfig], *, base_dir: Path, secret_keys: frozenset[str] = frozenset()
) -> PoolConfig: ...
def parse(
    raw: Mapping[str, object],
    model: type[StackConfig | PoolConfig] = StackConfig,
    *,
    base_dir: Path,
    secret_keys: frozenset[str] = frozenset(),
) -> StackConfig | PoolConfig:
    """The checked config of a stack, of a cluster if nothing else is said.

    `raw` has the top-level keys without `tailrack:`, with parsed values; relative key files start at `base_dir`;
    `secret_keys` are the top-level keys that hold a Pulumi secret. Raises ConfigError with every problem found.
    """
    return _checked(raw, model, base_dir, Report(secret_keys))


def _checked(
    raw: Mapping[str, object], model: type[StackConfig | PoolConfig], base_dir: Path, report: Report
) -> StackConfig | PoolConfig:
    # Pulumi hands over a section without a value as an empty text (a null from version 4 on).
    written = {key: None if value == "" else value for key, value in raw.items()}
    draft = Reader(report, base_dir).section(model, written, ROOT)
    check(draft, report)
    if report.problems:
        raise ConfigError(report.problems, report.more)
    config: StackConfig | PoolConfig = draft.built()
    if isinstance(config, StackConfig):
        settings = draft.section("slurm").section("settings")
        for key, breaks in refused_keys(config, roles(config)):
            report.add(settings.at(key), "is a key that a part of the cluster needs for itself", breaks, "take it out")
        if report.problems:
            raise ConfigError(report.problems)
    return config


def from_pulumi(values: Mapping[str, str], project: str) -> dict[str, object]:
    """Pulumi's config of a stack as `parse` takes it.

    `values` maps `<project>:<key>` to text, which is JSON for mappings and lists; other namespaces are left out.
    """
    prefix = f"{project}:"
    return {key.removeprefix(prefix): _decoded(text) for key, text in values.items() if key.startswith(prefix)}


def _check_namespaces(keys: Iterable[str], report: Report) -> None:
    """Report keys that were meant for tailrack and are in no namespace, or in one that is spelt almost as its own."""
    own = ROOT.removesuffix(":")
    for key in keys:
        namespace, colon, name = key.rpartition(":")
        if not colon or (namespace != own and difflib.get_close_matches(namespace.lower(), [own], cutoff=0.75)):
            what = f"{shown(namespace)} is no namespace of tailrack's" if colon else "has no namespace"
            report.add(shown(key), what, "it would change nothing, without a word", f"write {shown(ROOT + name)}")


def _whole(digits: str) -> int | str:
    """A number of JSON; one that no field could take stays a text, because Python reads no more than 4,300 digits."""
    return int(digits) if len(digits) <= 400 else digits


def _decoded(text: str) -> object:
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError):  # a text that only begins like JSON stays one
        return text
