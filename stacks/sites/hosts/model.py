"""A site of machines that are there already, reached by SSH, and the nodes that it gives."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import SecretStr

from components.settings.cluster import Head
from components.settings.money import Price, price_key
from components.settings.section import Section, key, named, yes_no
from components.settings.types import Feature, GpuText, NodeName, Whole
from stacks.sites.hosts.presets import PRESETS
from stacks.sites.hosts.ssh_types import Address, HostKey, HostsFile, LockableKeyFile, Login
from stacks.sites.kind import NodeSpec, Site, features_key, kind_key

PASSPHRASE_COMMAND = "pulumi config set --path --secret 'tailrack:sites[0].private_key_passphrase'"  # noqa: S105 - no passphrase
PresetName = Literal["generic", "lambda", "paperspace", "nebius", "crusoe", "dgx", "runpod"]


def _address(what: str) -> Any:
    return key(
        what,
        wants="an IP address or host name",
        breaks="the program could not log in",
        fix="write what you would give to ssh",
    )


def _port(**field: Any) -> Any:
    return key(
        "sshd's port",
        wants="a port, 1 to 65535",
        breaks="the program could not log in",
        fix="write sshd's port, most often 22",
        ge=1,
        le=65535,
        **field,
    )


def _user(what: str, **field: Any) -> Any:
    return key(
        what,
        wants="an account's name",
        breaks="the program could not log in",
        fix="write root or an account with sudo",
        **field,
    )


def _key_file(what: str, **field: Any) -> Any:
    return key(
        what,
        wants="a path of a private key file",
        breaks="the program could not log in to this host",
        fix="write the path of the key that opens it, such as ~/.ssh/id_ed25519",
        **field,
    )


def _passphrase(what: str) -> Any:
    return key(
        f"{what}; a Pulumi secret (`{PASSPHRASE_COMMAND}`)",
        wants="a passphrase on one line",
        breaks="the program could not log in",
        fix=f"run: {PASSPHRASE_COMMAND}",
        secret=True,
        default=None,
    )


def _agent(what: str, **field: Any) -> Any:
    return key(
        what,
        wants="true or false",
        breaks="the program would not know where the key is",
        fix="write true where the ssh-agent of whoever runs it has the key",
        **field,
    )


def _host_key(what: str, fix: str) -> Any:
    return key(
        what,
        wants="a public host key such as 'ssh-ed25519 AAAA...'",
        breaks="any machine on the way could pose as this host and be given the cluster's keys",
        fix=fix,
    )


class Bastion(Section):
    """The machine that a site's hosts are reached through, where there is no other way in."""

    address: Address = _address("IP address or host name for SSH from this machine")
    port: Whole = _port(default=22)
    user: Login = _user("the account to log in with there; it needs no more than to connect on (AllowTcpForwarding)")
    private_key_file: LockableKeyFile | None = _key_file("private key for the log-in there", default=None)
    private_key_passphrase: SecretStr | None = _passphrase("the passphrase of the key file, where it has one")
    agent: bool = _agent("the key is in the ssh-agent of whoever runs this, in the place of a key file", default=False)
    host_key: HostKey = _host_key(
        "its public key, pinned",
        "write what `ssh-keyscan -t ed25519 ADDRESS` prints after the address, once you have compared it with "
        "/etc/ssh/ssh_host_ed25519_key.pub there",
    )


