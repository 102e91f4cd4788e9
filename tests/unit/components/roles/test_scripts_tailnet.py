"""Role `tailnet`: which machines may join, what joining does to them, which way the traffic goes, and leaving."""

import contextlib
import json
import re
import socket
import subprocess
from typing import Any
from unittest import mock

import pytest

from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.network.tailnet import host as tailnet_host
from components.roles.network.tailnet import login
from components.roles.network.tailnet.host import is_logged_out
from components.roles.role import Value
from components.steps.composition import CHECK, JOIN
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of

URL = "https://headscale.example.org"
OWN = "https://controlplane.tailscale.com"
MARK = "/var/lib/tailrack/tailnet"
HEADER: dict[str, Value] = {
    "tailnet_tag": "tag:cluster", "tailnet_control_url": URL, "tailnet_auth_key": "tskey-secret", "node_adopt": False,
    "node_relay_port": "",
}  # fmt: skip
# A machine that has never been in a tailnet, as tailscale shows it.
FRESH: dict[str, Any] = {"ControlURL": OWN, "LoggedOut": True, "AdvertiseTags": None, "Hostname": "", "CorpDNS": True}
Result = subprocess.CompletedProcess[str]


class Tailscale:
    """A machine's tailscale: `up` and `logout` change what it tells of itself."""

    def __init__(self, shell: Shell) -> None:
        self.shell, self.granted, self.version, self.tags = shell, "", "1.102.5", ["tag:cluster"]
        shell.write("dev/net/x", "")
        shell.path("/dev/net/tun").symlink_to("/dev/null")
        shell.write("sys/class/net/tailscale0/mtu", "1280")
        shell.write("usr/sbin/tailscaled", "").chmod(0o755)
        # Nothing is on its way out, everything else runs.
        shell.stub("systemctl", 'case "$*" in *is-active*tailrack-logout* | *firewalld*) exit 3 ;; esac')
        self.is_(FRESH, "NeedsLogin")

    def is_(self, preferences: dict[str, Any], state: str = "Running", name: str = "", up: str = "") -> None:
        """Take a state; `up` is what comes of `tailscale up`, in bash, and else it joins as asked."""
        self._show("before", preferences, state, name)
        self._show("joined", {"ControlURL": URL, "LoggedOut": False, "AdvertiseTags": ["tag:cluster"],
                              "Hostname": "a1", "CorpDNS": False}, "Running", self.granted or "a1")  # fmt: skip
        here = self.shell.root
        body = f"""now() {{ if [ -e {here}/up ]; then echo joined; else echo before; fi; }}
case $1 in
status) cat {here}/$(now)-status ;;
debug) sed "1s/$/\\n$(sed -n 's/..*/"RelayServerPort": &,/p' {here}/relay)/" {here}/$(now)-prefs ;;
ip) grep -q Running {here}/$(now)-status && echo 100.64.0.7 ;;
set) [ ! -e {here}/no-relay ] || {{ echo "no such flag" >&2; exit 1; }}; echo "${{2#*=}}" >{here}/relay ;;
version) printf '%s\\n' {self.version} "  tailscale commit: x" ;;
up) {up or f": >{here}/up"} ;;
logout) rm -f {here}/up ;;
esac"""
        self.shell.stub("tailscale", body)

    def _show(self, when: str, preferences: dict[str, Any], state: str, name: str) -> None:
        # Given by the control server: a machine may have them without asking for any.
        tags = {"Tags": self.tags} if self.tags else {}
        inner = {"HostName": "unlike", "DNSName": f"{name}.example.ts.net.", **tags} if name else {"DNSName": ""}
        addresses = ["fd7a::7", "100.64.0.7"] if state == "Running" else None
        status = {"Version": self.version, "BackendState": state, "TailscaleIPs": addresses, "Self": inner}
        self.shell.write(f"{when}-status", json.dumps(status, indent=2))
        self.shell.write("relay", "")
        self.shell.write(f"{when}-prefs", json.dumps(preferences, indent="\t"))

    @property
    def asked(self) -> list[str]:
        """Calls that change something of the membership."""
        changing = ("tailscale up", "tailscale set", "tailscale logout", "tailscale down")
        return [call for call in self.shell.calls if call.startswith(changing)]

    def check(self, **values: Value) -> Result:
        return self.run("check", **values)

    def join(self, **values: Value) -> Result:
        return self.run("join", **values)

    def run(self, phase: str, **values: Value) -> Result:
        phases = {"check": CHECK, "join": JOIN}[phase]
        return self.shell.step(script_of("tailnet", *phases), {**HEADER, **values}, name=f"a1-{phase}")


