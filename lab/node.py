"""One machine of the lab: a container that boots systemd, or a pod (pod.py), and is reached by SSH."""

import io
import socket
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.models.networks import Network
from docker.types import Mount

from cli.file_lock import locked
from lab import images, pod, subnets
from lab.cleanup import forget
from lab.commands import run
from lab.docker_daemon import find
from lab.errors import LabError
from lab.identity import LABEL, NODE_LABEL, SITE_LABEL, container_name, network_name
from lab.keys import ensure_client_key, new_key_pair
from lab.network import CONTROL_NAME, ensure_fabric, find_network, subnet_of
from lab.profiles.machine import Like, host_name, interface, login, own_files
from lab.progress import say
from lab.spec import NodeSpec

SSH_PORT = 22
READY_LIMIT_S = 60.0
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
CAPABILITIES = ["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_NICE", "MKNOD"]
"""Capabilities for systemd, tailscaled's TUN, mounts, the NFS server and slurmd; `privileged` works on fewer hosts."""

DEVICES = ["/dev/net/tun", "/dev/fuse", "/dev/autofs"]
"""For tailscaled, the NFS mount helper, and systemd's automount units."""


@dataclass(frozen=True)
class NodeAddress:
    """Output of `node up`: the address, login and host key of a node's sshd."""

    address: str
    port: int
    user: str
    host_key: str


Files = Mapping[str, tuple[str, int, int]]
"""Files by path: text, mode and owner."""


def up(
    client: docker.DockerClient, spec: NodeSpec, files: Files | None = None, start: pod.Start = pod.USUAL_START
) -> NodeAddress:
    """Have the node run and wait until it can be used, from any state it is in.

    files   written before its first start, after all others: of a machine that a played cloud rents out
    start   of a new pod

    Raises LabError naming the container, the end of its log and the next command.
    """
    name = container_name(spec.lab, spec.node)
    image = images.tags().of_machine(spec.like, bare=spec.bare)
    user = login(spec.like)
    images.ensure_images(client, [image])
    if spec.like != pod.POD:
        _ensure_tun()
    with locked(spec.lock):
        client_key = ensure_client_key(spec.folder)
        container = find(client.containers, name)
        if container is not None and not fits(container, spec, image):
            say(f"node: {name} is of another kind or site; creating it again")
            forget(container.remove, v=True, force=True)
            container = None
        new = container is None
        if container is None:
            container = _create(client, spec, name, image, start)
        if container.status == "created":
            _make_its_own(client, spec, container)
        host_key = _ensure_keys(container, user, client_key.public)
        if files and container.status == "created":
            _write_files(container, files)
        if container.status == "paused":
            container.unpause()
        elif container.status != "running":
            container.start()
    address, port = pod.endpoint(container) if spec.like == pod.POD else (_address(container, spec), SSH_PORT)
    try:
        _wait(container, address, port, spec.like)
    except LabError:
        # The stack's state does not have a machine whose first start failed, so nothing else would remove it.
        if new and container.status != "running":
            down(client, spec)
        raise
    return NodeAddress(address, port, user, host_key)


def down(client: docker.DockerClient, spec: NodeSpec) -> None:
    """Remove the node and its volumes; gone already is done."""
    name = container_name(spec.lab, spec.node)
    with locked(spec.lock):
        container = find(client.containers, name)
        if container is not None:
            forget(container.remove, v=True, force=True)
        for volume in client.volumes.list(filters={"name": name}):
            if volume.name in (_export(name), pod.volume(name)):
                forget(volume.remove, force=True)


def _export(name: str) -> str:
    """Return the name of the volume of a container that can have the share."""
    return f"{name}-export"


def cgroup_hierarchy(root: Path = Path("/sys/fs/cgroup")) -> Path:
    """Return this machine's unified (version 2) cgroup hierarchy, which a node's systemd works in."""
    for folder in (root, root / "unified"):
        if (folder / "cgroup.procs").exists() and (folder / "cgroup.controllers").exists():
            return folder
    raise LabError(
        "this machine has no unified cgroup hierarchy; mount one: mount -t cgroup2 none /sys/fs/cgroup/unified"
    )


