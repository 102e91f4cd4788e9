"""What a kind of site is to the rest of the program. Everything else about it is in its own folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from components.settings.cluster import Head
from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from components.settings.section import Section, key, named
from components.settings.types import Gpu, SiteName


class Site(Section):
    """What every kind of site has."""

    name: SiteName = named(
        "a site is a failure and a bandwidth domain, and a partition of this name",
        "it is the name of the site's partition and floor too; write a name such as cloud-a",
    )
    kind: str = key("where its machines come from")


def kind_key(kind: str, description: str) -> Any:
    """The key `kind` of one kind of site."""
    return key(description, f"`{kind}`; nobody knows where its nodes come from; write {kind}")


def features_key(description: str) -> Any:
    """A key that holds a node's own Slurm features."""
    words = (
        "a list of words such as [nvme, ib]; jobs could not ask for these nodes with --constraint; "
        "write letters, digits, '_', '.' and '-', a letter first"
    )
    return key(description, words, default=())


@dataclass(frozen=True, slots=True)
class Claim:
    """A node that some part of the config makes, as far as it can be read.

    name      None where it cannot be read
    path      the key that says the name
    compute   whether it runs jobs
    gpu       what the config promises
    login     the account that the program logs in with, where the config says so
    """

    name: str | None
    path: str
    compute: bool = True
    gpu: Gpu | None = None
    login: str | None = None

    @property
    def place(self) -> str:
        """The mapping that makes the node, without the config's namespace."""
        return self.path.removeprefix(ROOT).removesuffix(".name")


@dataclass(frozen=True)
class NodeSpec:
    """One node that the stack makes. Each kind of site adds what it makes the node from."""

    name: str
    site: str
    features: tuple[str, ...]  # the user's own
    gpu: Gpu | None
    is_head: bool
    compute: bool  # runs jobs


S = TypeVar("S", bound=Site)
N = TypeVar("N", bound=NodeSpec)


@dataclass(frozen=True)
class Kind(Generic[S, N]):
    """A kind of site. Its folder also has `machines.py`, whose `machines` makes Hosts of its nodes (see machines.py).

    model             its section
    claims            the nodes of a site (the head node only where the site lists it), as far as they can be read
    check             reports what does not go together in and among sites of this kind
    nodes             the nodes of a site, the head node among them if it stands there
    lists_head        the head node is one of the machines that the site lists, not one more that is made for it
    brings_tailnet    its sites come with a control server, so that no key for a tailnet is needed
    """

    model: type[S]
    claims: Callable[[Draft, Draft], Sequence[Claim]]
    check: Callable[[Sequence[Draft], Draft, Report], None]
    nodes: Callable[[S, Head], Sequence[N]]
    lists_head: bool = False
    brings_tailnet: bool = False
