"""The lab's networks, one for each site, and the control server in all of them."""

import ipaddress
import time
import urllib.request
from dataclasses import dataclass

import docker
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.models.networks import Network
from docker.types import IPAMConfig, IPAMPool

from cli.file_lock import locked
from lab import images, subnets
from lab.cleanup import remove_lab
from lab.docker_daemon import find
from lab.errors import LabError
from lab.identity import LABEL, NODE_LABEL, POOL_LABEL, SITE_LABEL, control_name, fabric_name, network_name
from lab.keys import ensure_client_key
from lab.progress import say
from lab.spec import NetworkSpec, PoolSpec

CONTROL_NAME = "control.lab"
"""The name under which nodes of every site reach the control server."""

OPEN_PORT, KEYED_PORT, OTHER_PORT = 8080, 8081, 8082
"""Ports of the control server that lets anyone join, of the one that asks for an auth key, and of another tailnet's."""

CONTROL_LIMIT_S = 30.0


@dataclass(frozen=True)
class LabNetwork:
    """Output of `network up`: the control server that lets anyone join, and the login key of every node."""

    control_url: str
    private_key: str


def up(client: docker.DockerClient, spec: NetworkSpec) -> LabNetwork:
    """Make the lab's networks and control server be as `spec` says, from any state, and return what nodes need.

    Raises LabError when a subnet is taken, a network is still in use, or the control server does not answer.
    """
    if not spec.sites:
        raise LabError('sites: a lab needs at least one site; write {"cloud-a": null}')
    wanted = images.tags()
    images.ensure_images(client, [wanted.control, wanted.node])
    with locked(spec.lock):
        key = ensure_client_key(spec.folder)
        _remove_unlisted(client, spec)
        networks = {site: _ensure_network(client, spec.lab, site, subnet) for site, subnet in spec.sites.items()}
        _ensure_control(client, spec.lab, wanted.control, {**networks, **_of_pools(client, spec.lab)})
    return _answering(client, spec, networks, key.private)


def join(client: docker.DockerClient, spec: PoolSpec) -> LabNetwork:
    """Add a pool's networks to a lab that is there, from any state, and return what nodes need.

    Raises LabError when there is no such lab, a site or subnet is taken, or the control server does not answer.
    """
    with locked(spec.lock):
        control = find(client.containers, control_name(spec.lab))
        if control is None:
            raise LabError(
                f"there is no lab {spec.lab} that pool {spec.pool} could join; bring the stack of its cluster up first"
            )
        for site in spec.sites:
            network = find_network(client, spec.lab, site)
            owner = network.attrs["Labels"].get(POOL_LABEL, "") if network else spec.pool
            if owner != spec.pool:
                holder = f"of pool {owner}" if owner else "of the cluster"
                raise LabError(f"the lab has a site {site} {holder} already; give that of {spec.pool} another name")
        key = ensure_client_key(spec.folder)
        networks = {
            site: _ensure_network(client, spec.lab, site, subnet, spec.pool) for site, subnet in spec.sites.items()
        }
        _attach(control, networks)
    return _answering(client, spec, networks, key.private)


def leave(client: docker.DockerClient, spec: PoolSpec) -> None:
    """Remove a pool's networks from a lab, and nothing else; gone already is done."""
    with locked(spec.lock):
        for site, network in _of_pools(client, spec.lab, spec.pool).items():
            _remove_network(client, network, f"site {site} of pool {spec.pool} is gone")


def _answering(
    client: docker.DockerClient, spec: NetworkSpec, networks: dict[str, Network], private_key: str
) -> LabNetwork:
    """Return what a lab's nodes need, once its control server answers in one of these networks."""
    subnet = subnet_of(next(iter(networks.values())))
    _wait_for_control(client, spec.lab, subnets.control_address(subnet))
    return LabNetwork(f"http://{CONTROL_NAME}:{OPEN_PORT}", private_key)


def down(client: docker.DockerClient, spec: NetworkSpec) -> None:
    """Remove everything the lab has: containers, volumes, networks, and its folder with the key."""
    remove_lab(client, spec.lab, spec.state_dir)


def subnet_of(network: Network) -> str:
    """Return the IPv4 subnet of a lab network."""
    return str(network.attrs["IPAM"]["Config"][0]["Subnet"])


def find_network(client: docker.DockerClient, lab: str, site: str) -> Network | None:
    """Return a site's network, or None."""
    network: Network | None = find(client.networks, network_name(lab, site))
    return network


def _of_pools(client: docker.DockerClient, lab: str, pool: str = "") -> dict[str, Network]:
    """Return the networks that pools, or one of them, have added to a lab, by name."""
    label = f"{POOL_LABEL}={pool}" if pool else POOL_LABEL
    networks = client.networks.list(filters={"label": [f"{LABEL}={lab}", label]})
    return {str(network.name): network for network in networks}


def _ensure_network(client: docker.DockerClient, lab: str, site: str, subnet: str | None, pool: str = "") -> Network:
    network = find_network(client, lab, site)
    if network is not None and subnet not in (None, subnet_of(network)):
        _remove_network(client, network, f"it has subnet {subnet_of(network)}, not {subnet}")
        network = None
    if network is not None:
        return network
    if subnet is not None:
        created = _try_create(client, lab, site, subnet, pool)
        if created is None:
            raise LabError(f"site {site}: subnet {subnet} is in use on this machine; write another, or null")
        return created
    return _create_somewhere(client, lab, site, pool)


def ensure_fabric(client: docker.DockerClient, lab: str, site: str) -> Network:
    """Return a site's second network, made if missing: nothing is in it but those of its machines that ask for it.

    Raises LabError when there is no free subnet.
    """
    fabric: Network | None = find(client.networks, fabric_name(lab, site))
    if fabric is not None:
        return fabric
    beside = find_network(client, lab, site)
    pool = beside.attrs["Labels"].get(POOL_LABEL, "") if beside else ""
    return _create_somewhere(client, lab, site, pool, fabric=True)


