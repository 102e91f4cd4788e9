"""Install the scripts and the health check of a pod, before slurmd starts. The checks are those of pods (checks.py)."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.health.compute import ScriptValues, install_scripts
from components.roles.health.remove import clear_comment, remove_health


def pod(step: Step, values: ScriptValues) -> None:
    """Install them, or remove them if the config turns health off."""
    if values.health_enabled:
        install_scripts(values)
    else:
        clear_comment()
        remove_health()
