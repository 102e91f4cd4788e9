"""Each alert is raised by the thing that it is about, broken for real, and is over when its remedy was followed.

One cluster of the head node, a1 and a2, with all of it broken at once; the tests run in the order of this file. Rules,
readers and daemons are the product's; for these tests alone they are asked more often, and no alert has to last.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from components.roles.jobs.job_hangs.communicators import Hang
from components.roles.monitoring.usage.samples import Summary
from components.roles.role import template
from components.slurm_commands.jobs import with_parts
from lab.commands import run
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.hostile_exporter import FORGED, HOSTILE
from tests.lab.prometheus import api, asked, firing
from tests.lab.sealer import sealer_of

Cluster = ClusterUnderTest
SHARE, MIB = "/export/shared", 2**20
LEDGER = "/var/lib/tailrack/costs/gone"
CERTIFICATE = "/etc/ssh/ssh_host_ed25519_key-cert.pub"
HURRY = r"""
sed -Ei 's/for: [0-9]+m/for: 0s/; s/\[1[05]m\]/[1m]/' /etc/tailrack/prometheus/rules.yml
sed -Ei 's/(scrape|evaluation)_interval: 30s/\1_interval: 5s/; s/scrape_timeout: 10s/scrape_timeout: 5s/' \
    /etc/tailrack/prometheus/prometheus.yml
systemctl reload tailrack-prometheus
sed -Ei 's/("group_(wait|interval)"): "[0-9a-z]+"/\1: "5s"/' /etc/tailrack/alertmanager/alertmanager.yml
systemctl restart tailrack-alertmanager"""
# A fake nvidia-smi, which prints what stands in a file, in the form of the real one's answer to what is asked of it.
FAKE_SMI = "#!/bin/bash\n# A fake.\ncat /usr/local/share/fake-gpus\n"
GPUS = "0, NVIDIA H200, 0, 4, 143771, 31, 76.2, 0\n1, NVIDIA H200, 0, 4, 143771, 30, 75.9, 0\n"
ONE_GPU_WITH_ERRORS = "0, NVIDIA H200, 0, 4, 143771, 31, 76.2, 2\n"
SINK = """#!/usr/bin/python3
import socket
server = socket.create_server(("0.0.0.0", 8098))
while True:
    with server.accept()[0] as sender:
        while sender.recv(65536):
            pass
"""
SOURCE = "#!/bin/bash\nwhile :; do head -c 2000000 /dev/zero >/dev/tcp/a2/8098; sleep 0.5; done"
RECEIVER = """#!/usr/bin/python3
import http.server
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open("/root/received", "ab") as file:
            file.write(self.rfile.read(int(self.headers["Content-Length"])) + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("0.0.0.0", 8099), Receiver).serve_forever()
