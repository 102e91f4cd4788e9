"""The cluster's ports are its daemons' own: a user gets none while a daemon is away, and is told no password there.

The tests share one cluster of the head node, which computes too, and a1, and run in the order of this file.
"""

import json
import shlex
import subprocess
from collections.abc import Callable

import pytest

from components.roles.order import holders, roles
from stacks.config import parse
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually, own_machine
from tests.lab.sealer import sealer_of

Cluster = ClusterUnderTest
# Tries each port at each address until its time is over, with whatever lets two programs share a port, and says once
# which it got. One that it got it keeps, and writes down what comes.
TAKER = """#!/usr/bin/python3
import errno, os, select, socket, sys, time
limit, ports = float(sys.argv[1]), [int(word) for word in sys.argv[2:]]
KINDS = [
    (socket.AF_INET, "127.0.0.1", 0), (socket.AF_INET, "0.0.0.0", 0), (socket.AF_INET6, "::", 0),
    (socket.AF_INET, "127.0.0.1", 262),
]
end, got = time.monotonic() + limit, {}
while True:
    for port in ports:
        for family, address, protocol in KINDS:
            if (port, address, protocol) in got:
                continue
            taker = socket.socket(family, socket.SOCK_STREAM, protocol)
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not protocol:
                taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                taker.bind((address, port))
                taker.listen(1)
            except OSError as error:
                taker.close()
                # In use is no refusal: whoever comes first when it is not, has it.
                if error.errno not in (errno.EPERM, errno.EACCES) and not limit:
                    print(port, os.strerror(error.errno), flush=True)
                continue
            got[port, address, protocol] = taker
            print(port, "got", flush=True)
    if time.monotonic() >= end:
        break
    for taker in select.select([*got.values()], [], [], 0.002)[0]:
        caller = taker.accept()[0]
        caller.settimeout(2)
        print("told", caller.recv(4096), flush=True)
"""
PLACE = "/usr/local/bin/taker"
UNITS = (
    "slurmctld slurmdbd nfs-ganesha tailrack-prometheus tailrack-alertmanager tailrack-node-exporter "
    "tailrack-fabric.socket"
)
UID = "6001"
RUNTIME = r"[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\n"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One site with what listens at ports and needs nothing of the internet."""
    made = make_cluster("hold", one_site=True)
    own_machine(made.lab, "head", site="cloud-a")
    made.config["tailrack:sites"][0]["pools"][0]["count"] = 1
    made.config["tailrack:accounting"] = {"enabled": True}
    _, sealer = sealer_of(made)
    hook = {"kind": "webhook", "url": {"secure": sealer.seal("http://a1:8099/hook/token")}}
    made.config["tailrack:monitoring"] = {"receivers": [hook]}
    made.up_ok()
    for node in ("head", "a1"):
        # What pam_systemd does on a machine, which the lab's image lacks.
        folder = "/run/systemd/system/user@.service.d"
        made.run(node, f"install -d {folder}; printf '{RUNTIME}' >{folder}/lab.conf; systemctl daemon-reload")
        made.write(node, PLACE, TAKER)
        made.run(node, f"chmod 755 {PLACE}")
    return made


def held(cluster: Cluster, machine: str) -> str:
    """The ports that are held on a machine, by what the roles say, as words."""
    plain = {**cluster.config, "tailrack:monitoring": {"receivers": [{"kind": "mail", "to": "a@b.c", "sender": "a@b.c",
             "smarthost": "b.c:25"}]}}  # fmt: skip
    config = {key.removeprefix("tailrack:"): value for key, value in plain.items() if key.startswith("tailrack:")}
    rows = holders(roles(parse(config, base_dir=cluster.folder)))
    return " ".join(str(port) for port, _, where, *_ in rows if where == "all" or machine == "head")


def not_refused(said: str) -> set[str]:
    """Ports that the kernel did not forbid. 60001 is srun's, which users start: it shows that a user can listen."""
    assert "60001 got" in said.splitlines()
    return {line.split()[0] for line in said.splitlines()}


WAYS: dict[str, Callable[[str], str]] = {
    "a login": lambda words: as_user("ada", words),
    # A service outside of any session, as cron's jobs are.
    "a service": lambda words: f"systemd-run -q --wait --pipe --collect --uid=ada {words}",
    # Such as a user has who lingers. (systemd-run would ask a bus for it, which the lab's image lacks.)
    "a user's own systemd": lambda words: (
        f"systemctl start user@{UID} && runuser -u ada -- env XDG_RUNTIME_DIR=/run/user/{UID} bash -c "
        + shlex.quote(f"""cd /run/user/{UID} && mkdir -p systemd/user && cat >systemd/user/taker.service <<'END'
[Service]
Type=oneshot
ExecStart={words}
StandardOutput=truncate:/run/user/{UID}/said
END
systemctl --user daemon-reload && systemctl --user start taker && cat said""")
    ),
    "a user namespace": lambda words: as_user("ada", f"unshare --user --map-root-user {words}"),
    "a job": lambda words: as_user("ada", f"srun -w $(hostname) {words}"),
}


