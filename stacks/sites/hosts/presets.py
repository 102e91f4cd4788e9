"""What is known of the machines of each provider: whom to log in as, and what is in the way there.

A preset sets defaults and words alone. Where a provider's machines differ, what the gate finds on the machine holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A provider's machines.

    user       the account that its images open, with password-less sudo; None where there is no common one
    disks      where the fast local disk is, in words
    there      what its images bring along
    firewall   what must be opened for WireGuard (UDP 41641) and SSH, and where
    stays      what is lost, and what goes on costing money, when the machine is switched off
    source     where this is from
    """

    user: str | None
    disks: str
    there: str
    firewall: str
    stays: str
    source: str


PRESETS: Mapping[str, Preset] = {
    "generic": Preset(
        user=None,
        disks="not known",
        there="not known",
        firewall="let SSH in from where `up` runs, and UDP 41641 for direct paths; without the latter a relay is used",
        stays="not known",
        source="no provider",
    ),
    "lambda": Preset(
        user="ubuntu",
        disks="the root disk; /home/ubuntu/<file system> is a network file system that stays",
        there="Lambda Stack: driver, CUDA, NCCL, Docker (image families lambda-stack-22-04, lambda-stack-24-04)",
        firewall="inbound rules are the account's (Firewall page, or firewall_rulesets of the API): add UDP 41641; "
        "compute nodes of a 1-Click Cluster have no way in from outside: give the site a bastion",
        stays="there is no stop, only terminate, and the local disk is lost with it",
        source="docs.lambda.ai/public-cloud/access-security; docs.lambdalabs.com/1-click-clusters/security-posture",
    ),
    "paperspace": Preset(
        user="paperspace",
        disks="the root disk",
        there="ML-in-a-Box images: driver, CUDA, Docker",
        firewall="a public IP is needed; a dynamic one changes at each power-on: take a static one",
        stays="a machine that is off still costs its disk and static IP",
        source="docs.digitalocean.com/products/paperspace/machines/how-to/manage-public-ips",
    ),
    "nebius": Preset(
        user="ubuntu",
        disks="the root disk; local NVMe only with some types",
        there="ubuntu24.04-cuda images: driver, CUDA, container toolkit",
        firewall="a public address is an option of the machine; the default network lets all in",
        stays="a stopped machine still costs its disks",
        source="dstackai/dstack, backends/nebius",
    ),
    "crusoe": Preset(
        user="ubuntu",
        disks="ephemeral NVMe, not mounted",
        there="ubuntu22.04-nvidia-sxm-docker and -pcie-docker images: driver, CUDA, Docker, InfiniBand's user space",
        firewall="the default VPC lets SSH in from the internet and everything between its machines; a VPC of one's "
        "own lets nothing in: add SSH and UDP 41641. Types with -ib or -roce need a partition of the network",
        stays="ephemeral disks are lost when the machine stops",
        source="docs.crusoecloud.com/networking; dstackai/dstack, backends/crusoe",
    ),
    "dgx": Preset(
        user=None,
        disks="/raid, a RAID 0 of NVMe disks",
        there="DGX OS 6 (Ubuntu 22.04) or 7 (Ubuntu 24.04): driver, fabric manager, nvidia-peermem, ACS off",
        firewall="the site's own; fail2ban of older DGX OS locks out whoever logs in too often",
        stays="yours",
        source="NVIDIA DGX OS 6 and 7 user guides, appendix C; NVIDIA/deepops, docs/deepops/dgx-software-stack.md",
    ),
    "runpod": Preset(
        user="root",
        disks="/workspace, where the pod has a volume",
        there="a container: no systemd, no TUN device, no Docker",
        firewall="TCP ports alone, mapped to other numbers; no UDP at all",
        stays="a stopped pod keeps /workspace alone",
        source="runpod/docs, pods/overview.mdx and pods/configuration/expose-ports.mdx",
    ),
}