"""
# Whose alert each is, where all of it is broken at once.
RAISED = {
    "NodeOut": {"node": "a1"},
    "JobsHanging": {"instance": "head"},
    "GpuLost": {"instance": "a2"},
    "GpuMemoryErrors": {"instance": "a2", "gpu": "0"},
    "ShareNearlyFull": {"instance": "head"},
    "DiskNearlyFull": {"instance": "head", "mountpoint": SHARE, "fstype": "ext4"},
    "SlurmStateNearlyFull": {"instance": "head"},
    "BackupOld": {"instance": "head"},
    "BandwidthBelowFloor": {"scope": "cloud-a"},
    "TrafficByRelay": {"instance": "a2", "peer": "a1"},
    "CertificateNearEnd": {"instance": "a2"},
    "FiguresMissing": {"instance": "a1", "collector": "certificate"},
    "RentedNodeIdle": {"node": "a2"},
    "GpusUnused": {"user": "ada"},
    "BudgetNearlySpent": {"instance": "head"},
    "BudgetSpent": {"instance": "head"},
    "AlertsNotDelivered": {"integration": "webhook"},
}
# By a node's root, at the end of this file.
HOSTILE_ALERTS = {"MachineFloods"}
LATER = {"AlertmanagerSilent": {"instance": "head"}, "MachineSilent": {"instance": "a1"}}


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """One site with all that alerts are about; the share is a small disk, and all of it is broken."""
    made = make_cluster("alerts", one_site=True)
    own_machine(made.lab, "head", site="cloud-a")
    small_disk(made, tmp_path_factory.mktemp("disk") / "share")
    made.config["tailrack:sites"][0]["pools"][0] |= {"count": 2, "price_per_hour": 2.5}
    made.config["tailrack:validation"]["floors_gb_per_s"] = {"cloud-a": 1000}
    _, sealer = sealer_of(made)
    hook = {"kind": "webhook", "url": {"secure": sealer.seal("http://a2:8099/hook")}}
    made.config["tailrack:monitoring"] = {"receivers": [hook]}
    made.config["tailrack:budget"] = {"per_month": 1000}
    made.up_ok()
    eventually(lambda: asked(made, 'up{job="node"}') == {"head": 1, "a1": 1, "a2": 1}, 120, "all answer")
    break_it(made)
    return made


def small_disk(cluster: Cluster, file: Path) -> None:
    """Put a file system of 300 MiB where the head node has the share; it goes with the machine."""
    run(["truncate", "-s", str(300 * MIB), str(file)])
    run(["mkfs.ext4", "-q", "-m", "0", str(file)])
    loop = run(["losetup", "-f", "--show", str(file)], root=True).strip()
    try:
        process = run(["docker", "inspect", "-f", "{{.State.Pid}}", cluster.container("head")]).strip()
        cluster.run("head", f"[ -b {loop} ] || mknod {loop} b 7 {loop.removeprefix('/dev/loop')}")
        # From outside: a container may use no disk.
        run(["nsenter", "-t", process, "-m", "mount", loop, SHARE], root=True)
        cluster.run("head", f"rmdir {SHARE}/lost+found")
    finally:
        # While it is mounted, that is a wish for when it is not.
        run(["losetup", "-d", loop], root=True)


def begin(cluster: Cluster, node: str, unit: str, program: str) -> None:
    """Have a program of the tests run on a node."""
    cluster.write(node, f"/root/{unit}", program)
    cluster.run(node, f"chmod 755 /root/{unit}; systemd-run -q --unit={unit} /root/{unit}")


def read_anew(cluster: Cluster) -> None:
    """Have every machine read its figures now, not within a minute."""
    for node in ("head", "a1", "a2"):
        cluster.run(node, "tailrack-minute figures", 120)


def break_it(cluster: Cluster) -> None:
    """Break all that RAISED has."""
    cluster.write("a2", "/usr/local/bin/nvidia-smi", FAKE_SMI)
    cluster.write("a2", "/usr/local/share/fake-gpus", GPUS)
    cluster.run("a2", "chmod 755 /usr/local/bin/nvidia-smi; mknod /dev/nvidia0 c 195 0")
    read_anew(cluster)
    eventually(lambda: asked(cluster, "tailrack_gpus") == {"a2": 2}, 90, "both GPUs are shown")
    cluster.write("a2", "/usr/local/share/fake-gpus", ONE_GPU_WITH_ERRORS)
    cluster.run("head", HURRY)
    # A machine that has left cost more than the budget.
    cluster.run("head", f"now=$(date +%s); echo $((now - 1)) $now 7200000 USD >{LEDGER}")
    # A job of which the accounting says that it does not use its GPU.
    idle = with_parts("", use=Summary(True, 1, 1.0, 0, 100, unused=1, minutes=60))
    job = cluster.run_as("ada", "head", "sbatch --parsable -D / -o /dev/null -w head -J idle --wrap 'sleep 900'")
    eventually(lambda: "head" in cluster.run("head", "squeue -h -t running -o %N"), 60, "the head node has a job")
    cluster.run("head", f"scontrol update jobid={job.strip()} admincomment='{idle}'")
    # As role job_hangs notes it (test_hangs.py). Draining nodes keep their jobs.
    job = cluster.submit("-w a1 --wrap 'sleep 3600'")
    eventually(lambda: "a1" in cluster.run("head", "squeue -h -t running -o %N"), 60, "a1 has a job")
    hang = with_parts("", hang=Hang(int(time.time()), "equal", "AllReduce", 1, 1, 2))
    cluster.run("head", f"scontrol update jobid={job} admincomment='{hang}'")
    cluster.run("head", "scontrol update nodename=a1 state=drain reason='new disk'")
    # As a user fills it, over NFS.
    cluster.run_as("ada", "a1", "! head -c 1G /dev/zero >all", 300)
    # A small disk with Slurm's state on it, of which 4 % are free.
    state = "/var/lib/slurm/slurmctld"
    cluster.run(
        "head",
        # What keeps room for slurmctld would take it here.
        f"systemctl stop tailrack-slurm-room && cp -a {state} /root/state && "
        f"mount -t tmpfs -o size=8m tmpfs {state} && cp -a /root/state/. {state}/ && "
        f"head -c 7800K /dev/zero >{state}/filler",
    )
    # As the backup itself writes it: four hours ago.
    cluster.run("head", "echo done=$(($(date +%s) - 14400)) >/var/lib/tailrack/backup-state")
    # One that was not renewed for two months, of the cluster's own authority.
    sign = (
        "cd $(mktemp -d) && cp /var/lib/tailrack/members/a2/key.pub . && "
        "ssh-keygen -q -s /var/lib/tailrack/ssh_authority -h -I a2 -n a2 -z 1 -V -61d:+29d key.pub && cat key-cert.pub"
    )
    cluster.write("a2", CERTIFICATE, cluster.run("head", sign))
    cluster.write("a1", CERTIFICATE, "damaged")
    # More than no hour at all.
    cluster.run("head", """sed -i 's/"idle_hours": 12/"idle_hours": 0/' /etc/tailrack/monitoring.json""")
    begin(cluster, "a2", "sink", SINK)
    begin(cluster, "a1", "source", SOURCE)
    there = cluster.run("a2", "ip -4 -o addr show eth0 | grep -oE '([0-9]+\\.){3}[0-9]+' | head -n 1").strip()
    rules = "".join(
        f"add rule inet broken {chain} meta l4proto udp ip {end} {there} drop; "
        for chain, end in (("input", "saddr"), ("output", "daddr"))
    )
    chains = "".join(
        f"add chain inet broken {chain} {{ type filter hook {chain} priority -10; }}; " for chain in ("input", "output")
    )
    cluster.run("a1", f"nft 'add table inet broken; {chains}{rules}'")
    read_anew(cluster)


def raised(cluster: Cluster, alert: str, labels: Mapping[str, str]) -> bool:
    """Whether an alert is raised now, with all of the labels and what to do."""
    wanted = {"alertname": alert, **labels}
    return any(wanted.items() <= one.items() and one["remedy"] for one in firing(cluster))


def test_there_is_no_rule_that_is_not_tried_here(cluster: Cluster) -> None:
    rules = re.findall(r"- alert: (\w+)", template("monitoring", "alerts.yml"))
    assert sorted(rules) == sorted([*RAISED, *LATER, *HOSTILE_ALERTS])


@pytest.mark.parametrize("alert", RAISED)
def test_each_fault_raises_its_alert(cluster: Cluster, alert: str) -> None:
    eventually(lambda: raised(cluster, alert, RAISED[alert]), 180, f"{alert} {RAISED[alert]}")


def test_no_other_alert_is_raised_by_any_of_it(cluster: Cluster) -> None:
    assert {one["alertname"] for one in firing(cluster)} == {*RAISED}


def test_an_alert_reports_a_silent_machine_and_a_silent_alertmanager(cluster: Cluster) -> None:
    cluster.run("head", "systemctl stop tailrack-alertmanager")
    cluster.run("a1", "systemctl stop tailrack-node-exporter")
    for alert, labels in LATER.items():
        eventually(lambda alert=alert, labels=labels: raised(cluster, alert, labels), 60, alert)  # type: ignore[misc]


def test_each_is_over_when_its_remedy_was_followed(cluster: Cluster) -> None:
    begin(cluster, "a2", "receiver", RECEIVER)
    cluster.run("head", "systemctl restart tailrack-alertmanager")
    cluster.run("a1", "systemctl start tailrack-node-exporter; nft delete table inet broken")
    cluster.run("head", "scancel -u ada")
    cluster.run("head", "rm /export/shared/home/ada/all /var/lib/slurm/slurmctld/filler; tailrack resume a1", 120)
    cluster.run("head", f"rm {LEDGER}; scancel -n idle")
    cluster.run("head", "rm /var/lib/tailrack/backup-state; systemctl start tailrack-sign")
    for node in ("a1", "a2"):
        cluster.run(node, "systemctl start tailrack-certificate")
    cluster.write("a2", "/usr/local/share/fake-gpus", GPUS)
    cluster.run_as("ada", "head", "sbatch --output=/dev/null -w a2 --wrap 'sleep 600'")
    eventually(lambda: "a2" in cluster.run("head", "squeue -h -t running -o %N"), 60, "a2 has a job")
    read_anew(cluster)
    mended = {**RAISED, **LATER}
    # That is mended by its own measurement (test_monitoring.py).
    del mended["BandwidthBelowFloor"]
    for alert, labels in mended.items():
        eventually(lambda alert=alert, labels=labels: not raised(cluster, alert, labels), 180, f"{alert} is over")  # type: ignore[misc]


def answer(cluster: Cluster, text: str) -> None:
    """Have a1's exporter answer that."""
    cluster.write("a1", "/root/answer", text)
    cluster.run("a1", "gzip -c /root/answer >/root/answer.new && mv /root/answer.new /root/answer.gz")


