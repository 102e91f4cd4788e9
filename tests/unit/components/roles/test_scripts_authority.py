"""Another SSH authority takes the place of the last one: the real ssh-keygen, and stubs of the way to members."""

import base64
import hashlib
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from components.node import files, run
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.access.ssh_trust import ask, sshd
from components.roles.access.ssh_trust import authority as ssh_trust_authority
from components.roles.access.ssh_trust import certificate as ssh_trust_certificate
from components.roles.access.ssh_trust.authority import Turn, trust_own, turn_to
from components.roles.access.ssh_trust.certificate import trust_authorities
from components.roles.access.ssh_trust.host import head as head_phase
from tests.unit.killed import killed_before
from tests.unit.recorded import public_key
from tests.unit.shell import ROLES, Shell, assert_ok
from tests.unit.shell import machine as machine_in

KEYS = "/var/lib/tailrack/ssh_authority"
TRUST, HOST_KEY = "/etc/ssh/tailrack_authority.pub", "/etc/ssh/ssh_host_ed25519_key"
GENERATION, TURNING = f"{KEYS}.generation", f"{KEYS}.turning"
NODES = ("a1", "b1")
LEAVE_KEY = "/var/lib/tailrack/leave_key"
LEAVE = f"# leave {public_key('leave')}"
LIST = f"# 7\n{public_key('first')}\n{LEAVE}"


def keygen(*words: object) -> str:
    found = shutil.which("ssh-keygen")
    assert found, "this machine has no ssh-keygen"
    return subprocess.run([found, *map(str, words)], capture_output=True, text=True, check=True).stdout


def programs(machine: Shell) -> None:
    """The programs of the role, as a machine has them."""
    machine.stub("ssh-keygen", f'exec {shutil.which("ssh-keygen")} "$@"')
    machine.stub("sshd")
    (ssh_trust,) = [role for role in ROLES if role.name == "ssh_trust"]
    for file in {file.path: file for phase in ssh_trust.files.values() for file in phase}.values():
        machine.write(file.path, machine.inside(file.text)).chmod(0o755)
    keygen("-q", "-t", "ed25519", "-N", "", "-f", place(machine, HOST_KEY))


def place(machine: Shell, path: str) -> Path:
    machine.path(path).parent.mkdir(parents=True, exist_ok=True)
    return machine.path(path)


