"""The section `fabric`, and the value types of a site's fabric."""

import re
from typing import Annotated

from pydantic import BeforeValidator

from components.settings.network_names import AUTO, DEVICE, INTERFACE, NO_RDMA, ON_THE_TAILNET
from components.settings.section import Section
from components.settings.types import full, must, refuse


def _rdma(value: object) -> object:
    """Return a list of names as one text for the steps."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("neither a word nor a list of names")
    if names not in ([AUTO], [NO_RDMA]):
        for name in names:
            if name in (AUTO, NO_RDMA) or not re.fullmatch(f"{DEVICE}(:[1-9][0-9]?)?", name):
                refuse(f"has '{name}', which is not the name of an RDMA device, such as mlx5_0 or mlx5_0:1")
    return ",".join(names)


FabricName = Annotated[
    str,
    must(full(r"(?!(tailscale0|lo)$).*"), "is not a network of the site", fix=f"write {ON_THE_TAILNET}, or auto"),
    must(full(INTERFACE), "is not the name of a network interface, of 15 characters at most"),
]
# `auto`, `none`, or names joined by commas.
Rdma = Annotated[str, BeforeValidator(_rdma, json_schema_input_type=str | list[str])]


class Roce(Section):
    """RDMA over Ethernet (RoCE)."""

    apply: bool = False
    """Set the MTU of RoCE ports to 9216, and ATS_ENABLED in their adapters' firmware. Preflight reports both anyway."""


class Fabric(Section):
    """The machines' fast network."""

    roce: Roce = Roce()
