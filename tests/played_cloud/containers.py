"""Lab containers as the machines of the played cloud, in networks of an existing lab."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lab import docker_daemon, network, node
from lab.identity import container_name
from lab.profiles.machine import Like, login
from lab.spec import NodeSpec, PoolSpec
from tests.played_cloud.account import Machine

# A machine at a cloud has the host keys of its user data, beside the lab's own one.
_SSHD = "/etc/ssh/sshd_config.d/00-first-key.conf"
_FIRST = "/etc/ssh/ssh_host_ecdsa_key"


class Containers:
    """Machines in a lab, whose networks are named after the regions.

    lab    the id of a lab that is up
    like   the profile of the machines; empty for the lab's plain machine, with the account `admin`
    """

    def __init__(self, lab: str, state_dir: Path, regions: list[str], like: Like = "") -> None:
        self._place: dict[str, Any] = {"lab": lab, "state_dir": state_dir}
        self._regions, self._like = regions, like

    @contextmanager
    def joined(self) -> Iterator[Self]:
        """Have networks of the regions in the lab."""
        with closing(docker_daemon.connect()) as client:
            network.join(client, self._networks())
            yield self
            network.leave(client, self._networks())

    def start(self, machine: Machine, *, own_host_key: bool) -> str:
        """Start a container with the keys of the machine's user data."""
        config = json.loads(machine.user_data.removeprefix("#cloud-config\n"))
        keys = config["ssh_keys"]
        private, public = keys["ecdsa_private"], keys["ecdsa_public"]
        spec = self._spec(machine)
        logins = "\n".join([machine.public_key, *config["ssh_authorized_keys"], ""])
        files = {
            f"/home/{login(self._like)}/.ssh/authorized_keys": (logins, 0o600, 1000),
            _SSHD: (f"HostKey {_FIRST}\n", 0o644, 0),
            _FIRST: (private, 0o600, 0),
            f"{_FIRST}.pub": (f"{public}\n", 0o644, 0),
        }
        if own_host_key:
            files[_FIRST] = (other_key(), 0o600, 0)
        client = docker_daemon.connect()
        try:
            return node.up(client, spec, files).address
        finally:
            client.close()

    def restart(self, machine: Machine) -> None:
        """Restart the container."""
        client = docker_daemon.connect()
        container = docker_daemon.find(client.containers, container_name(self._place["lab"], self._spec(machine).node))
        if container is not None:
            container.restart(timeout=5)
        client.close()

    def remove(self, machine: Machine) -> None:
        """Remove the container."""
        client = docker_daemon.connect()
        node.down(client, self._spec(machine))
        client.close()

    def _spec(self, machine: Machine) -> NodeSpec:
        return NodeSpec(**self._place, node=f"rented-{machine.number}", site=machine.region, like=self._like)

    def _networks(self) -> PoolSpec:
        return PoolSpec(**self._place, pool="played-cloud", sites=dict.fromkeys(self._regions))


def other_key() -> str:
    """Return a host key of the same type as the one in the user data."""
    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
