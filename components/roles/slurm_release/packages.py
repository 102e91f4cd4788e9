"""Files of an installed release of Slurm."""

from __future__ import annotations

from components.node.step.step import STATE_DIR

# The name of the installed release's package folder, in one line.
INSTALLED = f"{STATE_DIR}/slurm-release"
