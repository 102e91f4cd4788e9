"""Read the output of nvidia-smi."""

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element

from components.node.failure import Failure
from components.node.log import printable
from components.roles.gpu.gpu.host import Gpu
from components.validation.preflight.collect import LIMIT_SECONDS
from components.validation.preflight.findings import CommandResult
from components.validation.preflight.gpu_health import field, number, read_smi
from components.validation.preflight.links import read_links

_BRANDS = "nvidia|tesla|geforce|quadro|graphics|generation|edition|server|workstation|blackwell|gpu|with|design"
_SIZES_AND_BOARDS = r"sxm[0-9]*|pcie|nvl|hbm[0-9]*[a-z]?|[0-9]+gb?|pg[0-9]+(-[0-9]+)?|ac|lc"
_NO_KINDS = ("all", "gpu", "none", "default", "localhost")


def kind_of(product: str) -> str:
    """Return a product's name for Slurm and the config: h100 for "NVIDIA H100 80GB HBM3".

    It is the product name without brand words, memory size and board type, or `unknown` if nothing valid is left.
    """
    kind = product.encode("ascii", "replace").decode().lower()
    for words in (_BRANDS, _SIZES_AND_BOARDS):
        kind = re.sub(rf"\b({words})\b", "", kind)
    kind = re.sub(r"\brtx a([0-9]{4})\b", r"a\1", kind)
    kind = re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]", "", kind)).strip("-")
    return kind if re.fullmatch(r"[a-z][a-z0-9-]{0,40}", kind) and kind not in _NO_KINDS else "unknown"


def read_gpus(text: str) -> tuple[str, list[Gpu]]:
    """Return the driver's version, empty if it is not one, and the GPUs, from the output of `nvidia-smi -q -x`."""
    smi = read_smi(text)
    driver, gpus = (smi.driver or "", smi.gpus) if smi else ("", ())
    return driver if re.fullmatch(r"[0-9][0-9A-Za-z.-]{0,40}", driver) else "", list(map(_gpu, gpus))


def _gpu(gpu: Element) -> Gpu:
    name = field(gpu, "product_name") or ""
    return Gpu(
        field(gpu, "minor_number") or "",
        gpu.get("id", ""),
        name,
        kind_of(name),
        number(field(gpu, "fb_memory_usage/total")),
        field(gpu, "mig_mode/current_mig") == "Enabled",
        # Use display_active: data centre cards can have "Display Mode: Enabled" without a display.
        field(gpu, "display_active") == "Enabled" or "Display" in name,
    )


def fewest_links(text: str) -> int:
    """Return the smallest number of active NVLinks of any GPU, from the output of `nvidia-smi nvlink -s`."""
    return min((links.count for links in read_links(text).values()), default=0)


# The reason and remedy, by a part of the output.
_CAUSES: Mapping[str, tuple[str, str]] = {
    "version mismatch": (
        "the running NVIDIA driver is not the installed one ({line})",
        "restart {host}, because its driver was updated while it ran; then run up again",
    ),
    "couldn't communicate": (
        "the NVIDIA driver does not load ({line})",
        "run 'modprobe nvidia' on {host} to see why ('dkms status': is there a module for this kernel? Secure Boot "
        "rejects unsigned ones)",
    ),
    **dict.fromkeys(
        ("GPU is lost", "Unable to determine the device handle"),
        (
            "a GPU is lost ({line})",
            "see 'dmesg | grep -i xid' on {host} and restart it; replace a GPU that is lost again",
        ),
    ),
}


def failure_of(answer: CommandResult, bus: str, host: str) -> Failure:
    """Return the reason and the remedy for a failure of nvidia-smi. `bus`: the PCI addresses of GPUs."""
    if answer.status is None:
        return Failure(
            f"nvidia-smi does not answer within {LIMIT_SECONDS}s: a GPU or its driver hangs",
            f"see 'dmesg | grep -iE \"nvrm|xid\"' on {host}, then restart it: only a restart recovers a GPU that hangs",
        )
    line = next(filter(None, (printable(line, 200) for line in answer.output.splitlines())), "")
    for part, (reason, remedy) in _CAUSES.items():
        if part in answer.output:
            return Failure(reason.format(line=line), remedy.format(host=host))
    # As a shell shows a signal.
    status = answer.status if answer.status >= 0 else 128 - answer.status
    return Failure(
        f"nvidia-smi fails with status {status} ({line}); on the PCI bus: {bus or 'no GPU'}",
        f"run nvidia-smi on {host}, and see 'dmesg | grep -i nvrm' there",
    )