@pytest.fixture
def tailscale(shell: Shell) -> Tailscale:
    return Tailscale(shell)


def member(url: str = URL, host: str = "a1", **more: Any) -> dict[str, Any]:
    """What a machine was told that is in a tailnet."""
    return {"ControlURL": url, "LoggedOut": False, "AdvertiseTags": ["tag:cluster"], "Hostname": host,
            "CorpDNS": False, **more}  # fmt: skip


@pytest.mark.parametrize("phase", ["check", "join"])
def test_a_machine_in_another_tailnet_gets_both_remedies(tailscale: Tailscale, phase: str) -> None:
    refused = f"is in a tailnet already, as desk.example.ts.net, of the control server {OWN}; tailrack does not"
    remedy = "next: run 'tailscale logout' on a1; or, if that is the cluster's tailnet, set adopt: true"
    tailscale.shell.hurry()  # it is not Starting for ever
    for state in ("Running", "Stopped", "NeedsLogin", "Starting"):
        tailscale.is_(member(OWN, "desk"), state, "desk")
        assert_fails(tailscale.run(phase), refused, remedy)
    assert tailscale.asked == []


def test_a_machine_that_calls_itself_the_clusters_is_not_believed(tailscale: Tailscale) -> None:
    tailscale.is_(member(), "Running", "a1")
    for mark in ("", f"{URL} b7\n", f"{OWN} a1\n"):
        tailscale.shell.write(MARK, mark)
        assert "in a tailnet already" in tailscale.check().stderr, mark


def test_a_node_under_another_name_is_refused_with_a_remedy_that_keeps_the_cluster(tailscale: Tailscale) -> None:
    tailscale.shell.write(MARK, f"{URL} a0\n")
    tailscale.is_(member(host="a0"), "Running", "a0")
    told = tailscale.check().stderr
    assert "this machine is node a0 of a cluster" in told
    assert "which removes node a0; then add it as a1" in told
    assert "logout" not in told


def test_a_stopped_daemon_with_a_login_counts_as_in_a_tailnet(tailscale: Tailscale) -> None:
    tailscale.shell.write("var/lib/tailscale/tailscaled.state", '{"_machinekey":"x","profile-1a2b":"x"}')
    tailscale.shell.stub("tailscale", 'if [ "$1" = version ]; then echo 1.102.5; else exit 1; fi')
    assert "in a tailnet already" in tailscale.check().stderr
    tailscale.shell.write("var/lib/tailscale/tailscaled.state", '{"_machinekey":"x","_profiles":"e30="}')
    assert tailscale.check().returncode == 0


def test_a_daemon_that_does_not_run_is_not_asked_as_tailscale_would_wait_for_it(tailscale: Tailscale) -> None:
    tailscale.shell.stub("systemctl", "exit 3")
    assert tailscale.check().returncode == 0
    assert [call for call in tailscale.shell.calls if call.startswith("tailscale ")] == ["tailscale version"]
    # One that runs by another's unit has its socket.
    folder = tailscale.shell.path("/var/run/tailscale")
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as daemon, contextlib.chdir(folder):
        daemon.bind("tailscaled.sock")
    tailscale.is_(member(OWN, "desk"), "Running", "desk")
    assert "in a tailnet already" in tailscale.check().stderr


def test_a_tailscale_that_cannot_wait_is_refused(tailscale: Tailscale) -> None:
    for version in ("1.94.2", "1.8.0", "0.100.0", "1.96.0"):
        tailscale.version = version
        tailscale.is_(FRESH, "NeedsLogin")
        done = tailscale.check()
        if version != "1.96.0":
            wait = f"tailscale {version} here is too old; the cluster's units need 'tailscale wait'"
            assert_fails(done, wait, "next: upgrade it: 'tailscale update' on a1")
    assert_ok(done)


RULESET = """table ip filter {
	chain INPUT {
		type filter hook input priority filter; policy accept;
	}
}
table inet mine {
	chain input {
		type filter hook input priority filter; policy drop;
		tcp dport 22 accept
	}
}"""


