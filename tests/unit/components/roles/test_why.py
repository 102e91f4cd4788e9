"""`tailrack why`: jobs as Slurm prints them, and what a person is told of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.node.run import Ended
from components.roles.commands.sll.snapshot import gpus_of
from components.roles.commands.tailrack import why
from components.roles.commands.tailrack.main import main
from components.roles.commands.tailrack.wait_reason import why_it_waits
from components.roles.commands.tailrack.why import why_it_ended
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job, read_jobs
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import SlurmError

# The shape of 24.11 (data_parser/v0.0.42), cut to what is read.
FIXTURES = Path(__file__).parents[3] / "fixtures"
PENDING: dict[str, Any] = json.loads((FIXTURES / "slurm/pending-job.json").read_text(encoding="utf-8"))
IDLE, DRAINED = (
    Node("a1", frozenset({"IDLE"})),
    Node("b1", frozenset({"IDLE", "DRAIN"}), "health: Xid 79 GPU 3", "root", 1790000000),
)


def job(**changed: Any) -> Job:
    (found,) = read_jobs(json.dumps({"jobs": [{**PENDING, **changed}]}))
    return found


def ended(state: str, **changed: Any) -> Job:
    return job(job_state=[state], state_reason="None", nodes="a1", **changed)


def code(status: int = 0, signal: int = 0) -> dict[str, Any]:
    return {
        "return_code": {"set": True, "infinite": False, "number": status},
        "signal": {"id": {"set": bool(signal), "infinite": False, "number": signal}, "name": ""},
    }


def waits(**changed: Any) -> str:
    def expand(short: str) -> list[str]:
        return short.split(",")

    told = why_it_waits(job(**changed), [IDLE, DRAINED], expand)
    return "\n".join([*told.sentences, f"next: {told.next}"])


def test_why_explains_a_waiting_job_and_the_remedy() -> None:
    for reason, description, words in (
        ("Resources", "", ["2 nodes with cpu=16,mem=64G,node=2,gres/gpu=16", "is next", "1 of 2 nodes is idle"]),
        ("Resources", "", ["in 1 site", "--switches=2 lets", "1 node out", "b1 (drained): Xid 79 GPU 3"]),
        ("Priority", "", ["other jobs are ahead of it"]),
        (
            "Resources",
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in",
            ["have other jobs or are out"],
        ),
        ("ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:b1", ["take no jobs", "Xid 79", "next: tailrack nodes"]),
        ("ReqNodeNotAvail", "ReqNodeNotAvail, Reserved for maintenance", ["reserved", "tailrack-older"]),
        ("Resources", "ReqNodeNotAvail, May be reserved for other job", ["reserved", "scontrol show reservation"]),
        ("JobHeldUser", "", ["held by its user", "next: scontrol release 12"]),
        ("JobHeldAdmin", "", ["administrator"]),
        ("JobHeldAdmin", "launch failed requeued held", ["could not start it", "scontrol release 12"]),
        ("Dependency", "", ["waits for other jobs: afterok:7"]),
        ("DependencyNeverSatisfied", "", ["never starts", "scancel 12"]),
        ("BeginTime", "", ["--begin"]),
        ("BadConstraints", "", ["No node can provide", "cpu=16", "sinfo -o '%N %c %m %G %f'"]),
        ("PartitionDown", "", ["munge key", "partitionname=all state=up"]),
        ("PartitionTimeLimit", "", ["more time than partition all"]),
        ("AccountNotAllowed", "uid 6001 not in group", ["Its user, or its account 'lab', may not use partition all"]),
        ("PartitionConfig", "", ["Partition all no longer accepts", "scontrol show partition all"]),
        ("AssocGrpGRESMinutes", "", ["GPU hours of account 'lab' are used up"]),
        ("QOSGrpCPUMinutesLimit", "", ["the hours of QOS 'normal' are used up"]),
        ("QOSMaxJobsPerUserLimit", "", ["QOS 'normal'", "running jobs have reached it"]),
        ("AssocMaxMemPerJob", "", ["account 'lab'", "the job itself exceeds it"]),
        ("QOSMinCpuNotSatisfied", "", ["requests less than the minimum of QOS 'normal'"]),
        ("JobArrayTaskLimit", "", ["--array"]),
        ("None", "", ["has not considered it since its last change"]),
        ("SomethingNew", "of the next release", ["Slurm's reason: SomethingNew of the next release", "man squeue"]),
    ):
        told = waits(state_reason=reason, state_description=description, dependency="afterok:7(unfulfilled)")
        for word in words:
            assert word in told, (reason, description)
        assert "{" not in told, (reason, description)


BUSY = Node("c1", frozenset({"ALLOCATED"}))


def test_why_calls_a_requested_node_reserved_only_with_a_reservation() -> None:
    for node, description, words, never in (
        (BUSY, "ReqNodeNotAvail, May be reserved for other job", "squeue -w c1", "maintenance"),
        (BUSY, "ReqNodeNotAvail", "It requests c1 by name: other jobs run there", "maintenance"),
        (BUSY, "ReqNodeNotAvail, UnavailableNodes:", "squeue -w c1", "maintenance"),
        (Node("c1", frozenset({"IDLE", "RESERVED"})), "ReqNodeNotAvail", "scontrol show reservation", "by name"),
        (Node("c1", frozenset({"IDLE", "MAINTENANCE"})), "ReqNodeNotAvail", "reserved for maintenance", "by name"),
        (BUSY, "ReqNodeNotAvail, Reserved for maintenance", "reserved for maintenance", "by name"),
        (Node("c1", frozenset({"DOWN"})), "ReqNodeNotAvail, UnavailableNodes:c1", "take no jobs", "reserved"),
    ):
        asks = job(state_reason="ReqNodeNotAvail", state_description=description, required_nodes="c1")
        told = why_it_waits(asks, [IDLE, node], lambda short: short.split(","))
        text = "\n".join([*told.sentences, told.next])
        assert words in text, (node, description)
        assert never not in text, (node, description)


def test_why_describes_the_phase_of_a_running_job() -> None:
    since = {"set": True, "infinite": False, "number": 1790000000}
    for states, more, sentence in (
        (["RUNNING"], {"nodes": "a[1-2]", "restart_cnt": 1}, "It has been running on a[1-2] since 2026-09-21"),
        (
            ["RUNNING", "CONFIGURING"],
            {"state_reason": "Prolog", "nodes": "a2"},
            "Its prolog is running on its nodes, a2",
        ),
        (["COMPLETED", "COMPLETING"], {"nodes": "a2"}, "these nodes are cleaning up: a2"),
    ):
        given = job(job_state=states, start_time=since, **more)
        assert sentence in why.explain(given, []).sentences[0], states
    # Its machine does not exist yet.
    given = job(job_state=["RUNNING", "CONFIGURING"], state_reason="None", nodes="e1")
    assert why.explain(given, []).sentences[0] == "Its nodes e1 are getting ready, and it starts after that."
    told = why_it_waits(job(required_nodes="a1,a9"), [IDLE], lambda short: short.split(","))
    assert told.sentences == ("It requests a9 by name, and the cluster has no such node now.",)


def test_why_explains_the_end_of_a_job() -> None:
    for given, words in (
        (ended("COMPLETED"), "completed successfully"),
        (ended("OUT_OF_MEMORY"), "more memory than it had (64G in total)"),
        (ended("TIMEOUT"), "its time limit of 60 minutes"),
        (ended("NODE_FAIL", failed_node="b1"), "lost: b1"),
        (ended("PREEMPTED"), "higher priority"),
        (ended("CANCELLED"), "cancelled by grace"),
        (ended("DEADLINE"), "--deadline"),
        (ended("FAILED", exit_code=code(3)), "exit status 3"),
        (ended("FAILED", exit_code=code(127)), "command was not found"),
        (ended("FAILED", exit_code=code(0, 11)), "signal 11 (SIGSEGV)"),
        (ended("FAILED", exit_code=code(0, 9)), "signal 9 (SIGKILL), often for lack of memory: it had 64G in total"),
        (ended("FAILED", exit_code=code(0, 99)), "signal 99."),
        (ended("FAILED", state_description="launch failed"), "could not start it: a1"),
        (ended("FAILED") , "Slurm reports: FAILED"),
    ):  # fmt: skip
        assert words in why_it_ended(given, "", "grace").sentences[0], given


def test_why_names_an_unavailable_image_and_the_remedy() -> None:
    for said, remedy in yaml.safe_load((FIXTURES / "pyxis-errors.yaml").read_text(encoding="utf-8")):
        told = why_it_ended(ended("FAILED", exit_code=code(1)), said)
        assert told.sentences[0] == "Its container could not be created:", said
        assert remedy in told.next, said


def test_output_that_only_speaks_of_enroot_or_of_errors_is_no_reason() -> None:
    for said in (
        "installing enroot\ndone, not found",
        "[ERROR] data/train.csv not found",
        "enroot is fine\n[ERROR] 404",
    ):
        told = why_it_ended(ended("FAILED", exit_code=code(1)), said)
        assert "exit status 1" in told.sentences[0], said


def test_why_rejects_an_invalid_list_of_jobs_and_a_silent_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "{}", '{"jobs": [7]}', '{"jobs": [{}]}', '{"jobs": [{"job_state": [], "job_id": 1}]}'):
        with pytest.raises(ValueError):  # noqa: PT011  # of json too
            read_jobs(text)
    ended = Ended(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n")
    monkeypatch.setattr(slurm, "attempt_bounded", lambda *_, **__: ended)
    with pytest.raises(SlurmError, match="Unable to contact slurm controller"):
        slurm.jobs("12")


Play = Callable[..., None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Slurm's commands, played: what each prints, by its name; one that is not given fails."""

    def answers(**said: str) -> None:
        def run(*words: str, **_: Any) -> Ended:
            name = "nodes" if [*words[:3]] == ["scontrol", "show", "nodes"] else words[0]
            name = "names" if words[-1] == "JobName" else name
            failed = f"{name}: error: Invalid job id specified"
            return Ended(name not in said, said.get(name, ""), failed)

        monkeypatch.setattr(slurm, "attempt_bounded", run)

    return answers