@pytest.fixture
def head(shell: Shell, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A head node with members a1 and b1, each a folder in which its answers run; `away` names who answers nothing."""
    programs(shell)
    place(shell, KEYS)
    shell.call(head_phase, Step("head", "head-head"))
    for node in NODES:
        member = machine_in(tmp_path_factory.mktemp(node), shell.tools)
        programs(member)
        with member.here():
            trust_authorities(shell.path(TRUST).read_text().rstrip())
            ssh_trust_certificate.let_ask("100.64.0.1")
        shell.write(f"/var/lib/tailrack/members/{node}/address", "100.64.0.9\n")
        key = " ".join(member.path(f"{HOST_KEY}.pub").read_text().split()[:2])
        signed = assert_ok(shell.command("sign", node, f"{node},100.64.0.9", key))
        assert_ok(member.command("certificate", str(member.write("/offered", signed.stdout))))
        shell.write(f"/folder-of/{node}", str(member.root))
    monkeypatch.setattr(ask, "ask", partial(answered, shell))
    monkeypatch.setattr(ask, "_ASKED_AT_ONCE", 1)
    monkeypatch.setattr(ssh_trust_authority, "_PATIENCE", 15)
    shell.hurry()
    return shell


def answered(head: Shell, _key: str, node: str, *request: str, text: str = "", known_hosts: str = "") -> run.Ended:
    """Play sshd of a member: known is whose certificate it shows; who may ask is what its keys file says."""
    head.note(f"tailrack-ask {node} {' '.join(request)}")
    away = head.path("/away")
    if away.exists() and away.read_text() == node:
        return run.Ended(255, "", "no route\n")
    machine = member(head, node)
    vouched = re.findall("ssh-ed25519 ([^ \n]+)", head.path(known_hosts or TRUST).read_text())
    if signer(machine) not in {fingerprint_of(key) for key in vouched}:
        return run.Ended(255, "", "Host key verification failed.\n")
    if authority(head).split()[1] not in machine.path("/etc/ssh/tailrack_leave_key").read_text():
        return run.Ended(255, "", "Permission denied\n")
    words = {"certificate": ("certificate", "-")}.get(request[0], request)
    with pytest.MonkeyPatch.context() as patch:
        # The head node may be killed, and the member goes on.
        for module, name, function in UNHURT:
            patch.setattr(module, name, function)
        done = machine.command(*words, stdin=text)
    return run.Ended(done.returncode, done.stdout, done.stderr)


# What the test of a killed step replaces.
UNHURT = [
    *((files, name, getattr(files, name)) for name in ("rename", "write", "remove")),
    *((module, "attempt", run.attempt) for module in (run, sshd, ssh_trust_certificate)),
]


def fingerprint_of(key: str) -> str:
    digest = base64.b64encode(hashlib.sha256(base64.b64decode(key)).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def member(head: Shell, node: str) -> Shell:
    return Shell(Path(head.path(f"/folder-of/{node}").read_text()), head.tools)


def turn(head: Shell, generation: str) -> str:
    """Run the phase's part and return why it failed; empty if it did not."""
    step = Step("head", "head-services")
    try:
        with head.here():
            turn_to(step, Turn("head", generation, "/var/shared/certificates", lambda: None))
            for finish in step.later:
                finish()
    except Failure as failure:
        return failure.reason
    return ""


def trusted(machine: Shell) -> set[str]:
    return {line for line in machine.path(TRUST).read_text().splitlines() if line.startswith("ssh-")}


def authority(head: Shell, keys: str = KEYS) -> str:
    return " ".join(head.path(f"{keys}.pub").read_text().split()[:2])


def signer(machine: Shell) -> str:
    """Who signed the certificate that a machine shows."""
    (found,) = re.findall(r"Signing CA: \S+ (\S+)", keygen("-L", "-f", machine.path(f"{HOST_KEY}-cert.pub")))
    return str(found)


def fingerprint(head: Shell) -> str:
    return keygen("-l", "-f", head.path(f"{KEYS}.pub")).split()[1]


def assert_turned(head: Shell, generation: str, before: str) -> None:
    """One authority is left, whose private half is here; everybody trusts it and shows a certificate of it."""
    assert authority(head) != before
    for machine in (head, *(member(head, node) for node in NODES)):
        assert trusted(machine) == {authority(head)}
    for node in NODES:
        assert signer(member(head, node)) == fingerprint(head)
        opened = member(head, node).path("/etc/ssh/tailrack_leave_key").read_text().splitlines()
        assert [(line.split()[-1], line.split()[-2]) for line in opened] == [
            ("tailrack-leave", authority(head, LEAVE_KEY).split()[1]), ("tailrack-ask", authority(head).split()[1]),
        ]  # fmt: skip
        assert all(line.startswith('restrict,from="100.64.0.1",') for line in opened)
        assert '/usr/local/sbin/tailrack-leave" ssh-ed25519 ' in opened[0]
    for keys in (KEYS, LEAVE_KEY):
        assert keygen("-y", "-f", head.path(keys)).split()[1] == authority(head, keys).split()[1]
    assert {path.name for path in head.path(LEAVE_KEY).parent.glob("leave_key*")} == {"leave_key", "leave_key.pub"}
    assert head.path(LEAVE_KEY).stat().st_mode & 0o777 == 0o600
    kept = {path.name for path in head.path(KEYS).parent.glob("ssh_authority*")}
    assert kept == {f"ssh_authority{end}" for end in ("", ".pub", ".trusted", ".generation")}
    assert head.path(GENERATION).read_text() == f"{generation}\n"
    assert head.path(KEYS).stat().st_mode & 0o777 == 0o600


def test_all_nodes_trust_both_authorities_during_a_change(head: Shell) -> None:
    before = authority(head)
    assert turn(head, "1") == ""
    head.path("/calls").unlink()
    assert turn(head, "2") == ""
    assert_turned(head, "2", before)
    asked = [call.split()[1:] for call in head.calls if call.startswith("tailrack-ask")]
    assert [question for _, question in asked] == [
        *["authority"] * 2, *["certificate"] * 2, *["certificate"] * 2, *["authority"] * 2,
    ]  # fmt: skip
    assert not head.path("/run/tailrack-private/authority.known").exists()
    head.path("/calls").unlink()
    assert turn(head, "2") == ""
    assert not any(call.startswith("tailrack-ask") for call in head.calls)


def test_all_nodes_trust_both_authorities_until_an_unreachable_node_answers(head: Shell) -> None:
    before, signed_by = authority(head), fingerprint(head)
    assert turn(head, "1") == ""
    head.write("/away", "b1")
    assert turn(head, "2") == (
        "the SSH authority is being changed, and b1 did not take part yet: "
        "until then all machines also trust the last one"
    )
    assert authority(head) == before
    assert len(trusted(head)) == len(trusted(member(head, "a1"))) == 2
    assert trusted(member(head, "b1")) == {before}
    assert {signer(member(head, node)) for node in NODES} == {signed_by}
    # The head node's own step has nothing against it.
    head.call(head_phase, Step("head", "head-head"))
    assert len(trusted(head)) == 2
    head.path("/away").unlink()
    assert turn(head, "2") == ""
    assert_turned(head, "2", before)


@pytest.mark.parametrize("number", range(1, 56, 3))
def test_cut_off_anywhere_it_ends_the_same_way(head: Shell, number: int) -> None:
    """Before a change of a file or the start of a program, by their number."""
    before = authority(head)
    assert turn(head, "1") == ""
    with killed_before(number, ("rename", "write", "remove"), (sshd, ssh_trust_certificate)):
        turn(head, "2")
    assert turn(head, "2") == ""
    assert_turned(head, "2", before)


def test_a_node_rejects_an_invalid_list_of_authorities_and_writes_nothing(shell: Shell) -> None:
    reason = "the head node's list of SSH authorities is not a list of keys"
    many = "\n".join(["# 7", *(public_key(f"{number}") for number in range(4)), LEAVE])
    first, second = public_key("first"), public_key("second")
    for told in (
        "", "# 7", first, LIST.replace("# 7", "# 07"), LIST.replace("\n#", " x\n#"), f"{LIST}\n", f"{LIST} x",
        f"{LIST}\n{LEAVE}\n{LEAVE}", f'{LIST}\ncommand="x" {second}', LIST.replace("\nssh-ed25519", "\nssh-rsa"),
        many, f"# 7\n{first}", f"# 7\n{LEAVE}", f"# 7\n{LEAVE}\n{first}",
    ):  # fmt: skip
        assert shell.failure_of(trust_authorities, told).startswith(f"{reason}; "), told
    assert not shell.path(TRUST).exists()


def test_a_restored_head_node_publishes_its_authorities_again_once(head: Shell) -> None:
    """Nodes may have been told of later authorities than the backup has."""
    kept = f"{KEYS}.trusted"
    first = head.path(kept).read_text()
    head.write(kept, re.sub(r"^# \d+", "# 7", first))
    head.write("/var/lib/tailrack/restored", "id\n")
    head.call(trust_own)
    again = head.path(kept).read_text()
    assert int(again.split()[1]) >= int(first.split()[1])
    head.call(trust_own)
    assert head.path(kept).read_text() == again


def test_the_authority_command_rejects_an_invalid_list(head: Shell) -> None:
    node = member(head, "a1")
    before = node.path(TRUST).read_text()
    done = node.command("authority")
    assert done.returncode == 1
    assert done.stderr.startswith("the head node's list of SSH authorities is not a list of keys; next: ")
    assert node.path(TRUST).read_text() == before
