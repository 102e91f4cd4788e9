"""Reports about jobs: real jobs, a real service, an SMTP server and a webhook on another machine.

The tests share one cluster and run in the order of this file.
"""

import base64
import json
from email import message_from_string
from email.message import Message
from email.policy import default
from pathlib import Path

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.leaks import LOOKS
from tests.lab.sealer import sealer_of
from tests.lab.test_why import submit

Cluster = ClusterUnderTest
TOKEN = "hook-token-nobody-may-see"
SPOOL, STATE = "/var/spool/tailrack-job-reports", "/var/lib/tailrack-job-reports"
MAIL_SERVER = (Path(__file__).parent / "mail_server.py").read_text(encoding="utf-8")
HOOK = """
import http.server

class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open("/root/posted", "a") as file:
            file.write(f"{self.path} {body.strip()}\\n")
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("0.0.0.0", 8099), Hook).serve_forever()
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One site. No one answers at the mail server's port yet."""
    made = make_cluster("mail", one_site=True)
    own_machine(made.lab, "head", site="cloud-a")
    made.config["tailrack:sites"][0]["pools"][0]["count"] = 1
    _, sealer = sealer_of(made)
    made.config["tailrack:job_reports"] = {
        "mail": {"sender": "cluster@example.org", "smarthost": "a1:2525", "encrypted": False},
        "channels": [
            {"name": "vision", "kind": "webhook", "url": {"secure": sealer.seal(f"http://a1:8099/hook/{TOKEN}")}}
        ],
    }
    made.config["tailrack:users"][0]["notify"] = ["vision"]
    made.up_ok()
    return made


def start(cluster: Cluster, name: str, program: str, words: str = "") -> None:
    """Run a program on a1."""
    text = base64.b64encode(program.encode()).decode()
    cluster.run("a1", f"base64 -d >/root/{name}.py <<<{text}")
    cluster.run("a1", f"systemd-run -q --unit={name} python3 /root/{name}.py {words}")


def mails(cluster: Cluster, word: str) -> list[tuple[Message, str]]:
    """Return the mails with a word in their subject, and the text of each."""
    lines = cluster.run("a1", "cat /root/mails 2>/dev/null || :").splitlines()
    parsed = [message_from_string(json.loads(line)["text"], policy=default) for line in lines]
    return [(mail, mail.get_content()) for mail in parsed if word in str(mail["Subject"])]


def journal(cluster: Cluster) -> str:
    return cluster.run("head", "journalctl -u tailrack-job-reports -o cat --no-pager")


def test_a_report_waits_for_a_silent_mail_server_and_a_restart_and_arrives_once(cluster: Cluster) -> None:
    job = submit(cluster, "--mail-type=END,FAIL --mail-user=ada@example.org", "exit 3")
    eventually(lambda: "cannot send report" in journal(cluster), 60, "the first try")
    assert cluster.run("head", f"ls {SPOOL}") == ""
    # The measurement ran as ada.
    logged = cluster.run("head", "journalctl -t tailrack-job-reports -o cat --no-pager || :")
    assert "no report about job" not in logged
    cluster.run("head", "systemctl restart tailrack-job-reports")
    start(cluster, "mailserver", MAIL_SERVER, "2525 /root/mails")
    eventually(lambda: bool(mails(cluster, f"job {job} ")), 120, "the mail arrives")
    eventually(lambda: cluster.run("head", f"ls {STATE}") == "", 30, "nothing waits")
    ((mail, text),) = mails(cluster, f"job {job} ")
    assert mail["Subject"] == f"[lab] job {job} (wrap) failed"
    assert (mail["From"], mail["To"]) == ("cluster@example.org", "ada@example.org")
    assert f"job {job} (wrap) of ada: failed" in text
    assert "Its script ended with exit status 3." in text
    assert "Run time: 0:00:0" in text


def test_a_job_that_is_killed_and_an_array_name_their_causes(cluster: Cluster) -> None:
    words = "--mail-type=END,FAIL --mail-user=ada@example.org"
    killed = submit(cluster, words, "kill -9 $$")
    array = submit(cluster, f"{words} --array=0-2", "exit $((SLURM_ARRAY_TASK_ID == 1))")
    eventually(lambda: bool(mails(cluster, f"job {killed} ")), 60, "the mail about the killed job")
    assert "SIGKILL" in mails(cluster, f"job {killed} ")[0][1] or "killed" in mails(cluster, f"job {killed} ")[0][1]
    eventually(lambda: bool(mails(cluster, f"array {array} ")), 60, "the mail about the array")
    ((mail, text),) = mails(cluster, f"array {array} ")
    assert mail["Subject"] == f"[lab] array {array} (wrap): 2 completed, 1 failed"
    assert f"job {array}_1 (wrap) of ada: failed" in text
    assert "exit status 1" in text


def test_a_jobs_name_adds_no_header_and_another_users_name_reaches_no_channel(cluster: Cluster) -> None:
    name = "$'x\\nBcc: eve@example.org'"
    job = submit(cluster, f"--mail-type=END --mail-user=ada@example.org,root --job-name={name}", "true")
    eventually(lambda: bool(mails(cluster, f"job {job} ")), 60, "the mail arrives")
    ((mail, text),) = mails(cluster, f"job {job} ")
    assert mail["Bcc"] is None
    assert "It completed successfully." in text
    assert "eve" not in cluster.run("a1", "cat /root/mails").partition('"text"')[0]


def test_a_users_channel_gets_reports_without_mail_type_and_no_one_sees_its_address(cluster: Cluster) -> None:
    start(cluster, "hook", HOOK)
    job = submit(cluster, "", "exit 4")
    eventually(lambda: f"job {job} " in cluster.run("a1", "cat /root/posted 2>/dev/null || :"), 120, "it is posted")
    path, _, body = cluster.run("a1", "cat /root/posted").splitlines()[0].partition(" ")
    report = json.loads(body)
    assert cluster.run("a1", "wc -l </root/posted").strip() == "1"
    assert path == f"/hook/{TOKEN}"
    assert report["title"] == f"job {job} (wrap) failed"
    assert "exit status 4" in report["text"]
    assert mails(cluster, f"job {job} ") == []
    for look in LOOKS:
        assert TOKEN not in cluster.attempt("head", look).stdout, look
    for folder in (SPOOL, STATE, "/etc/tailrack/job-reports"):
        assert cluster.attempt("head", f"runuser -u ada -- ls {folder}").returncode != 0, folder
    state = cluster.run("head", f"stat -c '%U:%G %a' {SPOOL}; systemctl show -P User tailrack-job-reports").split("\n")
    assert state[:2] == ["slurm:tailrack-reports 2770", "tailrack-reports"]


def test_an_unchanged_up_runs_nothing_and_without_the_section_the_service_is_gone(cluster: Cluster) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()
    del cluster.config["tailrack:job_reports"]
    del cluster.config["tailrack:users"][0]["notify"]
    cluster.up_ok()
    assert "/usr/local/sbin/tailrack-mail" in cluster.run("head", "scontrol show config | grep MailProg")
    assert cluster.attempt("head", "systemctl cat tailrack-job-reports").returncode != 0
    assert cluster.attempt("head", "ls -d /etc/tailrack/job-reports").returncode != 0
