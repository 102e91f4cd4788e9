"""A monthly budget that is overstepped: its receivers get one message each time, and new jobs wait.

Machines that have left play the costs, as lines of the head node's ledger. The tests run in the order of this file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually, own_machine
from tests.lab.sealer import sealer_of

Cluster = ClusterUnderTest
pytestmark = pytest.mark.proof
HOOK = """
import http.server

class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open("/root/posted", "a") as file:
            file.write(f"{body.strip()}\\n")
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("0.0.0.0", 8099), Hook).serve_forever()
"""
REFUSED = "this month's budget of the cluster is spent"
LEDGER = "/var/lib/tailrack/costs/gone"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], Cluster]) -> Cluster:
    """The head node and a1, with a budget of 2,000 dollars."""
    made = make_cluster("budget")
    own_machine(made.lab, "head", site="cloud-a")
    # As systemd does on a machine; Docker's root hides what it mounts for a unit, its credentials among it.
    made.run("head", "mount --make-rshared /")
    made.config["tailrack:sites"].pop()
    made.config["tailrack:sites"][0]["pools"][0] |= {"count": 1, "price_per_hour": 1.5}
    made.config["tailrack:validation"]["floors_gb_per_s"] = {}
    _, sealer = sealer_of(made)
    hook = {"name": "ops", "kind": "webhook", "url": {"secure": sealer.seal("http://a1:8099/")}}
    made.config["tailrack:job_reports"] = {"channels": [hook]}
    made.config["tailrack:accounting"] = {"qos": [{"name": "urgent"}]}
    made.config["tailrack:users"][0]["qos"] = ["urgent"]
    made.config["tailrack:budget"] = {
        "per_month": 2000,
        "hold": True,
        "exempt_qos": ["urgent"],
        "notify": ["ops"],
    }
    made.up_ok()
    made.run("a1", f"base64 -d >/root/hook.py <<<{base64.b64encode(HOOK.encode()).decode()}")
    made.run("a1", "systemd-run -q --unit=hook python3 /root/hook.py")
    return made


def spend(cluster: Cluster, amount: int) -> None:
    """Let a machine that has left have cost an amount this month, and let the timer's unit look."""
    # For one second until now; the price is per hour.
    cluster.run("head", f'now=$(date +%s); echo "$((now - 1)) $now {amount * 3600} USD" >{LEDGER}')
    cluster.run("head", "systemctl start tailrack-budget", 60)


def submit(cluster: Cluster, words: str = "") -> str:
    """Submit a job as ada, and return what sbatch prints."""
    line = f"cd; sbatch --parsable --output=/dev/null -n1 -c1 --mem=20M {words} --wrap 'sleep 900' 2>&1"
    return cluster.run_as("ada", "head", line).strip()


