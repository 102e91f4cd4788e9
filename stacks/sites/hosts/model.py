"""Settings of a site of existing machines, reached by SSH, and the nodes of that site."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from components.settings.cluster import Head
from components.settings.mask_secrets import MASK
from components.settings.money import Price
from components.settings.problems import Report, Stack, secret_command, show_name, show_names
from components.settings.section import Section, key, keys_of
from components.settings.types import Features, GpuText, NodeName, SshPort
from stacks.sites.hosts import ssh_types as ssh
from stacks.sites.hosts.other_stacks import OUTPUT
from stacks.sites.hosts.pods import check_pods
from stacks.sites.kind import NodeSpec, Site, Spot
from stacks.sites.pods import PodRisk, Stage
from stacks.stack_name import StackName

OutputName = Annotated[str, Field(min_length=1, max_length=200)]
PresetName = Literal["generic", "lambda", "paperspace", "nebius", "crusoe", "dgx", "runpod", "vast"]


class Machine(Section):
    """A machine with an SSH server."""

    address: ssh.Address
    """IP address or host name for SSH from this machine; of a host, from the site's bastion if it has one."""
    port: SshPort = 22
    """sshd's port."""
    user: ssh.Login
    """The account for the log-in: root, or one with sudo; on a bastion, any that may forward connections."""
    private_key_file: ssh.LockableKeyFile | None = None
    """Private key for the log-in; may start with `~` or be relative to the config."""
    private_key_passphrase: ssh.Passphrase | None = None
    """The passphrase of the key file, if it has one."""
    agent: bool = key(fix="write true if your ssh-agent has the key", default=False)
    """Use a key in your ssh-agent instead of a key file."""
    host_key: ssh.HostKey
    """Its pinned public key."""

    def check(self, stack: Stack, report: Report) -> None:
        ssh.check_one_key(self, report)
        if (file := self.private_key_file) is None:
            return
        shown = report.value(report.at(self, "private_key_file"), str(file))
        if self.host_key == ssh.public_half(file):
            breaks = "this key belongs to the account that logs in, so the machine would not be recognized"
            fix = keys_of(type(self))["host_key"].help.fix
            report.add((self, "host_key"), f"is the public half of {shown}", breaks, fix)
        # A host in a file or an output has no secrets: its site does.
        place = re.sub(
            r"\.hosts_file\[.*?\](\.hosts\[\d+\])?|\.hosts_from\.output\[\d+\]", "", report.at(self, ssh.PASSPHRASE)
        )
        fix, passphrase = f"run: {secret_command(place)}", self.private_key_passphrase
        if ssh.is_locked(file) and passphrase is None:
            fix += (
                "; or add the key to an agent (`ssh-add FILE`) and write `agent: true` instead; or create a key "
                "without a passphrase for this cluster: ssh-keygen -t ed25519 -N '' -f FILE"
            )
            breaks = "no one can type the passphrase when tailrack logs in"
            report.bad((self, "private_key_file"), "is locked with a passphrase", breaks, fix)
        elif ssh.is_locked(file) and passphrase is not None and not ssh.opens(file, passphrase.get_secret_value()):
            report.add((self, ssh.PASSPHRASE), f"{MASK} does not open {shown}", "tailrack could not log in", fix)


class OuterBastion(Machine):
    """The jump host through which a bastion is reached. Then use `make`: Pulumi alone goes through one."""


class Bastion(Machine):
    """The jump host for all hosts of the site, if you cannot reach them directly."""

    bastion: OuterBastion | None = None


def _as_written(host: dict[str, Any]) -> None:
    """Change the schema of a host to what `inventory.complete` reads: ranges, and keys that the site may have."""
    address = host["properties"]["address"]
    host["properties"]["address"] = {"anyOf": [address, {"type": "array", "items": {"type": "string"}}]}
    del host["properties"]["name"]["maxLength"]
    host["required"] = ["name", "address"]


class ExistingMachine(Section):
    """Keys of a machine that exists before the stack."""

    gpu: GpuText | None = None
    """The node's GPUs, `kind:count`, compared with the machine; each kind gets a partition. Default: the machine's, in
    partition `gpu`."""
    features: Features = ()
    """Slurm features of the node, for `--constraint`."""
    adopt: bool = False
    """The machine is already in the tailnet, by the node's name, and stays; its routes and exit node do too."""
    take_over: bool = False
    """Take the machine from another cluster; that cluster's files are kept on it, in /var/lib/tailrack/backup."""


class HostConfig(ExistingMachine, Machine):
    """An existing machine, reached by SSH."""

    model_config = ConfigDict(json_schema_extra=_as_written)

    name: NodeName = key(fix="write a name such as box or dgx1")
    """The node's name in Slurm and in the tailnet, and the machine's host name while it is in the cluster. A range such
    as `n[1-64]` stands for many nodes, and needs as many addresses. Log-in keys can be at the site."""
    host_key: ssh.HostKey = key(
        fix="run `ssh-keyscan -t ed25519 ADDRESS`, compare the key with /etc/ssh/ssh_host_ed25519_key.pub there, and "
        "write the part after the address; or write a known_hosts_file for the site and run `make trust STACK=...`"
    )
    """The host's pinned public key; default: the one in the site's known_hosts_file."""
    price_per_hour: Price | None = None
    """Price per hour of the machine, in the stack's `currency`; default: the site's price."""
    spot: Spot | None = None
    """The provider that may take the machine back: `aws`, `gcp` or `azure`. After its notice the node takes no more
    jobs, and [requeues those that it has](using.md#when-a-machine-goes-away)."""
    login: bool = False
    """The machine runs no jobs: users log in there, with the share and Slurm's commands."""