def test_root_of_a_node_writes_no_alert_and_none_of_another_machine(cluster: Cluster) -> None:
    before = {(one["alertname"], one["instance"]) for one in firing(cluster)}
    received = "cat /root/received"
    answer(cluster, FORGED)
    cluster.run("a1", "systemctl stop tailrack-node-exporter")
    begin(cluster, "a1", "hostile", HOSTILE.replace("ADDRESS", cluster.address("a1")))
    # What is its own is raised, with a name of ours in the place of one that is more than a word.
    wanted = {("DiskNearlyFull", "a1"), ("CertificateNearEnd", "a1")}
    eventually(
        lambda: {(one["alertname"], one["instance"]) for one in firing(cluster)} >= wanted, 120, "its own alerts"
    )
    eventually(lambda: "odd-name-" in cluster.run("a2", received), 120, "the receiver is told")
    # As long as all else takes to be raised.
    rounds = asked(cluster, 'count_over_time(up{instance="a1"}[1h])')["a1"]
    eventually(lambda: asked(cluster, 'count_over_time(up{instance="a1"}[1h])')["a1"] > rounds + 4, 60, "asked again")
    assert {(one["alertname"], one["instance"]) for one in firing(cluster)} - before == wanted
    assert asked(cluster, 'up{job="node"}') == {"head": 1, "a1": 1, "a2": 1}
    for series in ("backup_timestamp_seconds", "slurm_node_out", "share_bytes", "busbw_gb_per_s", "node_idle_seconds"):
        assert "a1" not in asked(cluster, f"tailrack_{series}"), series
    kept = str(api(cluster, "series", 'match[]={instance="a1"}'))
    for shown in (cluster.run("a2", received), str(firing(cluster)), kept):
        assert not re.search("reboot|!channel|evil|curl", shown)


