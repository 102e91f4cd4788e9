"""The unchecked config of a stack, for uses before the program checks it, or if the program refuses it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from components.settings.problems import Report
from lab.profiles.machine import PROFILES
from stacks.config.model import POOL
from stacks.sites import KINDS
from stacks.sites.hosts.other_stacks import hosts_of, with_outputs
from stacks.sites.hosts.outputs import OtherStack
from stacks.sites.hosts.presets import PRESETS


class WrittenConfig:
    """The unchecked config of a stack's file; values of the wrong type are ignored.

    config        values by key, such as tailrack:sites
    other_stack   returns the outputs of another stack, for hosts_from; called only when a host is needed
    base_dir      the folder where relative paths start
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        other_stack: Callable[[str], OtherStack] = lambda name: OtherStack(),
        base_dir: Path = Path(),
    ) -> None:
        self._config, self._other_stack, self._base_dir = config, other_stack, base_dir
        self._sites, head = self.mappings("tailrack:sites"), next(iter(self.mappings("tailrack:head")), {})
        kinds = [KINDS[kind] for site in self._sites if (kind := str(site.get("kind"))) in KINDS]
        self.uses_lab = any(kind.uses_lab for kind in kinds)
        self.head_is_here = any(kind.is_here for kind in kinds)
        self.has_own_machines = any(kind.lists_head for kind in kinds)  # not created, so they stay after `make down`
        self.head_computes = head.get("compute") is True
        self.restores = head.get("restore_from") is not None  # from a backup
        self.head_name = str(head.get("name", "head"))
        users = self.mappings("tailrack:users")
        self.first_user = next((str(user["name"]) for user in users if "name" in user), "USER")
        self.site_of_head = next((site for site in self._sites if site.get("name") == head.get("site")), {})
        reference = config.get("tailrack:cluster")
        # The stack of a pool's cluster, named as Pulumi names it, and its last part; both empty without one.
        self.cluster = reference if config.get("tailrack:kind") == POOL and isinstance(reference, str) else ""
        self.cluster_stack = self.cluster.rpartition("/")[2]
        self.elastic = bool(self.cluster) and isinstance(config.get("tailrack:elastic"), dict)  # jobs bring machines
        allowed = config.get("tailrack:allow")
        self.allowed = [name for name in allowed if isinstance(name, str)] if isinstance(allowed, list) else []

    @property
    def profiles(self) -> set[str]:
        """Return the profiles of the lab's machines, besides plain ones."""
        lists = [site["pools"] for site in self._sites if isinstance(site.get("pools"), list)]
        likes = [pool.get("like") for pools in lists for pool in pools if isinstance(pool, dict)]
        likes += [site.get("head_like") for site in self._sites]
        return {like for like in likes if like in PROFILES}  # the program refuses an unknown one

    @property
    def head_in_lab(self) -> bool:
        """Return whether the head node (for a pool, its cluster's) is a container of the lab."""
        if self.cluster_stack:  # a pool with lab machines is always in the lab of its cluster
            return self.uses_lab
        kind = KINDS.get(str(self.site_of_head.get("kind")))
        return kind is not None and kind.uses_lab

    def host(self, name: str) -> dict[str, Any] | None:
        """Return a machine's entry in a site of kind `hosts`, as written, with the site's defaults.

        None if its site is of another kind, or does not list it individually (a range, a file of hosts).
        """
        for site, host in self._hosts():
            if host.get("name") == name:
                defaults = {"user": user} if (user := PRESETS.get(str(site.get("preset")))) else {}
                keys: list[str] = ["user", "port", "private_key_file", "bastion"]
                return {**defaults, **{key: site[key] for key in keys if key in site}, **host}
        return None

    def _hosts(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield each individually listed host with its site; those of other stacks last, because reading takes time."""
        for site in self._sites:
            hosts = site.get("hosts")
            yield from ((site, host) for host in (hosts if isinstance(hosts, list) else []) if isinstance(host, dict))
        for site in self._sites:
            hosts_from = with_outputs(site.get("hosts_from"), self._other_stack)
            for machine, _ in hosts_of(hosts_from, "", self._base_dir, Report(frozenset())) or []:
                yield site, dict(machine)

    @property
    def host_names(self) -> list[str]:
        """Return the names of hosts that the config or another stack lists individually, as written."""
        return [host["name"] for _, host in self._hosts() if "name" in host]

    @property
    def head_login(self) -> str:
        """Return the login account of steps on a head node of kind `hosts`; empty if the config has none."""
        return str((self.host(self.head_name) or {}).get("user", ""))

    def mappings(self, key: str) -> list[dict[str, Any]]:
        """Return the mapping, or the mappings of the list, at a key of the config, as written."""
        value = self._config.get(key)
        return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
