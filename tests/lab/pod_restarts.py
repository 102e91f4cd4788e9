"""Stop, start and replace pods, as their provider or their owner does."""

import docker

from cli.file_lock import locked
from lab import docker_daemon, node, pod
from lab.cleanup import forget
from lab.errors import LabError
from lab.identity import container_name
from lab.node import NodeAddress
from lab.spec import NodeSpec


def stop(client: docker.DockerClient, spec: NodeSpec) -> None:
    """Kill all processes of a pod. Its disk and its volume stay."""
    container = docker_daemon.find(client.containers, container_name(spec.lab, spec.node))
    if container is None:
        raise LabError(f"there is no pod {spec.node} in the lab {spec.lab}")
    if container.status == "running":
        container.kill()


def start(client: docker.DockerClient, spec: NodeSpec) -> NodeAddress:
    """Start a pod again, with the same disk, host key and port."""
    return node.up(client, spec)


def recreate(client: docker.DockerClient, spec: NodeSpec, start: pod.Start = pod.USUAL_START) -> NodeAddress:
    """Replace a pod as RunPod does after a stop or a reset: only /workspace stays.

    The new container has another host name, host key and port. The installed packages are gone.
    """
    with locked(spec.lock):
        container = docker_daemon.find(client.containers, container_name(spec.lab, spec.node))
        if container is not None:
            # Without v=True: the volume of /workspace stays.
            forget(container.remove, force=True)
    return node.up(client, spec, start=start)
