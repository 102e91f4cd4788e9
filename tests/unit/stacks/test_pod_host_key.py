"""A pod keeps its own host key on its volume; a second run and a new container have the same."""

import json
import shutil

import pytest

from components.steps import composition
from tests.unit.shell import Shell, assert_ok

MODULE = "stacks.sites.rented.pod_host_key"
OWN, KEPT = "/etc/ssh/ssh_host_ed25519_key", "/workspace/.tailrack/ssh_host_ed25519_key"


@pytest.fixture
def pod(shell: Shell) -> Shell:
    """A pod after its first start, whose image has created a key."""
    shell.stub("ssh-keygen", f'exec {shutil.which("ssh-keygen")} "$@"')
    shell.write(OWN, "of the image\n")
    shell.write(f"{OWN}.pub", "of the image\n")
    return shell


def host_key(pod: Shell) -> str:
    done = assert_ok(pod.step(composition.single(MODULE), {}, name="p1-host-key"))
    line = next(line for line in done.stdout.splitlines() if "host_key" in line)
    return str(json.loads(line[line.index("{") :])["host_key"])


def test_the_key_is_on_the_volume_and_in_the_server_and_stays(pod: Shell) -> None:
    key = host_key(pod)
    assert key.startswith("ssh-ed25519 ")
    for name in (OWN, KEPT):
        assert pod.path(f"{name}.pub").read_text().split()[:2] == key.split()
        assert pod.path(name).stat().st_mode & 0o777 == 0o600
    assert pod.path(KEPT).parent.stat().st_mode & 0o777 == 0o700
    assert host_key(pod) == key


def test_a_half_written_key_is_created_again(pod: Shell) -> None:
    first = host_key(pod)
    pod.path(f"{KEPT}.pub").unlink()
    assert host_key(pod) != first