def fits(container: Container, spec: NodeSpec, image: str) -> bool:
    """Whether a container is of the spec's site and of its kind of image; an older build of that kind will do."""
    repository = str(container.attrs["Config"]["Image"]).partition(":")[0]
    return container.labels.get(SITE_LABEL) == spec.site and repository == image.partition(":")[0]


def _ensure_tun() -> None:
    """Make the device that tailscaled opens, where it is missing."""
    if not Path("/dev/net/tun").exists():
        run(["mkdir", "-p", "/dev/net"], root=True)
        run(["mknod", "-m", "0666", "/dev/net/tun", "c", "10", "200"], root=True)


def _create(client: docker.DockerClient, spec: NodeSpec, name: str, image: str, start: pod.Start) -> Container:
    """Create (and not start) the node's container at the lowest free address of its site; the lab's lock is held."""
    network = find_network(client, spec.lab, spec.site)
    if network is None:
        raise LabError(f"{name}: site {spec.site} has no network; run `python -m lab network up` with that site")
    address = _free_address(client, spec, name, network)
    labels = {LABEL: spec.lab, NODE_LABEL: spec.node, SITE_LABEL: spec.site}
    is_pod, gateway = spec.like == pod.POD, str(network.attrs["IPAM"]["Config"][0]["Gateway"])
    client.volumes.create(pod.volume(name) if is_pod else _export(name), labels=labels)
    say(f"node: create {name} at {address}")
    return client.containers.create(
        image,
        name=name,
        labels=labels,
        network=network.name,
        networking_config={network.name: client.api.create_endpoint_config(ipv4_address=address)},
        extra_hosts={CONTROL_NAME: subnets.control_address(subnet_of(network))},
        hostname=host_name(spec.like, spec.node, address) or None,
        restart_policy={"Name": "unless-stopped"},
        **(pod.options(name, gateway, start) if is_pod else _machine_options(name)),
    )


def _machine_options(name: str) -> dict[str, Any]:
    """Return the options with which Docker creates a machine that boots systemd."""
    return {
        "cap_add": CAPABILITIES,
        "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
        "devices": DEVICES,
        # As on a machine: Docker lets everybody have the ports of root.
        "sysctls": {"net.ipv4.ip_unprivileged_port_start": "1024"},
        "cgroupns": "host",
        "mounts": [
            Mount("/sys/fs/cgroup", str(cgroup_hierarchy()), type="bind"),
            # At the share itself: a file system that holds nothing else.
            Mount("/export/shared", _export(name), type="volume"),
        ],
        "tmpfs": {"/run": "exec", "/tmp": "exec"},  # noqa: S108 - a mount point in the container
    }


def _make_its_own(client: docker.DockerClient, spec: NodeSpec, container: Container) -> None:
    """Give a container its own keys and names before its first start; the caller holds the lab's lock."""
    address = _address(container, spec)
    network = find_network(client, spec.lab, spec.site)
    interfaces = [interface("eth0", subnet_of(network), address, routed=True)] if network else []
    if spec.like == "cloud":
        fabric = ensure_fabric(client, spec.lab, spec.site)
        interfaces.append(interface("eth1", subnet_of(fabric), _join_fabric(client, spec, container, fabric)))
    files = own_files(spec.like, host_name(spec.like, spec.node, address), interfaces, busy=spec.busy)
    _write_files(container, {path: (text, 0o644, 0) for path, text in files.items()})


def _join_fabric(client: docker.DockerClient, spec: NodeSpec, container: Container, fabric: Network) -> str:
    """Return the container's address in its site's second network, which it is put into if it is not in it."""
    endpoint = container.attrs["NetworkSettings"]["Networks"].get(fabric.name)
    if endpoint:
        return str(endpoint["IPAMConfig"]["IPv4Address"])
    address = _free_address(client, spec, str(container.name), fabric)
    fabric.connect(container, ipv4_address=address)
    return address


