"""What is collected of the machines: a real Prometheus on the head node, real node exporters, switched on and off.

The tests share one cluster of the head node, a1 and a2, and run in the order of this file.
"""

import base64
import json
import re
import time
from functools import partial
from pathlib import Path

import pytest

from tests.dashboards import Asked, every_expression
from tests.faults.test_job_mail import HOOK
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.lab.leaks import LOOKS
from tests.lab.prometheus import api, asked, listening
from tests.lab.sealer import sealer_of

Cluster = ClusterUnderTest
DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"
RULES_TEST = Path(__file__).parents[1] / "fixtures" / "prometheus" / "rules_test.yml"
TOKEN = "hook-token-nobody-may-see"
UNITS = {"head": ("tailrack-prometheus", "tailrack-node-exporter"), "a1": ("tailrack-node-exporter",)}


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One site, with monitoring as it is where nothing but the section is written."""
    made = make_cluster("meter", one_site=True)
    made.config["tailrack:sites"][0]["pools"][0]["count"] = 2
    made.config["tailrack:monitoring"] = {}
    made.up_ok()
    return made


def test_every_machine_is_asked_over_the_tailnet_and_an_unchanged_up_runs_nothing(cluster: Cluster) -> None:
    up = 'up{job="node"}'
    eventually(lambda: asked(cluster, up) == {"head": 1, "a1": 1, "a2": 1}, 120, "all machines answer")
    assert {*asked(cluster, f"count by (site) ({up})", "site")} == {"cloud-a"}
    # The lab's machines mount the share without the kernel, which counts NFS calls elsewhere.
    assert asked(cluster, 'node_filesystem_size_bytes{mountpoint="/shared"}').keys() >= {"a1", "a2"}
    assert listening(cluster, "head", "prometheus") == [f"{cluster.address('head')}:9090"] or sorted(
        listening(cluster, "head", "prometheus")
    ) == sorted([f"{cluster.address('head')}:9090", f"{cluster.address('head')}:9100"])
    assert listening(cluster, "a1", "prometheus") == [f"{cluster.address('a1')}:9100"]
    assert "9090" in cluster.run("a1", "cat /etc/tailrack/firewall.nft")
    cluster.up_ok()
    assert cluster.touched() == set()


def test_users_on_the_clusters_machines_read_no_metrics_without_the_log_in(cluster: Cluster) -> None:
    for node in ("head", "a1"):
        prometheus = f"http://{cluster.address('head')}:9090/api/v1/query?query=up"
        assert cluster.run_as("ada", node, f"curl -s -o /dev/null -w '%{{http_code}}' '{prometheus}'") == "401"
        exporter = f"curl -s -m 3 -o /dev/null -w '%{{http_code}}' http://{cluster.address(node)}:9100/metrics"
        assert cluster.run_as("ada", node, f"{exporter} || :") == "000"
        assert cluster.run(node, exporter) == "200"
    for file in ("login", "password", "web.yml"):
        assert "Permission denied" in cluster.run_as("ada", "head", f"cat /etc/tailrack/prometheus/{file} 2>&1 || :")


def test_slurms_figures_paths_and_the_measurement_are_there_and_each_collector_is_well(cluster: Cluster) -> None:
    well = "tailrack_collector_success"
    counted = f"count by (instance) ({well} == 1)"
    eventually(lambda: asked(cluster, counted) == {"head": 6, "a1": 3, "a2": 3}, 180, "all collectors are well")
    idle = 'tailrack_slurm_nodes{partition="all", state="idle"}'
    eventually(lambda: asked(cluster, idle) == {"head": 3}, 90, "three nodes are idle")
    busbw = asked(cluster, "tailrack_busbw_gb_per_s", "scope")
    assert busbw.keys() == {"cloud-a"}
    assert 0 < busbw["cloud-a"] < 100
    assert asked(cluster, "tailrack_measurement_verdict == 1", "verdict") == {"UNJUDGED": 1}
    assert asked(cluster, "time() - tailrack_measured_timestamp_seconds", "scope")["cloud-a"] < 3600
    # And the node that it was measured with, for as long as they have spoken.
    direct = asked(cluster, 'tailrack_tailnet_direct{instance="a1"}', "peer")
    assert direct in ({"head": 1}, {"head": 1, "a2": 1})
    assert asked(cluster, "tailrack_share_available_bytes / tailrack_share_bytes")["head"] > 0
    assert asked(cluster, "tailrack_gpus") == {}
    days = "(tailrack_certificate_end_timestamp_seconds - time()) / 86400"
    assert {name: round(value) for name, value in asked(cluster, days).items()} == {"head": 90, "a1": 90, "a2": 90}


def test_a_drained_node_and_a_low_bandwidth_raise_alerts_with_a_remedy(cluster: Cluster) -> None:
    cluster.run("head", "scontrol update nodename=a1 state=drain reason=test")
    cluster.config["tailrack:validation"]["floors_gb_per_s"] = {"cloud-a": 1000}
    cluster.up()  # which says so too

    def raised() -> dict[str, str]:
        found = api(cluster, "alerts") or {"alerts": []}
        return {
            f"{one['labels']['alertname']} {one['labels'].get('node', '')}".strip(): one["annotations"]["remedy"]
            for one in found["alerts"]
        }

    wanted = {"NodeOut a1", "BandwidthBelowFloor"}
    eventually(lambda: raised().keys() >= wanted, 240, "both alerts")
    assert "tailrack resume a1" in raised()["NodeOut a1"]
    cluster.run("head", "scontrol update nodename=a1 state=resume")
    cluster.config["tailrack:validation"]["floors_gb_per_s"] = {}
    cluster.up_ok()
    eventually(lambda: not raised().keys() & wanted, 240, "both are over")


# What panels ask for that this cluster cannot have, by name: its machines have no GPU, and its config no backup.
NOT_HERE = re.compile(r"\btailrack_(gpus?|gpu_\w+|slurm_job_gpu\w+|backup_timestamp_seconds)\b")


def test_every_panel_of_the_dashboards_has_data(cluster: Cluster) -> None:
    # Of the last hour, as a dashboard shows it: the floor was in the config when the last test broke the bandwidth.
    left = [one for one in every_expression() if not NOT_HERE.search(one.expression)]
    assert {one.dashboard for one in left} == {"cluster", "jobs"}

    def shown(one: Asked) -> bool:
        end = time.time()
        span = (f"start={end - 3600:.0f}", f"end={end:.0f}", "step=30")
        return bool((api(cluster, "query_range", f"query={one.expression}", *span) or {}).get("result"))

    for one in left:
        eventually(partial(shown, one), 60, f"{one.dashboard}, {one.panel}: data for {one.expression}")


def test_an_alert_reaches_a_webhook_with_its_remedy_and_its_address_stays_secret(cluster: Cluster) -> None:
    _, sealer = sealer_of(cluster)
    # Nobody is there yet.
    cluster.config["tailrack:monitoring"] = {
        "receivers": [{"kind": "webhook", "url": {"secure": sealer.seal(f"http://a2:8099/hook/{TOKEN}")}}]
    }
    cluster.up_ok()
    assert listening(cluster, "head", "prometheus-aler") == ["127.0.0.1:9093"]
    status = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9093/api/v2/status"
    assert cluster.run("head", status).strip() == "401"
    # A quarter of an hour less.
    rules = "/etc/tailrack/prometheus/rules.yml"
    cluster.run("head", f"sed -i 's/for: 15m/for: 0s/' {rules} && systemctl reload tailrack-prometheus")
    cluster.run("head", "scontrol update nodename=a1 state=drain reason=test")
    journal = "journalctl -u tailrack-alertmanager --no-pager -o cat"
    eventually(lambda: "refused" in cluster.run("head", journal), 300, "the receiver does not answer, and that is said")
    program = base64.b64encode(HOOK.encode()).decode()
    cluster.run(
        "a2", f"base64 -d >/root/receiver.py <<<{program}; systemd-run -q --unit=receiver python3 /root/receiver.py"
    )

    def arrived() -> list[str]:
        lines = cluster.run("a2", "cat /root/posted 2>/dev/null || :").splitlines()
        return [line for line in lines if "NodeOut" in line]

    # It waits longer from one attempt to the next.
    eventually(lambda: bool(arrived()), 300, "the alert arrives")
    path, _, body = arrived()[0].partition(" ")
    assert path == f"/hook/{TOKEN}"
    alerts = [alert for alert in json.loads(body)["alerts"] if alert["labels"]["alertname"] == "NodeOut"]
    assert [(alert["labels"]["node"], alert["labels"]["cluster"]) for alert in alerts] == [("a1", "lab")]
    assert "tailrack resume a1" in alerts[0]["annotations"]["remedy"]
    assert asked(cluster, 'up{job="alertmanager"}') == {"head": 1}
    # Where its link leads, there is a page that has it.
    link = json.loads(body)["externalURL"]
    assert "NodeOut" in cluster.run(
        "head", f"curl -fsSL -m 10 -K /etc/tailrack/prometheus/login '{link}/#/alerts?receiver=all'"
    )
    for look in LOOKS:
        said = cluster.attempt("head", look).stdout
        assert len(said) > 100
        assert TOKEN not in said, look
    # What everybody can read, and what there is.
    find = f"grep -rlsF {TOKEN} /etc /home /tmp /usr/local /var/lib/tailrack /var/lib/private /run || :"
    assert cluster.run_as("ada", "head", find).strip() == ""
    assert "/etc/tailrack/alertmanager/receiver-0" in cluster.run("head", find).splitlines()
    cluster.up_ok()
    assert cluster.touched() == set()
    cluster.run("head", "scontrol update nodename=a1 state=resume")
    cluster.run("a2", "systemctl stop receiver; rm -f /root/receiver.py /root/posted")
    cluster.config["tailrack:monitoring"] = {}
    cluster.up_ok()
    assert listening(cluster, "head", "prometheus-aler") == []
    assert cluster.attempt("head", "test -e /etc/tailrack/alertmanager").returncode == 1
    assert "alerting" not in cluster.run("head", "cat /etc/tailrack/prometheus/prometheus.yml")


def test_this_promtool_release_shows_that_the_rules_raise_their_alerts(cluster: Cluster) -> None:
    text = base64.b64encode(RULES_TEST.read_bytes()).decode()
    cluster.run(
        "head",
        "rm -rf /tmp/rules && mkdir /tmp/rules && cd /tmp/rules && cp /etc/tailrack/prometheus/rules.yml . && "
        f"base64 -d >rules_test.yml <<<{text} && promtool test rules rules_test.yml && rm -rf /tmp/rules",
    )


def test_prometheus_limits_its_data_and_keeps_it_after_a_kill(cluster: Cluster) -> None:
    flags = api(cluster, "status/flags")
    assert (flags["storage.tsdb.retention.time"], flags["storage.tsdb.retention.size"]) == ("30d", "5GiB")
    assert flags["web.enable-admin-api"] == flags["web.enable-lifecycle"] == "false"
    cluster.run("head", "systemctl kill -s KILL tailrack-prometheus")
    eventually(lambda: asked(cluster, 'max_over_time(up{job="node"}[10m])').keys() >= {"a1", "a2"}, 60, "it is back")


# systemd's place for what is nobody's account's; a link leads to it.
DATA = "/var/lib/private/tailrack-prometheus"


def refusal(cluster: Cluster) -> str:
    """What an `up` says of a Prometheus that does not come up, and of nothing else."""
    summary = cluster.up()
    assert [failure.urn.rpartition("::")[2] for failure in summary.failures] == ["head-services"]
    assert cluster.run_as("ada", "head", "srun -n1 -w a1 hostname").strip() == "a1"
    return " ".join(failure.message for failure in summary.failures)


def test_prometheus_keeps_earlier_data_after_a_crash_within_a_line(cluster: Cluster) -> None:
    cluster.run(
        "head",
        f"systemctl kill -s KILL tailrack-prometheus; cd {DATA}/wal && last=$(ls [0-9]* | tail -n 1) && "
        'truncate -s $(($(stat -c %s "$last") * 3 / 4)) "$last" && head -c 5000 /dev/urandom >>"$last"',
    )
    eventually(lambda: asked(cluster, 'max_over_time(up{job="node"}[30m])').keys() >= {"a1", "a2"}, 90, "it is back")
    eventually(lambda: asked(cluster, 'up{job="node"}').keys() >= {"a1", "a2"}, 90, "and collects")


def test_a_damaged_block_is_said_and_without_it_the_others_are_there(cluster: Cluster) -> None:
    # Of four hours, which are two blocks and more.
    lines = [f"kept_total {number} {time.time() - 86400 + 240 * number:.0f}" for number in range(60)]
    text = "\n".join([*lines, "# EOF", ""])
    cluster.run(
        "head",
        f"systemctl stop tailrack-prometheus && cd {DATA} && cat >/root/old.txt <<'END'\n{text}END\n"
        "promtool tsdb create-blocks-from openmetrics /root/old.txt . && rm /root/old.txt && "
        "for block in 01*; do truncate -s 100 $block/index; break; done",
    )
    block = cluster.run("head", f"cd {DATA} && ls -d 01* | head -n 1").strip()
    cluster.config["tailrack:monitoring"] = {"retention_days": 29}
    said = refusal(cluster)
    assert "tailrack-prometheus does not answer" in said
    assert "opening storage failed: " in said, said
    # As docs/monitoring.md says.
    (remedy,) = re.findall(r"### Damaged files.*?```bash\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    cluster.run("head", remedy)
    assert cluster.run("head", f"cd {DATA}/../damaged && ls").split() == [block]
    eventually(lambda: asked(cluster, 'max_over_time(up{job="node"}[30m])').keys() >= {"a1", "a2"}, 90, "it is back")
    kept = "count(count_over_time(kept_total[2d]))"
    eventually(lambda: asked(cluster, kept) == {"": 1}, 30, "what was in the other block is there")
    cluster.up_ok()
    cluster.run("head", f"rm -r {DATA}/../damaged")


def test_a_disk_that_is_full_is_said_and_with_room_on_it_prometheus_comes_back_by_itself(cluster: Cluster) -> None:
    cluster.run(
        "head",
        f"systemctl stop tailrack-prometheus && mount -t tmpfs -o size=4m,mode=0700 tmpfs {DATA} && "
        f"! cat /dev/zero 2>/dev/null >{DATA}/filled",
    )
    cluster.config["tailrack:monitoring"] = {"retention_days": 28}
    said = refusal(cluster)
    assert f"{DATA} is on a full disk" in said, said
    cluster.run("head", f"rm {DATA}/filled; mount -o remount,size=400m {DATA}")
    eventually(lambda: asked(cluster, 'up{job="node"}').keys() >= {"a1", "a2"}, 90, "it collects again")
    cluster.run("head", f"systemctl stop tailrack-prometheus && umount {DATA} && systemctl start tailrack-prometheus")
    cluster.config["tailrack:monitoring"] = {}
    cluster.up_ok()


def test_a_port_that_somebody_else_has_is_said_with_his_name_and_holds_up_no_job(cluster: Cluster) -> None:
    cluster.run("head", "systemd-run -q --unit=other python3 -m http.server 9191 --bind 0.0.0.0")
    eventually(lambda: bool(listening(cluster, "head", "python3")), 30, "the other program listens")
    cluster.config["tailrack:monitoring"] = {"port": 9191}
    summary = cluster.up()
    said = "\n".join(failure.message for failure in summary.failures)
    assert "port 9191 is in use on head (python3)" in said
    assert "set another port in tailrack:monitoring.port" in said
    assert [failure.urn.rpartition("::")[2] for failure in summary.failures] == ["head-services"]
    assert cluster.run_as("ada", "head", "srun -n1 -w a1 hostname").strip() == "a1"
    cluster.run("head", "systemctl stop other")
    cluster.up_ok()
    eventually(lambda: api(cluster, "status/flags", port=9191) is not None, 30, "it answers at the other port")
    cluster.config["tailrack:monitoring"] = {}
    cluster.up_ok()


def test_prometheus_stops_scraping_a_removed_node(cluster: Cluster) -> None:
    cluster.config["tailrack:sites"][0]["pools"][0]["count"] = 1
    cluster.up_ok()
    assert not cluster.node("head").file("/var/lib/tailrack/monitoring/targets/a2.json").exists
    # If Prometheus restarted and a2 left before the first scrape, `up` alone has the older value for five minutes.
    eventually(lambda: asked(cluster, 'last_over_time(up{job="node"}[1m])').keys() == {"head", "a1"}, 120, "a2 is gone")


def test_monitoring_stops_when_switched_off_and_keeps_its_data(cluster: Cluster) -> None:
    section = cluster.config.pop("tailrack:monitoring")
    cluster.up_ok()
    for node, units in UNITS.items():
        assert listening(cluster, node, "prometheus") == []
        for unit in (*units, "prometheus", "prometheus-node-exporter"):
            assert cluster.attempt(node, f"systemctl is-enabled {unit}").stdout.strip() != "enabled", (node, unit)
    assert "9090" not in cluster.run("a1", "cat /etc/tailrack/firewall.nft")
    cluster.config["tailrack:monitoring"] = section
    cluster.up_ok()
    eventually(lambda: "a2" in asked(cluster, 'max_over_time(up{job="node"}[1h])'), 90, "what was collected is there")
