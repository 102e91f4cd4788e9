"""The real rpc.mountd of the kernel's NFS server, as the role configures it: it opens its ports on any kernel."""

import shlex
import subprocess
from collections.abc import Callable, Iterator

import pytest

from components.roles.program import program
from lab import images as lab_images
from tests.lab.cluster import eventually

OLD = "[nfsd]\nvers3=n\nvers4=y\nlease-time=30\ngrace-time=30"
OTHERS = "/srv/projects 192.0.2.0/24(rw)"
CLOSED = {f"{protocol} {place}:20048" for protocol in ("tcp", "udp") for place in ("0.0.0.0", "[::]")}  # noqa: S104


@pytest.fixture(scope="module")
def run(images: None) -> Iterator[Callable[[str], str]]:
    """Run bash as root in a machine of the lab's with the package of the kernel's server; without systemd."""
    start = ["docker", "run", "-d", "--rm", "--init", lab_images.tags().node, "sleep", "600"]
    name = subprocess.run(start, capture_output=True, text=True, check=True).stdout.strip()

    def inside(command: str) -> str:
        done = subprocess.run(["docker", "exec", name, "bash", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        inside("apt-get update -q && apt-get install -y -q --no-install-recommends nfs-kernel-server")
        inside("mkdir -p /run/rpcbind")
        bring = ["docker", "exec", "-i", name, "sh", "-c", "cat >/program.zip"]
        subprocess.run(bring, input=program().archive, check=True)
        yield inside
    finally:
        subprocess.run(["docker", "kill", name], capture_output=True, check=True)


@pytest.fixture(params=["without rpcbind", "with rpcbind"])
def listeners(request: pytest.FixtureRequest, run: Callable[[str], str]) -> Iterator[Callable[[str], set[str]]]:
    """Start rpc.mountd with a text in the role's file; return its listeners, such as `tcp 0.0.0.0:20048`."""
    if request.param == "with rpcbind":
        run("rpcbind -w")

    def started(text: str) -> set[str]:
        file = "/etc/nfs.conf.d/tailrack.conf"
        run(f"mkdir -p /etc/nfs.conf.d; printf '%s\\n' {shlex.quote(text)} >{file}; : >/tmp/said")
        run("rpc.mountd -F >/tmp/said 2>&1 </dev/null & disown")
        eventually(lambda: "starting" in run("cat /tmp/said"), 60, "rpc.mountd is at work")
        found = run("ss -Hlntup | awk '/rpc.mountd/ {print $1, $5}'").splitlines()
        run("kill $(pgrep -x rpc.mountd)")
        # pgrep fails where it finds none, which is what is waited for.
        eventually(lambda: run("pgrep -x rpc.mountd || true") == "", 60, "rpc.mountd has ended")
        return set(found)

    yield started
    # It may have ended with its test.
    run("kill $(pgrep -x rpcbind) || true")


def configured(run: Callable[[str], str], exports: str) -> str:
    """What the role writes on a machine with these exports of others."""
    write = "from components.roles.storage.share.kernel_server import configuration; print(configuration())"
    code = f"import sys; sys.path.insert(0, '/program.zip'); {write}"
    return run(f"printf '%s\\n' {shlex.quote(exports)} >/etc/exports; python3 -I -S -c {shlex.quote(code)}")


def test_mountd_listens_on_no_port_if_only_the_cluster_has_exports(
    run: Callable[[str], str], listeners: Callable[[str], set[str]]
) -> None:
    # It would, on ports that nobody knows: version 2 alone is enough.
    assert len(listeners(OLD) - CLOSED) >= 4
    assert listeners(configured(run, "# none")) == set()


def test_mountd_listens_on_a_firewalled_port_if_other_exports_need_it(
    run: Callable[[str], str], listeners: Callable[[str], set[str]]
) -> None:
    assert listeners(configured(run, OTHERS)) == CLOSED
