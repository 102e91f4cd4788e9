"""Certificates of SSH host keys, made by the real ssh-keygen: that they end, and that the next one comes by itself."""

import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from components.roles.access.ssh_trust.certificate import show_certificate
from tests.unit.components.roles.test_scripts_authority import keygen
from tests.unit.shell import Shell, assert_ok

MEMBERS, HOST_KEY = "/var/lib/tailrack/members", "/etc/ssh/ssh_host_ed25519_key"
SHOWN = f"{HOST_KEY}-cert.pub"
CERTIFICATES = "/shared/.tailrack/certificates"
DAY = 24 * 3600


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine that is head node and node in one, with its authority and its host key."""
    shell.stub("ssh-keygen", f'exec {shutil.which("ssh-keygen")} "$@"')
    shell.stub("sshd")
    for path in ("/var/lib/tailrack/ssh_authority", HOST_KEY):
        shell.path(path).parent.mkdir(parents=True, exist_ok=True)
        keygen("-q", "-t", "ed25519", "-N", "", "-f", shell.path(path))
    shutil.copy(shell.path("/var/lib/tailrack/ssh_authority.pub"), shell.path("/etc/ssh/tailrack_authority.pub"))
    return shell


def host_key(machine: Shell) -> str:
    return " ".join(machine.path(f"{HOST_KEY}.pub").read_text().split()[:2])


def signed(machine: Shell, principals: str = "b1,100.64.0.7", key: str = "") -> str:
    done = assert_ok(machine.command("sign", "b1", principals, key or host_key(machine)))
    return done.stdout


def grow_old(machine: Shell, days: float) -> None:
    """Move the clock, as far as a signature knows it."""
    then = time.time() - days * DAY
    os.utime(machine.path(f"{MEMBERS}/b1/signed"), (then, then))


def publish(machine: Shell) -> Path:
    folder = machine.path(CERTIFICATES)
    assert_ok(machine.command("sign", "publish", CERTIFICATES))
    return folder / "b1"


def show(machine: Shell, text: str) -> str:
    """Offer a certificate and return the one that is shown then; empty where there is none."""
    file = machine.write("/offered", text)
    assert_ok(machine.command("certificate", str(file)))
    path = machine.path(SHOWN)
    return path.read_text() if path.exists() else ""


def test_a_certificate_is_for_a_nodes_names_and_ends_after_90_days(machine: Shell) -> None:
    told = keygen("-L", "-f", machine.write("/c", signed(machine)))
    assert re.findall(r"Key ID: \"(.*)\"", told) == ["b1"]
    assert told.split("Principals:")[1].split("Critical")[0].split() == ["b1", "100.64.0.7"]
    begin, end = (datetime.fromisoformat(text) for text in re.findall(r"Valid: from (\S+) to (\S+)", told)[0])
    assert (end - begin).days == 91
    assert abs((end - datetime.now()).days - 90) <= 1
    assert int(re.findall(r"Serial: (\d+)", told)[0]) == pytest.approx(datetime.now(UTC).timestamp() * 1e9, abs=60e9)


def test_an_old_or_early_certificate_is_signed_again(machine: Shell) -> None:
    whole = signed(machine)
    record = machine.path(f"{MEMBERS}/b1/key-cert.pub")
    for days, again in ((29, False), (31, True), (400, True), (-2, True)):
        grow_old(machine, days)
        # ssh-keygen counts in seconds: a certificate of the same second is the same one.
        before, first = record.stat().st_mtime_ns, record.read_text()
        assert publish(machine).read_text() == record.read_text(), days
        assert (record.stat().st_mtime_ns != before) == again, days
        assert again or publish(machine).read_text() == first, days
    machine.stub("ssh-keygen", 'echo half >"$(dirname "${@: -1}")/key-cert.pub"; exit 1')
    grow_old(machine, 40)
    assert machine.command("sign", "b1", "b1,100.64.0.7", host_key(machine)).returncode != 0
    machine.stub("ssh-keygen", f'exec {shutil.which("ssh-keygen")} "$@"')
    assert len(signed(machine)) == len(whole), "a signature that was cut off is made again"


def test_one_that_cannot_be_signed_holds_no_other_up_and_one_that_is_gone_is_not_published(machine: Shell) -> None:
    signed(machine)
    machine.write(f"{MEMBERS}/a1/signed", "nonsense\n")
    machine.write("/shared/.tailrack/certificates/gone", "of a node that left\n")
    done = machine.command("sign", "publish", CERTIFICATES)
    assert done.returncode == 1
    assert sorted(path.name for path in machine.path("/shared/.tailrack/certificates").iterdir()) == ["b1"]


def test_a_newer_certificate_is_shown_and_an_older_one_never(machine: Shell) -> None:
    old = machine.write("/old.pub", host_key(machine))
    authority = machine.path("/var/lib/tailrack/ssh_authority")
    keygen("-q", "-s", authority, "-h", "-I", "b1", "-n", "b1", "-z", 5, "-V", "-2d:-1d", old)
    ended = machine.path("/old-cert.pub").read_text()
    assert show(machine, ended) == ended
    new = signed(machine)
    assert show(machine, new) == new
    assert show(machine, ended) == new
    assert [call for call in machine.calls if call.endswith("start ssh")] == ["systemctl restart ssh"] * 2
    assert machine.path(SHOWN).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in machine.path("/etc/ssh").iterdir() if path.name.count(".") > 1] == []


def test_sshd_restarts_once_for_its_first_certificate_and_its_config_file(machine: Shell) -> None:
    def told(certificate: str) -> list[str]:
        before = len(machine.calls)
        machine.call(show_certificate, certificate)
        return [call for call in machine.calls[before:] if call.endswith("start ssh")]

    certificate = signed(machine).removesuffix("\n")
    assert told(certificate) == ["systemctl restart ssh"]
    assert told(certificate) == []
    # Somebody has taken it away; the certificate is the same.
    machine.path("/etc/ssh/sshd_config.d/tailrack.conf").unlink()
    assert told(certificate) == ["systemctl restart ssh"]


@pytest.mark.parametrize("what", ["for another key", "from another authority", "nonsense", "empty"])
def test_sshd_shows_no_foreign_or_invalid_certificate(machine: Shell, what: str) -> None:
    others = machine.path("/others")
    keygen("-q", "-t", "ed25519", "-N", "", "-f", others)
    text = {"nonsense": "ssh-ed25519-cert-v01@openssh.com AAAA\n", "empty": ""}.get(what, "")
    if what == "for another key":
        text = signed(machine, key=" ".join(Path(f"{others}.pub").read_text().split()[:2]))
    elif what == "from another authority":
        key = machine.write("/mine.pub", host_key(machine))
        keygen("-q", "-s", others, "-h", "-I", "b1", "-n", "b1", "-z", 2**40, key)
        text = machine.path("/mine-cert.pub").read_text()
    assert show(machine, text) == ""
    own = show(machine, signed(machine))
    assert show(machine, text) == own
