"""The stack's outputs, a contract with other programs (docs/commands.md). Pure; no pulumi import."""

from collections.abc import Mapping
from typing import Any

from components.roles.slurm.slurm.versions import upstream_of
from components.settings.types import CROSS_SITE, NODE, NodeSettings
from components.validation.results import scopes_of


def node_output(node: NodeSettings, facts: Mapping[str, Any], confined: bool | None) -> dict[str, Any]:
    """Return one element of `cluster.nodes` from a node's facts and its join; None for missing facts.

    confined   whether Slurm prevents jobs from using other jobs' GPUs
    """
    version = facts["slurm_version"]
    gpu = {
        "kind": facts.get("gpu_kind"),
        "memory_mb": facts.get("gpu_memory_mb"),
        "driver": facts.get("gpu_driver"),
        "nvlinks": facts.get("gpu_nvlinks"),
        "confined": confined,
    }
    return {
        **({"gpu": gpu} if facts.get("gpu_devices") else {}),
        **({"pod": True} if node.pod else {}),
        **({"login": True} if node.login else {}),
        "name": node.name,
        "site": node.site,
        "tailnet_ip": facts["tailnet_ip"],
        "cpus": facts["cpus"],
        "memory_mb": facts["memory_mb"],
        "gpus": facts["gpus"],
        "slurm_version": None if version is None else upstream_of(version),
        "tailscale_version": facts["tailscale_version"],
    }


def headline(validation: Mapping[str, Any]) -> float | None:
    """Return the headline bus bandwidth in GB/s; None if nothing was measured.

    It is that of the largest scope judged on GPUs, else of all sites together, or of the only site. None if its data
    was wrong, its tables contradict themselves, or its runs differ too much.
    """
    judged = [
        (len(result["nodes"]), result["ranks"] or 0, result)
        for _, result in scopes_of(validation)
        if result.get("backend") == "nccl-tests" and result["verdict"] in ("PASS", "FAIL", "UNSTABLE", "INCONCLUSIVE")
    ]
    if judged:
        return _sound_figure(max(judged, key=lambda entry: entry[:2])[2])
    for scope in (CROSS_SITE, *(name for name in validation if name != NODE)):
        if scope in validation:
            return _sound_figure(validation[scope])
    return None


def _sound_figure(result: Mapping[str, Any]) -> float | None:
    value = result["busbw_gb_per_s"]
    sound = result.get("verdict") not in ("UNSTABLE", "INCONCLUSIVE") and not result.get("wrong")
    return float(value) if sound and value is not None else None