def test_a_firewall_of_the_machines_own_is_named(tailscale: Tailscale) -> None:
    for stubs, said in (
        ({}, ""),
        ({"nft": f"cat <<'END'\n{RULESET}\nEND"}, "nftables"),
        ({"nft": f"cat <<'END'\n{RULESET.replace('policy drop', 'policy accept')}\nEND"}, ""),
        ({"ufw": "echo 'Status: active'"}, "ufw"),
        ({"ufw": "echo 'Status: inactive'"}, ""),
        ({"systemctl": 'case "$*" in *is-active*tailrack-logout*) exit 3 ;; esac', "firewalld": ""}, "firewalld"),
    ):
        tailscale.shell.stub("systemctl", 'case "$*" in *is-active*tailrack-logout*|*firewalld*) exit 3 ;; esac')
        for name, body in stubs.items():
            tailscale.shell.stub(name, body)
        done = assert_ok(tailscale.join())
        assert json.loads(done.stdout)["firewall"] == said, stubs


def test_shields_go_down_with_the_next_join_and_are_refused_on_an_adopted_machine(tailscale: Tailscale) -> None:
    tailscale.shell.write(MARK, f"{URL} a1\n")
    tailscale.is_(
        {**member(URL, "a1"), "AdvertiseTags": ["tag:cluster"], "CorpDNS": False, "ShieldsUp": True}, "Running", "a1"
    )
    assert tailscale.join().returncode == 0
    assert "--reset" in tailscale.asked[-1]
    tailscale.shell.path("up").unlink()
    tailscale.is_({**member(URL, "a1"), "AdvertiseTags": ["tag:cluster"], "ShieldsUp": True}, "Running", "a1")
    done = tailscale.check(node_adopt=True)
    assert "tailscale's shields are up here" in done.stderr
    assert "'tailscale set --shields-up=false' on a1" in done.stderr


def test_a_member_passes_the_gate_and_does_not_join_again(tailscale: Tailscale) -> None:
    done = assert_ok(tailscale.join())
    assert json.loads(done.stdout) == {"tailnet_ip": "100.64.0.7", "firewall": "", "tailscale_version": "1.102.5"}
    assert tailscale.shell.path(MARK).read_text() == f"{URL} a1\n"
    calls = [call.split()[1] for call in tailscale.shell.calls if call.startswith("tailscale ")]
    assert calls == ["status", "debug", "up", "status", "debug", "version"]
    (asked,) = tailscale.asked
    assert "--accept-dns=false" in asked
    assert "--hostname=a1" in asked
    assert "--force-reauth" not in asked
    assert "tskey-secret" not in asked
    assert tailscale.check().returncode == 0
    assert tailscale.join().returncode == 0
    assert len(tailscale.asked) == 1
    assert tailscale.shell.calls.count("systemctl restart tailrack-tailnet.service") == 1
    # So does one whose join was killed after it had joined.
    for path in (MARK, "/up"):
        tailscale.shell.path(path).unlink()
    tailscale.is_(FRESH, "NeedsLogin", up=f": >{tailscale.shell.root}/up; exit 1")
    assert tailscale.join().returncode == 1
    assert tailscale.check().returncode == 0


def test_a_member_moves_to_another_control_server_of_the_config_and_is_known_on_the_way(tailscale: Tailscale) -> None:
    tailscale.shell.write(MARK, f"{OWN} a1\n")
    tailscale.is_(member("https://login.tailscale.com"), "Running", "a1", up="exit 1")
    assert tailscale.join().returncode == 1
    assert tailscale.check().returncode == 0  # where it was
    assert tailscale.shell.path(MARK).read_text() == f"{OWN} a1\n{URL} a1\n"
    tailscale.is_(member(OWN), "Running", "a1")
    assert tailscale.join().returncode == 0
    assert "--force-reauth" in tailscale.asked[-1]
    assert tailscale.shell.path(MARK).read_text() == f"{URL} a1\n"
    # The address is the same, so nobody has to start anew for it.
    assert "systemctl restart tailrack-tailnet.service" not in tailscale.shell.calls


def test_a_taken_name_is_refused_and_a_renamed_member_stays_in_the_tailnet(tailscale: Tailscale) -> None:
    tailscale.granted = "a1-1"
    tailscale.is_(FRESH, "NeedsLogin")
    tailscale.shell.write("var/lib/tailscale/tailscaled.state", "{}")
    taken = "the name a1 is taken in the tailnet; this machine got the name a1-1 there"
    remedy = "next: remove the machine called a1 (and a1-1) from the tailnet"
    assert assert_fails(tailscale.join(), taken, remedy).stdout == ""
    assert tailscale.asked[-1] == "tailscale logout"
    assert not tailscale.shell.path("/var/lib/tailscale/tailscaled.state").exists()
    assert not tailscale.shell.path(MARK).exists()
    tailscale.shell.write(MARK, f"{URL} a1\n")
    tailscale.is_(member(), "Running", "a1-renamed")
    before = len(tailscale.asked)
    assert "this machine got the name a1-renamed there" in tailscale.join().stderr
    assert len(tailscale.asked) == before
    assert tailscale.shell.path(MARK).exists()


