"""The stack config: the user's settings in Pulumi.<stack>.yaml, checked before tailrack touches a host.

`parse` returns a config, or raises a ConfigError with every problem. Nothing here imports pulumi.
"""

import difflib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from components.roles.containers.enroot_pyxis.settings import ARTIFACTS_VARIABLE
from components.roles.order import roles
from components.roles.slurm.slurm.slurm_conf import refused_keys
from components.settings.problems import ROOT, ConfigError, Report, shown
from components.settings.types import word_set
from stacks.config.checks import check
from stacks.config.model import POOL, AnyConfig, PoolConfig, StackConfig
from stacks.config.pods import check_pods
from stacks.config.reader import read
from stacks.sites import KINDS
from stacks.sites.hosts.other_stacks import stacks_read, with_other_stacks
from stacks.sites.hosts.outputs import OtherStack

__all__ = ["ConfigError", "OtherStack", "PoolConfig", "StackConfig", "from_pulumi", "load", "other_stacks_of", "parse"]

# Keys that choose among credentials of this machine and the cloud's own endpoints. A preview starts a provider with
# these credentials, and a line such as `aws:endpoints` in a pull request could send them to any host.
_HARMLESS_OF_AWS = word_set(
    "accessKey allowedAccountIds assumeRoles defaultTags forbiddenAccountIds ignoreTags maxRetries profile region "
    "retryMode secretKey skipCredentialsValidation skipMetadataApiCheck skipRegionValidation "
    "skipRequestingAccountId token tokenBucketRateLimiterCapacity useDualstackEndpoint useFipsEndpoint"
)


def load(
    values: Mapping[str, str],
    secrets: Iterable[str],
    base_dir: Path,
    warn: Callable[[str], object] = lambda warning: None,
    other_stacks: Mapping[str, OtherStack] | None = None,
) -> AnyConfig:
    """Return the checked config of a stack, from Pulumi's config: text by `tailrack:<key>`, and the secrets' paths.

    Relative paths start at `base_dir`, the folder of Pulumi.<stack>.yaml. `warn` gets each warning. `other_stacks` has
    the outputs of `other_stacks_of`, by name. Raises ConfigError with every problem.
    """
    report = Report(secrets)
    _check_keys(values, report)
    raw = with_other_stacks(with_containers(from_pulumi(values)), other_stacks or {})
    config = _checked(raw, PoolConfig if raw.get("kind") == POOL else StackConfig, base_dir, report)
    for warning in report.warnings:
        warn(str(warning))
    return config


def other_stacks_of(values: Mapping[str, str]) -> list[str]:
    """Return the names of the stacks whose outputs `load` needs for this config."""
    return stacks_read(from_pulumi(values))


def with_containers(raw: Mapping[str, object]) -> Mapping[str, object]:
    """Return the config with containers, if all sites are of the lab and the environment has the containers' files.

    The example stacks cannot ask for containers, because most users do not have these files.
    """
    sites = raw.get("sites")
    kinds = [site.get("kind") for site in sites if isinstance(site, Mapping)] if isinstance(sites, list) else []
    lab = bool(kinds) and all(isinstance(kind, str) and kind in KINDS and KINDS[kind].uses_lab for kind in kinds)
    return {"containers": {}, **raw} if lab and os.environ.get(ARTIFACTS_VARIABLE) else raw


def parse(
    raw: Mapping[str, object], model: Any = StackConfig, *, base_dir: Path, secret_keys: Collection[str] = ()
) -> Any:
    """Return the checked config of a stack; without `model`, of a cluster.

    `raw` has parsed values by top-level key, without `tailrack:`. Relative key files start at `base_dir`.
    `secret_keys` are the paths of secrets; a top-level key hides its section. Raises ConfigError with every problem.
    """
    return _checked(raw, model, base_dir, Report(ROOT + key for key in secret_keys))


def _checked(raw: Mapping[str, object], model: type[AnyConfig], base_dir: Path, report: Report) -> AnyConfig:
    # Pulumi passes a section without a value as an empty text (from version 4 on, as null).
    sections = {key: None if value == "" else value for key, value in raw.items()}
    config = read(model, sections, base_dir, report)
    if config is not None:
        check(config, report)
    if config is None or report.problems:
        raise ConfigError(report.problems, report.more)
    if isinstance(config, StackConfig):
        for key, breaks in refused_keys(config, roles(config)):
            report.add((config.slurm, "settings", key), "is a key that tailrack sets itself here", breaks, "remove it")
    check_pods(config, report)
    if report.problems:
        raise ConfigError(report.problems)
    return config


def from_pulumi(values: Mapping[str, str]) -> dict[str, object]:
    """Return Pulumi's config of a stack in the form for `parse`.

    `values` maps `tailrack:<key>` to text, which is JSON for mappings and lists. Other namespaces are ignored.
    """
    return {key.removeprefix(ROOT): _decode(text) for key, text in values.items() if key.startswith(ROOT)}


def _check_keys(keys: Iterable[str], report: Report) -> None:
    """Report keys without a namespace, with one similar to tailrack's, and those that send a provider elsewhere."""
    ours = ROOT.removesuffix(":")
    for key in keys:
        namespace, colon, name = key.rpartition(":")
        if not colon or (namespace != ours and difflib.get_close_matches(namespace.lower(), [ours], cutoff=0.75)):
            problem = f"{shown(namespace)} is not tailrack's namespace" if colon else "has no namespace"
            report.add(shown(key), problem, "it would have no effect", f"write {shown(ROOT + name)}")
        if key.startswith("aws:") and name not in _HARMLESS_OF_AWS:
            problem = "is a key of the AWS provider that a stack's config may not set"
            breaks = "a preview could send credentials or a file of this machine to another host"
            fix = "remove it, and set it in the environment (AWS_ENDPOINT_URL, AWS_CONFIG_FILE, HTTPS_PROXY)"
            for similar in difflib.get_close_matches(name, _HARMLESS_OF_AWS, 1, 0.8):
                fix = f"did you mean {shown(f'aws:{similar}')}?"
            report.add(shown(key), problem, breaks, fix)


def _decode(text: str) -> object:
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        # Python parses at most 4,300 digits; very long numbers stay text.
        return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= 400 else digits)
    except (ValueError, RecursionError):  # plain text that only starts like JSON
        return text
