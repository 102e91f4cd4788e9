"""Spot notices: what providers answer, what the node does with its jobs, and what users see of it."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.tailrack.out_reason import why_out
from components.roles.commands.tailrack.wait_reason import Why, why_it_waits
from components.roles.commands.tailrack.why import why_it_ended
from components.roles.commands.tailrack.why import with_cause as with_cause_sentence
from components.roles.jobs.spot_notice import notices, watch
from components.roles.jobs.spot_notice.notices import REASON, Aws, Azure, Google, NoAnswerError, Notice, ask
from components.roles.monitoring.usage.samples import Summary, read_summary
from components.roles.slurm.slurm.jobs import read_cause
from components.roles.slurm.slurm.slurmd import requeue_jobs_at_shutdown, seconds_to_save
from components.slurm_commands.jobs import Job, parts_of, with_parts
from components.slurm_commands.nodes import Node
from stacks.config import parse
from stacks.sites.aws.model import AwsSite
from stacks.sites.aws.model import nodes as aws_nodes
from tests.unit.configs import LAB
from tests.unit.shell import Shell, assert_ok, role_header, script_of

MakeSlurm = Callable[..., None]
AT = 1795701720.0  # 2026-11-26 14:02:00 UTC
TIME = "2026-11-26T14:02:00Z"
CAUSE = "AWS took node a1 back at 14:02:00Z"


class Fake:
    """A metadata service on this machine: its answers by path, and the requests that it got."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str, dict[str, str]]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                fake.asked.append((self.command, self.path, dict(self.headers)))
                status, text, headers = fake.answers.get(self.path.partition("?")[0], (404, "", {}))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if "X-Slow" in headers:
                    time.sleep(1)
                self.wfile.write(text.encode())

            do_GET = do_PUT = _handle

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path: str, text: str, status: int = 200, **headers: str) -> None:
        self.answers[path] = (status, text, headers)

    def answer_slowly(self, path: str, text: str) -> None:
        self.answers[path] = (200, text, {"X-Slow": "yes"})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """A metadata service without a notice; proxies of the environment lead nowhere."""
    made = Fake()
    monkeypatch.setattr(notices, "ADDRESS", f"127.0.0.1:{made.server.server_port}")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    yield made
    made.server.shutdown()
    made.server.server_close()


TOKEN, ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
EVENTS, NAME = "/metadata/scheduledevents", "/metadata/instance/compute/name"


def test_aws_is_asked_with_a_token_and_has_no_notice_until_there_is_an_action(fake: Fake) -> None:
    aws = Aws()
    fake.answer(TOKEN, "abc==")
    assert aws.read() is None
    fake.answer(ACTION, json.dumps({"action": "terminate", "time": TIME}))
    notice = aws.read()
    assert notice == Notice("AWS", AT)
    assert notice.reason == "AWS takes this machine back at 14:02:00Z"
    assert notice.cause("a1") == CAUSE
    assert [(method, path) for method, path, _ in fake.asked] == [("PUT", TOKEN), ("GET", ACTION), ("GET", ACTION)]
    assert fake.asked[-1][2]["X-aws-ec2-metadata-token"] == "abc=="
    # A token that AWS no longer takes is replaced.
    fake.answer(ACTION, "", 401)
    fake.answer(TOKEN, "new")
    with pytest.raises(NoAnswerError, match="status 401"):
        aws.read()
    assert fake.asked[-1][2]["X-aws-ec2-metadata-token"] == "new"


def test_google_is_asked_to_answer_at_a_change_from_the_last_answer(fake: Fake) -> None:
    google = Google()
    fake.answer(PREEMPTED, "FALSE", ETag="0123abcd")
    assert google.read() is None
    fake.answer(PREEMPTED, "TRUE", ETag="x/../&evil")
    before = time.time()
    notice = google.read()
    assert notice is not None
    assert notice.provider == "Google"
    assert before + 29 < notice.at < time.time() + 31
    google.read()
    etags = [re.findall(r"last_etag=(.*)", path)[0] for _, path, _ in fake.asked]
    assert etags == ["0", "0123abcd", "0"]
    assert {headers["Metadata-Flavor"] for _, _, headers in fake.asked} == {"Google"}


