"""The stack's outputs: a contract other programs rely on (docs/outputs.md). Pure; no pulumi import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.roles.slurm.versions import upstream
from components.settings.types import CROSS_SITE, NODE
from components.validation.table import scopes_of


def node_output(name: str, site: str, facts: Mapping[str, Any], joined: Mapping[str, Any]) -> dict[str, Any]:
    """Return one element of `cluster.nodes` from a node's facts and its join; None for what it did not say."""
    version = facts["slurm_version"]
    return {
        "name": name,
        "site": site,
        "tailnet_ip": joined["tailnet_ip"],
        "cpus": facts["cpus"],
        "memory_mb": facts["memory_mb"],
        "gpus": facts["gpus"],
        "path": joined["path"],
        "slurm_version": None if version is None else upstream(version),
        "tailscale_version": joined["tailscale_version"],
    }


def headline(validation: Mapping[str, Any]) -> float | None:
    """Return the headline bus bandwidth in GB/s; None when nothing was measured.

    That of the largest scope that was judged on GPUs; else that across sites, or of the only site.
    """
    judged = [
        (len(result["nodes"]), result["ranks"] or 0, result)
        for _, result in scopes_of(validation)
        if result.get("backend") == "nccl-tests" and result["verdict"] in ("PASS", "FAIL")
    ]
    if judged:
        value = max(judged, key=lambda each: each[:2])[2]["busbw_gb_per_s"]
        return None if value is None else float(value)
    for scope in (CROSS_SITE, *(name for name in validation if name != NODE)):
        if scope in validation:
            value = validation[scope]["busbw_gb_per_s"]
            return None if value is None else float(value)
    return None
