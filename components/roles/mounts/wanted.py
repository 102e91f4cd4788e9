"""The mounts that a node must have: rows of the config, and the node's own list of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from components.node import files
from components.roles.mounts.settings_names import feature_of

# The node's list, which every account may read.
LIST = "/etc/tailrack/mounts.json"


@dataclass(frozen=True)
class Wanted:
    """A mount of the config.

    type      NFS, or PRESENT for a mount that others make
    source    the server and its folder; empty for PRESENT
    options   more options of mount(8), separated by commas
    required  whether no job can run without it
    tailnet   whether the server is reached over the tailnet
    sites     the sites whose nodes have it, separated by commas; empty for all
    """

    path: str
    type: str
    source: str
    options: str
    read_only: bool
    required: bool
    tailnet: bool
    sites: str

    @property
    def feature(self) -> str:
        return feature_of(self.path)

    def is_at(self, site: str) -> bool:
        """Return whether the nodes of a site have it."""
        return not self.sites or site in self.sites.split(",")


@dataclass(frozen=True)
class NodeList:
    """The mounts of a node. user: the account that tries to write."""

    user: str
    mounts: tuple[Wanted, ...]


def read_list() -> NodeList:
    """Return the node's list; an empty one if it does not exist."""
    content: Any = json.loads(files.read(LIST) or "{}")
    return NodeList(content.get("user", ""), tuple(Wanted(**row) for row in content.get("mounts", ())))


def write_list(wanted: NodeList) -> None:
    """Write the node's list."""
    files.write(LIST, json.dumps(asdict(wanted), indent=1))
