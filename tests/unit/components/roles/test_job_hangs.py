"""Jobs that hang: recorded answers of RAS and damaged ones, the two signs, and what users see.

tests/fixtures/ras/README.md says where each answer comes from.
"""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.tailrack.why import explain
from components.roles.jobs.job_hangs import communicators, find_hangs, ras, watch
from components.roles.jobs.job_hangs.communicators import BEHIND, Communicator, Late, Rank, next_command, sentence
from components.roles.jobs.job_hangs.find_hangs import LIMITS, REPORTED, judge
from components.roles.jobs.job_hangs.ras import read_answer
from components.roles.jobs.job_hangs.role import role
from components.roles.jobs.job_reports.host import MAIL_PROGRAM
from components.roles.monitoring.usage import samples
from components.roles.monitoring.usage.job_gpu_use import summary_of
from components.roles.monitoring.usage.role import HAS_GPUS
from components.roles.slurm.slurm.folders import NODES, POOLS
from components.roles.slurm.slurm.node_lines import memory_values
from components.roles.slurm.slurm.nodes import NodeFiles, write_node
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job, with_parts
from stacks.config import parse
from tests.unit.components.roles.test_scripts_health import script
from tests.unit.components.roles.test_slurm import node as host
from tests.unit.configs import LAB
from tests.unit.shell import Shell, assert_ok

RECORDED = Path(__file__).parents[3] / "fixtures/ras"
NOW = 1_790_000_000
WAITS = samples.Reading(0, "", 100, 1657, 123.5, 700.0)
IDLES = samples.Reading(1, "", 0, 1657, 124.3, 700.0)
WORKS = samples.Reading(0, "", 99, 1883, 692.6, 700.0)
DIGEST = "a" * 64
LATE = Rank(5, "100.64.0.2", 4711, 1, here=True)
FOUND = communicators.Finding(DIGEST, BEHIND, "AllReduce", 12034, 12035, 8, (LATE,), 1)
HANG = communicators.Hang(NOW, BEHIND, "AllReduce", 12034, 12035, 8, 1, (Late(5, "b1", 1, 4711),))
NOTED = with_parts("", hang=HANG)
NOTED_MINE = with_parts("mine", hang=HANG)


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def found(name: str) -> communicators.Finding:
    """Return the finding of a recorded answer."""
    group = read_answer(recorded(name))
    assert group is not None
    return communicators.finding(group)


# RAS's answers.


def test_the_rank_that_sleeps_is_behind_and_a_killed_one_missing_in_recorded_answers() -> None:
    late, lost = found("2.28.9-behind.json"), found("2.28.9-killed.json")
    counts = (late.operation, late.count, late.most, late.size, late.total)
    assert (late.kind, *counts) == (BEHIND, "AllReduce", 21, 22, 2, 1)
    assert late.ranks == (Rank(1, "192.0.2.2", 1092, 1),)
    # NCCL omits a comma in the second one.
    assert (lost.kind, lost.ranks) == (communicators.MISSING, (Rank(1, "192.0.2.2", 1983, 1),))
    assert found("2.29.1-missing.json").ranks == (Rank(1, "172.16.64.245", 1524345, 1),)
    # A host that is no address is left out.
    group = read_answer(recorded("2.28.9-behind.json").replace("192.0.2.2", "$(reboot); x"))
    assert group is not None
    assert communicators.finding(group).ranks == (Rank(1, "", 1092, 1),)


def test_ranks_that_launch_different_operations_wait_for_each_other() -> None:
    ranks = {number: Rank(number, "10.0.0.1", number + 100, number) for number in range(2)}
    operations = {"AllGather": {1: (ranks[0],), 2: (ranks[1],)}, "AllReduce": {5: (ranks[1],), 6: (ranks[0],)}}
    different = communicators.finding([Communicator("w", 2, operations)])
    assert (different.kind, different.operation) == (communicators.DIFFERENT, "AllGather,AllReduce")


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.glob("2*")))
def test_an_answer_that_was_cut_off_or_damaged_raises_nothing(name: str) -> None:
    text = recorded(name)
    for at in range(0, len(text), 37):
        for damaged in (text[:at], text[:at] + "\0{[" + text[at:], text[:at] + text[at + 5 :]):
            group = read_answer(damaged)
            if group is not None:
                communicators.finding(group)