def _create_somewhere(client: docker.DockerClient, lab: str, site: str, pool: str, *, fabric: bool = False) -> Network:
    """Create a site's network in the first subnet that is free."""
    routes = subnets.host_routes()
    for candidate in subnets.candidates(lab, f"{site}.fabric" if fabric else site):
        if not any(candidate.overlaps(route) for route in routes):
            created = _try_create(client, lab, site, str(candidate), pool, fabric=fabric)
            if created is not None:
                say(f"network: {created.name} {candidate}")
                return created
    raise LabError(f"site {site}: no free subnet in {subnets.RANGE}; write one in the stack's config")


def _try_create(
    client: docker.DockerClient, lab: str, site: str, subnet: str, pool: str, *, fabric: bool = False
) -> Network | None:
    """Create a site's network, or return None when the subnet overlaps with another network."""
    gateway = str(ipaddress.IPv4Network(subnet)[1])
    try:
        network = client.networks.create(
            fabric_name(lab, site) if fabric else network_name(lab, site),
            driver="bridge",
            internal=fabric,
            ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=subnet, gateway=gateway)]),
            labels={LABEL: lab, SITE_LABEL: site, **({POOL_LABEL: pool} if pool else {})},
        )
    except APIError as error:
        if "overlaps" in str(error.explanation) or "conflicts" in str(error.explanation):
            return None
        raise
    network.reload()
    return network


def _ensure_control(client: docker.DockerClient, lab: str, image: str, networks: dict[str, Network]) -> None:
    """Have the control server run from `image` with its fixed address in each of `networks`."""
    name = control_name(lab)
    container = find(client.containers, name)
    if container is not None and container.attrs["Config"]["Image"] != image:
        container.remove(force=True)
        container = None
    if container is None:
        first = next(iter(networks.values()))
        address = subnets.control_address(subnet_of(first))
        endpoint = client.api.create_endpoint_config(ipv4_address=address, aliases=[CONTROL_NAME])
        client.volumes.create(name, labels={LABEL: lab})
        container = client.containers.create(
            image,
            ["-name", CONTROL_NAME, "-state", "/state"],
            name=name,
            hostname="control",
            network=first.name,
            networking_config={first.name: endpoint},
            labels={LABEL: lab},
            volumes={name: {"bind": "/state", "mode": "rw"}},
            restart_policy={"Name": "unless-stopped"},
        )
    _attach(container, networks)


def _attach(container: Container, networks: dict[str, Network]) -> None:
    """Have the control server run with its fixed address in each of `networks`."""
    container.reload()
    attached = container.attrs["NetworkSettings"]["Networks"]
    for network in networks.values():
        if network.attrs["Internal"]:
            continue  # a second network of a site
        if network.name not in attached:
            # The alias is for machines that replace Docker's /etc/hosts.
            address = subnets.control_address(subnet_of(network))
            network.connect(container, ipv4_address=address, aliases=[CONTROL_NAME])
    if container.status != "running":
        container.start()


def _remove_unlisted(client: docker.DockerClient, spec: NetworkSpec) -> None:
    """Remove the lab's own networks that `spec` does not list and that have no nodes; one with nodes stays."""
    for network in client.networks.list(filters={"label": f"{LABEL}={spec.lab}"}):
        site = str(network.attrs["Labels"][SITE_LABEL])
        if site in spec.sites or POOL_LABEL in network.attrs["Labels"]:
            continue
        nodes = _nodes_in(client, spec.lab, site)
        if nodes:
            say(f"network: {network.name} stays: it has {', '.join(nodes)}")
        else:
            _remove_network(client, network, "it is not listed")


def _nodes_in(client: docker.DockerClient, lab: str, site: str) -> list[str]:
    filters = {"label": [f"{LABEL}={lab}", f"{SITE_LABEL}={site}", NODE_LABEL]}
    return sorted(str(node.name) for node in client.containers.list(all=True, filters=filters))


def _remove_network(client: docker.DockerClient, network: Network, reason: str) -> None:
    """Remove a network that holds no nodes; the control server is detached from it."""
    lab, site = network.attrs["Labels"][LABEL], network.attrs["Labels"][SITE_LABEL]
    nodes = _nodes_in(client, lab, site)
    if nodes:
        raise LabError(f"network {network.name}: {reason}, and it still has {', '.join(nodes)}; remove them first")
    say(f"network: remove {network.name}: {reason}")
    try:
        network.disconnect(control_name(lab), force=True)
    except (NotFound, APIError) as error:
        if "is not connected" not in str(error) and "No such container" not in str(error):
            raise
    network.remove()


def _wait_for_control(client: docker.DockerClient, lab: str, address: str) -> None:
    """Wait until the control servers answer on `address`."""
    deadline = time.monotonic() + CONTROL_LIMIT_S
    waiting = [OPEN_PORT, KEYED_PORT, OTHER_PORT]
    while waiting:
        try:
            with urllib.request.urlopen(f"http://{address}:{waiting[0]}/key?v=1", timeout=2):
                waiting.pop(0)
        except OSError as error:
            if time.monotonic() > deadline:
                name = control_name(lab)
                container = find(client.containers, name)
                tail = container.logs(tail=3).decode(errors="replace") if container else "the container is gone"
                lines = " | ".join(tail.strip().splitlines())
                raise LabError(
                    f"{name} does not answer on {address}:{waiting[0]} ({error}): {lines}; see `docker logs {name}`"
                ) from error
            time.sleep(0.1)
