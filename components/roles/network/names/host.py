"""The cluster's names: the head node publishes them, and every machine resolves them and has its node's name.

The list has the names and addresses with which machines joined (`members/<node>/address`), not names that machines
choose in the tailnet. On a pod, Slurm binds to the address of the host name: 127.0.0.1, where tailscaled passes
connections to.
"""

from socket import gethostname

from components.node import files, systemd
from components.node.failure import Failure
from components.node.log import STATE_DIR
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import wait_for
from components.roles.network.names.names import (
    HOSTS,
    LIST,
    NAME_BEFORE,
    NODE_NAME,
    SOURCE,
    Machine,
    has_name,
    read_hosts,
    with_machines,
    write_names,
)
from components.roles.network.names.names import restore_names as names_forget
from components.roles.network.tailnet import tailscale
from components.roles.storage.share.mount import is_ready

MEMBERS = f"{STATE_DIR}/members"
# The file of a log-in node in its folder there: its address and port for users' computers.
LOGIN = "login"
PROGRAM = "/usr/local/sbin/tailrack-names"
NAMES, FOLLOW = "tailrack-names.service", "tailrack-names-follow.service"
RESOLVED = "systemd-resolved.service"
RESOLVED_CONF = "/etc/systemd/resolved.conf.d/tailrack.conf"
CLOUD_CONF = "/etc/cloud/cloud.cfg.d/99-tailrack.cfg"
_ADDRESS_SECONDS = 60


def keep_name(node: str, address: str) -> None:
    """Record the address of a machine."""
    files.write(f"{MEMBERS}/{node}/address", address)


def publish_names(share: str) -> None:
    """Write the list. The head node uses it at once, nodes when they check (names.py).

    Call it with the lock. `share`: a folder that root of a node can read but not write
    """
    members = files.read_in_folders(MEMBERS, "address")
    text = "\n".join(f"{address.strip()} {node}" for node, address in members.items() if address.strip())
    files.write(LIST, text)
    # Role users closes a share that other accounts can change; the next phase `register` publishes there.
    if is_ready(share):
        files.make_folder(f"{share}/.tailrack")
        files.write(f"{share}/.tailrack/names", text)
    # An unfinished head node may not have the program yet.
    if files.exists(PROGRAM):
        write_names()


def join(step: Step) -> None:
    """Set the names, and keep them up to date. Nodes do so while they wait for the head node."""
    if not files.exists(NAME_BEFORE):
        files.write(NAME_BEFORE, gethostname())
    files.write(NODE_NAME, step.host)
    # Users must be able to read names; other files here have their own modes.
    files.make_folder(STATE_DIR, 0o711)
    if files.is_folder("/etc/cloud"):
        files.write(CLOUD_CONF, "preserve_hostname: true")
    systemd.reload(NAMES, FOLLOW)
    systemd.enable(NAMES, FOLLOW)
    # Do its work instead of restarting the unit, because Slurm's daemons require the unit and would restart with it. A
    # failure is reported here; the unit would retry forever.
    write_names()
    run("systemctl", "start", NAMES)
    run("systemctl", "restart" if step.changed else "start", FOLLOW)
    if systemd.is_active(RESOLVED):
        _disable_llmnr()


def _disable_llmnr() -> None:
    """Disable LLMNR. With it, a name without a dot that does not exist is asked of every machine in the provider's
    network: any of them could answer, and a failure takes seconds.
    """
    # Restart, because systemd 257 forgets its DNS servers on a reload until /etc/resolv.conf changes. Wait for it: the
    # next action may install packages.
    if files.write(RESOLVED_CONF, "[Resolve]\nLLMNR=no"):
        run("systemctl", "restart", RESOLVED)


def head(step: Step, head_address: str, share_path: str) -> None:
    """Publish the names of the head node and of all members."""
    files.remove(SOURCE)
    keep_name(step.host, head_address)
    _keep_old_names()
    publish_names(share_path)


def _keep_old_names() -> None:
    """Record members that joined before addresses were stored: their certificates contain name and address."""
    for node, signed in files.read_in_folders(MEMBERS, "signed").items():
        if not files.exists(f"{MEMBERS}/{node}/address"):
            name, _, address = signed.split(" ")[0].partition(",")
            keep_name(name, address)


def register(step: Step, node_name: str, node_address: str, node_login: str, share_path: str) -> None:
    """Add the node. `node_login`: of a log-in node, its address and port for users' computers."""
    step.take_lock()
    keep_name(node_name, node_address)
    if node_login:
        files.write(f"{MEMBERS}/{node_name}/{LOGIN}", node_login)
    else:
        files.remove(f"{MEMBERS}/{node_name}/{LOGIN}")
    publish_names(share_path)


def forget(step: Step, node_name: str, share_path: str) -> None:
    """Remove the node."""
    for name in ("address", LOGIN):
        files.remove(f"{MEMBERS}/{node_name}/{name}")
    publish_names(share_path)


def node(step: Step, share_mount: str) -> None:
    """Write the path of the list."""
    files.write(SOURCE, f"{share_mount}/.tailrack/names")


def leave(step: Step) -> None:
    """Stop the program and undo its work."""
    systemd.retire(FOLLOW, NAMES)
    files.remove(CLOUD_CONF)
    if files.remove(RESOLVED_CONF):
        attempt("systemctl", "try-restart", RESOLVED)
    if files.exists(NAME_BEFORE):
        names_forget()


def pod(step: Step) -> None:
    """Write the names. The provider writes /etc/hosts again when the container starts."""
    files.write(NODE_NAME, step.host)
    files.make_folder(STATE_DIR, 0o711)
    address = wait_for(lambda: tailscale.address() or None, _ADDRESS_SECONDS)
    if not address:
        raise Failure("tailscaled has no address", f"see 'tailscale status' on {step.host}")
    host_name = gethostname()
    machines = [Machine("127.0.0.1", host_name), Machine(address, step.host)]
    files.rewrite(HOSTS, with_machines(read_hosts(), machines, host_name))


def pod_boot(step: Step) -> None:
    """Write the names."""
    pod(step)


def pod_leave(step: Step) -> None:
    """Remove the cluster's lines. The host name must resolve until the provider writes the file again."""
    hosts, host_name = with_machines(read_hosts(), []), gethostname()
    if not has_name(hosts, host_name):
        hosts += f"\n127.0.1.1 {host_name}"
    files.rewrite(HOSTS, hosts)