def cancel(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.run("head", f"scancel -n {name}")


def state(cluster: Cluster, job: str) -> str:
    return cluster.run("head", f"squeue -h -j {job} -o '%T %r'").strip()


def why(cluster: Cluster, job: str) -> str:
    return " ".join(cluster.run_as("ada", "head", f"tailrack why {job}").split())


def posted(cluster: Cluster) -> list[dict[str, str]]:
    lines = cluster.run("a1", "cat /root/posted 2>/dev/null || :").splitlines()
    return [message for line in lines if "budget" in (message := json.loads(line))["title"]]


def test_at_a_share_of_the_budget_its_receivers_are_told_once_and_jobs_start(cluster: Cluster) -> None:
    assert cluster.run("head", "systemctl is-active tailrack-budget.timer").strip() == "active"
    assert "of 2,000.00 USD spent" in cluster.run_as("ada", "head", "tailrack costs")
    spend(cluster, 1700)
    eventually(lambda: bool(posted(cluster)), 60, "the message arrives")
    cluster.run("head", "systemctl start tailrack-budget", 60)
    (message,) = posted(cluster)
    assert message["title"] == "80 % of this month's budget is spent"
    assert "Budget: 1,700." in message["text"]
    assert "(85 %)" in message["text"]
    job = submit(cluster, "--job-name=before")
    assert job.isdecimal(), job
    eventually(lambda: state(cluster, job).startswith("RUNNING"), 60, "the job runs")


def test_when_it_is_spent_new_jobs_wait_and_say_why_and_others_go_on(cluster: Cluster) -> None:
    waiting = submit(cluster, "--begin=now+1hour --job-name=later")
    by_user = submit(cluster, "--hold --job-name=own")
    spend(cluster, 2100)
    eventually(lambda: len(posted(cluster)) == 2, 60, "the second message arrives")
    assert posted(cluster)[1]["title"] == "this month's budget is spent"
    assert "New jobs wait until the month ends" in posted(cluster)[1]["text"]
    assert state(cluster, waiting) == "PENDING JobHeldAdmin"
    assert cluster.run("head", "squeue -h -n before -o %T").strip() == "RUNNING"
    printed = submit(cluster, "--job-name=new")
    assert REFUSED in printed, printed
    new = printed.splitlines()[-1]
    assert state(cluster, new) == "PENDING JobHeldUser"
    explained = why(cluster, new)
    assert "This month's budget of the cluster is spent, and new jobs wait." in explained, explained
    assert "administrator raises tailrack:budget.per_month" in explained
    assert "budget of the cluster is spent" in cluster.run("head", "sll --once")
    for command in (
        f"scontrol release {new}",
        f"scontrol release {by_user}",
        f"scontrol update jobid={new} priority=9",
    ):
        refused = cluster.attempt("head", f"runuser -u ada -- {command}")
        assert refused.returncode != 0, command
    assert state(cluster, new) == "PENDING JobHeldUser"
    assert state(cluster, by_user) == "PENDING JobHeldUser"
    for command in ("tailrack costs", "tailrack usage"):
        assert "of 2,000.00 USD spent" in cluster.run("head", command), command
        assert "New jobs wait until" in cluster.run("head", command), command


def test_a_named_qos_an_administrators_release_and_measurements_pass(cluster: Cluster) -> None:
    # As `up` submits them, as the first user.
    folder = "~/.tailrack/validation/test"
    measures = f"mkdir -p {folder}; cd {folder}; sbatch --parsable -o /dev/null -n1 --mem=20M -J measures --wrap true"
    assert cluster.run_as("ada", "head", f"{measures} 2>&1").strip().isdecimal()
    eventually(lambda: cluster.run("head", "squeue -h -n measures") == "", 60, "the measurement ran")
    urgent = submit(cluster, "--qos=urgent --job-name=urgent")
    assert urgent.isdecimal(), urgent
    eventually(lambda: state(cluster, urgent).startswith("RUNNING"), 60, "the urgent job runs")
    released = submit(cluster, "--begin=now+1hour --job-name=released").splitlines()[-1]
    cluster.run("head", f"scontrol release {released}")
    cluster.run("head", "systemctl start tailrack-budget", 60)
    assert "JobHeld" not in state(cluster, released)
    cancel(cluster, "released", "urgent", "before", "later")


def test_after_a_restart_of_the_head_nodes_daemons_nobody_is_told_again_and_jobs_still_wait(cluster: Cluster) -> None:
    cluster.run("head", "systemctl restart slurmctld tailrack-job-reports", 90)
    eventually(lambda: cluster.attempt("head", "squeue -h -n new").returncode == 0, 60, "slurmctld answers")
    cluster.run("head", "systemctl start tailrack-budget", 60)
    assert cluster.run("head", "squeue -h -n new -o %T").strip() == "PENDING"
    assert cluster.run("head", "squeue -h -n new -o %r").strip() == "JobHeldUser"
    assert REFUSED in submit(cluster, "--job-name=second")
    assert len(posted(cluster)) == 2


def test_a_raised_budget_starts_the_jobs_at_up(cluster: Cluster) -> None:
    cluster.config["tailrack:budget"]["per_month"] = 5000
    cluster.up_ok()
    for name in ("new", "second"):
        eventually(lambda name=name: "RUNNING" in cluster.run("head", f"squeue -h -n {name} -o %T"), 60, name)  # type: ignore[misc]
    assert cluster.run("head", "squeue -h -n own -o %r").strip() == "JobHeldUser"
    assert "tailrack budget" not in cluster.run("head", "squeue --json")
    assert len(posted(cluster)) == 2
    cancel(cluster, "new", "second", "own")


def test_a_budget_that_leaves_the_config_releases_its_jobs_and_leaves_nothing(cluster: Cluster) -> None:
    spend(cluster, 5001)
    eventually(lambda: len(posted(cluster)) == 3, 60, "the budget of another amount is told")
    last = submit(cluster, "--job-name=last").splitlines()[-1]
    assert state(cluster, last) == "PENDING JobHeldUser"
    del cluster.config["tailrack:budget"]
    cluster.up_ok()
    eventually(lambda: state(cluster, last).startswith("RUNNING"), 60, "the job starts")
    assert (
        cluster.run(
            "head", "find /etc /usr/local /var/lib/tailrack -name program -prune -o -name '*budget*' -print"
        ).strip()
        == ""
    )
    assert "Budget" not in cluster.run("head", "tailrack costs")
    cluster.run("head", f"scancel {last}; rm {LEDGER}")
    cluster.up_ok()
    assert cluster.touched() == set()
