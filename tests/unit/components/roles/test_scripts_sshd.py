"""sshd as a machine has it: by a socket and without its folder, hardened by its owner, or brought by the cluster."""

import json
import re
import subprocess
from dataclasses import replace

import pytest

from components.node.failure import Failure
from components.node.run import ProgramFailed
from components.node.step.step import Step
from components.roles.access.ssh_trust import sshd
from components.roles.access.ssh_trust.host import NodeValues, let_the_head_ask
from tests.unit.recorded import public_key
from tests.unit.shell import Shell, assert_ok, script_of

HEAD = "100.64.0.1"
# The phase without the packages of its role.
JOIN = (("python", "components.roles.access.ssh_trust.host", "join"),)
KEY_FILE = "/etc/ssh/tailrack_leave_key"
HEARD = f"""pubkeyauthentication yes
authenticationmethods publickey
authorizedkeysfile {KEY_FILE}
allowusers root
permitrootlogin forced-commands-only
"""
# As OpenSSH 9.6 does: without the folder it says nothing but that.
WITHOUT_FOLDER = '[ -d /run/sshd ] || {{ echo "Missing privilege separation directory: /run/sshd" >&2; exit 255; }}\n'


def play_sshd(shell: Shell, said: str, running: bool = False) -> None:
    text = shell.write("said", said)
    shell.stub("sshd", shell.inside(WITHOUT_FOLDER.replace("{{", "{").replace("}}", "}")) + f'cat "{text}"')
    shell.stub("systemctl", "" if running else 'case "$*" in *is-active*) exit 3 ;; reload*) exit 1 ;; esac')


def join(shell: Shell) -> subprocess.CompletedProcess[str]:
    shell.write("etc/ssh/ssh_host_ed25519_key.pub", f"{public_key('host')} root@desk\n")
    return shell.step(replace(script_of("ssh_trust", "join"), calls={"up": JOIN}), {})


@pytest.mark.parametrize(("said", "port"), [("port 2222\nport 22\nusepam yes\n", 2222), ("", 22)])
def test_a_machine_reports_its_ssh_port_while_sshd_is_stopped(shell: Shell, said: str, port: int) -> None:
    play_sshd(shell, said)
    done = assert_ok(join(shell))
    assert json.loads(done.stdout) == {"sshd_port": port, "host_key": public_key("host")}


def let_ask(shell: Shell) -> str:
    """Return why the head node would not be heard; empty if it would."""
    keys = f"# 7\n{public_key('authority')}\n# leave {public_key('leave')}"
    try:
        shell.call(let_the_head_ask, Step("a1", "a1-node"), NodeValues(keys, "", "", "", HEAD, "/shared"))
    except Failure as failure:
        return failure.reason
    return ""


def test_sshd_is_asked_again_in_its_folder(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    # One that a socket started takes its folder along.
    play_sshd(shell, HEARD, running=True)
    ends = f'n="{shell.root}/asked"; echo >>"$n"; [ "$(wc -l <"$n")" -gt 2 ] || rm -r "{shell.path("/run/sshd")}"\n'
    asked = shell.root / "stubs" / "sshd"
    asked.write_text(asked.read_text(encoding="utf-8").replace("[ -d", ends + "[ -d", 1), encoding="utf-8")
    assert let_ask(shell) == ""
    assert "Missing privilege separation directory" not in capsys.readouterr().err


def test_the_error_has_sshds_message_about_a_bad_line(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.stub("sshd", 'echo "/etc/ssh/sshd_config line 3: Bad configuration option: Prot" >&2; exit 255')
    with shell.here(), pytest.raises(ProgramFailed):
        sshd.query("-t")
    assert "Bad configuration option: Prot" in capsys.readouterr().err
    assert shell.calls == ["sshd -t"]


def test_the_error_names_the_sshd_line_that_blocks_the_head_node(shell: Shell) -> None:
    for said, wrong in (
        ("permitrootlogin forced-commands-only", ""),
        ("permitrootlogin no", "permitrootlogin no"),
        ("pubkeyauthentication no", "pubkeyauthentication no"),
        (
            "authenticationmethods publickey,keyboard-interactive",
            "authenticationmethods publickey,keyboard-interactive",
        ),
        ("allowusers admin", "allowusers admin"),
        ("authorizedkeysfile .ssh/authorized_keys", "authorizedkeysfile .ssh/authorized_keys"),
    ):
        key = said.split(" ")[0]
        play_sshd(shell, re.sub(rf"(?m)^{key} .*$", said, HEARD))
        reason = let_ask(shell)
        assert reason.endswith(wrong), said
        assert bool(reason) == bool(wrong), said
        assert f"sshd -T -C user=root,host={HEAD},addr={HEAD}" in shell.calls, said


def test_the_step_restarts_a_socket_activated_sshd_only_while_it_runs(shell: Shell) -> None:
    play_sshd(shell, HEARD, running=False)
    assert let_ask(shell) == ""
    assert "systemctl restart ssh" not in shell.calls
    # One that a socket has started ends by a reload, and is started again.
    for socket, told in (("exit 0", ["restart"]), ("exit 3", ["reload", "restart"])):
        shell.path("/etc/ssh/sshd_config.d/tailrack-leave.conf").unlink()
        play_sshd(shell, HEARD, running=True)
        shell.stub("systemctl", f'case "$*" in "reload ssh") exit 1 ;; *is-active*ssh.socket) {socket} ;; esac')
        before = len(shell.calls)
        assert let_ask(shell) == ""
        calls = [call for call in shell.calls[before:] if call.endswith(" ssh") and "is-active" not in call]
        assert calls == [f"systemctl {word} ssh" for word in told], socket


# An SSH server that came with the cluster.

OWN = "/etc/ssh/sshd_config.d/00-tailrack.conf"


@pytest.mark.parametrize("unit", ["ssh.socket", "ssh.service"])
def test_an_ssh_server_that_came_with_the_cluster_takes_no_passwords_and_is_started(shell: Shell, unit: str) -> None:
    play_sshd(shell, "port 22\n")
    socket = "" if unit == "ssh.socket" else "exit 1"
    shell.stub("systemctl", f'case "$*" in *is-enabled*ssh.socket) {socket or ":"} ;; *is-active*) exit 3 ;; esac')
    shell.write("var/lib/tailrack/packages", "jq\nopenssh-server\n")
    for _ in range(2):
        assert_ok(shell.step(script_of("ssh_trust", "machine"), {}))
    lines = shell.path(OWN).read_text().splitlines()
    assert lines[1:] == ["PasswordAuthentication no", "KbdInteractiveAuthentication no"]
    assert f"systemctl enable -q --now {unit}" in shell.calls
    shell.path("/root/.ssh").mkdir(parents=True)
    assert shell.step(script_of("ssh_trust", "leave"), {}).returncode == 0
    assert "systemctl disable -q --now ssh.socket ssh.service" in shell.calls
    assert not shell.path(OWN).exists()


def test_the_machines_own_ssh_server_stays_as_its_owner_has_it(shell: Shell) -> None:
    play_sshd(shell, "port 22\n")
    shell.write("var/lib/tailrack/packages", "jq\n")
    assert shell.step(script_of("ssh_trust", "machine"), {}).returncode == 0
    assert not shell.path(OWN).exists()
    shell.path("/root/.ssh").mkdir(parents=True)
    assert shell.step(script_of("ssh_trust", "leave"), {}).returncode == 0
    assert not [call for call in shell.calls if "able" in call and " ssh" in call]
