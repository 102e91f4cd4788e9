"""The section `storage`: the share's folder and mount point."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.access.users.settings import RESERVED_USERS
from components.roles.storage.mounts.settings import Mount, Mounts, check_mounts, relation_of
from components.settings.problems import Report, Stack, suggest
from components.settings.section import Help, Section, key
from components.settings.types import NodeName, refuse, word_set

# Folders that may be shared, with the folders in them. Folders of AROUND may only contain shared folders.
OWN_FOLDERS = word_set(
    """cluster data datasets export exports lustre nfs projects raid scratch share shared storage volume volumes work"""
)
AROUND = word_set("home media mnt opt srv")
LONGEST = 200  # characters
_LASTING = ("hosts", "aws", "lab")  # kinds of sites whose machines stay
_FIX = (
    f"write /{', /'.join(sorted(OWN_FOLDERS))} or a folder in it, or a folder below "
    f"/{', /'.join(sorted(AROUND))}, of plain letters, digits, '.', '_' and '-'"
)


def _folder(value: str) -> str:
    if not value.startswith("/"):
        refuse("is not an absolute path")
    if not re.fullmatch(r"/[A-Za-z0-9._/-]*", value) or ".." in value.split("/"):
        refuse("contains '..', a space or a special character", "/etc/exports and systemd would read another path")
    folder = str(PurePosixPath("/" + value.strip("/")))
    top, *below = folder.strip("/").split("/")
    if top not in OWN_FOLDERS and not (top in AROUND and below):
        problem = "is not a folder that may be shared, and may belong to the system"
        refuse(problem, "the mount would hide it, or every node could access it")
    if top == "home" and below[0] in RESERVED_USERS:
        refuse("is the home of a login account", "the mount would hide its keys, or every node could access them")
    return folder


Folder = Annotated[str, Field(max_length=LONGEST), AfterValidator(_folder), Help("an absolute path", _FIX)]


class Storage(Section):
    """The share: the head node or another one serves it over NFS, every node mounts it."""

    node: NodeName | None = None
    """The log-in node that serves the share instead of the head node ([data.md](data.md#a-storage-node)), of a `hosts`,
    `aws` or `lab` site of this stack; you cannot change it later."""
    path: Folder = "/export/shared"
    """The shared folder on its server."""
    mount: Folder = "/shared"
    """The mount point on every node; homes are in its folder `home`."""
    mounts: Mounts = ()
    homes: Mount | None = key(fix='write {path: /homes, source: "10.0.0.5:/home"}', default=None)
    """A file system of yours that has the users' homes, instead of the share: a mount that all machines need."""

    @property
    def mounted_by(self) -> tuple[str, ...]:
        """The role that mounts a storage node's share on the head node, before others write there."""
        return ("share",) if self.node else ()

    def check(self, stack: Stack, report: Report) -> None:
        for name, folder in (("path", self.path), ("mount", self.mount)):
            _, top, *below = folder.split("/")
            if top == "home" and below[0] in stack.logins:
                problem = "is in the home of the account that tailrack logs in with"
                breaks = f"the mount would hide the keys that open {stack.logins[below[0]]}, or share them"
                report.bad((self, name), problem, breaks, _FIX)
        if relation := relation_of(self.path, self.mount):
            only_path = {"path", "mount"} & self.model_fields_set == {"path"}
            blamed, partner = ("path", "mount") if only_path else ("mount", "path")
            problem = f"{relation} {report.value(report.at(self), getattr(self, partner))}, the {partner} of the share"
            breaks = "the head node would mount the share over itself and hang"
            report.bad((self, blamed), problem, breaks, "use separate folders, such as /export/shared and /shared")
        if self.node:
            self._check_node(stack, report)
        check_mounts([*self.mounts, *([self.homes] if self.homes else [])], stack, report)
        for name in {"sites", "read_only", "required"} & (self.homes.model_fields_set if self.homes else set()):
            breaks = "all machines need the homes, and users write there"
            report.add((self.homes, name), "is set for the homes", breaks, "remove it")

    def _check_node(self, stack: Stack, report: Report) -> None:
        """Report a node that cannot serve the share, and sections that need the head node's disk."""
        nodes = {node.name: node for node in stack.nodes}
        lasting = {site.name for kind in _LASTING for site in stack.of_kind[kind]}
        node, fix = nodes.get(str(self.node)), "write a log-in node (login: true) of a hosts, aws or lab site"
        if node is None:
            breaks = "no machine would have the share"
            report.bad((self, "node"), "is not a node of this stack", breaks, suggest(str(self.node), nodes))
        elif node.is_head:
            report.bad((self, "node"), "is the head node", "it serves the share without this key", "remove it")
        elif node.pod or node.spot or node.site not in lasting:
            report.bad((self, "node"), "may be taken back", "the users' files would be lost with it", fix)
        elif not node.login:
            breaks = "root of any compute node can become root of another, and so of the share"
            report.bad((self, "node"), "runs jobs", breaks, f"set login: true for it, or {fix}")
        config = stack.config
        needing: list[tuple[object, ...]] = [(config.mlflow,)] if config.mlflow else []
        needing += [(config.backup, "homes")] if config.backup and config.backup.homes else []
        needing += [(data, "source") for data in config.datasets if data.source.startswith("/")]
        for place in needing:
            problem = "needs the share on the head node's disk, and storage.node is set"
            report.add(place, problem, "its files would be missing", "remove it, or remove storage.node")
