"""The JSON that the commands read on stdin, checked before they touch Docker."""

import ipaddress
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lab import subnets
from lab.errors import LabError
from lab.identity import lock_path
from lab.profiles.machine import Like

LabId = Annotated[str, Field(pattern=r"^[a-z0-9]{1,20}$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$")]


def _subnet(text: str) -> str:
    """Return `text` if it is a private IPv4 network with room for machines, else raise ValueError."""
    network = ipaddress.IPv4Network(text)
    if not subnets.is_private(network) or not subnets.room(network):
        raise ValueError("write a private IPv4 network of /28 or larger, such as 10.77.2.0/24")
    return text


Subnet = Annotated[str, AfterValidator(_subnet)]


class _Spec(BaseModel):
    """Input of every command: the lab's id, and the folder (created if missing) for its key and locks."""

    model_config = ConfigDict(extra="forbid")

    lab: LabId
    state_dir: Path

    @property
    def folder(self) -> Path:
        """The lab's own folder inside the state folder."""
        return self.state_dir / self.lab

    @property
    def lock(self) -> Path:
        """The lab's lock file."""
        return lock_path(self.state_dir, self.lab)


class NetworkSpec(_Spec):
    """Input of `network up` and `network down`: sites by name, each with its IPv4 subnet or null to have one picked."""

    sites: dict[Name, Subnet | None] = {}


class PoolSpec(NetworkSpec):
    """Input of `pool up` and `pool down`: sites that a pool's stack adds to the lab of its cluster."""

    pool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]


class NodeSpec(_Spec):
    """Input of `node up` and `node down`: one machine and its site. `bare`: nothing of the cluster's software.

    like   its profile; like `bare`, no profile has any package of the cluster
    busy   its first minute is taken by updates, as a new cloud machine's often is; no other profile has this
    """

    node: Name
    site: Name
    bare: bool = False
    like: Like = ""
    busy: bool = False

    @model_validator(mode="after")
    def _busy_with_what_it_has(self) -> Self:
        if self.busy and self.like != "cloud":
            raise ValueError("only a machine with like: cloud is ever busy with updates")
        return self

    @field_validator("node")
    @classmethod
    def _not_the_control_server(cls, node: str) -> str:
        if node == "control":
            raise ValueError("`control` is the lab's own control server; give the node another name")
        return node


SpecT = TypeVar("SpecT", bound=_Spec)


def parse(model: type[SpecT], text: str) -> SpecT:
    """Return the `model` written as JSON in `text`.

    Raises LabError with each wrong key, its value and the allowed values.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        faults = [
            f"{'.'.join(str(part) for part in fault['loc']) or 'stdin'}: {fault['msg']}"
            for fault in error.errors(include_url=False)
        ]
        raise LabError(f"stdin is not what this command reads: {'; '.join(faults)}") from error
