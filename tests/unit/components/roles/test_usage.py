"""Who uses the GPUs: samples on nodes, the summary in Slurm's AdminComment, and what users see of it."""

import argparse
import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from components.roles.commands.sll.snapshot import gpu_figures
from components.roles.commands.tailrack import usage
from components.roles.commands.tailrack.usage import as_text, span, usages
from components.roles.commands.tailrack.wait_reason import Why
from components.roles.commands.tailrack.why import with_gpu_use
from components.roles.jobs.job_hangs.watch import MINUTES
from components.roles.monitoring.budget.spending import Stay
from components.roles.monitoring.monitoring.slurm_figures import MOST_JOBS, job_gpu_figures, slurm_figures
from components.roles.monitoring.usage import job_gpu_use, samples
from components.roles.monitoring.usage.job_gpu_use import Limits, apply_limits, read_limits, summary_of
from components.roles.monitoring.usage.role import role
from components.roles.monitoring.usage.samples import ANSWER, CANCEL, JOBS, SAMPLES, Summary, Use, read_summary, summary
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job, parts_of, with_parts
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import Held, SlurmError
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell, assert_ok, script_of

NOW = 1_790_000_000
GRES = "NodeName=a1 Name=gpu Type=h200 File=/dev/nvidia[0-1]\n"
SMI = "0, 00000000:10:00.0, {}, 1000\n1, 00000000:11:00.0, 0, 4\n"
BUSY = Use(gpus=1, count=60, percents=5400, idle=0, peak=2048)
IDLE = Use(gpus=1, count=60, percents=0, idle=60, peak=4, unused=1, unused_minutes=60)


def job(**fields: Any) -> Job:
    given = {"nodes": "a1", "start": NOW - 3600, "allocated": "cpu=1,gres/gpu=1,gres/gpu:h200=1", **fields}
    return Job(7, "train", "ada", 6001, given.pop("flags", ("RUNNING",)), **given)


# Samples.


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with GPUs, of which job 7 has one."""
    shell.write("/etc/tailrack/gres.conf", GRES)
    shell.write(f"{JOBS}/7", "0\n")
    return shell


def sampled(shell: Shell, percent: int = 90) -> dict[str, Any]:
    """Take a sample; the node's answer to the head node."""
    shell.stub("setpriv", "exit 9")
    shell.stub("runuser", f"echo '{SMI.format(percent)}'")
    assert_ok(shell.command("gpu-use"))
    jobs: dict[str, Any] = json.loads(shell.command("gpu-use", "answer").stdout)["jobs"]
    return jobs


def test_only_the_gpus_that_slurm_gave_a_job_count_for_it_until_an_hour_after_its_end(node: Shell) -> None:
    node.write(f"{JOBS}/8", "1\n")
    node.write(f"{JOBS}/9", "5\n")
    assert sampled(node).keys() == {"7", "8"}
    uses = sampled(node)
    assert Use(**uses["7"]) == Use(gpus=1, count=2, percents=180, peak=1000)
    assert Use(**uses["8"]) == Use(gpus=1, count=2, idle=2, peak=4)
    node.path(f"{JOBS}/7").unlink()
    assert sampled(node)["7"]["count"] == 2
    os.utime(node.path(f"{SAMPLES}/7"), (NOW - 4000, NOW - 4000))
    assert sampled(node).keys() == {"8"}
    assert not node.path(f"{SAMPLES}/7").exists()


def test_a_gpu_without_power_a_driver_that_fails_and_a_file_that_was_cut_off_end_nothing(node: Shell) -> None:
    node.write(MINUTES, "6\n")
    node.stub("runuser", "echo '0, 00000000:10:00.0, 0, 4, [N/A], [N/A]'")
    errors = [node.command("gpu-use").stderr for _ in range(2)]
    assert ["nvidia0: no figure of power" in error for error in errors] == [True, False]
    node.write(f"{SAMPLES}/7", '{"0": [1, 2')
    node.stub("runuser", "exit 9")
    assert node.command("gpu-use").returncode == 0
    assert node.command("gpu-use", "answer").stdout == json.dumps({"jobs": {"7": Use(gpus=1).__dict__}})


# The summary.


