"""The stack config: what the user writes in Pulumi.<stack>.yaml, checked as a whole before any host is touched.

`parse` gives a `StackConfig` or a `ConfigError` with every problem at once. Nothing here imports pulumi.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args, get_origin

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from components.config_files.slurm import NodeEntry, node_features
from components.validation.sizes import format_size
from stacks.config_checks import check
from stacks.config_draft import Reader, says, without_nulls
from stacks.config_fields import (
    SITE_KINDS,
    AnySite,
    Cluster,
    Head,
    HostConfig,
    HostsSite,
    LabPool,
    LabSite,
    Partition,
    Section,
    Slurm,
    Storage,
    Tailnet,
    User,
    Validation,
)
from stacks.config_node_checks import ALL, pool_node_names
from stacks.config_problems import ROOT, ConfigError, Problem, Report, Says, shown
from stacks.config_types import CROSS_SITE, Gpu

__all__ = [
    "CROSS_SITE",
    "Cluster",
    "ConfigError",
    "Gpu",
    "Head",
    "HostConfig",
    "HostsSite",
    "LabPool",
    "LabSite",
    "NodeSpec",
    "Partition",
    "Problem",
    "Slurm",
    "StackConfig",
    "Storage",
    "Tailnet",
    "User",
    "Validation",
    "from_pulumi",
    "load",
    "parse",
    "reference",
]


PROJECT_NAME = ROOT.removesuffix(":")


@dataclass(frozen=True)
class NodeSpec:
    """One node that the stack makes, and what it is made from: a lab pool, a host, or neither (a lab's head)."""

    name: str
    site: str
    features: tuple[str, ...]  # the user's own; `slurm_features` has them all
    gpu: Gpu | None
    is_head: bool
    compute: bool  # runs jobs
    pool: LabPool | None = None
    host: HostConfig | None = None

    @property
    def slurm_features(self) -> tuple[str, ...]:
        """Every Feature of the node: `site-<site>` and `gpu-<kind>`, by which NodeSets take it, then the user's."""
        gpu = (self.gpu.kind, self.gpu.count) if self.gpu else None
        return node_features(NodeEntry(self.name, self.site, gpu), self.features)


def _section_says(breaks: str, fix: str) -> Says:
    return Says("a mapping", breaks, fix)


class StackConfig(Section):
    """A stack's whole config, checked: names are unique, references lead somewhere, files are there."""

    cluster: Annotated[Cluster, _section_says("the cluster would have no name", "write {name: lab}")] = Field(
        description="the cluster as a whole"
    )
    head: Annotated[Head, _section_says("no node would run slurmctld", "write {name: head, site: a site's name}")] = (
        Field(description="the head node")
    )
    sites: Annotated[
        tuple[AnySite, ...],
        Field(min_length=1),
        Says("a list of one site or more", "the cluster would have no machines", "write a site, as in Pulumi.dev.yaml"),
    ] = Field(description="where the machines are")
    users: Annotated[
        tuple[User, ...],
        Field(min_length=1),
        Says("a list of one user or more", "nobody could submit a job", "write [{name: ada, uid: 6001}]"),
    ] = Field(description="people's accounts, the same on every node")
    tailnet: Tailnet = Field(default=Tailnet(), description="the network that joins the nodes")
    storage: Storage = Field(default=Storage(), description="the share")
    slurm: Slurm = Field(default=Slurm(), description="Slurm beyond what tailrack sets itself")
    validation: Validation = Field(default=Validation(), description="the bandwidth measurement")

    def nodes(self) -> list[NodeSpec]:
        """Every node of the stack, the head first, then by site in the order of the config."""
        nodes = [node for site in self.sites for node in self._site_nodes(site)]
        return sorted(nodes, key=lambda node: not node.is_head)

    def _site_nodes(self, site: LabSite | HostsSite) -> list[NodeSpec]:
        head_here = site.name == self.head.site
        if isinstance(site, HostsSite):
            return [
                NodeSpec(
                    host.name,
                    site.name,
                    host.features,
                    host.gpu,
                    is_head := head_here and host.name == self.head.name,
                    not is_head or self.head.compute,
                    host=host,
                )
                for host in site.hosts
            ]
        head = [NodeSpec(self.head.name, site.name, (), None, True, self.head.compute)] if head_here else []
        return head + [
            NodeSpec(name, site.name, pool.features, None, False, True, pool=pool)
            for pool in site.pools
            for name in pool_node_names(pool.name, pool.count)
        ]

    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions: `all` (the default), one per site, the extra ones, one per GPU kind."""
        kinds = sorted({node.gpu.kind for node in self.nodes() if node.gpu and node.compute})
        extras = tuple(partition.name for partition in self.slurm.partitions)
        return (ALL, *(site.name for site in self.sites), *extras, *kinds)


def load(values: Mapping[str, str], secret_keys: Iterable[str], base_dir: Path) -> StackConfig:
    """The checked config of a stack, from Pulumi's own: text by `tailrack:<key>`, and the keys that are secret.

    Relative paths start at `base_dir`, where Pulumi.<stack>.yaml lies. Raises ConfigError with every problem found.
    """
    secret = frozenset(key.removeprefix(ROOT) for key in secret_keys if key.startswith(ROOT))
    return parse(from_pulumi(values, PROJECT_NAME), base_dir=base_dir, secret_keys=secret)


def parse(raw: Mapping[str, object], *, base_dir: Path, secret_keys: frozenset[str] = frozenset()) -> StackConfig:
    """The checked config of a stack.

    `raw` has the top-level keys without `tailrack:`, with parsed values; relative key files start at `base_dir`;
    `secret_keys` are the top-level keys that hold a Pulumi secret. Raises ConfigError with every problem found.
    """
    report = Report(secret_keys)
    # Pulumi hands over a section without a value as an empty text (a null from version 4 on).
    written = without_nulls({key: None if value == "" else value for key, value in raw.items()})
    config = Reader(report, base_dir).section(StackConfig, written, ROOT)
    check(config, report)
    if not report.problems:
        try:
            return StackConfig.model_validate(written, context={"base_dir": base_dir})
        except ValidationError as error:  # the reader saw nothing, so say what pydantic says, without values
            for detail in error.errors(include_url=False, include_input=False, include_context=False):
                path = ROOT + ".".join(str(part) for part in detail["loc"])
                report.add(path, detail["type"], "the stack cannot be built", "report this as a bug")
    raise ConfigError(report.problems)


def from_pulumi(values: Mapping[str, str], project: str) -> dict[str, object]:
    """Pulumi's config of a stack as `parse` takes it.

    `values` maps `<project>:<key>` to text, which is JSON for mappings and lists; other namespaces are left out.
    """
    prefix = f"{project}:"
    return {key.removeprefix(prefix): _decoded(text) for key, text in values.items() if key.startswith(prefix)}


def _decoded(text: str) -> object:
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a text that only begins like JSON stays one
        return text


def reference() -> str:
    """Every key of the config as a Markdown table: key, type, default, description."""
    rows = ["| key | type | default | what it is |", "|---|---|---|---|"]
    _rows(StackConfig, ROOT, rows)
    return "\n".join(rows) + "\n"


def _rows(model: type[Section], path: str, rows: list[str]) -> None:
    for name, info in model.model_fields.items():
        dot = "" if path.endswith(":") else "."
        key, inner, annotation = f"{path}{dot}{name}", None, info.annotation
        item = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
        if item is AnySite:
            for kind, site in SITE_KINDS.items():
                _rows(site, f"{key}[kind: {kind}]", rows)
            continue
        if isinstance(item, type) and issubclass(item, Section):
            inner = item
        if inner is not None:
            _rows(inner, key if item is annotation else f"{key}[]", rows)
            continue
        told = says(model, name)
        wants = f"`{get_args(annotation)[0]}`" if name == "kind" else told.wants
        cells = (f"`{key}`", wants, _default(name, info, told), info.description or "")
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")


def _default(name: str, info: FieldInfo, told: Says) -> str:
    if info.is_required():
        return "required"
    default = info.default
    if default is PydanticUndefined or default is None:
        return told.otherwise
    if default in ((), {}, ""):
        return "none"
    if isinstance(default, str):
        return f"`{default}`"
    if name.endswith("_bytes"):
        return f"`{format_size(default).removesuffix('iB').replace(' ', '')}`"
    return f"`{shown(default)}`"