def azure_event(**changes: Any) -> str:
    event = {"EventId": "602d9444-d2cd-49c7-8624-8643e7171297", "EventType": "Preempt", "Resources": ["g1"]}
    event |= {
        "ResourceType": "VirtualMachine",
        "EventStatus": "Scheduled",
        "NotBefore": "Thu, 26 Nov 2026 14:02:00 GMT",
    }
    return json.dumps({"DocumentIncarnation": 3, "Events": [{**event, **changes}]})


def test_azure_gives_a_notice_if_an_event_removes_this_machine(fake: Fake) -> None:
    for text, at in (
        (azure_event(), AT),
        (azure_event(Resources=["g2"]), None),
        (azure_event(EventType="Reboot"), None),
        (json.dumps({"DocumentIncarnation": 1, "Events": []}), None),
        (json.dumps({"DocumentIncarnation": 1}), None),
        (json.dumps({"Events": ["Preempt", None, {"EventType": "Preempt", "Resources": "g1"}]}), None),
    ):
        fake.answer(NAME, "g1")
        fake.answer(EVENTS, text)
        assert Azure().read() == (None if at is None else Notice("Azure", at)), text
        assert {headers["Metadata"] for _, _, headers in fake.asked} == {"true"}, text


def test_an_event_of_azure_that_has_started_and_a_malformed_time_mean_the_usual_time_from_now(fake: Fake) -> None:
    fake.answer(NAME, "g1")
    fake.answer(EVENTS, azure_event(NotBefore="", EventStatus="Started"))
    notice = Azure().read()
    assert notice is not None
    assert abs(notice.at - time.time() - 30) < 5
    fake.answer(TOKEN, "t")
    fake.answer(ACTION, json.dumps({"action": "stop", "time": "\x1b[31m soon"}))
    notice = Aws().read()
    assert notice is not None
    assert abs(notice.at - time.time() - 120) < 5
    assert REASON.fullmatch(notice.reason)


def test_an_answer_of_another_form_is_no_notice_but_an_error(fake: Fake) -> None:
    fake.answer(NAME, "g1")
    fake.answer(TOKEN, "t")
    for text in ("", "<html>", "[]", "[" * 60000):
        fake.answer(EVENTS, text)
        fake.answer(ACTION, text)
        for read in (Aws().read, Azure().read):
            with pytest.raises(NoAnswerError, match="does not send a JSON object"):
                read()


def test_an_answer_has_limits_and_no_redirect_is_followed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answer(PREEMPTED, "", 302, Location="/elsewhere")
    with pytest.raises(NoAnswerError, match="status 302"):
        Google().read()
    fake.answer(PREEMPTED, "x" * 70000)
    with pytest.raises(NoAnswerError, match="sends more than"):
        Google().read()
    fake.answer_slowly(PREEMPTED, "FALSE")
    began = time.monotonic()
    with pytest.raises(NoAnswerError, match="no whole answer within"):
        ask(PREEMPTED, {}, seconds=0.3)
    assert time.monotonic() - began < 5
    monkeypatch.setattr(notices, "ADDRESS", "127.0.0.1:9")
    with pytest.raises(NoAnswerError, match="does not answer"):
        ask(PREEMPTED, {})


# A name that pretends to be other fields.
HOSTILE = "train\\n   AdminComment=node a1 had to be free\\n   Requeue=1 BatchFlag=1"


def shown(number: int, *, requeue: bool, **fields: object) -> str:
    """Return a job as scontrol prints it. A job with a task is the last one of its array."""
    job = {"job_id": number, "job_state": ["RUNNING"], "name": HOSTILE, "requeue": requeue, "batch_flag": True}
    return json.dumps({"jobs": [{"admin_comment": "mine", **job, **fields}]})