def test_a_summary_is_read_again_also_with_the_backticks_of_sacctmgr() -> None:
    for use, running in ((BUSY, False), (IDLE, True), (Use(gpus=1), False)):
        made = summary(use, 1, 3600, {"USD": 2.5}, running=running)
        text = with_parts('see ada\'s "ticket" 5', use=made)
        assert read_summary(text) == read_summary(text.replace('"', "`")) == made, use
        assert parts_of(text)["comment"] == "see ada s  ticket  5"
        newer = with_parts(text, use=Summary(False, 1, 2.0))
        assert (read_summary(newer), parts_of(newer)["comment"]) == (Summary(False, 1, 2.0), "see ada s  ticket  5")
    for comment in ("", "ada's job", "[1]", '{"use":1}', '{"use":{"gpus":1}}', "[" * 100_000):
        assert read_summary(comment) is None, comment[:20]


def test_a_job_on_two_nodes_pays_its_share_of_each_and_idle_gpus_of_both_count() -> None:
    answers = {"a1": {"7": BUSY}, "a2": {"7": IDLE}}
    book = {"a1": [Stay(0, None, 8.0, "USD")], "a2": [Stay(0, None, 3.0, "EUR")]}
    made = summary_of(job(nodes="a[1-2]", allocated="gres/gpu=2"), answers, {"a1": 8, "a2": 1}, book, NOW)
    assert made == Summary(True, 2, 2.0, 45, 50, 2.0, {"USD": 1.0, "EUR": 3.0}, 1, 60)
    # A node that does not answer leaves hours and costs.
    made = summary_of(job(flags=("COMPLETED",), end=NOW - 1800), {}, {"a1": 8}, book, NOW)
    assert made == Summary(False, 1, 0.5, costs={"USD": 0.5})


def test_which_jobs_get_a_new_summary() -> None:
    for given, running, due in (
        (job(), True, True),
        (job(), False, False),
        (job(allocated="cpu=1"), True, False),
        (job(flags=("COMPLETED", "COMPLETING"), end=NOW), True, False),
        (job(flags=("PENDING",), nodes=""), True, False),
        (job(flags=("CANCELLED",), start=0, nodes=""), True, False),
        (job(flags=("COMPLETED",), end=NOW), False, True),
        # Recorded, after it was requeued once.
        (job(flags=("COMPLETED",), end=NOW - 9), False, False),
        # Its nodes have forgotten it.
        (job(flags=("COMPLETED",), end=NOW - 4000), False, False),
    ):
        assert job_gpu_use.is_due(given, {f"7 {NOW - 9}"}, NOW, running=running) is due, given


def test_a_malformed_answer_of_a_node_counts_as_none() -> None:
    uses = ('{"gpus": -1}', '{"gpus": true}', '{"gpus": "1"}', '{"other": 1}')
    jobs = [f'{{"jobs": {{"7": {use}}}}}' for use in uses]
    for text in ("", "[]", "{}", '{"jobs": [1]}', "[" * 100_000, *jobs):
        assert job_gpu_use.read_answer(text) is None, text


