"""A site of machines that are there already, reached by SSH, and the nodes that it gives."""

from dataclasses import dataclass
from typing import Literal

from components.settings.cluster import Head
from components.settings.section import Section, key, named, yes_no
from components.settings.types import Feature, GpuText, NodeName, Whole
from stacks.sites.hosts.ssh_types import Address, HostKey, KeyFile
from stacks.sites.kind import NodeSpec, Site, features_key, kind_key


class HostConfig(Section):
    """A machine of yours, reached by SSH."""

    name: NodeName = named(
        "the node's name in Slurm and in the tailnet, and the machine's host name while it is in the cluster",
        "Slurm, the tailnet and every job know it by this name; write a name such as gpu-box or dgx1",
    )
    address: Address = key(
        "IP address or host name for SSH from this machine",
        "an IP address or host name; the program could not log in; write what you would give to ssh",
    )
    port: Whole = key(
        "sshd's port",
        "a port, 1 to 65535; the program could not log in; write sshd's port, most often 22",
        ge=1,
        le=65535,
        default=22,
    )
    user: str = key(
        "the account to log in with: root, or one with password-less sudo",
        "an account's name; the program could not log in; write root or an account with sudo",
        pattern=r"^[a-z_][a-z0-9_-]{0,31}$",
    )
    private_key_file: KeyFile = key(
        "private key for the log-in; `~` and paths relative to the config are understood",
        "a path of a private key file; the program could not log in to this host; write the path of the key that "
        "opens it, such as ~/.ssh/id_ed25519",
    )
    host_key: HostKey = key(
        "the host's public key, pinned",
        "a public host key such as 'ssh-ed25519 AAAA...'; any machine on the way could pose as this host and be "
        "given the cluster's keys; write what `ssh-keyscan -t ed25519 ADDRESS` prints after the address, once you "
        "have compared it with /etc/ssh/ssh_host_ed25519_key.pub on the host",
    )
    gpu: GpuText | None = key(
        "a promise of the node's GPUs, `kind:count`, which is checked; each kind gets a partition of its name; left "
        "out, kind and count are the machine's, and the node is in partition `gpu`",
        "a GPU kind and a count such as h200:8; Slurm would give the node's GPUs to nobody; write KIND:COUNT (KIND "
        "in lowercase letters, digits and hyphens), or leave gpu out",
        default=None,
    )
    features: tuple[Feature, ...] = features_key("Slurm features of the node, for `--constraint`")
    adopt: bool = key(
        "the machine is in the cluster's tailnet already, under this name; its routes, exit node and SSH stay as they "
        "are, and it stays in it when it leaves the cluster",
        "true or false; the program would not know whether it may log the machine in and out; write true for a machine "
        "that you brought into the tailnet yourself",
        default=False,
    )
    take_over: bool = yes_no(
        "take the machine from the cluster that it is in; that one's files are kept in /var/lib/tailrack/backup on it",
        False,
    )


class HostsSite(Site):
    """A site of machines that are there already."""

    kind: Literal["hosts"] = kind_key("hosts", "your own machines by SSH")
    hosts: tuple[HostConfig, ...] = key(
        "the site's machines",
        "a list of one host or more; the site would have no nodes; add a host, or delete the site",
        min_length=1,
    )


@dataclass(frozen=True)
class HostNode(NodeSpec):
    """A machine that is there already."""

    host: HostConfig


def nodes(site: HostsSite, head: Head) -> list[HostNode]:
    """The nodes of the site."""
    return [HostNode.of(site, head, host.name, host.features, host.gpu, host=host) for host in site.hosts]
