"""tailrack-known-hosts: for which hosts the cluster's authority may vouch."""

from components.roles.role import template
from tests.unit.shell import Shell, assert_ok

NAMES = "100.64.0.1 head\n100.64.0.3 b1\n"
PROGRAM = "/usr/local/sbin/tailrack-known-hosts"


def answer(shell: Shell, host: str) -> str:
    shell.write("/var/lib/tailrack/names", NAMES)
    shell.write("/etc/ssh/tailrack_authority.pub", "ssh-ed25519 AAAA\n")
    shell.write(PROGRAM, shell.inside(template("ssh_trust", "tailrack-known-hosts"))).chmod(0o755)
    done = assert_ok(shell.program(PROGRAM, host))
    return done.stdout


def test_it_vouches_for_the_clusters_machines_under_the_name_that_was_asked_for_alone(shell: Shell) -> None:
    for host in ("b1", "100.64.0.3", "head", "[b1]:2222", "[100.64.0.3]:2222"):
        assert answer(shell, host) == f"@cert-authority {host} ssh-ed25519 AAAA\n"
    names = ("github.com", "b", "b1x", "b1.lab.ts.net", "*", "b*", "", "!x", "b1,x", "\\142")
    for host in (*names, "100.64.0.30", "100.64.0", "10.0.0.3"):
        assert answer(shell, host) == "", host
    # While one authority takes the place of the other, both vouch.
    shell.write("/etc/ssh/tailrack_authority.pub", "# 12\nssh-ed25519 AAAA\nssh-ed25519 BBBB\n")
    done = shell.program(PROGRAM, "b1")
    assert done.stdout == "@cert-authority b1 ssh-ed25519 AAAA\n@cert-authority b1 ssh-ed25519 BBBB\n"
