"""The SSH authority and the leave key are changed while users log in from node to node: no login is refused.

Who missed it is mended."""

import shlex
from collections.abc import Iterator, Mapping

import pytest

from tests.lab.cluster import ClusterUnderTest, as_user, eventually

NODES = ("head", "a1", "b1")
TRUSTED, KEYS = "/etc/ssh/tailrack_authority.pub", "/var/lib/tailrack/ssh_authority"
LEAVE_KEY = "/var/lib/tailrack/leave_key"
# Who logs in where. From the head node too, where nobody is told by SSH.
WAYS = (("a1", "b1"), ("b1", "a1"), ("head", "a1"), ("b1", "head"))
# Logs in again and again, as a user does it, and asks nobody; each line is what came of one login.
LOGIN = """
rm -f /tmp/to-{end}; while [ ! -e /tmp/enough ]; do
    said=$(ssh -o BatchMode=yes {end} hostname 2>&1 </dev/null) || said="status $?: $said"
    printf '%s\\n' "${{said//$'\\n'/ | }}" >>/tmp/to-{end}; sleep 0.1
done
"""


class Logins:
    """Logins of one user, on and on, between nodes."""

    def __init__(self, cluster: ClusterUnderTest, ways: tuple[tuple[str, str], ...]) -> None:
        self._cluster, self._ways = cluster, ways
        for start in {start for start, _ in ways}:
            cluster.run(start, "rm -f /tmp/enough")
        for start, end in ways:
            command = as_user("ada", f"bash -c {shlex.quote(LOGIN.format(end=end))}")
            cluster.run(start, f"setsid {command} </dev/null >/dev/null 2>&1 &")

    def told(self) -> Mapping[tuple[str, str], list[str]]:
        """What came of the logins so far: the other machine's name of each that was let in."""
        return {
            # Nobody was let in yet: there is no file.
            (start, end): self._cluster.run(start, f"[ ! -e /tmp/to-{end} ] || cat /tmp/to-{end}").splitlines()
            for start, end in self._ways
        }

    def come(self, more: int) -> None:
        """Wait until so many more have logged in each way."""
        before = {way: len(lines) for way, lines in self.told().items()}
        eventually(
            lambda: all(len(lines) >= before[way] + more for way, lines in self.told().items()), 90, "users log in"
        )

    def stop(self) -> None:
        """End them all."""
        for start in {start for start, _ in self._ways}:
            self._cluster.run(start, "touch /tmp/enough")


@pytest.fixture
def logins(cluster: ClusterUnderTest) -> Iterator[Logins]:
    """Users log in while the test runs."""
    made = Logins(cluster, WAYS)
    try:
        made.come(3)
        yield made
    finally:
        made.stop()


def assert_none_was_refused(logins: Logins) -> None:
    """Everyone who logged in was where he wanted to be.

    One whose connection was made in the instant in which an sshd closed its port to read its configuration is reset.
    """
    reset = "Connection reset by peer"
    told = logins.told()
    assert sum(reset in line for lines in told.values() for line in lines) <= 1
    print("; ".join(f"{start} to {end}: {len(lines)} logins" for (start, end), lines in told.items()))
    for (start, end), lines in told.items():
        refused = [line for line in lines if line != end and reset not in line]
        assert refused == [], (start, end)


def trusted(cluster: ClusterUnderTest, node: str) -> list[str]:
    """The authorities that a node trusts."""
    return cluster.run(node, f"grep ^ssh- {TRUSTED}").splitlines()


def shown(cluster: ClusterUnderTest, start: str, end: str) -> str:
    """Who signed the certificate that the sshd of a machine shows to another one."""
    address = cluster.run("head", f"cat /var/lib/tailrack/members/{end}/address").strip()
    scan = f"ssh-keyscan -c -t ed25519 {address} 2>/dev/null | grep -o 'ssh-ed25519-cert.*' >/tmp/shown"
    return cluster.run(start, f"{scan}; ssh-keygen -L -f /tmp/shown | awk '$1 == \"Signing\" {{ print $4 }}'").strip()