@pytest.mark.parametrize("phase", ["check", "join"])
def test_joining_waits_for_a_leaving_that_is_not_over(tailscale: Tailscale, phase: str) -> None:
    # It is in the tailnet until the log-out that runs ends, at the third look.
    tailscale.is_(member(), "Running", "a1")
    tailscale.shell.stub("sleep")
    looks = tailscale.shell.write("looks", "")
    tailscale.shell.stub(
        "systemctl",
        f"""case "$*" in
*is-active*tailrack-logout*)
    echo >>{looks}
    [ "$(wc -l <{looks})" -ge 3 ] || exit 0
    sed -i 's/"LoggedOut": false/"LoggedOut": true/' {tailscale.shell.root}/before-prefs
    sed -i 's/Running/NeedsLogin/' {tailscale.shell.root}/before-status
    exit 3 ;;
esac""",
    )
    assert_ok(tailscale.run(phase))
    assert len(looks.read_text().splitlines()) == 3
    assert len(tailscale.asked) == (1 if phase == "join" else 0)


@pytest.mark.parametrize("phase", ["check", "join"])
def test_adopting_a_machine_checks_its_tailnet_settings_and_changes_none(tailscale: Tailscale, phase: str) -> None:
    for preferences, state, name, problem in (
        (FRESH, "NeedsLogin", "", r"is in no tailnet now \(tailscale: NeedsLogin\)"),
        (member(), "Stopped", "a1", r"is in no tailnet now \(tailscale: Stopped\)"),
        (member(OWN), "Running", "a1", f"this machine's tailnet is of {OWN}; the cluster's is of {URL}"),
        (member(), "Running", "desk", "the tailnet calls this machine desk; others would look for it as a1"),
    ):
        tailscale.is_(preferences, state, name)
        done = assert_fails(tailscale.run(phase, node_adopt=True), "\nnext: ")
        assert re.search(f"adopt: true, and .*{problem}", done.stderr), problem
    tailscale.is_(member(AdvertiseTags=None, CorpDNS=True, RunSSH=True, Hostname=""), "Running", "a1")
    assert_ok(tailscale.run(phase, node_adopt=True))
    assert tailscale.asked == []
    assert not tailscale.shell.path(MARK).exists()
    (tailscale.shell.root / "stubs/tailscale").unlink()
    assert "adopt: true, and tailscale is not installed here" in tailscale.check(node_adopt=True).stderr


def test_a_join_waits_for_one_answer_alone_and_no_direct_path(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailnet_host, "_PING_SECONDS", 0)
    step, head = Step("a1", "a1-prepare"), "100.64.0.1"
    with shell.here(), mock.patch.object(tailnet_host, "compare_with_head"):
        # Like tailscale, it goes on after the answer.
        shell.stub("tailscale", "echo pong from head; exec tail -f /dev/null")
        tailnet_host.check_path(step, head)
        shell.stub("tailscale", "echo no pong from head")
        with pytest.raises(Failure, match=r"the head node does not answer on the tailnet at 100\.64\.0\.1"):
            tailnet_host.check_path(step, head)
    assert "--c 1 --timeout 3s --until-direct=false 100.64.0.1" in shell.calls[-1]


def leave(shell: Shell, *, adopt: bool) -> None:
    shell.call(tailnet_host.leave, Step("a1", "tailrack-leave"), adopt)


def test_the_log_out_begins_when_the_program_has_ended_and_by_no_timer(shell: Shell) -> None:
    shell.stub("systemd-run")
    leave(shell, adopt=False)
    (call,) = [call for call in shell.calls if call.startswith("systemd-run")]
    assert "--unit=tailrack-logout " in call
    assert "--on-active" not in call
    assert re.search(
        r"tail --pid=\d+ .*tailscale logout;.*rm -f .*tailscaled.state;.*/var/lib/tailrack/tailnet\*", call
    )


def peer(address: str, **more: Any) -> dict[str, Any]:
    return {"TailscaleIPs": [address, "fd7a::1"], "Online": True, **more}


