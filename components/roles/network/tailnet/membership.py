"""Find out which tailnet this machine is in, and whether tailrack joined it."""

import re
from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.step.step import STATE_DIR
from components.node.waiting import wait_until
from components.roles.network.tailnet import tailscale
from components.roles.network.tailnet.tailscale import OWN_SERVER, Tailscale

# Written before a join: a line with control server and name; two lines during a move to another tailnet.
RECORD = f"{STATE_DIR}/tailnet"
# The first version with `tailscale wait`.
OLDEST = "1.96"
# Seconds for a running logout, which waits for the control server.
_LOGOUT_SECONDS = 90
_SNAP = "/etc/systemd/system/snap.tailscale.tailscaled.service"
_INTERFACE = "/sys/class/net/tailscale0"


@dataclass(frozen=True)
class MembershipValues:
    """The wanted membership.

    tailnet_tag           tag of this machine on the tailnet
    tailnet_control_url   control server, empty for Tailscale's own
    node_adopt            whether the machine stays in its tailnet unchanged
    """

    tailnet_tag: str
    tailnet_control_url: str
    node_adopt: bool

    @property
    def wanted_server(self) -> str:
        """Return the address of the wanted control server."""
        return self.tailnet_control_url or OWN_SERVER


def line_of(server: str, host: str) -> str:
    """Return the line of a membership in the record."""
    return f"{server} {host}"


def let_leaving_end(host: str) -> None:
    """Wait for a logout that is still running."""
    if not wait_until(lambda: not systemd.is_active("tailrack-logout.service"), _LOGOUT_SECONDS):
        raise Failure(
            f"{host} has been leaving a tailnet for {_LOGOUT_SECONDS}s",
            f"see 'journalctl -u tailrack-logout' on {host}",
        )


def refuse_snap(host: str) -> None:
    """Refuse the snap: its daemon has another unit and socket, so a second daemon would be installed beside it."""
    if files.exists(_SNAP):
        raise Failure(
            "tailscale is a snap here, and the cluster's units cannot wait for its daemon",
            f"run 'snap remove tailscale' on {host}, which takes it out of its tailnet, and with adopt: true install "
            "Tailscale's own package and join it again; then run up again",
        )


def require_new_enough(host: str) -> None:
    """Refuse a tailscale that the cluster's units cannot use."""
    version = tailscale.version()
    if _numbers(version) < _numbers(OLDEST):
        raise Failure(
            f"tailscale {version} here is too old; the cluster's units need 'tailscale wait', which came with {OLDEST}",
            f"upgrade it: 'tailscale update' on {host}, or by its package; then run up again",
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def refuse_another_tailnet(now: Tailscale, host: str) -> None:
    """Refuse a machine that is already in another tailnet; tailrack never logs it out."""
    if not now.has_login or _brought_by_the_cluster(now, host):
        return
    name = str(now.preferences.get("Hostname", ""))
    if name != host and line_of(now.control_url, name) in files.lines(RECORD):
        raise Failure(
            f"this machine is node {name} of a cluster, and no node can be renamed in one run",
            f"leave it out of the config and run up, which removes node {name}; then add it as {host} and run up again",
        )
    name = f", as {now.dns_name.removesuffix('.')}" if now.dns_name else ""
    raise Failure(
        f"this machine is in a tailnet already{name}, of the control server {now.control_url}; tailrack does not log "
        "it out",
        f"run 'tailscale logout' on {host}; or, if that is the cluster's tailnet, set adopt: true for {host} and "
        "nothing there is changed; then run up again",
    )


def _brought_by_the_cluster(now: Tailscale, host: str) -> bool:
    lines = files.lines(RECORD)
    if not now.control_url:
        return any(line.endswith(f" {host}") for line in lines)
    return now.preferences.get("Hostname") == host and line_of(now.control_url, host) in lines


def require_adoptable(now: Tailscale, values: MembershipValues, host: str) -> None:
    """Check that an adopted machine has what other machines get; change nothing on it."""
    way_out = f"join {host} to the cluster's tailnet by hand, or leave out adopt"
    if not tailscale.is_installed():
        raise Failure("adopt: true, and tailscale is not installed here", way_out)
    if now.state != "Running":
        state = now.state or "no answer"
        raise Failure(f"adopt: true, and this machine is in no tailnet now (tailscale: {state})", way_out)
    if now.control_url != values.wanted_server:
        raise Failure(
            f"adopt: true, and this machine's tailnet is of {now.control_url}; the cluster's is of "
            f"{values.wanted_server}",
            way_out,
        )
    if not (files.exists(_INTERFACE) and tailscale.address()):
        raise Failure(
            "adopt: true, and there is no interface tailscale0 with an IPv4 address; Slurm needs one",
            f"start tailscaled on {host} with a kernel interface of that name",
        )
    if now.shields_up:
        raise Failure(
            "adopt: true, and tailscale's shields are up here: it lets no connection of the cluster's other machines "
            "in",
            f"run 'tailscale set --shields-up=false' on {host}, or leave it out",
        )
    # The tailnet's rules apply from tag to tag.
    tag = values.tailnet_tag
    if tag and tag not in now.tags:
        raise Failure(
            f"adopt: true, and this machine does not have the tag {tag} in its tailnet: the cluster's other machines "
            "would not reach it",
            f"run 'tailscale up --advertise-tags={tag}' on {host}, with the other flags that it names; it then belongs "
            "to the tag and no longer to its owner (docs/tailnet.md, a machine with an owner)",
        )
    if now.granted_name != host:
        raise Failure(
            f"adopt: true, and the tailnet calls this machine {now.granted_name}; others would look for it as {host}",
            f"run 'tailscale set --hostname={host}' on it, or call the host {now.granted_name} in the config",
        )
