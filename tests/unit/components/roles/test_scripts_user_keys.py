"""Role user_keys: the files of keys, opkssh, the lines for sshd, and a machine whose sshd does not read them."""

import hashlib
import json
import subprocess

import pytest

from components.roles.access.user_keys.host import CONF, FOLDER, PROGRAM
from components.roles.role import Value
from tests.unit.recorded import public_key
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of

ADAS, ADAS_OTHER, BOBS = (f"{public_key(name)} {name}" for name in ("laptop", "desk", "bobs pc"))
# Plays sshd with one Include: it prints the machine's own files, or ours for a client's address. `own` has a line for
# each user, `USER FILES`, and `command` the machine's own command.
SSHD = """case "$*" in
    -t) [ ! -e "{bad}" ] || {{ echo "bad configuration" >&2; exit 255; }} ;;
    "-T -C "*)
        user=${{3#user=}}; user=${{user%%,*}}
        setting=$(sed -n "s/^$user //p" "{own}") command=$(cat "{command}")
        case "$3" in *addr=192.0.2.1,*)
            ours=$(grep -A 1 -E "^Match User ([a-z,]*,)?$user(,[a-z,]*)? " "{conf}" 2>/dev/null |
                sed -n 's/^ *AuthorizedKeysFile //p')
            verify=$(sed -n 's/^ *AuthorizedKeysCommand //p' "{conf}" 2>/dev/null | head -n 1)
            [ ! -e "{include}" ] || setting=${{ours:-$setting}} command=${{verify:-$command}} ;;
        esac
        printf '%s\n' "authorizedkeysfile $setting" "authorizedkeyscommand $command" ;;
esac"""
DEFAULT = ".ssh/authorized_keys .ssh/authorized_keys2"
OPKSSH = b"opkssh, 0.16"
ISSUER = "https://login.example.org/realms/lab"
ADAS_IDENTITY = f"ada ada@example.org {ISSUER}"
NO_PROVIDER: dict[str, Value] = {"user_keys_provider": "", "user_keys_identities": [], "user_keys_programs": []}


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A machine with ada, bob and a running sshd, which has Debian's own settings."""
    shell.write("etc/passwd", "ada:x:6001:6001::/shared/home/ada:/bin/sh\nbob:x:6002:7002::/shared/home/bob:/bin/sh\n")
    own = shell.write("/own", f"ada {DEFAULT}\nbob {DEFAULT}\n")
    paths = {"own": own, "conf": shell.path(CONF), "include": shell.write("/include", ""), "bad": shell.path("/bad")}
    paths["command"] = shell.write("/command", "none")
    shell.stub("sshd", SSHD.format(**paths))
    shell.stub("systemctl", 'case "$*" in *ssh.socket*) exit 3 ;; esac')
    return shell


def up(node: Shell, *lines: str, phase: str = "machine", fails: bool = False) -> subprocess.CompletedProcess[str]:
    done = node.step(script_of("user_keys", phase), {**NO_PROVIDER, "user_keys_lines": list(lines)})
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


@pytest.fixture
def values(node: Shell) -> dict[str, Value]:
    """ada has a key and an identity, bob has a key. The machine is amd64 and has the program's folder."""
    node.stub("dpkg", "echo amd64")
    node.stubs("useradd", "userdel")
    node.path(PROGRAM).parent.mkdir(parents=True)
    source = node.write("/mirror/opkssh-linux-amd64", OPKSSH.decode())
    return {
        "user_keys_lines": [f"ada {ADAS}", f"bob {BOBS}"],
        "user_keys_provider": f"{ISSUER} tailrack 24h",
        "user_keys_identities": [ADAS_IDENTITY],
        "user_keys_programs": [["amd64", hashlib.sha256(OPKSSH).hexdigest(), str(source)]],
    }


def machine(node: Shell, values: dict[str, Value], phase: str = "machine") -> subprocess.CompletedProcess[str]:
    return node.step(script_of("user_keys", phase), values)


