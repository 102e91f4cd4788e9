"""Phase `member` of all roles: what the head node keeps of a member, and how it sees one off, even one that is gone."""

import errno
import hashlib
import json
import socket
from typing import Any
from unittest import mock

import pytest

from components.cluster.cluster import NO_POOL
from components.roles.network.tailnet import host as tailnet_host
from components.roles.storage.share.exports import export_line
from components.steps.composition import REGISTER, Script, compose
from tests.unit.shell import ROLES, Result, Shell, assert_fails, assert_ok

# What the head node sees of b1 in the tailnet, after an address of before.
TAILNET: dict[str, Any] = {
    "Peer": {
        f"key{number}": {"DNSName": "b1.lab.ts.net.", "TailscaleIPs": [address, "fd7a::1"]}
        for number, address in enumerate(("100.64.0.7", "100.64.0.8"))
    }
}
LINE = "/export/shared 100.64.0.7/32(rw,sync,secure,root_squash,no_subtree_check)\n"


class Head:
    """A head node whose kernel serves NFS, with stubs of every command that it needs for its member b1."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    def run(self, action: str, script: Script | None = None, **values: Any) -> Result:
        """Run the steps of registration or removal for b1."""
        if action == "up":
            self.shell.stub("tailscale", f"echo '{json.dumps(TAILNET)}'")
        address = values.get("node_address", "100.64.0.7")
        header = {
            "node_export": export_line("/export/shared", address),
            "host_name": "head", "STEP_LOCK": "", "node_name": "b1", "node_address": "100.64.0.7",
            "node_sshd_port": 22, "node_host_key": "ssh-ed25519 AAAA", "node_site": "rack", "node_problem": "",
            "node_price": "2.05 USD", "node_firewall": "", "node_login": "",
            "node_slurm_conf": "NodeSet=site-rack Feature=site-rack",
            "node_profile": "processes",
            "node_memory": "ALL 1024", "node_gpu_cpus": "",
            "node_job_submit_lua": 'member("b1", "rack", "", 0)', "node_adopt": False,
            "node_fabric": "tailnet", "node_networks": '{"interfaces": [], "rdma": []}',
            "share_path": "/export/shared", "head_kernel_nfs": True, "slurm_job_limit_seconds": 300,
            "share_node": "", **NO_POOL, **values,
        }  # fmt: skip
        done = self.shell.step(script or compose(ROLES, REGISTER), header, action, name="b1-register")
        if action == "up":
            self.shell.stub("tailscale", "echo '{}'")  # when it leaves, it is gone at once
        return done

    def knows_b1(self, state: str = "IDLE", looks: int | None = 0) -> None:
        """Stub a controller that knows b1 in a given state, with jobs that end after so many looks (None: never)."""
        root = self.shell.root
        flags = [state.rstrip("*"), *(["NOT_RESPONDING"] if state.endswith("*") else [])]
        self.shell.write("node", json.dumps({"nodes": [{"name": "b1", "state": flags}]}))
        self.shell.write("looks", f"{99999 if looks is None else looks}\n")
        self.shell.stub(
            "scontrol",
            f"""case "$1 ${{2:-}}" in
"ping "*) echo "Slurmctld(primary) at head is UP" ;;
"show node") cat "{root}/node" ;;
"show job") echo '{{"jobs":[{{"job_id":41,"job_state":["RUNNING"],"requeue":true,"batch_flag":true}}]}}' ;;
"delete nodename=b1") rm "{root}/node" ;;
"requeue "*) echo 0 >"{root}/looks" ;;
esac""",
        )
        self.shell.stub(
            "squeue",
            f"""left=$(cat "{root}/looks")