def _free_address(client: docker.DockerClient, spec: NodeSpec, name: str, network: Network) -> str:
    """Return the lowest address in a network that no container of the lab has, not even a stopped one."""
    containers = client.containers.list(all=True, filters={"label": f"{LABEL}={spec.lab}"}, ignore_removed=True)
    endpoints = [container.attrs["NetworkSettings"]["Networks"].get(network.name) for container in containers]
    taken = {endpoint["IPAMConfig"]["IPv4Address"] for endpoint in endpoints if endpoint and endpoint["IPAMConfig"]}
    address = subnets.free_address(subnet_of(network), taken)
    if address is None:
        raise LabError(f"{name}: network {network.name} ({subnet_of(network)}) is full; give the site a larger subnet")
    return address


def _address(container: Container, spec: NodeSpec) -> str:
    """Return the fixed address in its site's network that a node was created with."""
    endpoint = container.attrs["NetworkSettings"]["Networks"][network_name(spec.lab, spec.site)]
    return str(endpoint["IPAMConfig"]["IPv4Address"])


def _ensure_keys(container: Container, user: str, client_public: str) -> str:
    """Let the lab's key in, give the node a host key if it has none, and return the public host key."""
    host_public = _read_file(container, f"{HOST_KEY}.pub")
    home, owner = ("/root", 0) if user == "root" else (f"/home/{user}", 1000)
    files = {f"{home}/.ssh/authorized_keys": (f"{client_public}\n", 0o600, owner)}
    if host_public is None:
        pair = new_key_pair()
        host_public = pair.public
        # The public half comes last: where it is, the private one is too.
        files[HOST_KEY] = (pair.private, 0o600, 0)
        files[f"{HOST_KEY}.pub"] = (f"{pair.public}\n", 0o644, 0)
    _write_files(container, files)
    return host_public.strip()


def _write_files(container: Container, files: Mapping[str, tuple[str, int, int]]) -> None:
    """Write files into a container, running or not, in this order: by path their text, mode and owner."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, (text, mode, owner) in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(text), mode, owner, owner
            tar.addfile(entry, io.BytesIO(text.encode()))
    container.put_archive("/", archive.getvalue())


def _read_file(container: Container, path: str) -> str | None:
    """Return the text of a file in a container, running or not, or None when it is not there."""
    try:
        chunks, _ = container.get_archive(path)
    except NotFound:
        return None
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        file = tar.extractfile(tar.getmembers()[0])
        return file.read().decode() if file else None


def _wait(container: Container, address: str, port: int, like: Like) -> None:
    """Wait until the node's sshd greets and its systemd, if it has one, is ready."""
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        problem = _not_ready(container, address, port, like)
        if problem is None:
            return
        if time.monotonic() > deadline:
            raise LabError(_failure(container, problem, like))
        time.sleep(0.1)


def _not_ready(container: Container, address: str, port: int, like: Like) -> str | None:
    """Return a missing condition of the node, or None."""
    container.reload()
    if container.status != "running":
        return f"the container is {container.status}"
    if like != pod.POD and (problem := _booting(container, like)):
        return problem
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            return None if connection.recv(4) == b"SSH-" else f"port {port} of {address} is not an SSH server"
    except OSError as error:
        return f"sshd on {address} port {port} does not answer ({error})"


def _booting(container: Container, like: Like) -> str:
    """Return why systemd is not ready, if so. A cloud machine is ready while it still boots: it only allows logins."""
    question = ["is-active", "systemd-user-sessions.service"] if like == "cloud" else ["is-system-running"]
    try:
        state = container.exec_run(["systemctl", *question]).output.decode(errors="replace").strip()
    except APIError as error:
        return f"the container runs no commands ({error.explanation})"
    return "" if state in {"running", "degraded", "active"} else f"systemd is `{state}`"


def _failure(container: Container, problem: str, like: Like) -> str:
    """Return one line on a node that did not come up."""
    log, journal = container.logs(tail=5).decode(errors="replace"), ["journalctl", "-n", "5", "--no-pager", "-o", "cat"]
    name = container.name
    see = f"docker logs {name}" if like == pod.POD else f"docker exec {name} journalctl -b"
    if container.status == "running" and like != pod.POD:
        log += container.exec_run(journal).output.decode(errors="replace")
    lines = " | ".join(line.strip() for line in log.splitlines() if line.strip())
    return f"{name} is not ready after {READY_LIMIT_S:.0f} s: {problem}: {lines}; see `{see}`"