def test_why_reads_a_forgotten_job_from_accounting(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    row = "12|12|{}|OUT_OF_MEMORY|0:125|a1|all|cpu=1,mem=1G|60|"
    # A name that pretends to be another job of another user.
    play(sacct=f"{row.format('ada')}\n12|x\n", names=f"a|b\n{row.format('root')}\n")
    assert main(["why", "12"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("job 12 (a|b) of ada: out of memory\n")
    assert "root" not in out
    assert "more memory than it had (1G in total)" in out


@pytest.mark.parametrize(("name", "words"), [("99", "there is no job 99"), ("x; reboot", "is not a job id")])
def test_an_unknown_job_is_one_line(play: Play, capsys: pytest.CaptureFixture[str], name: str, words: str) -> None:
    play()
    assert main(["why", name]) == 1
    assert words in capsys.readouterr().err


def test_why_reads_a_requeued_jobs_lost_node_from_accounting(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    for runs, words in (
        ("NODE_FAIL|p1\nPENDING|\n", "1 time so far: its node p1 was lost"),
        ("NODE_FAIL|p1\nREQUEUED|\nPENDING|\n", "an administrator requeued it, its node was lost"),
        ("", "an administrator requeued it, its node was lost"),
    ):
        requeued = {**PENDING, "state_reason": "BeginTime", "restart_cnt": 1}
        play(scontrol=json.dumps({"jobs": [requeued]}), nodes='{"nodes": []}', sacct=runs)
        assert main(["why", "12"]) == 0, runs
        assert words in capsys.readouterr().out, runs


def test_a_jobs_words_move_no_cursor(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = {**PENDING, "name": "\x1b[2Jtrain\nroot", "state_reason": "New", "state_description": "\x1b]0;x\x07"}
    play(scontrol=json.dumps({"jobs": [hostile]}), nodes='{"nodes": []}')
    assert main(["why", "12"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.startswith("job 12 ( [2Jtrain root) of ada: pending\n")
    assert main(["why", "--json", "12"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["job"] == "12"


def test_why_reads_the_output_of_a_job_only_as_its_user(
    monkeypatch: pytest.MonkeyPatch, play: Play, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = tmp_path / "output"
    output.write_text("pyxis: failed to import docker image\npyxis: [ERROR] 404\n")
    failed = {**PENDING, "job_state": ["FAILED"], "exit_code": code(1), "standard_output": str(output)}
    for asking, reads in ((6001, True), (6002, False), (0, False)):
        monkeypatch.setattr(os, "geteuid", lambda asking=asking: asking)
        play(scontrol=json.dumps({"jobs": [failed, {**failed, "user_id": 0}][: 1 + (asking == 0)]}))
        assert main(["why", "12"]) == 0
        assert ("container could not be created" in capsys.readouterr().out) == reads, asking


def test_why_shows_the_gpus_of_a_job_without_accounting() -> None:
    for counted, detail, gpus in (
        ("cpu=8,node=2", ["gpu:h200:2(IDX:0-1)", "gpu:h200:1(IDX:3),shard:h200:4(4/4)"], 3),
        ("cpu=8,node=1", ["gpu:2(IDX:0-1)"], 2),
        ("cpu=8,node=1", ["gpu:8(CNT:8)"], 8),
        ("cpu=8,node=1,gres/gpu=4", ["gpu:h200:2(IDX:0-1)"], 4),
        ("cpu=8,node=1", [], 0),
        ("cpu=8,node=1", None, 0),
        ("cpu=8,node=1", ["shard:4(4/4)", ""], 0),
    ):
        entry = {"job_id": 7, "job_state": ["RUNNING"], "tres_alloc_str": counted, "gres_detail": detail}
        (job,) = read_jobs(json.dumps({"jobs": [entry]}))
        assert gpus_of(job.allocated) == gpus, (counted, detail)