@pytest.fixture
def play(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A head node on which one job runs and another has ended on a1, whose answer is known."""
    # The last task of an array has the array's own number.
    ran = {"nodes": "a1", "start": NOW - 7200, "end": NOW - 60, "allocated": "gres/gpu=1"}
    ended = Job(8, "x", "bob", 6002, ("COMPLETED",), array=8, task=2, **ran)  # type: ignore[arg-type]
    nodes = [Node("a1", frozenset({"MIXED"}), gpus="h200:2")]
    monkeypatch.setattr(job_gpu_use, "jobs_and_nodes", lambda: ([job(), ended], nodes, {}))
    monkeypatch.setattr(job_gpu_use, "ask_nodes", lambda names: {name: {"7": BUSY, "8": IDLE} for name in names})
    monkeypatch.setattr(job_gpu_use, "read_book", dict)
    monkeypatch.setattr("time.time", lambda: NOW)
    shell.stubs("scontrol", "sacctmgr")
    return shell


def test_a_running_jobs_summary_goes_to_slurmctld_and_an_ended_ones_to_slurmdbd(play: Shell) -> None:
    play.stub("sacct", "echo '8|2026-11-26T18:00:00|'")
    assert play.command("job-gpu-use", "--now").returncode == 0
    final = f"admincomment={with_parts('', use=Summary(False, 1, 1.98, 0, 100))}"
    so_far = with_parts("", use=Summary(True, 1, 1.0, 90, 0, 2.0))
    assert play.calls == [
        "scontrol show jobs --json",
        f"scontrol update jobid=7 admincomment={so_far}",
        "sacct -X -n -P -j 8_2 -o JobIDRaw,End,AdminComment",
        f"sacctmgr -i modify job where jobid=8_2 set {final}",
    ]
    # Once only.
    recorded = final.partition("=")[2].replace('"', "`")
    play.stub("sacct", f"echo '8|2026-11-26T18:00:00|{recorded}'")
    assert play.command("job-gpu-use", "--now").returncode == 0
    assert play.calls[4:] == play.calls[:3]


def test_a_final_text_survives_a_job_that_is_sent_again(play: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    play.stub("sacct", "echo '8|2026-11-26T18:00:00|'")
    assert play.command("job-gpu-use").returncode == 0
    first = play.calls[-1]
    # The reconfiguration; slurmctld may forget the job at once.
    running = with_parts("", use=Summary(True, 1, 1.0, unused=1, minutes=22))
    play.stub("sacct", f"echo '8|2026-11-26T18:00:00|{running}'")
    monkeypatch.setattr(job_gpu_use, "jobs_and_nodes", lambda: ([], [], {}))
    assert play.command("job-gpu-use").returncode == 0
    assert (first, play.calls[-1]) == (first, first)
    assert first.startswith('sacctmgr -i modify job where jobid=8_2 set admincomment={"use":{"running":false')
    # Nothing can replace it now.
    play.stub("sacct", f"echo '8|2026-11-26T18:00:00|{with_parts('', use=Summary(False, 1, 1.98))}'")
    assert play.command("job-gpu-use").returncode == 0
    calls = len(play.calls)
    assert play.command("job-gpu-use").returncode == 0
    assert len(play.calls) == calls


def test_a_job_that_slurmdbd_does_not_take_stays_due_and_its_name_is_in_the_log(play: Shell) -> None:
    play.stub("sacct", "echo '8|2026-11-26T18:00:00|'")
    play.stub("sacctmgr", "echo 'Connection refused' >&2; exit 1")
    done = assert_ok(play.command("job-gpu-use", "--now"))
    assert "slurmdbd does not take the GPU use of job 8_2: Connection refused" in done.stderr
    assert not play.path(samples.RECORDED).exists()


def test_the_head_node_answers_itself_and_a_node_that_does_not_answer_is_missing(shell: Shell) -> None:
    shell.write("/var/lib/tailrack/node-name", "head\n")
    shell.write("/var/lib/tailrack/members/a1/address", "100.64.0.2\n")
    shell.write(ANSWER, f"#!/bin/bash\necho '{json.dumps({'jobs': {'7': BUSY.__dict__}})}'").chmod(0o755)
    shell.stub("ssh-keygen")
    shell.stub("ssh", "exit 255")
    assert shell.call(job_gpu_use.ask_nodes, ["a1", "head", "stranger"]) == {"head": {"7": BUSY}}
    assert len([call for call in shell.calls if call.startswith("ssh ")]) == 1


# What users see.


def test_sll_and_why_show_idle_gpus_of_a_running_job(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = with_parts("", use=summary(IDLE, 1, 3600, {}, running=True))
    assert gpu_figures(idle) == ("0 %, 1 idle", "100 %", "0.0 GiB", "1.00", "")
    busy = with_parts("", use=summary(BUSY, 1, 3600, {"EUR": 1.5, "USD": 2.0}, running=True))
    assert gpu_figures(busy) == ("90 %", "0 %", "2.0 GiB", "1.00", "1.50 EUR, 2.00 USD")
    assert gpu_figures(with_parts("", use=Summary(True, 1, 0.5))) == ("", "", "", "0.50", "")
    assert gpu_figures("") == gpu_figures(with_parts("", use=Summary(False, 1, 0.5))) == ("",) * 5
    why = with_gpu_use(job(admin_comment=idle), Why(("It has been running.",)))
    assert why.sentences[1] == (
        "It has had 1 GPU: 1.00 GPU hours, 0 % mean utilization, idle 100 %, 0.0 GiB peak memory. "
        f"Its GPU has been idle for 60 min. {CANCEL}"
    )
    final = with_parts("", use=summary(BUSY, 2, 3600, {"USD": 5.0}, running=False))
    monkeypatch.setattr(slurm, "admin_comment", lambda title: {"7": final}[title])
    ended = job(flags=("COMPLETED",), admin_comment=idle)
    assert with_gpu_use(ended, Why(("It ended.",))).sentences[1] == (
        "It had 2 GPUs: 2.00 GPU hours, 90 % mean utilization, idle 0 %, 2.0 GiB peak memory, 5.00 USD."
    )
    # A requeued job that waits has the summary of its first run.
    waits = job(flags=("PENDING",), admin_comment=idle)
    assert with_gpu_use(waits, Why(("It waits.",))) == Why(("It waits.",))


def test_usage_adds_up_the_jobs_of_each_user_and_cuts_them_at_the_month() -> None:
    final = with_parts("", use=summary(IDLE, 1, 7200, {"USD": 4.0}, running=False))
    held = [
        Held("1", "bob", NOW - 7200, NOW, 7200, "gres/gpu=1", final),
        Held("2", "ada", NOW - 3600, None, 3600, "gres/gpu=4", ""),
        # Before and after a requeue; the second run was suspended for ten minutes.
        Held("3", "ada", NOW - 3600, NOW - 1800, 1800, "gres/gpu=2", ""),
        Held("3", "ada", NOW - 1800, NOW, 1200, "gres/gpu=3", ""),
        Held("4", "eve", NOW - 3600, NOW, 3600, "cpu=4", ""),
    ]
    now = {"2": with_parts("", use=summary(Use(4, 10, 500, 5), 4, 3600, {}, running=True))}
    ada, bob = usages(held, now, NOW - 3600, NOW)
    assert (ada.user, ada.jobs, ada.hours, ada.sampled, ada.idle, ada.costs) == ("ada", 2, 6.0, 4.0, 2.0, {})
    assert (bob.hours, bob.idle, bob.costs) == (1.0, 1.0, {"USD": 2.0})
    lines = as_text([ada, bob], NOW).splitlines()
    assert lines[0].split() == ["USER", "JOBS", "GPU", "HOURS", "IDLE", "COST"]
    assert lines[1].split() == ["ada", "2", "6.00", "50%", "-"]
    assert lines[2].split() == ["bob", "1", "1.00", "100%", "2.00", "USD"]


def test_a_month_ends_at_the_next_one_or_now_and_bad_words_are_refused() -> None:
    assert span("2026-02", NOW) == (1769904000, 1772323200)
    assert span(None, NOW)[1] == NOW
    bad = {"2026-13": "not a month", "november": "not a month", "2026-11; rm": "not a month", "2090-01": "not begun"}
    for month, problem in bad.items():
        with pytest.raises(SlurmError, match=problem):
            span(month, NOW)
    with pytest.raises(SlurmError, match="not a user name"):
        usage.run(argparse.Namespace(month=None, user="--format=x", json=False))


def test_only_root_sees_jobs_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def answer(*command: str, **_: str) -> str:
        calls.append(command)
        return f"7|ada|{NOW}|Unknown|60|gres/gpu=1|my | own\n8|ada|Unknown|Unknown|0||\n"

    monkeypatch.setattr(slurm, "_run", answer)
    for uid, user, words in ((0, "", ["-a"]), (6001, "", []), (6001, "bob", ["-u", "bob"])):
        monkeypatch.setattr("os.geteuid", lambda uid=uid: uid)
        assert slurm.held(0, NOW, user) == [Held("7", "ada", NOW, None, 60, "gres/gpu=1", "my | own")]
        assert list(calls[-1][1 : len(words) + 3]) == [*words, "-D", "-X"], (uid, user)


# The machines.


def test_it_samples_with_the_job_scripts_and_records_with_accounting_too() -> None:
    for section, phases in (
        ({}, {"compute", "services"}),
        ({"accounting": {"enabled": False}}, {"compute"}),
        ({"health": {"enabled": False}}, set()),
    ):
        assert role(parse({**LAB, **section}, base_dir=Path())).files.keys() == phases


def test_only_a_node_with_gpus_samples(shell: Shell) -> None:
    compute = script_of("usage", "machine", "compute")
    for gpus in (0, 2, 0, 2):
        assert_ok(shell.step(compute, {"node_gpu_count": gpus}))
        assert [shell.path(path).exists() for path in (samples.SAMPLER, ANSWER)] == [bool(gpus)] * 2


def test_unused_gpus_of_all_running_jobs_are_one_figure_without_names() -> None:
    text = with_parts("", use=summary(IDLE, 1, 3600, {}, running=True))
    jobs = [job(admin_comment=text), job(admin_comment=text), job(flags=("COMPLETED",), admin_comment=text)]
    (unused,) = [figure for figure in slurm_figures(jobs, []) if figure.name == "tailrack_slurm_gpus_unused"]
    assert unused.samples == [({}, 2)]


def test_each_running_job_with_a_record_has_three_series_and_their_number_is_limited() -> None:
    idle = with_parts("", use=summary(IDLE, 1, 3600, {}, running=True))
    jobs = [
        job(admin_comment=with_parts("", use=summary(BUSY, 4, 3600, {}, running=True))),
        replace(job(qos="interactive", admin_comment=idle), number=8, user="bob"),
        # No record yet; ended; waits again with the record of its first run.
        job(),
        job(flags=("COMPLETED",), admin_comment=idle),
        job(flags=("PENDING",), admin_comment=idle),
    ]
    ada, bob = {"slurm_job": "7", "user": "ada"}, {"slurm_job": "8", "user": "bob"}
    found = {metric.name: metric.samples for metric in job_gpu_figures(jobs)}
    assert found == {
        "tailrack_slurm_job_gpus": [(bob, 1), (ada, 4)],
        "tailrack_slurm_job_gpus_unused": [(bob, 1), (ada, 0)],
        "tailrack_slurm_job_gpu_utilization_ratio": [(bob, 0.0), (ada, 0.9)],
    }
    _, unused, _ = job_gpu_figures(jobs, exempt={"interactive"})
    assert unused.samples == [(bob, 0), (ada, 0)]
    # Those with unused GPUs stay.
    many = [replace(jobs[0], number=number) for number in range(1000)] + [replace(jobs[1], number=5000)]
    for metric in job_gpu_figures(many):
        assert len(metric.samples) == MOST_JOBS
        assert metric.samples[0][0]["slurm_job"] == "5000"


# Limits for unused GPUs.

UNUSED = Summary(True, 2, 1.0, 10, 90, unused=2, minutes=35)
LIMITS = Limits(30, 60, frozenset({"interactive"}))


def applied(shell: Shell, held: Summary, limits: Limits = LIMITS, given: Job | None = None) -> list[str]:
    """Apply limits to one job; what was run."""
    before = len(shell.calls)
    shell.stubs("scontrol", "scancel")
    shell.call(apply_limits, limits, [(given or job(), held)], [given or job()])
    return shell.calls[before:]


def test_a_job_gets_one_warning_per_period_of_unused_gpus(shell: Shell) -> None:
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with mock.patch("components.roles.monitoring.usage.job_gpu_use.files.write", full):
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                applied(shell, UNUSED)
    assert shell.calls == [], "a full disk repeats no warning"
    (call,) = applied(shell, UNUSED)
    assert call == (
        f"scontrol notify 7 tailrack: 2 of its 2 GPUs have been idle for 35 min. {CANCEL} After 60 min without a used "
        "GPU it ends."
    )
    assert applied(shell, UNUSED) == []
    assert applied(shell, replace(UNUSED, unused=0, minutes=0)) == []
    assert len(applied(shell, UNUSED)) == 1
    # A later run of the job.
    assert len(applied(shell, UNUSED, given=job(start=NOW - 60))) == 1


def test_a_job_ends_only_after_a_warning_with_all_gpus_unused(shell: Shell) -> None:
    over = replace(UNUSED, minutes=61)
    assert [call.split()[0] for call in applied(shell, over)] == ["scontrol"]
    assert applied(shell, replace(over, unused=1)) == []
    assert applied(shell, over, replace(LIMITS, end=0)) == []
    assert [call.split()[0] for call in applied(shell, over)] == ["scontrol", "scancel"]
    assert shell.calls[-1] == "scancel 7"
    # The last task of an array, whose number Slurm takes for all of them, and the first part of a heterogeneous job.
    for one in (job(array=7, task=2, start=NOW - 60), job(het=7, start=NOW - 30)):
        assert applied(shell, over, given=one)[0].startswith(f"scontrol notify {one.title} ")
        assert applied(shell, over, given=one)[-1] == f"scancel {one.title}"


def test_a_suspended_job_is_left_alone_and_its_idle_time_starts_again_when_it_resumes(shell: Shell) -> None:
    suspended = job(flags=("SUSPENDED",), switched=NOW - 1800, ran_before=1800)
    assert summary_of(suspended, {"a1": {"7": IDLE}}, {}, {}, NOW) == Summary(True, 1, 0.5, 0, 100)
    for minutes in (35, 65):
        assert applied(shell, replace(UNUSED, minutes=minutes), given=suspended) == []
    resumed = job(switched=NOW - 900, ran_before=1800)
    assert summary_of(resumed, {"a1": {"7": IDLE}}, {}, {}, NOW) == Summary(True, 1, 0.75, 0, 100, unused=1, minutes=15)


def test_a_config_without_limits_warns_no_job(shell: Shell) -> None:
    assert shell.call(read_limits) is None
    config = {"qos": [{"name": "interactive"}], "unused_gpus": {"end_minutes": 60, "exempt_qos": ["interactive"]}}
    made = role(parse({**LAB, "accounting": config}, base_dir=Path()))
    shell.write(samples.UNUSED_GPUS, made.files["services"][-1].text)
    assert shell.call(read_limits) == LIMITS