def test_an_alert_reports_a_node_that_floods_prometheus_with_new_series(cluster: Cluster) -> None:
    for turn in range(4):
        scraped = f'node_network_up{{instance="a1", device="t{turn}-1"}}'
        line = r"node_network_up{device=\"t%d-%d\"} 1\n"
        cluster.run(
            "a1",
            f"awk 'BEGIN {{ for (i = 1; i < 19000; i++) printf \"{line}\", {turn}, i }}' | gzip >/root/answer.new && "
            "mv /root/answer.new /root/answer.gz",
        )
        eventually(lambda scraped=scraped: bool(asked(cluster, scraped)), 60, "they are taken")  # type: ignore[misc]
    eventually(lambda: raised(cluster, "MachineFloods", {"instance": "a1"}), 60, "that it floods is told")


def test_an_answer_that_unpacks_to_a_gigabyte_is_refused_and_takes_no_memory(cluster: Cluster) -> None:
    peak = "grep VmHWM /proc/$(systemctl show -P MainPID tailrack-prometheus)/status | tr -dc 0-9"
    before = int(cluster.run("head", peak))
    cluster.run(
        "a1",
        "{ echo '# x'; head -c 1G /dev/zero | tr '\\0' x; } | gzip -1 >/root/answer.new && "
        "mv /root/answer.new /root/answer.gz",
        120,
    )
    eventually(lambda: raised(cluster, "MachineSilent", {"instance": "a1"}), 120, "the node counts as silent")
    targets = str(api(cluster, "targets", "state=active")["activeTargets"])
    assert "body size limit exceeded" in targets
    assert asked(cluster, 'up{job="node"} == 1').keys() == {"head", "a2"}
    assert int(cluster.run("head", peak)) - before < 200 * 1024