@pytest.fixture
def slurm(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> MakeSlurm:
    """Let slurmctld have a node, and the jobs 7, which can be requeued, 8, which cannot, and 9, which has ended."""
    monkeypatch.setattr(watch, "_PASS_SECONDS", 0)

    def install(state: tuple[str, ...] = ("MIXED",), reason: str = "", refuses: str = "none") -> None:
        node = json.dumps({"nodes": [{"name": "a1", "state": list(state), "reason": reason}]})
        shell.write("node.json", node)
        shell.write("7.json", shown(7, requeue=True, array_job_id=7, array_task_id={"set": True, "number": 2}))
        shell.write("8.json", shown(8, requeue=False, het_job_id=8, het_job_offset=0))
        shell.stub(
            "scontrol",
            f"""case "$*" in
"{refuses}"*) exit 1 ;;
"show node a1 --json") cat "{shell.root}/node.json" ;;
"show job 7_2 --json") cat "{shell.root}/7.json" ;;
"show job 8+0 --json") cat "{shell.root}/8.json" ;;
"requeue "*) touch "{shell.root}/gone" ;;
esac""",
        )
        shell.stub(
            "squeue",
            f"""case "$*" in
*"-t PENDING"*) echo "7_2 PENDING BeginTime" ;;
*"%i %u %T"*) [ -e "{shell.root}/gone" ] || printf '7_2 ada RUNNING\\n8+0 bob RUNNING\\n9 bob COMPLETING\\n' ;;
esac""",
        )
        shell.stub("scancel")

    return install


def looks(shell: Shell, *notices: Notice | Exception | None) -> None:
    """Let the service of a1 read these notices, one after the other."""
    given = iter(notices)

    def read() -> Notice | None:
        notice = next(given)
        if isinstance(notice, Exception):
            raise notice
        return notice

    with shell.here():
        service = watch.Watch("a1", read)
        for _ in notices:
            service.look()


def changes(shell: Shell) -> list[str]:
    return [call for call in shell.calls if call.startswith(("scontrol update", "scontrol requeue", "scancel"))]


def test_at_a_notice_the_node_drains_and_its_jobs_end_or_requeue(shell: Shell, slurm: MakeSlurm) -> None:
    slurm()
    looks(shell, None, Notice("AWS", AT), Notice("AWS", AT))
    drain = "scontrol update nodename=a1 state=drain reason=AWS takes this machine back at 14:02:00Z"
    comment = with_parts("mine", cause=CAUSE)
    assert changes(shell)[0] == drain
    assert sorted(changes(shell)[1:-1]) == [
        "scancel 8+0",
        "scontrol requeue 7_2",
        f"scontrol update jobid=7_2 admincomment={comment}",
        f"scontrol update jobid=8+0 admincomment={comment}",
    ]
    # Slurm alone would let it wait.
    assert changes(shell)[-1] == "scontrol update jobid=7_2 starttime=now"


def test_a_silent_slurmctld_is_asked_again_and_a_failed_requeue_cancels_no_job(shell: Shell, slurm: MakeSlurm) -> None:
    slurm(refuses="update nodename")
    looks(shell, Notice("AWS", AT), Notice("AWS", AT))
    drains = [call for call in changes(shell) if "state=drain" in call]
    assert (len(drains), changes(shell)) == (2, drains)
    slurm(refuses="requeue")
    looks(shell, Notice("AWS", AT))
    assert "scontrol requeue 7_2" in changes(shell)
    assert "scancel 7_2" not in changes(shell)


def test_a_drain_of_a_person_stays_at_the_notice_and_afterwards(shell: Shell, slurm: MakeSlurm) -> None:
    slurm(("MIXED", "DRAIN"), "new disk")
    looks(shell, Notice("AWS", AT), None)
    assert "scontrol requeue 7_2" in changes(shell)
    assert not [call for call in changes(shell) if "nodename=" in call]


def test_jobs_that_cannot_be_listed_are_ended_at_the_next_look(shell: Shell, slurm: MakeSlurm) -> None:
    slurm()
    listing = shell.path("/stubs/squeue").read_text()
    shell.stub("squeue", f'[ -e "{shell.root}/asked" ] || {{ touch "{shell.root}/asked"; exit 1; }}\n')
    stub = shell.path("/stubs/squeue")
    stub.write_text(stub.read_text() + listing.partition('calls"\n')[2])
    looks(shell, Notice("AWS", AT), Notice("AWS", AT))
    assert changes(shell).count("scontrol requeue 7_2") == 1


def test_a_machine_that_is_back_takes_jobs_once_registered(shell: Shell, slurm: MakeSlurm) -> None:
    reason = "AWS takes this machine back at 14:02:00Z"
    slurm(("DOWN", "DRAIN"), reason)
    looks(shell, None)
    assert changes(shell) == []
    slurm(("IDLE", "DRAIN"), f"{reason} : Not responding")
    looks(shell, None, None)
    assert changes(shell) == ["scontrol update nodename=a1 state=resume"]


def test_a_metadata_service_that_does_not_answer_changes_nothing_and_is_reported_once(
    shell: Shell, slurm: MakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm()
    looks(shell, *[NoAnswerError("no answer")] * 3, None)
    assert shell.calls == ["scontrol show node a1 --json"]
    said = capsys.readouterr().err
    assert (said.count("no answer"), said.count("answers again")) == (1, 1)


def test_a_cause_replaces_an_earlier_one_and_other_parts_stay() -> None:
    use = Summary(False, 1, 0.1)
    comment = with_parts(with_parts("mine", use=use, cause="node b1 shut down"), cause=CAUSE)
    assert (read_cause(comment), read_summary(comment), parts_of(comment)["comment"]) == (CAUSE, use, "mine")
    assert read_cause(CAUSE) == ""


def job(**changes: Any) -> Job:
    fields = {"flags": ("CANCELLED",), "nodes": "a1", "admin_comment": with_parts("mine", cause=CAUSE), **changes}
    return Job(12, "train", "ada", 6001, **fields)


def test_a_user_sees_which_notice_ended_or_requeued_a_job() -> None:
    ended = why_it_ended(job())
    assert ended.sentences == (f"It was ended because {CAUSE}, and it cannot be requeued.",)
    assert "without --no-requeue" in ended.next
    # A user who cancels a job that was requeued earlier is its cause.
    assert why_it_ended(job(), cancelled_by="ada").sentences == ("It was cancelled by ada.",)
    # So is an administrator who cancels it on its next node.
    assert why_it_ended(job(nodes="b1")).sentences == ("It was cancelled.",)
    lost = why_it_ended(job(flags=("NODE_FAIL",), failed_node="a1"))
    assert lost.sentences == (f"One of its nodes was lost: {CAUSE}.",)
    waiting = job(flags=("PENDING",), reason="BeginTime", restarts=1)
    sentence = why_it_waits(waiting, [], str.split).sentences[0]
    assert sentence.startswith(f"It went back to the queue, 1 time so far: {CAUSE}.")
    runs = with_cause_sentence(job(flags=("RUNNING",), restarts=1), Why(("It runs.",)))
    assert runs.sentences == ("It runs.", f"It was requeued because {CAUSE}.")
    assert with_cause_sentence(job(), ended) == ended


def test_the_drain_is_the_providers() -> None:
    reason = "Google takes this machine back at 14:02:00Z"
    out = why_out(Node("a1", frozenset({"IDLE", "DRAIN"}), reason, "root", int(AT)))
    assert out is not None
    assert (out.whose, out.reason) == ("provider", reason)
    assert "the node does too" in out.next


HEADER = {**role_header("spot_notice"), "node_spot": "aws"}
UNIT = "/etc/systemd/system/tailrack-spot-notice.service"


def test_only_a_machine_that_may_be_taken_back_has_the_service(shell: Shell) -> None:
    shell.stub("systemctl")
    assert shell.step(script_of("spot_notice", "compute"), {**HEADER, "node_spot": ""}).returncode == 0
    assert shell.calls == []
    assert_ok(shell.step(script_of("spot_notice", "compute"), HEADER))
    assert "\nExecStart=" in shell.path(UNIT).read_text()
    assert shell.path(UNIT).read_text().count("spot-notice aws\n") == 1
    assert "systemctl restart tailrack-spot-notice.service" in shell.calls
    shell.path("/calls").unlink()
    shell.step(script_of("spot_notice", "compute"), HEADER)
    assert "systemctl restart tailrack-spot-notice.service" not in shell.calls


def test_a_shutdown_waits_as_long_as_the_config_says_and_as_google_allows(shell: Shell) -> None:
    assert [seconds_to_save(*given) for given in ((0, ""), (0, "aws"), (0, "gcp"), (90, "gcp"), (90, "aws"))] == [
        0,
        0,
        12,
        12,
        90,
    ]
    unit = shell.path("/etc/systemd/system/tailrack-shutdown.service")
    program = shell.path("/usr/local/lib/tailrack/save-jobs")
    with shell.here():
        requeue_jobs_at_shutdown("a1")
        without = unit.read_text()
        requeue_jobs_at_shutdown("a1", 90, "the program")
        stops = [line for line in unit.read_text().splitlines() if line.startswith("ExecStop=")]
        assert stops == ["ExecStop=-/usr/local/lib/tailrack/save-jobs 90", "ExecStop=/usr/local/sbin/tailrack-shutdown"]
        assert "TimeoutStopSec=115" in unit.read_text()
        assert program.exists()
        requeue_jobs_at_shutdown("a1")
    assert unit.read_text() == without
    assert "TimeoutStopSec=25\n" in without
    assert not program.exists()


def save(shell: Shell, system: str = "stopping") -> None:
    shell.hurry()
    shell.write("/var/lib/tailrack/node-name", "a1\n")
    shell.stub("systemctl", f"echo {system}")
    assert shell.command("save-jobs", "2").returncode == 0


def test_a_shutdown_ends_jobs_with_their_cause_and_leaves_no_drain(shell: Shell, slurm: MakeSlurm) -> None:
    slurm()
    save(shell)
    calls = changes(shell)
    assert calls[0] == "scontrol update nodename=a1 state=drain reason=tailrack: shuts down"
    assert f"scontrol update jobid=8+0 admincomment={with_parts('mine', cause='node a1 shut down')}" in calls
    assert {"scontrol requeue 7_2", "scancel 8+0"} < {*calls}
    assert calls[-1] == "scontrol update nodename=a1 state=undrain"


def test_a_unit_that_stops_on_a_running_machine_ends_no_job(shell: Shell, slurm: MakeSlurm) -> None:
    slurm()
    save(shell, "running")
    assert changes(shell) == []


def test_a_shutdown_without_slurmctld_does_not_wait(shell: Shell, slurm: MakeSlurm) -> None:
    slurm(refuses="show node")
    save(shell)
    assert changes(shell) == []


def test_spot_instances_of_aws_read_its_notices_without_a_key() -> None:
    pools = [{"name": "s", "type": "g6.xlarge", "market": "spot"}, {"name": "o", "type": "g6.xlarge"}]
    site = AwsSite.model_validate(
        {
            "name": "east",
            "kind": "aws",
            "region": "us-east-1",
            "ssh_from": ["203.0.113.7/32"],
            "agent": True,
            "pools": pools,
        }
    )
    head = parse(LAB, base_dir=Path()).head
    assert {node.name[0]: node.spot for node in aws_nodes(site, head)} == {"s": "aws", "o": ""}
