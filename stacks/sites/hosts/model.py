"""Settings of a site of existing machines, reached by SSH, and the nodes of that site."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SecretStr

from components.settings.cluster import Head
from components.settings.money import Price, price_key
from components.settings.section import Section, key, named, yes_no
from components.settings.types import Feature, GpuText, NodeName, Whole
from stacks.sites.hosts.other_stacks import OUTPUT
from stacks.sites.hosts.presets import PRESETS
from stacks.sites.hosts.ssh_types import Address, HostKey, HostsFile, LockableKeyFile, Login
from stacks.sites.kind import NodeSpec, Site, Spot, features_key, kind_key, spot_key
from stacks.sites.pods import risk_key, stage_key
from stacks.stack_name import StackName

PASSPHRASE_COMMAND = "pulumi config set --path --secret 'tailrack:sites[0].private_key_passphrase'"  # noqa: S105 - no passphrase
OutputName = Annotated[str, Field(min_length=1, max_length=200)]
PresetName = Literal["generic", "lambda", "paperspace", "nebius", "crusoe", "dgx", "runpod", "vast"]


def _address(description: str) -> Any:
    return key(
        description,
        wants="an IP address or host name",
        breaks="tailrack could not log in",
        fix="write the address that you use with ssh",
    )


def _port(**field: Any) -> Any:
    return key(
        "sshd's port",
        wants="a port, 1 to 65535",
        breaks="tailrack could not log in",
        fix="write sshd's port, usually 22",
        ge=1,
        le=65535,
        **field,
    )


def _user(description: str, **field: Any) -> Any:
    return key(
        description,
        wants="an account's name",
        breaks="tailrack could not log in",
        fix="write root or an account with sudo",
        **field,
    )


def _key_file(description: str, **field: Any) -> Any:
    return key(
        description,
        wants="a path of a private key file",
        breaks="tailrack could not log in to this host",
        fix="write the path of the key for this host, such as ~/.ssh/id_ed25519",
        **field,
    )


def _passphrase(description: str) -> Any:
    return key(
        f"{description}; a Pulumi secret (`{PASSPHRASE_COMMAND}`)",
        wants="a passphrase on one line",
        breaks="tailrack could not log in",
        fix=f"run: {PASSPHRASE_COMMAND}",
        secret=True,
        default=None,
    )


def _agent(description: str, **field: Any) -> Any:
    return key(
        description,
        wants="true or false",
        breaks="tailrack would not know where the key is",
        fix="write true if your ssh-agent has the key",
        **field,
    )


def _host_key(description: str, fix: str) -> Any:
    return key(
        description,
        wants="a public host key such as 'ssh-ed25519 AAAA...'",
        breaks="an attacker in the network could pose as this host and get the cluster's keys",
        fix=fix,
    )


class Bastion(Section):
    """The jump host of a site, for hosts that you cannot reach directly."""

    address: Address = _address("IP address or host name for SSH from this machine")
    port: Whole = _port(default=22)
    user: Login = _user("the account for the log-in there; it only needs to forward connections (AllowTcpForwarding)")
    private_key_file: LockableKeyFile | None = _key_file("private key for the log-in there", default=None)
    private_key_passphrase: SecretStr | None = _passphrase("the passphrase of the key file, if it has one")
    agent: bool = _agent("use a key in your ssh-agent instead of a key file", default=False)
    host_key: HostKey = _host_key(
        "its pinned public key",
        "run `ssh-keyscan -t ed25519 ADDRESS`, compare the key with /etc/ssh/ssh_host_ed25519_key.pub there, and write "
        "the part after the address",
    )


def _as_written(host: dict[str, Any]) -> None:
    """Change the schema of a host to what `inventory.complete` reads: ranges, and keys that the site may have."""
    address = host["properties"]["address"]
    host["properties"]["address"] = {"anyOf": [address, {"type": "array", "items": {"type": "string"}}]}
    del host["properties"]["name"]["maxLength"]
    host["required"] = ["name", "address"]


class HostConfig(Section):
    """An existing machine, reached by SSH."""

    model_config = ConfigDict(json_schema_extra=_as_written)

    name: NodeName = named(
        "the node's name in Slurm and in the tailnet, and the machine's host name while it is in the cluster. A range "
        "such as `n[1-64]` stands for many nodes, and needs as many addresses",
        breaks="Slurm, the tailnet and every job use this name",
        fix="write a name such as box or dgx1",
    )
    address: Address = _address("IP address or host name for SSH from this machine, or from the site's bastion")
    port: Whole = _port(default=22)
    user: Login = _user("the account for the log-in: root, or one with password-less sudo; you can set it for the site")
    private_key_file: LockableKeyFile | None = _key_file(
        "private key for the log-in; may start with `~` or be relative to the config; you can set it for the site",
        default=None,
    )
    private_key_passphrase: SecretStr | None = _passphrase(
        "the passphrase of the key file, if it has one; you can set it for the site"
    )
    agent: bool = _agent(
        "use a key in your ssh-agent instead of a key file; you can set it for the site",
        default=False,
    )
    host_key: HostKey = _host_key(
        "the host's pinned public key; default: the one in the site's known_hosts_file",
        "run `ssh-keyscan -t ed25519 ADDRESS`, compare the key with /etc/ssh/ssh_host_ed25519_key.pub on the host, and "
        "write the part after the address; or write a known_hosts_file for the site and run `make trust STACK=...`",
    )
    gpu: GpuText | None = key(
        "the node's GPUs, `kind:count`, which the check step compares with the machine; each kind gets a partition of "
        "its name. Default: the machine's kind and count, in partition `gpu`",
        wants="a GPU kind and a count such as h200:8",
        breaks="Slurm would not offer the node's GPUs",
        fix="write KIND:COUNT (KIND in lowercase letters, digits and hyphens), or leave gpu out",
        default=None,
    )
    features: tuple[Feature, ...] = features_key("Slurm features of the node, for `--constraint`")
    price_per_hour: Price | None = price_key("the machine (default: the site's price)")
    spot: Spot | None = spot_key("the machine")
    adopt: bool = key(
        "the machine is already in the cluster's tailnet, under this name. Its routes, exit node and SSH settings do "
        "not change, and it stays in the tailnet when it leaves the cluster",
        wants="true or false",
        breaks="tailrack would not know whether it may log the machine in and out",
        fix="write true if you added the machine to the tailnet yourself",
        default=False,
    )
    take_over: bool = yes_no(
        "take the machine from another cluster; that cluster's files are kept on it, in /var/lib/tailrack/backup",
        False,
    )


class HostsFrom(Section):
    """The output of another program that has the hosts of a site: of a Pulumi stack, or of Terraform."""

    stack: StackName | None = key(
        "the stack whose output has the site's hosts: `organization/project/stack`",
        wants="the name of a stack",
        breaks="the site would have no machines",
        fix="write ORGANIZATION/PROJECT/STACK; with state in a folder or a bucket, organization/PROJECT/STACK",
        default=None,
    )
    terraform: HostsFile | None = key(
        "the file that has them, in place of `stack`: a state of Terraform or OpenTofu, or what `terraform output "
        "-json` prints",
        wants="a path of a file",
        breaks="the site would have no machines",
        fix="write a path relative to the config, such as ../machines/terraform.tfstate",
        default=None,
    )
    output: OutputName = key(
        "the name of that output, a list with the keys of `hosts` (docs/first-cluster.md)",
        wants="the name of an output",
        breaks="the site would have no machines",
        fix=f"write its name such as {OUTPUT}",
        default=OUTPUT,
    )


class HostsSite(Site):
    """A site of existing machines."""

    model_config = ConfigDict(json_schema_extra=lambda site: site["required"].remove("hosts"))

    kind: Literal["hosts"] = kind_key("hosts", "your own machines by SSH")
    preset: PresetName = key(
        f"the provider, which sets the default account: {', '.join(PRESETS)} (docs/providers.md)",
        wants=f"one of {', '.join(PRESETS)}",
        breaks="the default account would be unknown",
        fix="write one of them, or leave preset out",
        default="generic",
    )
    hosts: tuple[HostConfig, ...] = key(
        "the site's machines",
        wants="a list of one host or more",
        breaks="the site would have no nodes",
        fix="add a host, a hosts_file or a hosts_from, or delete the site",
        min_length=1,
    )
    hosts_file: HostsFile | None = key(
        "more machines of the site: a CSV file whose first line names keys of `hosts`, or a YAML file with a list "
        "`hosts`. Use a file if the config would have over 100 KB, which is too much to pass to the program",
        wants="a path of a CSV or YAML file",
        breaks="the site would have no machines",
        fix="write a path relative to the config",
        default=None,
    )
    hosts_from: HostsFrom | None = key("all machines of the site, from the output of another program", default=None)
    user: Login | None = _user("`user` for all hosts that have none; default: the preset's", default=None)
    port: Whole | None = _port(default=None)
    private_key_file: LockableKeyFile | None = _key_file(
        "`private_key_file` for all hosts with neither this nor `agent`", default=None
    )
    private_key_passphrase: SecretStr | None = _passphrase("`private_key_passphrase` for all hosts that have none")
    agent: bool | None = _agent("`agent` for all hosts with neither this nor `private_key_file`", default=None)
    spot: Spot | None = spot_key("the machines of the site without their own `spot`")
    known_hosts_file: HostsFile | None = key(
        "host keys that you have verified, in OpenSSH's format; `make trust` writes it",
        wants="a path",
        breaks="hosts without a host_key could not be verified",
        fix="write a path relative to the config, such as known_hosts",
        default=None,
    )
    bastion: Bastion | None = key("jump host for all hosts of the site", default=None)
    pods: bool = yes_no(
        "the machines are containers without systemd, a TUN device and mounts, such as RunPod's pods and Vast.ai's "
        "Docker instances ([pods](pods.md)); needs `accept_pod_risk`",
        False,
    )
    accept_pod_risk: bool = risk_key()
    stage: bool = stage_key("of pods: ")


@dataclass(frozen=True)
class HostNode(NodeSpec):
    """An existing machine."""

    host: HostConfig
    bastion: Bastion | None


def nodes(site: HostsSite, head: Head) -> list[HostNode]:
    """Return the nodes of the site."""
    return [
        HostNode.of(
            site,
            head,
            host.name,
            host.features,
            host.gpu,
            price=host.price_per_hour,
            host=host,
            source=host,
            bastion=site.bastion,
            spot=host.spot or site.spot or "",
            pod=site.pods,
            stage=site.stage,
        )
        for host in site.hosts
    ]
