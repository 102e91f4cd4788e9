"""One stack and the engine that runs it: what `make` commands and the lab's tests work with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from components.settings.cluster import COMPUTES
from components.settings.problems import shown
from driver.checks import Checks
from driver.cli_runner import CliRunner
from driver.find_engine import IN_PROCESS, Found
from driver.make_command import Make
from driver.preview.last_answers import last_answers
from driver.remedies import with_remedies
from driver.stack_file import check_for_cli, config_values, load_config, read_stack_file
from driver.workspace import DriverError, Workspace
from engine.engine import Engine
from engine.events import EngineError, Event, Made, Summary
from lab.identity import lab_id
from lab.profiles.machine import PROFILES
from stacks.config import ConfigError, PoolConfig, StackConfig, load
from stacks.config.model import POOL
from stacks.release import RELEASE, is_newer
from stacks.sites import KINDS
from stacks.sites.hosts.presets import PRESETS
from stacks.sites.kind import Kind, NodeSpec, Site
from stacks.yaml_file import FileError

T = TypeVar("T")
# What undoes something by SSH. In a pool's stack that is on the head node alone: a node leaves when the head asks it.
ON_MACHINES = "command:remote:Command"


class Deployment:
    """A stack of the program in `workspace`, run by the engine `found`.

    up, preview, destroy return a Summary; outputs returns the stack's outputs. Raises DriverError where the engine
    cannot start at all.
    """

    def __init__(
        self, workspace: Workspace, found: Found, on_event: Callable[[Event], None], parallel: int = 32
    ) -> None:
        self.workspace = workspace
        self._runner: CliRunner | Engine
        # Before anything reads it: what is wrong with the file itself is said in the same words under either engine.
        self._config: dict[str, Any] = read_stack_file(workspace.config_file)["config"]
        self._on_event = on_event

        def tell(event: Event) -> None:
            self._on_event(event)

        workspace.prepare()
        if found.cli is not None:
            workspace.prepare_pulumi_home()
            check_for_cli(workspace.config_copy, {**os.environ, **workspace.environment()})
            self._take("cli")
            self._runner = CliRunner(workspace, found.cli, tell, parallel)
        else:
            for name, value in workspace.environment().items():
                os.environ[name] = value
            config = load_config(workspace.project, workspace.config_copy)
            self._take(IN_PROCESS)
            self._runner = Engine(
                workspace.project,
                workspace.stack,
                lambda stack: replace(workspace, stack=stack).in_process_state,
                config,
                tell,
                parallel,
            )

    def _take(self, engine: str) -> None:
        """Keep a stack with the engine that made it: each has a state of its own and would make all of it again."""
        marker = self.workspace.folder / "engine"
        before = marker.read_text(encoding="utf-8").strip() if marker.is_file() else engine
        if before != engine:
            raise DriverError(
                f"stack {self.workspace.stack!r} was made by the engine {before!r} and this would be {engine!r}, which "
                f"knows nothing of it; use ENGINE={before}"
                + (" with the Pulumi CLI on PATH" if before == "cli" else "")
                + f", or '{Make(self.workspace.stack, before)('down')}' first"
            )
        marker.write_text(engine + "\n", encoding="utf-8")

    @property
    def cluster_stack(self) -> str:
        """Of a pool, the stack of its cluster, without organization and project; empty where there is none."""
        return cluster_stack(self._config)

    @property
    def lab(self) -> str:
        """The id of this stack's lab, part of its containers' names; of a pool, that of its cluster."""
        return lab_id(self.workspace.project, self.cluster_stack or self.workspace.stack)

    @property
    def uses_lab(self) -> bool:
        """Whether nodes of some site are containers of the lab."""
        return any(kind.uses_lab for kind in self._kinds)

    @property
    def head_is_here(self) -> bool:
        """Whether the head node is this machine."""
        return any(kind.is_here for kind in self._kinds)

    @property
    def _kinds(self) -> list[Kind[Site, NodeSpec]]:
        return [KINDS[kind] for site in self._written("tailrack:sites") if (kind := str(site.get("kind"))) in KINDS]

    @property
    def profiles(self) -> set[str]:
        """What machines of the lab look like, beside its plain ones."""
        sites = self._written("tailrack:sites")
        lists = [site["pools"] for site in sites if isinstance(site.get("pools"), list)]
        looks = [pool.get("like") for pools in lists for pool in pools if isinstance(pool, dict)]
        # What is none is refused by the program, which says so.
        return {like for like in [*looks, *(site.get("head_like") for site in sites)] if like in PROFILES}

    @property
    def first_user(self) -> str:
        """The first user of the config, for examples."""
        return next((str(user["name"]) for user in self._written("tailrack:users") if "name" in user), "USER")

    @property
    def head_name(self) -> str:
        """The head node's name."""
        return next((str(head["name"]) for head in self._written("tailrack:head") if "name" in head), "head")

    @property
    def head_computes(self) -> bool:
        """Whether the head node runs jobs."""
        return any(head.get("compute") == COMPUTES for head in self._written("tailrack:head"))

    @property
    def head_in_lab(self) -> bool:
        """Whether the head node, of a pool that of its cluster, is a container of the lab."""
        if self.cluster_stack:  # a lab's pool is in the lab of its cluster, and of no other
            return self.uses_lab
        heads = [head.get("site") for head in self._written("tailrack:head")]
        return any(
            kind.uses_lab
            for site in self._written("tailrack:sites")
            if site.get("name") in heads and (kind := KINDS.get(str(site.get("kind"))))
        )

    @property
    def head_host(self) -> dict[str, Any] | None:
        """The head node as a site of kind `hosts` lists it, as written, with what its site says for all of its hosts.

        None where it is of another kind, and where it is not listed by itself (a range, a file of hosts).
        """
        for site in self._written("tailrack:sites"):
            hosts = site["hosts"] if isinstance(site.get("hosts"), list) else []
            for host in hosts:
                if isinstance(host, dict) and host.get("name") == self.head_name:
                    user = PRESETS.get(str(site.get("preset")))
                    of_all = {key: site[key] for key in ("user", "port", "private_key_file", "bastion") if key in site}
                    return {**({"user": user} if user else {}), **of_all, **host}
        return None

    @property
    def host_names(self) -> list[str]:
        """Names of the hosts that the config lists by themselves, as written."""
        sites = [site["hosts"] for site in self._written("tailrack:sites") if isinstance(site.get("hosts"), list)]
        return [host["name"] for hosts in sites for host in hosts if isinstance(host, dict) and "name" in host]

    @property
    def head_login(self) -> str:
        """The account that steps log in with on a head node of kind `hosts`; empty where the config says none."""
        return str((self.head_host or {}).get("user", ""))

    def config(self) -> StackConfig | PoolConfig:
        """Return the checked config. Raises DriverError with what keeps it from being read, opened or used."""
        try:
            environment = {**os.environ, **self.workspace.environment()}
            values, secrets = config_values(self.workspace.config_copy, environment)
            return load(values, secrets, self.workspace.project)
        except (ConfigError, FileError) as error:
            raise DriverError(str(error)) from None

    @property
    def make(self) -> Make:
        """The commands of this stack, for people."""
        return Make.of(self.workspace.stack)

    def _written(self, key: str) -> list[dict[str, Any]]:
        """The mapping, or the mappings of the list, at a key of the config as written; it is checked by the program."""
        value = self._config.get(key)
        return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]

    def _refuse_newer_release(self) -> None:
        """Raise DriverError where a newer release of tailrack has made what is there."""
        release = self.outputs().get("release")
        if is_newer(release):
            raise DriverError(
                f"stack {self.workspace.stack} was made by tailrack {shown(release)}, and this is {RELEASE}, which "
                "would take back what it does not know; run the newer one, in whose CHANGELOG.md is what it changed"
            )

    def _refuse_another_name(self) -> None:
        """Raise DriverError where the config calls the cluster that is there by another name."""
        cluster = self.outputs().get("cluster")
        made = cluster.get("name") if isinstance(cluster, dict) else None
        names = [section.get("name") for section in self._written("tailrack:cluster")]
        if isinstance(made, str) and names and names[0] != made:
            raise DriverError(
                f"tailrack:cluster.name: the cluster was made as {shown(made)}, and the config has {shown(names[0])}; "
                f"slurmctld would refuse the state that it has; write {shown(made)} again, or give this cluster up: "
                f"`{self.make('down')}` with the old name, `rm -r /var/lib/slurm/slurmctld` on a head node that stays, "
                f"`{self.make('up')}`"
            )

    def _refuse_unknown_cluster(self) -> None:
        """Raise DriverError where a pool's cluster has no stack here."""
        named = self._config.get("tailrack:cluster")
        if self.cluster_stack and isinstance(named, str) and not self._started(partial(self._runner.has, named)):
            raise DriverError(
                f"tailrack:cluster: there is no stack {shown(named)} with a cluster (in PULUMI_BACKEND_URL); "
                "no node could join; write the name of the cluster's stack, or run "
                f"{self.make.at(self.cluster_stack)('up')} first"
            )

    @property
    def allowed(self) -> list[str]:
        """What the config asks for by name (stacks/config/allow.py), as written."""
        value = self._config.get("tailrack:allow")
        return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []

    def up(self, checks: Checks | None = None, refresh: bool = False) -> Summary:
        """Bring the stack to what its config says.

        checks    looks at a preview of a stack that is there first; DriverError, and nothing is touched, where it
                  finds what nobody asked for
        refresh   look at clouds and tailnet first
        """
        with self.workspace.exclusive():
            self._refuse_newer_release()
            self._refuse_another_name()
            self._refuse_unknown_cluster()
            if checks and self.outputs():
                planned = self._looked_at_by(checks, refresh)
                if not planned.ok:
                    return planned
                if checks.refused:
                    raise DriverError("nothing was touched:\n" + "\n".join(f"  {line}" for line in checks.lines()))
            return with_remedies(self._started(self._refreshing(self._runner.up, refresh)), self.make)

    def _looked_at_by(self, checks: Checks, refresh: bool) -> Summary:
        """Run a preview for nobody but the checks."""
        told, self._on_event = self._on_event, checks.on_event
        try:
            return self._previewed(None, refresh)
        finally:
            self._on_event = told

    def preview(self, made: Sequence[Made] | None = None, refresh: bool = False) -> Summary:
        """Say what `up` would do, where machines answer what they answered before.

        made      what the last run left, where somebody has asked for it already
        refresh   look at clouds and tailnet first
        """
        self._refuse_newer_release()
        self._refuse_another_name()
        self._refuse_unknown_cluster()
        return self._previewed(made, refresh)

    def _previewed(self, made: Sequence[Made] | None, refresh: bool) -> Summary:
        with last_answers(self.made() if made is None else made, self.workspace.folder):
            return self._started(self._refreshing(self._runner.preview, refresh))

    def _refreshing(self, operation: Callable[..., Summary], refresh: bool) -> Callable[[], Summary]:
        """An operation of the runner that looks at clouds and tailnet first, which the Pulumi CLI alone can do."""
        if refresh and self.in_process:
            raise DriverError("the in-process engine cannot look at clouds and tailnet; install the Pulumi CLI")
        return partial(operation, refresh=True) if refresh else operation

    def made(self) -> list[Made]:
        """Return what the last run left."""
        return self._started(self._runner.made)

    def pools(self) -> list[str]:
        """Return the stacks of this workspace whose machines are in this stack's cluster."""
        files = sorted(self.workspace.folder.parent.glob("*/Pulumi.*.yaml"))
        stacks = {file.parent.name: cluster_stack(read_stack_file(file)["config"]) for file in files}
        own = [stack for stack, joined in stacks.items() if joined == self.workspace.stack]
        return [stack for stack in own if self._started(partial(self._runner.has, stack))]

    def _forget_cluster(self, asked: bool) -> None:
        """Have what a pool has on its cluster's head node left undone, where the cluster is gone, and say so.

        asked   whoever runs this says that it is gone
        """
        named = self._config.get("tailrack:cluster")
        if not self.cluster_stack or not isinstance(named, str):
            return
        if not asked and self._started(partial(self._runner.has, named)):
            return
        left = self._started(partial(self._runner.leave_undone, ON_MACHINES))
        why = "as asked" if asked else f"there is no stack {named} any more"
        self._on_event(
            Event(
                "message",
                text=f"The cluster is gone ({why}): what its head node had of this pool is forgotten, not undone "
                f"({', '.join(left) or 'nothing'}). On machines that stay, run tailrack-leave as root.",
            )
        )

    def destroy(self, cluster_gone: bool = False) -> Summary:
        """Delete everything of the stack; when nothing is left, its folder too.

        cluster_gone   of a pool: do not ask the head node, which is gone. Found out where the cluster's stack is gone.
        """
        with self.workspace.exclusive():
            self._refuse_newer_release()
            self._forget_cluster(cluster_gone)
            summary = with_remedies(self._started(self._runner.destroy), self.make)
        if summary.ok:
            self.workspace.forget()
        return summary

    @property
    def in_process(self) -> bool:
        """Whether the in-process engine runs the stack."""
        return isinstance(self._runner, Engine)

    def stop(self) -> None:
        """Start no more steps, and let the running ones finish. The CLI does so itself."""
        self._runner.stop()

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the last `up`."""
        return self._started(self._runner.outputs)

    @staticmethod
    def _started(operation: Callable[[], T]) -> T:
        try:
            return operation()
        except EngineError as error:
            raise DriverError(str(error)) from None


def cluster_stack(config: Mapping[str, Any]) -> str:
    """Return the stack of the cluster that a pool joins, without organization and project; empty for no pool.

    config   as the stack's file has it
    """
    named = config.get("tailrack:cluster")
    return named.rpartition("/")[2] if config.get("tailrack:kind") == POOL and isinstance(named, str) else ""


def has_lab(config: Mapping[str, Any]) -> bool:
    """Whether a stack's config, as its file has it, has machines of the lab."""
    sites = config.get("tailrack:sites")
    kinds = [site.get("kind") for site in sites if isinstance(site, dict)] if isinstance(sites, list) else []
    return any(KINDS[kind].uses_lab for kind in kinds if isinstance(kind, str) and kind in KINDS)


def stack_config(project: Path, stack: str) -> Path:
    """Return the path of a stack's config file."""
    return project / f"Pulumi.{stack}.yaml"
