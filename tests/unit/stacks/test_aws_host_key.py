"""The first host key of an instance goes a quarter of an hour later, and a reboot in between does not keep it."""

import configparser
import shlex
import shutil

import pytest

from components.steps import composition
from tests.unit.shell import Shell, assert_ok

MODULE = "stacks.sites.rented.host_key"
UNITS = "/etc/systemd/system/tailrack-born-with"
BORN_WITH = "/etc/ssh/ssh_host_ecdsa_key"


@pytest.fixture
def instance(shell: Shell) -> Shell:
    """An instance after its first boot."""
    shell.stub("ssh-keygen", f'exec {shutil.which("ssh-keygen")} "$@"')
    shell.write(BORN_WITH, "of the user data\n")
    shell.write(f"{BORN_WITH}.pub", "of the user data\n")
    return shell


def step(instance: Shell) -> str:
    script = composition.single(MODULE)
    done = assert_ok(instance.step(script, {}, name="p1-host-key"))
    return done.stdout


def unit(instance: Shell, kind: str) -> configparser.RawConfigParser:
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(instance.path(f"{UNITS}.{kind}").read_text())
    return read


def when_its_time_comes(instance: Shell) -> None:
    """Run what the service runs, as systemd does: one command after the other, without a shell."""
    lines = instance.path(f"{UNITS}.service").read_text().splitlines()
    for line in lines:
        if line.startswith("ExecStart="):
            words = shlex.split(line.removeprefix("ExecStart="))
            assert instance.run(shlex.join(words)).returncode == 0


def test_the_timer_is_on_the_disk_and_restarts_with_each_boot(instance: Shell) -> None:
    assert '"host_key":"ssh-ed25519 ' in step(instance).replace(": ", ":")
    assert unit(instance, "timer")["Timer"]["OnActiveSec"] == "15min"
    assert unit(instance, "timer")["Install"]["WantedBy"] == "timers.target"
    assert "systemctl enable -q --now tailrack-born-with.timer" in instance.calls
    assert instance.path(BORN_WITH).exists(), "its answer may be lost, and the step come again by that key"


def test_when_its_time_comes_the_key_goes_and_the_timer_with_it(instance: Shell) -> None:
    step(instance)
    own = instance.path("/etc/ssh/ssh_host_ed25519_key.pub").read_text()
    when_its_time_comes(instance)
    for path in (BORN_WITH, f"{BORN_WITH}.pub", f"{UNITS}.service", f"{UNITS}.timer"):
        assert not instance.path(path).exists()
    assert "systemctl disable tailrack-born-with.timer" in instance.calls
    assert instance.path("/etc/ssh/ssh_host_ed25519_key.pub").read_text() == own


def test_a_step_that_comes_again_shows_the_same_key(instance: Shell) -> None:
    assert step(instance) == step(instance)