def test_a_node_is_gone_when_the_head_node_sees_it_no_more(shell: Shell) -> None:
    for peers, gone in (
        ([peer("100.64.0.7")], False),
        ([peer("100.64.0.8")], True),
        ([peer("100.64.0.7", Online=False)], True),
        ([peer("100.64.0.7", Expired=True)], True),
        (None, True),
    ):
        status = shell.write("status", json.dumps({"Peer": peers and {str(at): one for at, one in enumerate(peers)}}))
        shell.stub("tailscale", f"cat {status}")
        assert shell.call(is_logged_out, "100.64.0.7") == gone, peers


def test_a_member_is_a_relay_while_the_config_says_so_and_is_asked_no_more_than_once(tailscale: Tailscale) -> None:
    def relays() -> list[str]:
        return [
            call.rpartition("=")[2] for call in tailscale.asked if call.startswith("tailscale set --relay-server-port=")
        ]

    for asked, port in (([], ""), (["40000"], "40000"), (["40000"], "40000"), (["40000", "40001"], "40001")):
        assert_ok(tailscale.join(node_relay_port=port))
        assert relays() == asked
    for _ in range(2):
        assert tailscale.join().returncode == 0
        assert relays()[2:] == [""]
    tailscale.shell.write("no-relay", "")
    done = tailscale.join(node_relay_port="40000")
    assert "tailscale on a1 does not take '40000' as its relay's UDP port: no such flag" in done.stderr


def test_an_adopted_machine_is_a_relay_by_its_owners_word_alone(tailscale: Tailscale) -> None:
    tailscale.is_(member(), "Running", "a1")
    assert tailscale.join(node_adopt=True).returncode == 0
    refused = tailscale.join(node_adopt=True, node_relay_port="40000")
    assert "adopt: true, and this machine is no relay at UDP port 40000" in refused.stderr
    assert "next: run 'tailscale set --relay-server-port=40000' on a1" in refused.stderr
    tailscale.is_(member(RelayServerPort=40000), "Running", "a1")
    assert tailscale.join(node_adopt=True, node_relay_port="40000").returncode == 0
    assert tailscale.asked == []


@pytest.mark.parametrize("phase", ["check", "join"])
def test_an_adopted_machine_needs_the_clusters_tag(tailscale: Tailscale, phase: str) -> None:
    for tags in ([], ["tag:other"], ["tag:cluster-b"]):
        tailscale.tags = tags
        tailscale.is_(member(), "Running", "a1")
        refused = tailscale.run(phase, node_adopt=True)
        assert "this machine does not have the tag tag:cluster in its tailnet" in refused.stderr, tags
        assert "next: run 'tailscale up --advertise-tags=tag:cluster' on a1" in refused.stderr
    tailscale.tags = ["tag:other", "tag:cluster"]
    tailscale.is_(member(), "Running", "a1")
    assert tailscale.run(phase, node_adopt=True).returncode == 0


def test_a_tailscale_from_a_snap_is_refused(tailscale: Tailscale) -> None:
    tailscale.is_(member(), "Running", "a1")
    tailscale.shell.write("etc/systemd/system/snap.tailscale.tailscaled.service", "")
    (tailscale.shell.root / "stubs/tailscale").unlink()  # root's PATH need not lead to snaps
    for adopt in (True, False):
        done = tailscale.check(node_adopt=adopt)
        assert_fails(done, "tailscale is a snap here", "next: run 'snap remove tailscale' on a1")


def test_networks_with_tailnet_addresses_are_refused(tailscale: Tailscale) -> None:
    for address, route, found in (
        ("eth0 inet 10.0.0.7/24", "192.168.1.1 dev eth0", ""),
        ("eth0 inet 100.63.0.7/24", "100.128.0.1 dev eth0", ""),
        ("tailscale0 inet 100.64.0.7/32", "10.0.0.1 dev eth0", ""),
        ("eth0 inet 100.70.1.2/24", "10.0.0.1 dev eth0", "100.70.1.2/24 at eth0"),
        ("eth0 inet 10.0.0.7/32", "100.127.255.1 dev eth0 onlink", "the gateway 100.127.255.1 at eth0"),
    ):
        tailscale.shell.stub(
            "ip", f'case "$*" in *address*) echo "2: {address} scope global" ;; *) echo "default via {route}" ;; esac'
        )
        tailscale.is_(FRESH, "NeedsLogin")
        done = tailscale.check()
        assert (done.returncode == 0) == (not found), done.stderr
        assert f"addresses of 100.64.0.0/10 ({found})" in done.stderr or not found, (address, route)
        tailscale.is_(member(), "Running", "a1")
        assert tailscale.check(node_adopt=True).returncode == 0, (address, route)  # it is reached there already