class HostConfig(Section):
    """A machine of yours, reached by SSH."""

    name: NodeName = named(
        "the node's name in Slurm and in the tailnet, and the machine's host name while it is in the cluster; a range "
        "such as `n[1-64]` stands for many, with as many addresses",
        breaks="Slurm, the tailnet and every job know it by this name",
        fix="write a name such as gpu-box or dgx1",
    )
    address: Address = _address("IP address or host name for SSH from this machine, or from the site's bastion")
    port: Whole = _port(default=22)
    user: Login = _user("the account to log in with: root, or one with password-less sudo; may stand at the site")
    private_key_file: LockableKeyFile | None = _key_file(
        "private key for the log-in; `~` and paths relative to the config are understood; may stand at the site",
        default=None,
    )
    private_key_passphrase: SecretStr | None = _passphrase(
        "the passphrase of the key file, where it has one; may stand at the site"
    )
    agent: bool = _agent(
        "the key is in the ssh-agent of whoever runs this, in the place of a key file; may stand at the site",
        default=False,
    )
    host_key: HostKey = _host_key(
        "the host's public key, pinned; left out, the one of the site's known_hosts_file",
        "write what `ssh-keyscan -t ed25519 ADDRESS` prints after the address, once you have compared it with "
        "/etc/ssh/ssh_host_ed25519_key.pub on the host, or name a known_hosts_file for the site and run "
        "`make trust STACK=...`",
    )
    gpu: GpuText | None = key(
        "a promise of the node's GPUs, `kind:count`, which is checked; each kind gets a partition of its name; left "
        "out, kind and count are the machine's, and the node is in partition `gpu`",
        wants="a GPU kind and a count such as h200:8",
        breaks="Slurm would give the node's GPUs to nobody",
        fix="write KIND:COUNT (KIND in lowercase letters, digits and hyphens), or leave gpu out",
        default=None,
    )
    features: tuple[Feature, ...] = features_key("Slurm features of the node, for `--constraint`")
    price_per_hour: Price | None = price_key("the machine costs an hour; left out, the site's")
    adopt: bool = key(
        "the machine is in the cluster's tailnet already, under this name; its routes, exit node and SSH stay as they "
        "are, and it stays in it when it leaves the cluster",
        wants="true or false",
        breaks="the program would not know whether it may log the machine in and out",
        fix="write true for a machine that you brought into the tailnet yourself",
        default=False,
    )
    take_over: bool = yes_no(
        "take the machine from the cluster that it is in; that one's files are kept in /var/lib/tailrack/backup on it",
        False,
    )


class HostsSite(Site):
    """A site of machines that are there already."""

    kind: Literal["hosts"] = kind_key("hosts", "your own machines by SSH")
    preset: PresetName = key(
        f"the provider, whose images say whom to log in as: {', '.join(PRESETS)} (docs/providers.md)",
        wants=f"one of {', '.join(PRESETS)}",
        breaks="nobody would know whom to log in as",
        fix="write one of them, or leave preset out",
        default="generic",
    )
    hosts: tuple[HostConfig, ...] = key(
        "the site's machines",
        wants="a list of one host or more",
        breaks="the site would have no nodes",
        fix="add a host or a hosts_file, or delete the site",
        min_length=1,
    )
    hosts_file: HostsFile | None = key(
        "more of the site's machines: a CSV file whose first line has the names of keys of `hosts`, or a YAML file "
        "with a list `hosts`; a config of over 100 KB cannot be handed to the program, a file can",
        wants="a path of a CSV or YAML file",
        breaks="the site's machines would not be known",
        fix="write a path relative to the config",
        default=None,
    )
    user: Login | None = _user("`user` of hosts that say none; left out, the preset's", default=None)
    port: Whole | None = _port(default=None)
    private_key_file: LockableKeyFile | None = _key_file(
        "`private_key_file` of hosts that say neither that nor `agent`", default=None
    )
    private_key_passphrase: SecretStr | None = _passphrase("`private_key_passphrase` of hosts that say none")
    agent: bool | None = _agent("`agent` of hosts that say neither that nor `private_key_file`", default=None)
    known_hosts_file: HostsFile | None = key(
        "host keys that you have looked at, as OpenSSH keeps them; `make trust` writes it",
        wants="a path",
        breaks="hosts without a host_key could not be told from others",
        fix="write a path relative to the config, such as known_hosts",
        default=None,
    )
    bastion: Bastion | None = key("the machine through which the site's hosts are reached", default=None)


@dataclass(frozen=True)
class HostNode(NodeSpec):
    """A machine that is there already."""

    host: HostConfig
    bastion: Bastion | None


def nodes(site: HostsSite, head: Head) -> list[HostNode]:
    """The nodes of the site."""
    return [
        HostNode.of(
            site, head, host.name, host.features, host.gpu, price=host.price_per_hour, host=host, bastion=site.bastion
        )
        for host in site.hosts
    ]
