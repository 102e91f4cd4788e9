"""The training benchmark in a stack's outputs, for the terminal and the report page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.output.terminal import one_line
from cli.report.judgement import Judgement


class Trained(Judgement):
    """The training benchmark; `result` comes from components/validation/training_verdict.py."""

    @property
    def how(self) -> str:
        """Return the model, the nodes and the settings of the training."""
        result, how = self.result, self.result.get("how") or {}
        device = "CPUs" if result["device"] == "CPU" else ", ".join(result["devices"])
        participants = f"{result['ranks']} ranks on {', '.join(result['nodes'])} ({device})"
        size = f"ResNet-18 of width {how.get('width')}, images of {how.get('pixels')} pixels, {how.get('precision')}"
        return one_line(f"{participants}; {size}, PyTorch {how.get('torch')}")

    @property
    def figures(self) -> dict[str, str]:
        """Return the figures by column; empty without any. Figures on CPUs have the label `CPU`."""
        result = self.result
        rate = result["images_per_second"]
        if rate is None:
            return {}
        floor, spread = result["floor_images_per_second"], result["spread"]
        rate_column = "images/s per GPU" if result["device"] == "GPU" else "images/s per node (CPU)"
        return {
            rate_column: f"{result['images_per_second_per_rank']:,.1f}",
            "images/s in all": f"{rate:,.1f}",
            "jitter": f"{result['jitter']:.1%}",
            "spread": f"{spread['relative']:.1%}" if spread else "",
            "floor": "none" if floor is None else f"{floor:,g}",
        }


def training_of(outputs: Mapping[str, Any]) -> Trained | None:
    """Return the training benchmark of a stack, if it has one."""
    result = outputs.get("training")
    return Trained(result) if result else None