def test_sshd_asks_opkssh_while_a_user_has_an_identity(node: Shell, values: dict[str, Value]) -> None:
    node.write("/etc/environment", 'https_proxy="http://proxy:3128"\n')
    assert_ok(machine(node, values))
    assert node.path(PROGRAM).read_bytes() == OPKSSH
    assert node.path(PROGRAM).stat().st_mode & 0o7777 == 0o755
    names = ("providers", "auth_id", "config.yml")
    providers, identities, settings = (node.path(f"/etc/opk/{name}").read_text() for name in names)
    assert providers.splitlines()[1:] == [f"{ISSUER} tailrack 24h"]
    assert identities == f"{ADAS_IDENTITY}\n"
    assert json.loads(settings) == {"env_vars": {"https_proxy": "http://proxy:3128"}}
    assert {node.owners[f"/etc/opk/{name}"] for name in names} == {("root", "opksshuser")}
    assert {node.path(f"/etc/opk/{name}").stat().st_mode & 0o7777 for name in names} == {0o640}
    assert node.path(CONF).read_text().splitlines()[2:] == [
        "Match User ada Address *,!192.0.2.255",
        f"    AuthorizedKeysFile {DEFAULT} {FOLDER}/%u",
        f"    AuthorizedKeysCommand {PROGRAM} verify %u %k %t",
        "    AuthorizedKeysCommandUser opksshuser",
        "Match User bob Address *,!192.0.2.255",
        f"    AuthorizedKeysFile {DEFAULT} {FOLDER}/%u",
    ]
    assert_ok(machine(node, values))
    assert reloads(node) == 1
    assert_ok(machine(node, values, "node"))
    node.write("/etc/passwd", node.path("/etc/passwd").read_text() + "opksshuser:x:998:998::/nonexistent:/bin/false\n")
    assert_ok(machine(node, {**values, **NO_PROVIDER}))
    assert not node.path("/etc/opk").exists()
    assert not node.path(PROGRAM).exists()
    assert "AuthorizedKeysCommand" not in node.path(CONF).read_text()
    assert "userdel opksshuser" in node.calls


def test_the_check_names_the_folders_below_which_sshd_runs_no_program(node: Shell, values: dict[str, Value]) -> None:
    assert_ok(machine(node, values, "check"))
    node.path("/usr/local").chmod(0o2775)
    assert_fails(machine(node, values, "check"), "write to /usr/local (mode 2775)", "chmod go-w /usr/local;")


def test_a_removed_identity_opens_nothing_even_without_a_new_release(node: Shell, values: dict[str, Value]) -> None:
    values["user_keys_identities"] = [ADAS_IDENTITY, f"bob bob@example.org {ISSUER}"]
    assert_ok(machine(node, values))
    values["user_keys_identities"] = [ADAS_IDENTITY]
    values["user_keys_programs"] = [["amd64", "a" * 64, str(node.path("/mirror/opkssh-linux-amd64"))]]
    assert_fails(machine(node, values), "has the checksum", "before you change tailrack:oidc.checksums")
    assert "bob" not in node.path("/etc/opk/auth_id").read_text()
    assert node.path(PROGRAM).read_bytes() == OPKSSH


def test_another_opkssh_another_command_and_another_architecture_are_refused_and_left_as_they_are(
    node: Shell, values: dict[str, Value]
) -> None:
    own = node.write("/etc/opk/providers", "https://accounts.google.com mine 24h\n")
    assert_fails(machine(node, values), "/etc/opk on a1 has files of another opkssh", "or remove tailrack:oidc")
    assert_ok(machine(node, {**values, **NO_PROVIDER}))
    assert own.read_text() == "https://accounts.google.com mine 24h\n"
    own.unlink()
    node.write("/command", "/usr/bin/sss_ssh_authorizedkeys")
    assert_fails(machine(node, values), "has the AuthorizedKeysCommand /usr/bin/sss_ssh_authorizedkeys", "for ada")
    node.stub("dpkg", "echo arm64")
    assert_fails(machine(node, values), "is arm64, and tailrack:oidc.checksums has no opkssh-linux-arm64")


def test_a_removed_identity_opens_nothing_even_if_sshd_or_opkssh_fails(node: Shell, values: dict[str, Value]) -> None:
    assert_ok(machine(node, values))
    identities = node.path("/etc/opk/auth_id")
    assert "ada " in identities.read_text()
    node.stub("dpkg", "echo arm64")
    assert_fails(machine(node, {**values, "user_keys_identities": ["bob b@example.org https://id"]}), "is arm64")
    assert "ada " not in identities.read_text()
    node.path("/include").unlink()
    assert_fails(machine(node, {**values, "user_keys_lines": []}, "node"), "does not ask opkssh about ada", "Include")
