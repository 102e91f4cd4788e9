"""Grafana on the head node: said where it cannot be had, and in its place where the config names one that can.

The tests share one cluster of the head node and a1, and run in the order of this file. No distribution has Grafana: a
real one is run where TAILRACK_GRAFANA is the path of its archive for Linux; without it a stand-in shows the unit, its
secrets and its address.
"""

import json
import os
import shlex
import subprocess

import pytest

from tests.dashboards import dashboards
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually
from tests.lab.prometheus import api

Cluster = ClusterUnderTest
REAL = os.environ.get("TAILRACK_GRAFANA")
# A fake Grafana: it answers who logs in, with the password that it is told of, and keeps what `cli` is told.
FAKE_GRAFANA = """#!/usr/bin/python3
import base64, configparser, http.server, os, sys

if sys.argv[1] == "--version":
    sys.exit(print("a fake"))
if sys.argv[1] == "cli":
    sys.exit(open("/var/lib/tailrack-grafana/told", "w").write(sys.stdin.read()) and 0)
config = configparser.RawConfigParser()
config.read("/etc/tailrack/grafana/grafana.ini")
secret = config["security"]["admin_password"].removeprefix("$__file{").removesuffix("}")
login = "Basic " + base64.b64encode(b"admin:" + open(secret, "rb").read().strip()).decode()
os.listdir(config["paths"]["provisioning"]), open(config["dashboards"]["default_home_dashboard_path"]).read()
open("/var/lib/tailrack-grafana/grafana.db", "w").write("made by people")

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/health" or self.headers["Authorization"] == login else 401)
        self.end_headers()

http.server.HTTPServer((config["server"]["http_addr"], int(config["server"]["http_port"])), Answer).serve_forever()
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One site, with a Grafana whose address nobody answers at."""
    made = make_cluster("panels", one_site=True)
    made.config["tailrack:monitoring"] = {
        "grafana": {"source": "http://127.0.0.1:9/grafana.tar.gz", "sha256": "0" * 64}
    }
    return made


def test_a_failed_download_of_grafana_is_reported_and_breaks_nothing_else(cluster: Cluster) -> None:
    summary = cluster.up()
    (failure,) = summary.failures
    assert "http://127.0.0.1:9/grafana.tar.gz cannot be fetched from here" in failure.message
    assert "tailrack:monitoring.grafana.source" in failure.message
    assert cluster.run_as("ada", "head", "srun -w a1 hostname").strip() == "a1"
    assert cluster.deployment().outputs()["busbw_gb_per_s"]
    assert api(cluster, "status/buildinfo")


def test_grafana_accepts_the_stacks_password_in_the_tailnet(cluster: Cluster) -> None:
    there = "/root/grafana.tar.gz"
    if REAL:
        subprocess.run(["docker", "cp", REAL, f"{cluster.container('head')}:{there}"], check=True)
    else:
        made = "mkdir -p grafana-0/bin && install -m 0755 /dev/stdin grafana-0/bin/grafana"
        lay = f"cd /root && {made} <<'FAKE'\n{FAKE_GRAFANA}\nFAKE\ntar -czf {there} grafana-0"
        cluster.run("head", lay)
    digest = cluster.run("head", f"sha256sum <{there}").split()[0]
    cluster.config["tailrack:monitoring"] = {"grafana": {"source": there, "sha256": digest}}
    cluster.up_ok()
    assert cluster.deployment().outputs()["grafana_password"] == "[secret]"
    at = cluster.run("head", "tailscale ip -4").strip()
    listening = [line.split()[3] for line in cluster.run("head", "ss -Hltn").splitlines() if ":3000" in line]
    assert listening == [f"{at}:3000"]
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' http://{at}:3000/api/search"
    assert cluster.run("a1", asked).strip() == "401"
    password = cluster.run("head", "cat /etc/tailrack/grafana/password").strip()
    line = f'user = "admin:{password}"'
    login = f"-K - <<<{shlex.quote(line)}"
    assert cluster.run("a1", f"{asked} {login}").strip() == "200"
    assert cluster.attempt("head", as_user("ada", "cat /etc/tailrack/grafana/password")).returncode != 0
    assert password not in cluster.run("head", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' ' '")
    if REAL:
        found = json.loads(cluster.run("a1", f"curl -fs 'http://{at}:3000/api/search?type=dash-db' {login}"))
        assert {one["uid"] for one in found} == {f"tailrack-{name}" for name in dashboards()}
        (source,) = json.loads(cluster.run("a1", f"curl -fs http://{at}:3000/api/datasources {login}"))
        health = f"curl -fs http://{at}:3000/api/datasources/uid/{source['uid']}/health {login}"
        eventually(lambda: '"OK"' in cluster.attempt("a1", health).stdout, 60, "Prometheus answers Grafana")
    cluster.up_ok()
    assert cluster.touched() == set()


def test_each_start_of_grafana_sets_the_stacks_password(cluster: Cluster) -> None:
    cluster.run("head", "systemctl restart tailrack-grafana")
    if REAL:
        pytest.skip("the stand-in shows what it was told; that a real one takes it, the test before")
    cluster.run("head", "cmp /var/lib/tailrack-grafana/told /etc/tailrack/grafana/password")


def test_a_removed_section_removes_grafana_but_keeps_the_users_dashboards(cluster: Cluster) -> None:
    cluster.config["tailrack:monitoring"] = {}
    cluster.up_ok()
    gone = "/etc/tailrack/grafana /usr/local/lib/tailrack/grafana /etc/systemd/system/tailrack-grafana.service"
    assert not cluster.attempt("head", f"ls -d {gone}").stdout
    assert cluster.run("head", "ls /var/lib/private/tailrack-grafana").split()
    assert ":3000" not in cluster.run("head", "ss -Hltn")
