"""Role user_keys: the files of keys, the lines for sshd, and a machine whose sshd does not read them."""

from __future__ import annotations

import subprocess

import pytest

from components.roles.user_keys.host import CONF, FOLDER
from tests.unit.recorded import public_key
from tests.unit.shell import Shell, script_of

ADAS, ADAS_OTHER, BOBS = (f"{public_key(name)} {name}" for name in ("laptop", "desk", "bobs pc"))
# Plays sshd with one Include: it prints the machine's own files, or ours for a client's address. `own` has a line for
# each user, `USER FILES`.
SSHD = """case "$*" in
    -t) [ ! -e "{bad}" ] || {{ echo "bad configuration" >&2; exit 255; }} ;;
    "-T -C "*)
        user=${{3#user=}}; user=${{user%%,*}}
        setting=$(sed -n "s/^$user //p" "{own}")
        case "$3" in *addr=192.0.2.1,*)
            ours=$(grep -A 1 -E "^Match User ([a-z,]*,)?$user(,[a-z,]*)? " "{conf}" 2>/dev/null |
                sed -n 's/^ *AuthorizedKeysFile //p')
            [ ! -e "{include}" ] || setting=${{ours:-$setting}} ;;
        esac
        echo "authorizedkeysfile $setting" ;;
esac"""
DEFAULT = ".ssh/authorized_keys .ssh/authorized_keys2"


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A machine with ada, bob and a running sshd, which has Debian's own settings."""
    shell.write("etc/passwd", "ada:x:6001:6001::/shared/home/ada:/bin/sh\nbob:x:6002:7002::/shared/home/bob:/bin/sh\n")
    own = shell.write("/own", f"ada {DEFAULT}\nbob {DEFAULT}\n")
    paths = {"own": own, "conf": shell.path(CONF), "include": shell.write("/include", ""), "bad": shell.path("/bad")}
    shell.stub("sshd", SSHD.format(**paths))
    shell.stub("systemctl", 'case "$*" in *ssh.socket*) exit 3 ;; esac')
    return shell


def up(node: Shell, *lines: str, phase: str = "machine", fails: bool = False) -> subprocess.CompletedProcess[str]:
    done = node.step(script_of("user_keys", phase), {"user_keys_lines": list(lines)})
    assert (done.returncode != 0) == fails, done.stderr
    return done


def keys_of(node: Shell, name: str) -> str | None:
    path = node.path(f"{FOLDER}/{name}")
    return path.read_text() if path.exists() else None


def reloads(node: Shell) -> int:
    return node.calls.count("systemctl reload ssh")


def test_each_user_has_a_file_of_keys_that_sshd_reads_after_the_machines_own(node: Shell) -> None:
    up(node, f"ada {ADAS}", f"ada {ADAS_OTHER}", f"bob {BOBS}")
    assert (keys_of(node, "ada"), keys_of(node, "bob")) == (f"{ADAS}\n{ADAS_OTHER}\n", f"{BOBS}\n")
    assert node.path(f"{FOLDER}/bob").stat().st_mode & 0o7777 == 0o640
    assert node.owners[f"{FOLDER}/bob"] == ("root", "7002")
    lines = node.path(CONF).read_text().splitlines()[2:]
    assert lines == ["Match User ada,bob Address *,!192.0.2.255", f"    AuthorizedKeysFile {DEFAULT} {FOLDER}/%u"]
    assert reloads(node) == 1
    # A key and a user are taken out.
    up(node, f"ada {ADAS_OTHER}")
    assert (keys_of(node, "ada"), keys_of(node, "bob")) == (f"{ADAS_OTHER}\n", None)
    assert "bob" not in node.path(CONF).read_text()
    up(node, phase="leave")
    assert not node.path(FOLDER).exists()
    assert not node.path(CONF).exists()


def test_users_with_another_setting_on_a_machine_keep_it(node: Shell) -> None:
    node.write("/own", f"ada {DEFAULT}\nbob none\n")
    up(node, f"ada {ADAS}", f"bob {BOBS}")
    text = node.path(CONF).read_text()
    assert f"Match User ada Address *,!192.0.2.255\n    AuthorizedKeysFile {DEFAULT} {FOLDER}/%u\n" in text
    assert f"Match User bob Address *,!192.0.2.255\n    AuthorizedKeysFile {FOLDER}/%u\n" in text
    node.write("/own", f"ada /etc/keys/%u\nbob {DEFAULT}\n")
    up(node, f"ada {ADAS}", f"bob {BOBS}")
    assert f"AuthorizedKeysFile /etc/keys/%u {FOLDER}/%u\n" in node.path(CONF).read_text()


def test_a_step_that_was_cut_off_is_completed_and_a_link_replaced(node: Shell) -> None:
    node.path(FOLDER).mkdir(parents=True)
    node.path(f"{FOLDER}/ada").symlink_to("/etc/shadow")
    up(node, f"ada {ADAS}")
    assert not node.path(f"{FOLDER}/ada").is_symlink()
    assert keys_of(node, "ada") == f"{ADAS}\n"
    node.path("/var/lib/tailrack/user-keys-read").unlink()
    up(node, f"ada {ADAS}")
    assert reloads(node) == 2


def test_without_keys_a_machine_is_as_before_and_no_sshd_is_asked(node: Shell) -> None:
    up(node)
    assert node.calls == []
    up(node, f"ada {ADAS}")
    up(node)
    assert not node.path(FOLDER).exists()
    assert not node.path(CONF).exists()
    assert not node.path("/var/lib/tailrack/user-keys-read").exists()
    assert reloads(node) == 2
    before = len(node.calls)
    up(node)
    assert len(node.calls) == before


def test_a_key_is_removed_even_if_sshd_rejects_its_configuration_which_is_taken_back(node: Shell) -> None:
    up(node, f"ada {ADAS}")
    before = node.path(CONF).read_text()
    node.write("/bad", "")
    done = up(node, f"bob {BOBS}", fails=True)
    assert "bad configuration" in done.stderr
    assert keys_of(node, "ada") is None
    assert node.path(CONF).read_text() == before
    node.path("/bad").unlink()
    up(node, f"bob {BOBS}")
    assert "Match User bob " in node.path(CONF).read_text()


@pytest.mark.parametrize("phase", ["services", "node"])
def test_an_sshd_without_the_include_is_named_with_the_line_to_write(node: Shell, phase: str) -> None:
    node.path("/include").unlink()
    up(node, f"ada {ADAS}", f"bob {BOBS}")
    done = up(node, f"ada {ADAS}", f"bob {BOBS}", phase=phase, fails=True)
    assert "does not read the keys of ada, bob in tailrack:users: it reads .ssh/authorized_keys" in done.stderr
    assert "write 'Include /etc/ssh/sshd_config.d/*.conf' as the first line of /etc/ssh/sshd_config" in done.stderr