class HostsFrom(Section):
    """All machines of the site, from the output of another program: of a Pulumi stack, or of Terraform."""

    stack: StackName | None = key(
        "the name of a stack",
        "write ORGANIZATION/PROJECT/STACK; with state in a folder or a bucket, organization/PROJECT/STACK",
        default=None,
    )
    """The stack whose output has the site's hosts: `organization/project/stack`."""
    terraform: ssh.HostsFile | None = key(fix="write a path such as ../vms/terraform.tfstate", default=None)
    """In place of `stack`: a state of Terraform or OpenTofu, or what `terraform output -json` prints."""
    output: OutputName = key("the name of an output", f"write its name such as {OUTPUT}", default=OUTPUT)
    """The name of that output, a list with the keys of `hosts` (docs/first-cluster.md)."""


class HostsSite(Site):
    """A site of existing machines."""

    model_config = ConfigDict(json_schema_extra=lambda site: site["required"].remove("hosts"))

    kind: Literal["hosts"]
    """Your own machines by SSH."""
    preset: PresetName = "generic"
    """The provider, which sets the default account (docs/providers.md)."""
    hosts: tuple[HostConfig, ...] = key(fix="add a host, a hosts_file or a hosts_from, or delete it", min_length=1)
    """The site's machines."""
    hosts_file: ssh.HostsFile | None = None
    """More machines: a CSV file whose first line names keys of `hosts`, or a YAML file with a list `hosts`. Use a file
    if the config would have over 100 KB."""
    hosts_from: HostsFrom | None = None
    user: ssh.Login | None = None
    """`user` for all hosts that have none; default: the preset's."""
    port: SshPort | None = None
    """sshd's port for all hosts that have none."""
    private_key_file: ssh.LockableKeyFile | None = None
    """`private_key_file` for all hosts with neither this nor `agent`."""
    private_key_passphrase: ssh.Passphrase | None = None
    """`private_key_passphrase` for all hosts that have none."""
    sudo_password: ssh.SudoPassword | None = None
    """The log-in account's password for sudo on the site's hosts, a secret; default: sudo asks for none there."""
    agent: bool | None = key(fix="write true if your ssh-agent has the key", default=None)
    """`agent` for all hosts with neither this nor `private_key_file`."""
    spot: Spot | None = None
    """`spot` for all hosts that have none."""
    known_hosts_file: ssh.HostsFile | None = key(fix="write a path such as known_hosts", default=None)
    """Host keys that you have verified, in OpenSSH's format; `make trust` writes it."""
    bastion: Bastion | None = None
    pods: bool = False
    """The machines are containers without systemd, TUN and mounts ([pods](pods.md)); needs `accept_pod_risk`."""
    accept_pod_risk: PodRisk = False
    stage: Stage = False

    def check(self, stack: Stack, report: Report) -> None:
        check_pods(self, stack.head, report)
        head, names = stack.head, {host.name for host in self.hosts}
        if self.name == head.site and head.name not in names and len(names) == len(self.hosts):  # no duplicate
            problem = f"is not a host of site {show_name(head.site)} (its hosts are {show_names(names)})"
            report.bad((head, "name"), problem, "no machine would be the head node", "write the name of one of them")
        first: dict[tuple[str | None, str, int], HostConfig] = {}
        holders: dict[str, list[HostConfig]] = {}
        for site, host in ((owner, host) for owner in self.all_of_kind(stack) for host in owner.hosts):
            holders.setdefault(host.host_key, []).append(host)
            # Behind another bastion, the same address is another machine.
            bastion_address = site.bastion.address if site.bastion else None
            if (twin := first.setdefault((bastion_address, host.address, host.port), host)) is not host:
                problem = f"with port {host.port} is also {report.place(twin)}"
                fix = "write another, or delete one of the two"
                report.bad((host, "address"), problem, "one machine would be set up as two nodes", fix)
        for hosts in holders.values():
            if len(hosts) > 1:
                text = (
                    "have the same host key, so each can pose as the others; check for a copy mistake in the config. "
                    "If the machines are clones of one image, run on each: rm /etc/ssh/ssh_host_*_key*, ssh-keygen -A, "
                    "and restart sshd"
                )
                report.warn(report.at(hosts[0], "host_key"), f"{show_names({host.name for host in hosts})} {text}")


@dataclass(frozen=True)
class HostNode(NodeSpec):
    """An existing machine."""

    host: HostConfig
    bastion: Bastion | None
    sudo_password: ssh.SudoPassword | None


def nodes(site: HostsSite, head: Head) -> list[HostNode]:
    """Return the nodes of the site."""
    shared: dict[str, Any] = {name: getattr(site, name) for name in ("bastion", "sudo_password", "stage")}

    def node(host: HostConfig) -> HostNode:
        own: dict[str, Any] = {name: getattr(host, name) for name in ("login", "adopt", "take_over")}
        own |= {"spot": host.spot or site.spot or "", "pod": site.pods}
        own |= {"price": host.price_per_hour, "host": host, "source": host}
        return HostNode.of(site, head, host.name, host.features, host.gpu, **own, **shared)

    return list(map(node, site.hosts))
