"""Machines of kind `hosts`: your own, reached by SSH with a pinned host key."""

from __future__ import annotations

import pulumi

from components.host import Connection, GpuSpec, Host
from stacks.config import HostConfig, NodeSpec


def host(spec: NodeSpec, config: HostConfig) -> Host:
    """Return a machine of the config as a Host. The key file was checked when the config was read."""
    key = config.private_key_file.read_text(encoding="utf-8")
    return Host(
        name=spec.name,
        site=spec.site,
        connection=Connection(
            host=config.address,
            port=config.port,
            user=config.user,
            private_key=pulumi.Output.secret(key),
            host_key=config.host_key,
        ),
        features=tuple(spec.features),
        gpu=GpuSpec(spec.gpu.kind, spec.gpu.count) if spec.gpu else None,
    )