def test_answers_in_another_form_are_none() -> None:
    for text in (
        "",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        # NCCL before 2.28.7.
        "ERROR: Unknown command\n2 NCCL version 2.27.3 compiled with CUDA 12.9\nCommunicators... (0.00s)\n",
        "{" * 100_000,
        "[" * 100_000,
        '{"communicators": 5}',
        '{"communicators": [[]]}',
        json.dumps({"communicators": [{"hash": "x" * 100}]}),
        recorded("2.28.9-behind.json").replace('"AllReduce": 22', '"AllReduce": -22'),
        recorded("2.28.9-behind.json").replace('"AllReduce": 22', '"AllReduce": 1e400'),
        recorded("2.28.9-behind.json").replace('"AllReduce"', '"All\\nReduce"'),
        recorded("2.28.9-behind.json").replace('"rank": 0', '"rank": true'),
    ):
        assert read_answer(text) is None, text


@pytest.mark.parametrize("flag", ["finalize_called", "destroy_flag", "abort_flag"])
def test_a_rank_that_leaves_its_communicator_is_behind_until_all_leave(flag: str) -> None:
    text = recorded("2.28.9-behind.json")
    head, last, rest = text.rpartition(f'"{flag}": false')
    one = read_answer(f'{head}"{flag}": true{rest}')
    assert one is not None
    assert communicators.finding(one).ranks == (Rank(1, "192.0.2.2", 1092, 1),)
    assert read_answer(text.replace(last, f'"{flag}": true')) == []
    assert communicators.finding([]).kind == communicators.NONE


# The rank that others wait for.


def ranks_by(counts: Mapping[int, Sequence[int]]) -> dict[int, tuple[Rank, ...]]:
    """Return ranks by their counts; rank N is process N + 100 of one machine."""
    return {
        count: tuple(Rank(number, "10.0.0.1", number + 100, number) for number in ranks)
        for count, ranks in counts.items()
    }


def test_a_rank_that_waits_for_another_is_not_the_cause() -> None:
    # Rank 3 stopped. Rank 2 waits for it in their pair, so ranks 0 and 1 wait for both in the world.
    world = Communicator("w", 4, {"AllReduce": ranks_by({10: [0, 1], 9: [2, 3]})})
    pair = Communicator("p", 2, {"AllGather": ranks_by({7: [2], 6: [3]})})
    cause = communicators.finding([pair, world])
    assert (cause.kind, [rank.number for rank in cause.ranks], cause.total, cause.size) == (BEHIND, [3], 1, 4)


# The client.


class FakeRas:
    """A server on this machine that gives an answer, and stays silent to the first connections."""

    def __init__(self, answer: bytes, silent: int = 0) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.place = ("127.0.0.1", int(self.server.getsockname()[1]))
        self.requests: list[bytes] = []
        self._answer, self._silent = answer, silent
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            if self._silent:
                self._silent -= 1
                self._kept.append(connection)
                continue
            with connection:
                self.requests.append(connection.recv(4096))
                with contextlib.suppress(OSError):
                    connection.sendall(self._answer)


def test_the_request_is_repeated_until_a_rank_that_is_not_stopped_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "_GREETING_SECONDS", 0.1)
    server = FakeRas(recorded("2.28.9-behind.json").encode(), silent=2)
    assert read_answer(ras.ask(server.place))
    assert server.requests == [b"CLIENT PROTOCOL 2\nTIMEOUT 5\nSET FORMAT json\nVERBOSE STATUS\n"]
    # No one listens there.
    assert ras.ask(("127.0.0.1", 1)) == ""


