"""The sections `cluster` and `head`."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from components.settings.section import Section, key, named
from components.settings.types import FreeText, NodeName, check_name, refuse

COMPUTES = "root-of-any-node-is-root-here"
"""What `compute` of the head node says instead of `true`: the risk, which no test of ours and no key can take away."""


def _computes(value: object) -> bool:
    if value is True:
        refuse("does not say what it costs")
    if value is False or value == COMPUTES:
        return value is not False
    raise ValueError("neither false nor the words")


class Cluster(Section):
    """The cluster as a whole."""

    name: Annotated[str, Field(max_length=40), AfterValidator(check_name)] = named(
        "Slurm's ClusterName; keep it for the life of the cluster, at most 40 characters",
        breaks="Slurm files its state and its accounts under this name",
        fix="write a name such as lab",
    )
    munge_generation: FreeText = key(
        "change this text to give every node a new munge key",
        wants="a short text",
        breaks="a change of it makes a new munge key",
        fix='write any text, such as "2"',
        min_length=1,
        default="1",
    )
    ssh_generation: FreeText = key(
        "change this text to give the cluster a new SSH authority, and every machine a certificate of it",
        wants="a short text",
        breaks="a change of it makes a new SSH authority",
        fix='write any text, such as "2"',
        min_length=1,
        default="1",
    )
    repair: dict[str, FreeText] = key(
        "by a node's name, a text; change it to run all steps of that node again, as after a repair by hand",
        wants="a mapping from a node's name to a short text",
        breaks="no step would know that it has to run again",
        fix='write {b1: "2026-11-21"}',
        default={},
    )


class Head(Section):
    """The head node: slurmctld, the share, and the place to log in."""

    name: NodeName = named(
        "the head node's name; at a `lab` site one more container, at a `hosts` site one of its hosts, "
        "at a `local` site this machine",
        breaks="Slurm, the tailnet and every job know it by this name",
        fix="write a name such as head",
        default="head",
    )
    site: str = key(
        "the site that the head node stands at",
        wants="the name of a site",
        breaks="the head node would be nowhere",
        fix="write the name of one of the sites",
    )
    restore_from: str | None = key(
        "make the head node, on a new machine, of a backup ([day-2.md](day-2.md#a-head-node-that-is-lost)): `latest`, "
        "or a backup's id",
        wants="latest, or the id of a backup in hexadecimal digits",
        breaks="the head node would begin anew and know no job",
        fix="write latest",
        pattern=r"^(latest|[0-9a-f]{8,64})$",
        default=None,
    )
    compute: Annotated[bool, BeforeValidator(_computes)] = key(
        f"`{COMPUTES}`: run jobs on the head node too, although whoever is root of a compute node can then be root of "
        "the head node ([security.md](security.md#the-trust-domain))",
        wants=f"false, or the words {COMPUTES}",
        breaks=(
            "root of a compute node has Slurm's key and so is root of every machine with slurmd: of the head node "
            "too where it computes, with the share, the authority of host keys and, of kind local, your account"
        ),
        fix=f"write false or leave it out, or {COMPUTES} if that is what you want",
        default=False,
    )