PROXY = 'PATH="/usr/bin:/bin"\nhttps_proxy="http://proxy.rack:3128"\nexport NO_PROXY=localhost,10.0.0.0/8\n'
DROP_IN = "/etc/systemd/system/tailscaled.service.d/tailrack.conf"


def test_tailscaled_uses_the_proxy_and_restarts_only_if_it_changes(tailscale: Tailscale) -> None:
    def restarts() -> int:
        return tailscale.shell.calls.count("systemctl try-restart tailscaled")

    assert tailscale.join().returncode == 0
    assert (tailscale.shell.path(DROP_IN).exists(), restarts()) == (False, 0)
    tailscale.shell.write("etc/environment", PROXY)
    for _ in range(2):
        assert tailscale.join().returncode == 0
        assert "EnvironmentFile=-/etc/environment" in tailscale.shell.path(DROP_IN).read_text()
        assert restarts() == 1
    tailscale.shell.write("etc/environment", 'PATH="/usr/bin:/bin"\n')
    assert tailscale.join().returncode == 0
    assert (tailscale.shell.path(DROP_IN).exists(), restarts()) == (False, 2)


def test_a_step_fetches_through_the_proxy_of_the_machine(tailscale: Tailscale) -> None:
    tailscale.shell.write("etc/environment", PROXY)
    tailscale.shell.write("etc/os-release", "ID=debian\nVERSION_CODENAME=trixie\n")
    tailscale.shell.path("/usr/sbin/tailscaled").unlink()
    seen = tailscale.shell.root / "seen"
    tailscale.shell.stub("curl", f'printf "%s|%s|%s" "${{https_proxy:-}}" "${{NO_PROXY:-}}" "$PATH" >{seen}; exit 22')
    assert "Tailscale's package source does not answer" in tailscale.join().stderr
    proxy, but, path = seen.read_text().split("|")
    assert (proxy, but) == ("http://proxy.rack:3128", "localhost,10.0.0.0/8")
    assert path != "/usr/bin:/bin", "nothing else is taken from there"


def test_the_check_rejects_tailnet_routes_or_dns_servers_before_the_join(tailscale: Tailscale) -> None:
    for route, servers, found in (
        ("100.64.0.0/10 via 10.0.0.1 dev eth0", "", "the route to 100.64.0.0/10 at eth0"),
        ("10.9.0.0/16 via 100.127.0.1 dev eth0", "", "the gateway 100.127.0.1 at eth0"),
        ("", "nameserver 100.100.2.136", "the DNS server 100.100.2.136"),
    ):
        tailscale.shell.stub("ip", f'case "$*" in *address*) ;; *) echo "{route}" ;; esac')
        tailscale.shell.write("/run/systemd/resolve/resolv.conf", f"{servers}\n")
        assert_fails(tailscale.check(), f"uses addresses of 100.64.0.0/10 ({found})", "/etc/systemd/resolved.conf")
        assert tailscale.asked == [], (route, servers)


def test_a_join_after_which_names_do_not_resolve_fails_until_they_do(tailscale: Tailscale) -> None:
    def join() -> Result:
        with mock.patch.object(login, "NAMES_SECONDS", 0):
            return tailscale.shell.step(script_of("tailnet", *JOIN), HEADER, name="a1-prepare")

    tailscale.shell.write("/etc/apt/sources.list", "deb https://mirror.example.org/debian trixie main\n")
    tailscale.shell.write("/etc/resolv.conf", "nameserver 10.0.0.2\n")
    # The stub answers until the machine has joined, and from then on only where a file says so.
    tailscale.shell.stub("getent", f"[ ! -e {tailscale.shell.root}/up ] || [ -e {tailscale.shell.root}/dns ]")
    for _ in range(2):
        assert_fails(join(), "mirror.example.org resolved before and does not now", "its DNS servers are 10.0.0.2")
    tailscale.shell.write("/dns", "")
    assert join().returncode == 0
    assert len(tailscale.asked) == 1
    tailscale.shell.path("/dns").unlink()
    assert join().returncode == 0  # a later failure of DNS is no business of the join