def test_an_answer_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "MOST_BYTES", 100_000)
    assert ras.ask(FakeRas(b"x" * 2_000_000).place) == ""
    monkeypatch.setattr(ras, "LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(ras, "_GREETING_SECONDS", 0.1)
    begin = time.monotonic()
    assert ras.ask(FakeRas(b"", silent=1000).place) == ""
    assert time.monotonic() - begin < 30


def test_the_search_queries_only_ports_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    server, other = FakeRas(b""), FakeRas(b"")
    own = os.getpid()
    monkeypatch.setattr(ras, "DEFAULT_PORT", server.place[1])
    assert ras.places({own: ""}) == [server.place]
    named = f"PATH=/\0NCCL_RAS_ADDR=localhost:{other.place[1]}\0"
    assert ras.places({own: named}) == [other.place, server.place]
    # Not the job's.
    assert ras.places({2**22 + 1: named}) == []
    for odd in ("localhost:99999999", "localhost", "$(x):1;2"):
        assert ras.places({own: f"NCCL_RAS_ADDR={odd}"}) == [server.place]


def test_a_jobs_processes_are_those_of_this_account_with_its_number() -> None:
    environment = {"SLURM_JOB_ID": "4711000", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        try:
            assert set(ras.processes_of("4711000")) == {process.pid}
            assert ras.processes_of("711000") == {}
        finally:
            process.kill()


def test_listening_sockets_are_read_from_the_kernels_table() -> None:
    rest = "00000000:00000000 00:00000000 00000000  6001        0"
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        f"   0: 0100007F:5593 00000000:0000 0A {rest} 100 1 0 100 0 0 10 0\n"
        f"   1: 00000000:6D7C 00000000:0000 0A {rest} 101 1 0 100 0 0 10 0\n"
        f"   2: 0100007F:5593 0100007F:9999 01 {rest} 102 1 0 100 0 0 10 0\n"
    )
    assert ras.listening(table) == {"100": (21907, "127.0.0.1"), "101": (28028, "127.0.0.1")}


def test_a_ranks_machine_is_this_one_if_its_address_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [ras.is_local(address) for address in ("127.0.0.1", "203.0.113.9", "")] == [True, False, False]
    near, far = Rank(0, "127.0.0.1", 7, 0), Rank(1, "203.0.113.9", 7, 0)

    def rows(counts: Mapping[int, tuple[Rank, ...]]) -> list[tuple[int, bool]]:
        answer = json.loads(ras.as_json([Communicator("0x1", 2, {"AllReduce": counts})]))
        return [(row["number"], row["here"]) for row in answer["ranks"]]

    assert rows({1: (near,), 2: (far,)}) == [(0, True)]
    assert rows({2: (near,), 1: (far,)}) == [(1, False)]
    # Without a rank that is behind, those of this machine.
    assert rows({2: (near, far)}) == [(0, True)]
    # An answer about another job on the same port is left out.
    own = [Communicator("w", 2, {"AllReduce": {1: (near,)}})]
    assert (ras._is_of_job(own, {7}), ras._is_of_job(own, {8})) == (True, False)


# The two signs on a node.


def test_a_gpu_waits_at_full_utilization_and_little_power() -> None:
    for readings, expected in (
        ([WAITS, IDLES], (1, 1)),
        ([WAITS, WORKS], None),
        ([replace(WAITS, power=300.0)], None),
        ([replace(WAITS, power=0.0, limit=0.0)], None),
        ([replace(WAITS, percent=89)], None),
        ([WAITS, None], None),
        ([], None),
    ):
        assert watch.signs(readings) == expected, readings


def stalled(
    minutes: int, samples: int, answers: Callable[[int], communicators.Finding | None]
) -> tuple[watch.Stall, list[int]]:
    """Return the stall after some samples of a GPU that waits, and the samples at which RAS was asked."""
    stall, asked = watch.Stall(), list[int]()

    def ask() -> communicators.Finding | None:
        asked.append(number)
        return answers(number)

    for number in range(1, samples + 1):
        stall = watch.after_sample(stall, [WAITS], NOW + 60 * number, minutes, ask)
    return stall, asked


def test_ras_is_asked_twice_within_the_configs_minutes_and_then_every_five() -> None:
    stall, asked = stalled(10, 23, lambda _: FOUND)
    assert asked == [2, 10, 15, 20]
    assert (stall.samples, stall.unchanged, stall.since, stall.finding) == (23, 18, NOW + 60, FOUND)
    # A silent one is asked every five minutes, and a GPU that works ends the stall.
    stall, asked = stalled(10, 13, lambda _: None)
    assert asked == [2, 7, 12]
    assert watch.after_sample(stall, [WORKS], NOW, 10, lambda: FOUND) == watch.Stall()


def test_root_accepts_only_a_finding_in_its_form() -> None:
    good = asdict(FOUND)
    assert watch.read_finding(json.dumps(good)) == FOUND
    rank = good["ranks"][0]
    for bad in (
        {"kind": "x"},
        {"digest": "A" * 64},
        {"operation": "a; b"},
        {"count": -1},
        {"total": 2**60},
        {"ranks": [rank] * 9},
        {"ranks": [{**rank, "host": "b1; reboot"}]},
        {"ranks": [{**rank, "process": "1"}]},
        {"ranks": "x"},
    ):
        assert watch.read_finding(json.dumps({**good, **bad})) is None, bad
    for text in ("", "[]", "5", "{", "[" * 100_000):
        assert watch.read_finding(text) is None
        assert watch.read_stall(text) is None
    assert watch.read_stall(watch.as_json(watch.Stall(NOW, 3, 1, 0, 2, 2, 0, FOUND))) == watch.Stall(
        NOW, 3, 1, 0, 2, 2, 0, FOUND
    )


# The decision.

STALL = watch.Stall(NOW, 12, 1, 0, 12, 2, 10, FOUND)


def test_a_job_hangs_with_both_signs_on_all_its_nodes() -> None:
    assert judge({"b1": STALL}, 10, {}) == HANG
    idle = watch.Stall(NOW - 60, 13, 0, 1)
    assert judge({"b1": STALL, "b2": idle}, 10, {}) == HANG


def test_with_one_sign_or_a_node_at_work_or_silent_there_is_no_word() -> None:
    for stalls in (
        {"b1": replace(STALL, samples=9)},
        {"b1": replace(STALL, unchanged=7)},
        {"b1": replace(STALL, waiting=0, idle=1)},
        {"b1": replace(STALL, finding=None)},
        {"b1": STALL, "b2": None},
        {"b1": STALL, "b2": watch.Stall()},
        {"b1": replace(STALL, finding=replace(FOUND, kind=communicators.NONE))},
        {},
    ):
        assert judge(stalls, 10, {}) is None, stalls


def test_a_rank_that_sleeps_while_another_receives_is_named_by_its_idle_gpu() -> None:
    both = tuple(Rank(number, "100.64.0.2", 4711 + number, number, here=True) for number in range(2))
    real = found("2.28.9-receive.json")
    assert (real.kind, real.operation, real.count) == (communicators.EQUAL, "AllReduce", 21)
    for kind, count in ((communicators.EQUAL, 21), (communicators.NONE, 0)):
        answer = communicators.Finding(real.digest, kind, "AllReduce" if count else "", count, count, 2, both, 2)
        stall = watch.Stall()
        for number in range(5):
            stall = watch.after_sample(stall, [WAITS, IDLES], NOW + 60 * number, 5, lambda answer=answer: answer)  # type: ignore[misc]
        hang = judge({"b1": stall}, 5, {})
        lost = communicators.Hang(NOW, communicators.PEER, size=2, total=1, ranks=(Late(1, "b1", 1, 4712),))
        assert hang == lost, kind
        assert "rank 1 (node b1, GPU 1) has an idle GPU, and the others wait, perhaps for a send" in sentence(hang)
        assert next_command("7", hang).endswith("-w b1 py-spy dump --pid 4712")
        # All wait.
        assert judge({"b1": replace(stall, idle=0)}, 5, {}) == (
            communicators.Hang(NOW, communicators.EQUAL, "AllReduce", 21, 21, 2, 2) if count else None
        )


def test_a_ranks_node_is_the_one_with_its_address() -> None:
    far = replace(FOUND, ranks=(replace(LATE, here=False),))
    on_a1 = replace(STALL, finding=far)
    hang = judge({"a1": on_a1, "b1": STALL}, 10, {})
    assert hang is not None
    assert hang.ranks[0].node == "b1"
    for addresses, node in (({"100.64.0.2": "b2"}, "b2"), ({}, "100.64.0.2")):
        hang = judge({"a1": on_a1}, 10, addresses)
        assert hang is not None
        assert hang.ranks[0].node == node


# What users see.


def test_the_sentence_names_the_rank_and_the_command_shows_its_stack() -> None:
    assert sentence(HANG) == (
        "It seems to hang: rank 5 (node b1, GPU 1) is behind: 12034 of 12035 AllReduce; the others wait for it "
        f"since {time.strftime('%H:%M', time.gmtime(NOW))} UTC."
    )
    assert next_command("12", HANG) == "srun --jobid=12 --overlap -N1 -n1 -w b1 py-spy dump --pid 4711"
    lost = replace(HANG, kind=communicators.MISSING)
    assert "rank 5 (node b1, GPU 1) does not answer" in sentence(lost)
    assert next_command("12", lost).endswith("-w b1 ps -o pid,stat,wchan:32,etime,args -p 4711")
    unknown = replace(HANG, kind=communicators.MISSING, ranks=(Late(21, "", -1, 0),))
    assert "rank 21 does not answer" in sentence(unknown)
    assert next_command("12", unknown) == ""
    assert next_command("12", replace(HANG, ranks=(Late(5, "100.64.0.2", 1, 4711),))) == ""
    many = replace(HANG, total=9, ranks=tuple(Late(number, "b1", number, 1) for number in range(8)))
    assert "ranks 0 (node b1, GPU 0), 1" in sentence(many)
    assert "and 5 more are behind" in sentence(many)
    assert "7 of 8 ranks are behind" in sentence(replace(HANG, total=7, ranks=()))
    assert "(AllGather, AllReduce)" in sentence(
        replace(HANG, kind=communicators.DIFFERENT, operation="AllGather,AllReduce")
    )
    assert "none is behind" in sentence(replace(HANG, kind=communicators.EQUAL))
    assert "has not joined a communicator" in sentence(replace(HANG, kind=communicators.ABSENT))


def test_the_comment_keeps_the_hang_beside_the_use_and_an_administrators_text() -> None:
    used = with_parts("mine", use=samples.Summary(True, 2, 1.5))
    comment = with_parts(used, hang=HANG)
    assert (communicators.read_hang(comment, NOW), samples.read_summary(comment)) == (
        HANG,
        samples.Summary(True, 2, 1.5),
    )
    assert communicators.read_hang(with_parts(comment, use=samples.Summary(True, 2, 1.6)), NOW) == HANG
    assert with_parts(comment, hang=None) == used
    assert with_parts(NOTED, hang=None) == ""
    for text in ("", "mine", '{"hang":[]}', NOTED.replace(BEHIND, "other"), NOTED.replace("12034", '"12034"')):
        assert communicators.read_hang(text, NOW) is None, text


def job(**fields: Any) -> Job:
    given: dict[str, Any] = {"nodes": "b1", "start": NOW - 3600, "allocated": "cpu=1,gres/gpu=1", "requeues": True}
    given |= {"admin_comment": NOTED, **fields}
    return Job(7, "train", "ada", 6001, given.pop("flags", ("RUNNING",)), **given)


def test_why_explains_a_running_job_that_hangs_and_forgets_it_after_a_requeue() -> None:
    why = explain(job(), [])
    assert why.sentences[1] == sentence(HANG)
    assert why.next == next_command("7", HANG)
    assert len(explain(job(start=NOW + 61), []).sentences) == 1
    assert len(explain(job(admin_comment=""), []).sentences) == 1


def test_gpus_that_wait_count_as_idle_in_a_hang_only() -> None:
    seen = samples.JobSamples().plus([0], {0: WORKS})
    for _ in range(12):
        seen = seen.plus([0], {0: WAITS})
    answers = {"b1": {"7": seen.use}}
    for comment, percent, idle, unused in (("", 100, 0, 0), (NOTED, 8, 92, 1)):
        used = summary_of(job(admin_comment=comment), answers, {}, {}, NOW)
        assert (used.percent, used.idle, used.unused, used.minutes) == (percent, idle, unused, 12 * unused), comment
    # It goes on.
    assert seen.plus([0], {0: WORKS}).use.in_hang.idle == 0


# The programs.


def test_utilization_alone_is_a_reading() -> None:
    text = (
        "0, 0000000F:01:00.0, 96, [N/A]\n0, 0000000F:01:00.0, 96, [N/A], 45.12, [N/A]\n1, 0000000F:02:00.0, [N/A], 7\n"
    )
    assert samples.read_gpus(text) == [
        samples.Reading(0, "0000000F:01:00.0", 96, 0),
        samples.Reading(0, "0000000F:01:00.0", 96, 0, 45.12),
    ]


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with a job whose GPU waits."""
    shell.write("/etc/tailrack/gres.conf", "NodeName=a1 Name=gpu Type=h200 File=/dev/nvidia[0-1]\n")
    shell.write(f"{samples.JOBS}/7", "0\n")
    shell.write(watch.MINUTES, "5\n")
    shell.write(f"{watch.OWNERS}/7", "6001\n")
    shell.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:6001:6002::/home/ada:/bin/sh\n")
    shell.stub("runuser", "echo '0, 00000000:10:00.0, 100, 1657, 123.50, 700.00'")
    shell.stub("setpriv", f"echo '{json.dumps(asdict(FOUND))}'")
    return shell


def stalls_of(shell: Shell) -> dict[str, Any]:
    done = assert_ok(shell.command("job-hangs-here"))
    rows: dict[str, Any] = json.loads(done.stdout)["jobs"]
    return rows


def test_the_sampler_asks_ras_as_the_jobs_user_and_the_node_answers_with_the_stall(node: Shell) -> None:
    for _ in range(7):
        assert_ok(node.command("gpu-use"))
    stalls = find_hangs.read_stalls(node.command("job-hangs-here").stdout)
    assert stalls is not None
    assert (stalls["7"].samples, stalls["7"].unchanged, stalls["7"].finding) == (7, 3, FOUND)
    asked = [call for call in node.calls if call.startswith("setpriv")]
    assert len(asked) == 2
    assert asked[0].startswith("setpriv --reuid=6001 --regid=6002 --clear-groups -- /")
    assert asked[0].endswith(f"{watch.ASK_RAS} 7")


def test_an_ended_job_is_forgotten_and_nothing_is_asked_for_root_or_without_the_role(node: Shell) -> None:
    node.command("gpu-use")
    assert stalls_of(node).keys() == {"7"}
    node.path(f"{samples.JOBS}/7").unlink()
    assert stalls_of(node) == {}
    node.command("gpu-use")
    assert not node.path(f"{watch.STALLS}/7").exists()
    for number, owner in ((8, "0\n"), (9, "6001\n")):
        node.write(f"{watch.OWNERS}/{number}", owner)
        file = node.write(f"{samples.JOBS}/{number}", "0\n")
        for _ in range(7):
            assert node.command("gpu-use").returncode == 0
        file.unlink()
        node.path(watch.MINUTES).unlink(missing_ok=True)
    assert stalls_of(node) == {}
    assert not [call for call in node.calls if call.startswith("setpriv")]


@pytest.fixture
def head(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The head node while a job on b1 hangs."""
    shell.write(LIMITS, "10\n")
    shell.write(MAIL_PROGRAM, "")
    shell.stubs("scontrol", "runuser")
    play(monkeypatch, job(admin_comment="mine"))
    return shell


def play(monkeypatch: pytest.MonkeyPatch, running: Job, stall: watch.Stall | None = STALL) -> None:
    monkeypatch.setattr(find_hangs, "jobs_and_nodes", lambda: ([running], [type("N", (), {"name": "b1"})()], {}))
    monkeypatch.setattr(find_hangs, "ask_each", lambda names, *_: {name: {"7": stall} for name in names if stall})
    monkeypatch.setattr(slurm, "jobs", lambda _: [running])


def test_a_hang_is_noted_and_reported_once_and_loses_the_note_when_it_goes_on(
    head: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert head.command("job-hangs").returncode == 0
    update, notify = (call for call in head.calls if call.startswith("scontrol"))
    assert update == f"scontrol update jobid=7 admincomment={NOTED_MINE}"
    assert notify.startswith("scontrol notify 7 tailrack: It seems to hang: rank 5")
    (event,) = (call for call in head.calls if call.startswith("runuser"))
    assert event.startswith("runuser -u slurm -- env SLURM_JOB_ID=7 SLURM_JOB_USER=ada /")
    assert event.endswith(f"{MAIL_PROGRAM} -s Slurm Job_id=7 seems to hang ada")
    count = len(head.calls)
    play(monkeypatch, job(admin_comment=f"{NOTED_MINE}", mail_user="ada@example.org"))
    assert head.command("job-hangs").returncode == 0
    assert len(head.calls) == count
    assert head.path(REPORTED).read_text() == f"7 {NOW - 3600}\n"
    play(monkeypatch, job(admin_comment=f"{NOTED_MINE}"), watch.Stall())
    assert head.command("job-hangs").returncode == 0
    assert head.calls[count:] == ['scontrol update jobid=7 admincomment={"comment":"mine"}']


def test_samples_of_the_run_before_a_requeue_are_left_out(head: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, job(start=NOW + 61, admin_comment=""))
    assert head.command("job-hangs").returncode == 0
    assert head.calls == []
    head.write(samples.SAMPLER, "").chmod(0o755)
    head.write(f"{watch.STALLS}/7", "of the run before")
    assert script(head, "prolog", "10-job", SLURM_JOB_GPUS="0,1").returncode == 0
    assert not head.path(f"{watch.STALLS}/7").exists()


def test_a_nodes_malformed_answer_is_none() -> None:
    for text in ("", "{", '{"jobs": 5}', '{"jobs": {"7": {"since": -1}}}', '{"jobs": {"7": 5}}'):
        assert find_hangs.read_stalls(text) is None


# The role.


@pytest.mark.parametrize(("kind", "count"), [("h200", 2), ("", 0)])
def test_the_role_is_off_by_default_and_its_tasks_run_if_a_node_has_gpus(shell: Shell, kind: str, count: int) -> None:
    assert role(parse(LAB, base_dir=Path())) is None
    lines = memory_values(host("a1", "rack", kind, count), 32, 64_000)
    shell.call(write_node, NodeFiles("a1", "rack", lines["node_memory"], lines["node_gpu_cpus"], "", "", "", "", 0))
    words = HAS_GPUS.removeprefix("ExecCondition=").split()
    words = [str(shell.path(word)) if word in (NODES, POOLS) else word for word in words]
    assert (subprocess.run(words, check=False).returncode == 0) == (count > 0)