def assert_one_authority_is_left(cluster: ClusterUnderTest) -> str:
    """Everybody trusts one authority and shows a certificate of it; return it."""
    kept = " ".join(cluster.run("head", f"cat {KEYS}.pub").split()[:2])
    signer = cluster.run("head", f"ssh-keygen -l -f {KEYS}.pub").split()[1]
    for node in NODES:
        assert trusted(cluster, node) == [kept]
    assert {shown(cluster, "head", "a1"), shown(cluster, "a1", "b1"), shown(cluster, "b1", "head")} == {signer}
    for node in ("a1", "b1"):
        asks = cluster.run(node, "grep -o 'ssh-ed25519 .* tailrack-ask$' /etc/ssh/tailrack_leave_key").splitlines()
        assert asks == [f"{kept} tailrack-ask"]
    private = cluster.run("head", f"stat -c '%n %a %U' $(grep -lr 'PRIVATE KEY' {KEYS}* {LEAVE_KEY}*)").splitlines()
    assert sorted(private) == [f"{LEAVE_KEY} 600 root", f"{KEYS} 600 root"]
    return kept


def let_in(cluster: ClusterUnderTest, node: str, key: str) -> bool:
    """Whether a node lets the head node in by a key; nothing is asked of it, so it does not leave."""
    address = cluster.run("head", f"cat /var/lib/tailrack/members/{node}/address").strip()
    options = f"-i {key} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o HostKeyAlias={node}"
    tried = cluster.attempt("head", f"timeout 10 ssh -v -N {options} root@{address} 2>&1 </dev/null")
    assert "Authenticated to" in tried.stdout or "Permission denied" in tried.stdout, tried.stdout
    return "Authenticated to" in tried.stdout


def test_a_change_of_the_ssh_authority_locks_no_user_out(cluster: ClusterUnderTest, logins: Logins) -> None:
    before = assert_one_authority_is_left(cluster)
    cluster.run("head", f"cp -p {LEAVE_KEY} /root/stolen")
    assert let_in(cluster, "a1", "/root/stolen")
    cluster.config["tailrack:cluster"]["ssh_generation"] = "under load"
    cluster.up_ok()
    assert cluster.touched() == {"head-services"}
    assert assert_one_authority_is_left(cluster) != before
    for node in ("a1", "b1"):
        assert (let_in(cluster, node, LEAVE_KEY), let_in(cluster, node, "/root/stolen")) == (True, False)
    logins.come(5)
    assert_none_was_refused(logins)
    for node in ("a1", "b1"):
        assert cluster.attempt("head", f"tailrack-ask {node} last-failure").returncode == 0
    # What a step brings again is of before.
    cluster.config["tailrack:cluster"]["repair"] = {"a1": "after another authority"}
    cluster.up_ok()
    assert_one_authority_is_left(cluster)
    assert (let_in(cluster, "a1", LEAVE_KEY), let_in(cluster, "a1", "/root/stolen")) == (True, False)


def test_an_unreachable_node_blocks_no_login_and_the_next_up_repairs_it(cluster: ClusterUnderTest) -> None:
    before = assert_one_authority_is_left(cluster)
    logins = Logins(cluster, tuple(way for way in WAYS if way[1] != "b1"))
    logins.come(1)
    # Not every machine starts sshd by a socket.
    cluster.run("b1", "systemctl stop ssh.socket ssh.service 2>/dev/null || systemctl stop ssh")
    cluster.config["tailrack:cluster"]["ssh_generation"] = "without b1"
    try:
        said = [failure.message for failure in cluster.up().failures]
        assert any("the SSH authority is being changed, and b1 did not take part yet" in text for text in said), said
        assert (len(trusted(cluster, "a1")), trusted(cluster, "b1")) == (2, [before])
        logins.come(3)
        assert_none_was_refused(logins)
    finally:
        cluster.run("b1", "systemctl start ssh")
    try:
        cluster.up_ok()
        assert cluster.touched() == {"head-services"}
        logins.come(3)
    finally:
        logins.stop()
    assert_none_was_refused(logins)
    assert assert_one_authority_is_left(cluster) != before
    assert cluster.run_as("ada", "a1", "ssh -o BatchMode=yes b1 hostname") == "b1\n"