if [ "$left" -gt 0 ]; then echo 41 ada RUNNING; echo 41 ada RUNNING; echo $((left - 1)) >"{root}/looks"; fi""",
        )

    def changes(self) -> list[str]:
        """The calls that change something, shortened to their first words."""
        words = [" ".join(call.split()[:3]) for call in self.shell.calls]
        changing = ("scontrol update", "scontrol requeue", "scontrol delete", "ssh ", "exportfs")
        return [word if not word.startswith("ssh ") else "ssh" for word in words if word.startswith(changing)]


@pytest.fixture
def head(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Head:
    shell.write("var/lib/tailrack/slurm/base/slurm.conf", "ClusterName=lab\n")
    shell.stub("scontrol", 'if [ "$1" = ping ]; then echo "Slurmctld(primary) at head is UP"; fi')
    shell.stub("exportfs")
    shell.stub("tailscale", "echo '{}'")
    answer = shell.write("answer", "bash: connect: Connection refused")

    def connect(_address: object, _seconds: float) -> socket.socket:
        if error := answer.read_text():
            raise OSError(errno.ECONNREFUSED if "refused" in error else errno.EHOSTUNREACH, error)
        return socket.socket()

    monkeypatch.setattr("components.roles.access.ssh_trust.host.socket.create_connection", connect)
    shell.stub(
        "timeout",
        f"""shift; answer="{answer}"
        case "$*" in */dev/tcp/*) cat "$answer" >&2; [ ! -s "$answer" ] ;; *) "$@" ;; esac""",
    )
    shell.stub(
        "ssh-keygen", 'echo "certificate of ${@: -1}" >"${@: -1}"; mv "${@: -1}" "$(dirname "${@: -1}")/key-cert.pub"'
    )

    shell.write("/var/lib/tailrack/ssh_authority.pub", "ssh-ed25519 AAAA authority\n")
    shell.write("/var/lib/tailrack/ssh_authority.trusted", "# 7\nssh-ed25519 AAAA\n")
    return Head(shell)


def test_a_member_gets_an_export_of_its_one_address_and_a_certificate(head: Head) -> None:
    done = assert_ok(head.run("up"))
    assert json.loads(done.stdout) == {
        "authorities": "# 7\nssh-ed25519 AAAA",
        "certificate": f"certificate of {head.shell.root}/var/lib/tailrack/members/b1/key.pub",
        "munge_digest": hashlib.sha256().hexdigest(),
        "path": "relay",  # the slowest, since TAILNET shows none
    }
    assert head.shell.path("/etc/exports.d/tailrack-b1.exports").read_text() == LINE
    assert "exportfs -ra" in head.shell.calls
    (signing,) = [call for call in head.shell.calls if call.startswith("ssh-keygen")]
    assert " -h -I b1 -n b1,100.64.0.7 " in signing


def test_a_log_in_node_is_a_member_and_none_of_slurms_nodes(head: Head) -> None:
    head.shell.write("var/lib/tailrack/slurm/share", "/export/shared\n")
    head.shell.path("/export/shared").mkdir(parents=True)
    assert_ok(head.run("up"))
    files, nodes = (
        head.shell.path("/export/shared/.tailrack/slurm"),
        head.shell.path("/var/lib/tailrack/slurm/nodes/b1"),
    )
    assert "NodeSet=site-rack" in (files / "slurm.conf").read_text()
    head.knows_b1()
    assert_ok(head.run("up", node_login="203.0.113.9 2200"))
    assert [path.name for path in nodes.iterdir()] == ["owner"]
    assert "scontrol delete nodename=b1" in head.shell.calls
    assert "NodeSet" not in (files / "slurm.conf").read_text()
    login = head.shell.path("/var/lib/tailrack/members/b1/login")
    assert login.read_text() == "203.0.113.9 2200\n"
    assert_ok(head.run("up"))
    assert not login.exists()
    assert (nodes / "site").exists()


def test_an_unreachable_node_is_no_member_and_the_error_names_its_firewall(head: Head) -> None:
    head.shell.hurry()
    for answer in ("timed out", "bash: connect: No route to host"):
        head.shell.write("answer", answer)
        done = assert_fails(
            head.run("up", node_firewall="ufw+nftables"),
            "nothing answers on b1 at its tailnet address, 100.64.0.7 port 6818",
            "a firewall on the machine (found: ufw, nftables), tailscale's shields-up",
            "allow input on tailscale0",
            "the tailnet's policy lets the cluster's machines reach one another",
        )
        assert "fabric: tailnet" not in done.stderr
        assert not head.shell.path("/etc/exports.d/tailrack-b1.exports").exists()
    # One that answers counts before slurmd runs, too.
    for answer in ("", "bash: connect: Connection refused"):
        head.shell.write("answer", answer)
        assert head.run("up").returncode == 0, answer


def test_an_idle_member_is_drained_asked_to_leave_by_its_pinned_key_and_forgotten(head: Head) -> None:
    head.run("up")
    head.knows_b1()
    head.shell.stub("ssh", "echo left")
    done = head.run("down", node_sshd_port=2222)
    assert (done.returncode, done.stdout) == (0, '{"left":true}\n'), done.stderr
    changes = ["scontrol update nodename=b1", "ssh", "scontrol delete nodename=b1", "exportfs -ra"]
    assert head.changes()[1:] == changes
    assert not head.shell.path("/etc/exports.d/tailrack-b1.exports").exists()
    assert not head.shell.path("/var/lib/tailrack/members/b1").exists()
    (asked,) = [call for call in head.shell.calls if call.startswith("ssh ")]
    assert asked.endswith(" -o HostKeyAlias=b1 root@100.64.0.7")
    for option in ("-p 2222", "BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10"):
        assert option in asked


def test_a_member_that_is_gone_is_forgotten_and_its_jobs_go_back_to_the_queue_at_once(head: Head) -> None:
    head.shell.stub("ssh", "echo 'ssh: connect to host 100.64.0.7 port 22: Connection timed out' >&2; exit 255")
    for state in ("DOWN*", "IDLE*", "DOWN+NOT_RESPONDING", "IDLE+NOT_RESPONDING", "DOWN+DRAIN"):
        head.run("up")
        head.knows_b1(state)
        done = head.run("down", slurm_job_limit_seconds=100000)
        assert (done.returncode, done.stdout) == (0, '{"left":true}\n'), done.stderr
        assert not head.shell.path("/node").exists(), state
        assert not head.shell.path("/etc/exports.d/tailrack-b1.exports").exists()
        assert head.changes()[-2:] == ["scontrol delete nodename=b1", "exportfs -ra"], state
        log = head.shell.path("/var/log/tailrack/b1-register.log").read_text()
        assert "b1 does not answer at 100.64.0.7: treated as gone" in log
    before = len(head.changes())
    head.knows_b1("ALLOCATED*", looks=None)
    assert head.run("down", slurm_job_limit_seconds=100000).returncode == 0
    assert head.changes()[before:] == [
        "scontrol update nodename=b1", "scontrol update jobid=41", "scontrol requeue 41", "ssh",
        "scontrol delete nodename=b1", "exportfs -ra",
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [0, 100000])
def test_jobs_that_go_on_past_the_limit_are_requeued_before_the_member_goes(head: Head, limit: int) -> None:
    # The head node's step has run with a lower limit than the removal's.
    head.shell.write("/var/lib/tailrack/slurm/job_limit", "0\n")
    head.knows_b1("ALLOCATED", looks=None)
    head.shell.stub("ssh")
    assert head.run("down", slurm_job_limit_seconds=limit).returncode == 0
    calls = head.changes()
    assert calls.index("scontrol requeue 41") < calls.index("ssh") < calls.index("scontrol delete nodename=b1")


def test_a_job_that_cannot_be_requeued_is_cancelled_with_its_owners_name_and_the_member_goes(head: Head) -> None:
    head.knows_b1("ALLOCATED", looks=None)
    stub = head.shell.path("/stubs/scontrol")
    stub.write_text(stub.read_text().replace('"requeue":true', '"requeue":false'))
    head.shell.stub("scancel", f'echo 0 >"{head.shell.root}/looks"')
    head.shell.stub("ssh")
    done = head.run("down", slurm_job_limit_seconds=0)
    assert (done.returncode, done.stdout) == (0, '{"left":true}\n'), done.stderr
    assert "scancel 41" in head.shell.calls
    log = head.shell.path("/var/log/tailrack/b1-register.log").read_text()
    assert "cancelling job 41 of ada, which cannot be requeued" in log


@pytest.mark.parametrize(
    ("peer", "path"),
    [
        ({"CurAddr": "192.0.2.7:41641", "Relay": "fra", "Active": True}, "direct"),
        ({"CurAddr": "", "PeerRelay": "192.0.2.9:40000:vni:2", "Active": True}, "peer-relay"),
        ({"CurAddr": "", "Relay": "fra", "Active": True}, "relay"),
    ],
)
def test_the_head_node_reports_its_path_to_a_member(head: Head, peer: dict[str, Any], path: str) -> None:
    with mock.patch.dict(TAILNET["Peer"]["key0"], peer):
        done = head.run("up")
    assert_ok(done)
    assert json.loads(done.stdout)["path"] == path


def test_the_head_node_identifies_a_member_by_its_tailnet_entry(head: Head) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"node_address": "100.64.0.9"},  # another machine's, or nobody's
        {"node_address": "100.64.0.7; Squash = No_Root_Squash; Clients = 100.64.0.7"},
        {"node_address": "100.64.0.7", "node_name": "head"},
        {"node_name": "b1,head"},
        {"node_name": "b"},
    )
    for values in wrong:
        with mock.patch.object(tailnet_host, "LISTED_SECONDS", 0):
            assert_fails(head.run("up", **values), "the tailnet has no machine")
    problem = "its answer has no valid tailnet_ip"
    assert_fails(head.run("up", node_problem=problem, node_address=""), f"b1 cannot register: {problem}")
    assert not list(head.shell.path("/etc/exports.d").glob("*"))
    assert not any(call.startswith("ssh-keygen") for call in head.shell.calls)


def test_a_member_has_left_when_the_head_node_sees_it_no_more_in_the_tailnet(head: Head) -> None:
    head.knows_b1()
    head.shell.stub("sleep")
    head.shell.stub("ssh", "echo left")
    looks = head.shell.write("looks-at-tailnet", "")
    peer = json.dumps({"Peer": {"key": {"TailscaleIPs": ["100.64.0.7"], "Online": True}}})
    head.shell.stub(
        "tailscale",
        f"""echo >>{looks}
if [ "$(wc -l <{looks})" -ge 3 ]; then echo '{{}}'; else echo '{peer}'; fi""",
    )
    assert_ok(head.run("down"))
    assert len(looks.read_text().splitlines()) == 3
    calls = [call.split()[0] for call in head.shell.calls]
    assert calls.index("ssh") < calls.index("tailscale")


def test_a_member_that_stays_in_the_tailnet_is_not_called_gone(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.knows_b1()
    head.shell.stub("ssh", "echo left")
    peer = json.dumps({"Peer": {"key": {"TailscaleIPs": ["100.64.0.7"], "Online": True}}})
    head.shell.stub("tailscale", f"echo '{peer}'")
    monkeypatch.setattr("components.roles.network.tailnet.host.GONE_LIMIT", 0)
    assert_fails(
        head.run("down"),
        "b1 reported that it leaves, but is still in the tailnet",
        "next: see 'journalctl -u tailrack-logout' on b1",
    )
    assert head.shell.path("/node").exists()
