"""What a stack's config says, as it is written: for what is asked before the program checks it, or if it refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.settings.cluster import COMPUTES
from lab.profiles.machine import PROFILES
from stacks.config.model import POOL
from stacks.sites import KINDS
from stacks.sites.hosts.presets import PRESETS
from stacks.sites.kind import Kind, NodeSpec, Site


class WrittenConfig:
    """The config of a stack's file, nothing of it checked: what has another form than it should is left out.

    config   key, such as tailrack:sites, to its value
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    @property
    def cluster(self) -> str:
        """Of a pool, its cluster's stack as Pulumi names it; empty where there is none."""
        named = self._config.get("tailrack:cluster")
        return named if self._config.get("tailrack:kind") == POOL and isinstance(named, str) else ""

    @property
    def cluster_stack(self) -> str:
        """Of a pool, the stack of its cluster, without organization and project; empty where there is none."""
        return self.cluster.rpartition("/")[2]

    @property
    def uses_lab(self) -> bool:
        """Whether nodes of some site are containers of the lab."""
        return any(kind.uses_lab for kind in self._kinds)

    @property
    def head_is_here(self) -> bool:
        """Whether the head node is this machine."""
        return any(kind.is_here for kind in self._kinds)

    @property
    def has_own_machines(self) -> bool:
        """Whether the stack has machines that it did not make: they stay when it is destroyed."""
        return any(kind.lists_head for kind in self._kinds)

    @property
    def _kinds(self) -> list[Kind[Site, NodeSpec]]:
        return [KINDS[kind] for site in self.mappings("tailrack:sites") if (kind := str(site.get("kind"))) in KINDS]

    @property
    def profiles(self) -> set[str]:
        """What machines of the lab look like, beside its plain ones."""
        sites = self.mappings("tailrack:sites")
        lists = [site["pools"] for site in sites if isinstance(site.get("pools"), list)]
        looks = [pool.get("like") for pools in lists for pool in pools if isinstance(pool, dict)]
        # What is none is refused by the program, which says so.
        return {like for like in [*looks, *(site.get("head_like") for site in sites)] if like in PROFILES}

    @property
    def first_user(self) -> str:
        """The first user of the config, for examples."""
        return next((str(user["name"]) for user in self.mappings("tailrack:users") if "name" in user), "USER")

    @property
    def head_name(self) -> str:
        """The head node's name."""
        return next((str(head["name"]) for head in self.mappings("tailrack:head") if "name" in head), "head")

    @property
    def head_computes(self) -> bool:
        """Whether the head node runs jobs."""
        return any(head.get("compute") == COMPUTES for head in self.mappings("tailrack:head"))

    @property
    def head_in_lab(self) -> bool:
        """Whether the head node, of a pool that of its cluster, is a container of the lab."""
        if self.cluster_stack:  # a lab's pool is in the lab of its cluster, and of no other
            return self.uses_lab
        heads = [head.get("site") for head in self.mappings("tailrack:head")]
        return any(
            kind.uses_lab
            for site in self.mappings("tailrack:sites")
            if site.get("name") in heads and (kind := KINDS.get(str(site.get("kind"))))
        )

    @property
    def head_host(self) -> dict[str, Any] | None:
        """The head node as a site of kind `hosts` lists it, as written, with what its site says for all of its hosts.

        None where it is of another kind, and where it is not listed by itself (a range, a file of hosts).
        """
        for site in self.mappings("tailrack:sites"):
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
        sites = [site["hosts"] for site in self.mappings("tailrack:sites") if isinstance(site.get("hosts"), list)]
        return [host["name"] for hosts in sites for host in hosts if isinstance(host, dict) and "name" in host]

    @property
    def head_login(self) -> str:
        """The account that steps log in with on a head node of kind `hosts`; empty where the config says none."""
        return str((self.head_host or {}).get("user", ""))

    @property
    def allowed(self) -> list[str]:
        """What the config asks for by name (stacks/config/allow.py), as written."""
        value = self._config.get("tailrack:allow")
        return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []

    @property
    def restores(self) -> bool:
        """Whether the head node is to be made of a backup."""
        return any(head.get("restore_from") is not None for head in self.mappings("tailrack:head"))

    def mappings(self, key: str) -> list[dict[str, Any]]:
        """The mapping, or the mappings of the list, at a key of the config as written; it is checked by the program."""
        value = self._config.get(key)
        return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