@pytest.mark.parametrize("node", ["head", "a1"])
@pytest.mark.parametrize("way", WAYS)
def test_no_user_can_bind_a_port_of_a_daemon_from_anywhere(cluster: Cluster, node: str, way: str) -> None:
    ports = held(cluster, node)
    assert {"6816", "6817", "6818", "6819", "2049", "9100"} <= {*ports.split()}
    assert ({"9090", "9093"} <= {*ports.split()}) == (node == "head")
    said = cluster.run(node, WAYS[way](f"{PLACE} 0 {ports} 60001"))
    assert not_refused(said) == {"60001"}


def test_by_ssh_from_another_machine_it_is_the_same(cluster: Cluster) -> None:
    said = cluster.run_as("ada", "a1", f"ssh -o BatchMode=yes head {PLACE} 0 {held(cluster, 'head')} 60001")
    assert not_refused(said) == {"60001"}


def test_after_a_boot_ports_are_held_before_a_user_can_start_anything(cluster: Cluster) -> None:
    cluster.run("a1", "systemctl disable slurmd")
    subprocess.run(["docker", "restart", cluster.container("a1")], check=True, capture_output=True)
    try:
        at_sysinit = "systemctl is-active sysinit.target"
        eventually(lambda: cluster.attempt("a1", at_sysinit).stdout == "active\n", 60, "the machine boots")
        assert "sysinit.target" in cluster.run("a1", "systemctl show -P Before tailrack-firewall").split()
        # slurmd, whose port it is, has not started.
        said = cluster.run("a1", f"runuser -u ada -- {PLACE} 0 {held(cluster, 'a1')} 60001")
        assert not_refused(said) == {"60001"}
    finally:
        cluster.run("a1", "systemctl enable --now slurmd", 120)


def test_restarting_or_stopped_daemons_lose_no_port_to_a_user(cluster: Cluster) -> None:
    taker = f"systemd-run -q --collect --uid=ada --unit=taker -p StandardOutput=file:/tmp/got {PLACE} 600"
    cluster.run("head", f"{taker} {held(cluster, 'head')}")
    cluster.run("head", f"systemctl stop {UNITS}", 120)
    cluster.run("head", f"systemctl start {UNITS} && systemctl restart {UNITS}", 120)
    eventually(lambda: cluster.attempt("head", "scontrol ping").stdout.count("is UP") == 1, 60, "slurmctld answers")
    up = "systemctl is-active " + UNITS
    eventually(lambda: {*cluster.attempt("head", up).stdout.split()} == {"active"}, 60, "all daemons run")
    cluster.run("head", "systemctl is-active taker; systemctl stop taker")
    assert cluster.run("head", "cat /tmp/got") == ""


def test_a_user_of_the_head_node_neither_silences_alerts_nor_sends_any(cluster: Cluster) -> None:
    until = {"startsAt": "2026-01-01T00:00:00Z", "endsAt": "2099-01-01T00:00:00Z", "createdBy": "ada", "comment": "no"}
    silence = {"matchers": [{"name": "alertname", "value": ".*", "isRegex": True}], **until}
    for path, body in (("silences", silence), ("alerts", [{"labels": {"alertname": "Mine"}}])):
        post = f"curl -s -o /dev/null -w '%{{http_code}}' -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
        assert cluster.run_as("ada", "head", f"{post} http://127.0.0.1:9093/api/v2/{path}") == "401"
    assert cluster.attempt("head", as_user("ada", "cat /etc/tailrack/alertmanager/password")).returncode != 0


def test_a_kernel_without_the_port_program_gives_an_intruder_no_messages(cluster: Cluster) -> None:
    cluster.run("head", "/usr/local/lib/tailrack/hold-ports release")
    ports = "6817 6818 9093 9100"
    cluster.run("head", "systemctl stop slurmctld slurmd tailrack-alertmanager tailrack-node-exporter")
    taker = f"systemd-run -q --collect --uid=ada --unit=taker -p StandardOutput=file:/tmp/got2 {PLACE} 600"
    cluster.run("head", f"{taker} {ports} 9999")
    got = {f"{port} got" for port in [*ports.split(), "9999"]}
    try:
        eventually(lambda: {*cluster.run("head", "cat /tmp/got2").splitlines()} >= got, 30, "the user has the ports")
        # More than wait in line, after which the kernel answers by cookies.
        for port in ports.split():
            call = f"curl -s -m 1 -o /dev/null -u prometheus:secret http://127.0.0.1:{port}"
            assert cluster.run("head", f"for each in 1 2 3 4 5 6; do {call}; echo $?; done").split() == ["28"] * 6
        cluster.run("head", "curl -s -m 1 http://127.0.0.1:9999/who; true")
        eventually(lambda: "/who" in cluster.run("head", "cat /tmp/got2"), 30, "the user hears what is no daemon's")
        told = [line for line in cluster.run("head", "cat /tmp/got2").splitlines() if line.startswith("told")]
        assert len(told) == 1
    finally:
        cluster.run("head", "systemctl stop taker; systemctl reload tailrack-firewall")
        cluster.run("head", "systemctl start slurmctld slurmd tailrack-alertmanager tailrack-node-exporter")
    said = cluster.run("head", as_user("ada", f"{PLACE} 0 {ports}"))
    assert said == ""
