"""What a stack's output `training` says, in the words in which the terminal and the page show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.output.terminal import one_line


@dataclass(frozen=True)
class Trained:
    """The training benchmark. `result` is what components/validation/training_verdict.py gives."""

    result: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        return str(self.result["verdict"])

    @property
    def reason(self) -> str:
        """Why the verdict is what it is; holds what programs on the nodes have printed."""
        return one_line(str(self.result["reason"]))

    @property
    def how(self) -> str:
        """What trained, where and how."""
        result, how = self.result, self.result.get("how") or {}
        device = "CPUs" if result["device"] == "CPU" else ", ".join(result["devices"])
        words = f"{result['ranks']} ranks on {', '.join(result['nodes'])} ({device})"
        size = f"ResNet-18 of width {how.get('width')}, images of {how.get('pixels')} pixels, {how.get('precision')}"
        return one_line(f"{words}; {size}, PyTorch {how.get('torch')}")

    @property
    def figures(self) -> dict[str, str]:
        """Figures column by column; empty where there are none. On CPUs they are labelled so."""
        result = self.result
        rate = result["images_per_second"]
        if rate is None:
            return {}
        floor, spread = result["floor_images_per_second"], result["spread"]
        each = "images/s per GPU" if result["device"] == "GPU" else "images/s per node (CPU)"
        return {
            each: f"{result['images_per_second_per_rank']:,.1f}",
            "images/s in all": f"{rate:,.1f}",
            "jitter": f"{result['jitter']:.1%}",
            "spread": f"{spread['relative']:.1%}" if spread else "",
            "floor": "none" if floor is None else f"{floor:,g}",
        }


def training_of(outputs: Mapping[str, Any]) -> Trained | None:
    """The training benchmark of a stack; None where there is none."""
    found = outputs.get("training")
    return Trained(found) if found else None
