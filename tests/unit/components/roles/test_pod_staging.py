"""A job's folder is brought to its pod and back; slurmctld, rsync and the pod are played."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.tailrack.wait_reason import Why
from components.roles.commands.tailrack.why import with_staging
from components.roles.pods.pod_staging import steps
from components.roles.pods.pod_staging.record import KEPT, NOT_IN, Record, read_record
from components.slurm_commands.jobs import Job
from tests.unit.shell import Shell, assert_ok, script_of

PROJECT = Path(__file__).parents[4]
FOLDER = "/shared/home/ada/run"
LOST = "the connection to p1 was lost or refused"
DENIED = "rsync: open x failed: Permission denied (13)"


def job(**changes: Any) -> str:
    fields = {"job_id": 12, "user_name": "ada", "current_working_directory": FOLDER, "nodes": "p1", "partition": "pods"}
    fields |= {"job_state": ["RUNNING", "CONFIGURING"]}
    return json.dumps({"jobs": [{**fields, "job_id": 11}, {**fields, **changes}]})


@pytest.fixture
def head(shell: Shell) -> Shell:
    """A head node with the pod p1 and the job 12 there."""
    shell.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:6001:6001::/shared/home/ada:/bin/bash\n")
    shell.write("/var/lib/tailrack/pods/p1", "")
    shell.write("/var/lib/tailrack/node-name", "head\n")
    shell.stubs("ssh-keygen", "scancel")
    shell.stub("runuser", 'shift 3; exec "$@"')
    shell.stub("du", r"printf '4096\t.'")
    shell.stub("prlimit", 'shift; exec "$@"')
    shell.stub("rsync")
    play(shell, job())
    return shell


def play(shell: Shell, answer: str) -> None:
    shell.write("/answer", answer)
    hostnames = 'echo "$3" | tr , "\\n"'
    shell.stub("scontrol", f'case "$2" in job) cat {shell.path("/answer")} ;; hostnames) {hostnames} ;; esac')


def ask(shell: Shell, request: str) -> str:
    done = assert_ok(shell.command("pod-staging", stdin=f"{request}\n"))
    return done.stdout.strip()


def called(shell: Shell, program: str) -> list[str]:
    return [call for call in shell.calls if call.startswith(f"{program} ")]


def record(shell: Shell, number: int = 12) -> Record | None:
    return shell.call(read_record, number)


def test_a_jobs_folder_goes_to_its_pod_as_the_user(head: Shell) -> None:
    assert ask(head, "in 12") == "done"
    (call,) = called(head, "rsync")
    assert "--copy-as=ada -M--copy-as=ada" in call
    assert call.endswith(f"--mkpath {FOLDER}/ p1:{FOLDER}/")
    assert "--update" not in call
    assert "--delete" not in call
    assert record(head) == Record(12, "p1", "ada", FOLDER, "pods")


def test_results_come_back_as_the_user_and_lead_nowhere_else(head: Shell) -> None:
    ask(head, "in 12")
    assert ask(head, "out 12") == "done"
    trial, call = called(head, "rsync")[1:]
    assert "--dry-run --stats" in trial
    for word in ("--copy-as=ada", "--update", "--safe-links", "--chmod=ug-s"):
        assert word in trial
        assert word in call
    assert " -D" not in call
    assert call.endswith(f"p1:{FOLDER}/ {FOLDER}/")
    assert record(head) is None


def test_a_job_that_is_not_on_a_pod_is_left_alone(head: Shell) -> None:
    for nodes in ({"nodes": "a1"}, {"nodes": "p1,a1"}, {"nodes": "../p1"}, {"job_id": 13}):
        play(head, job(**nodes))
        assert ask(head, "in 12") == "done", nodes
    assert not [*called(head, "rsync"), *called(head, "scancel")]


def test_a_folder_of_somebody_else_ends_the_job_and_is_not_opened(head: Shell) -> None:
    home = "/shared/home/ada"
    folders = (home, f"{home}/", f"{home}/../bob/x", "/etc", f"{home}/a\nb")
    users = ({"user_name": "root", "current_working_directory": "/root/x"}, {"user_name": "nobody-here"})
    for count, changes in enumerate((*({"current_working_directory": folder} for folder in folders), *users), 1):
        play(head, job(**changes))
        assert ask(head, "in 12") == "failed", changes
        assert called(head, "scancel") == ["scancel 12"] * count
    assert not [*called(head, "rsync"), *called(head, "du")]


@pytest.mark.parametrize(
    ("status", "errors", "reason"),
    [(255, "ssh: connect to host", LOST), (12, "", LOST),
     (11, "rsync: write failed on x: No space left on device (28)", "the pod has no room for it"),
     (23, DENIED, f"rsync reports: {DENIED}")],
)  # fmt: skip
def test_a_folder_that_does_not_arrive_ends_the_job(head: Shell, status: int, errors: str, reason: str) -> None:
    head.stub("rsync", f"echo '{errors}' >&2; exit {status}")
    assert ask(head, "in 12") == "failed"
    assert called(head, "scancel") == ["scancel 12"]
    (comment,) = [call for call in called(head, "scontrol") if "admincomment" in call]
    assert f"could not be brought to p1: {reason}" in comment
    assert any(call.startswith("scontrol notify 12") for call in head.calls)
    kept = record(head)
    assert kept == Record(12, "p1", "ada", FOLDER, "pods", NOT_IN, reason)
    ended = Job(12, "run", "ada", 6001, ("CANCELLED",))
    assert with_staging(Why(("It was cancelled by root.",)), kept, ended).sentences == (
        f"It was ended because its folder {FOLDER} could not be brought to p1: {reason}.",
    )
    # Its epilog must not fetch anything.
    assert ask(head, "out 12") == "done"
    assert len(called(head, "rsync")) == 1


def test_a_folder_that_is_too_large_is_not_sent_and_too_large_results_stay_on_the_pod(head: Shell) -> None:
    head.stub("du", r"printf '30000000000\t.'")
    assert ask(head, "in 12") == "failed"
    assert not called(head, "rsync")
    reason = "it has 30 GB, and 20 GB can be brought"
    assert record(head) == Record(12, "p1", "ada", FOLDER, "pods", NOT_IN, reason)
    head.stub("du", r"printf '4096\t.'")
    ask(head, "in 12")
    head.stub("rsync", "echo 'Total transferred file size: 99,000,000,000 bytes'")
    assert ask(head, "out 12") == "failed"
    kept = record(head)
    assert kept == Record(12, "p1", "ada", FOLDER, "pods", KEPT, "it has 99 GB, and 20 GB can be brought")
    why = with_staging(Why(("It completed successfully.",)), kept, Job(12, "run", "ada", 6001, ("COMPLETED",)))
    assert why.sentences[-1].startswith(f"Its results are still in {FOLDER} on p1: ")
    assert why.next == f"srun -p pods -w p1 -D {FOLDER} --comment=stage true"


def test_a_job_that_was_cancelled_meanwhile_leaves_no_record(head: Shell) -> None:
    head.write("/cancelled", job(job_state=["CANCELLED", "COMPLETING"]))
    head.stub("rsync", f"cp {head.path('/cancelled')} {head.path('/answer')}")
    assert ask(head, "in 12") == "done"
    assert record(head) is None


def test_a_folder_with_results_that_did_not_come_back_is_not_overwritten(head: Shell) -> None:
    ask(head, "in 12")
    head.stub("rsync", "exit 255")
    assert ask(head, "out 12") == "failed"
    head.stub("rsync")
    play(head, job(job_id=14))
    assert ask(head, "in 14") == "done"
    assert "--update" in called(head, "rsync")[-1]
    assert ask(head, "out 14") == "done"
    assert record(head) is None, "the results of the first job came too"


def test_another_request_is_refused(head: Shell) -> None:
    for request_line in ("", "in", "in 0", "in 12; reboot", "in -1", "up 12", "out 12 13", "in ../../x"):
        assert head.command("pod-staging", stdin=f"{request_line}\n").returncode == 2, request_line
        assert not head.calls, request_line


def test_the_head_node_gets_the_programs_with_the_first_pod_and_loses_them_with_the_last(shell: Shell) -> None:
    shell.stubs("systemctl", "rsync")
    script = script_of("pod_staging", "pod_register")
    for name in ("p1", "p2", "p1"):
        assert_ok(shell.step(script, {"node_name": name}))
    program = shell.path("/usr/local/lib/tailrack/pod-staging")
    assert program.exists()
    assert any("enable" in call and "tailrack-pod-staging.socket" in call for call in called(shell, "systemctl"))
    for name, there in (("p1", True), ("p2", False)):
        assert shell.step(script, {"node_name": name}, "down").returncode == 0
        assert program.exists() is there
    left = [path for path in shell.path("/usr/local/lib/tailrack").glob("*") if path.name.startswith("pod")]
    assert not left
    assert not list(shell.path("/etc/systemd/system").glob("tailrack-pod*"))


def test_staging_rejects_an_old_rsync_and_a_program_of_the_user_in_place_of_ours(shell: Shell) -> None:
    shell.stub("systemctl")
    register, values = script_of("pod_staging", "pod_register"), {"node_name": "p1"}
    for version in ("3.2.6", "3.2.7", "3.4.1", "v3.10.0", "of mine"):
        shell.stub("rsync", f"echo 'rsync  version {version}  protocol version 31'")
        done = shell.step(register, values)
        refused = version == "3.2.6"
        assert (done.returncode, "update rsync to 3.2.7" in done.stderr) == (int(refused), refused), version
    shell.write("/var/lib/tailrack/slurm/base/slurm.conf", "ClusterName=x\nprologslurmctld=/root/mine\n")
    assert "remove prologslurmctld from tailrack:slurm.settings" in shell.step(register, values).stderr


@pytest.fixture
def pod(shell: Shell) -> Shell:
    """A pod with steps of three jobs."""
    titles = ["slurmstepd: [12.0]", "slurmstepd: [13.3]", "slurmstepd: [14.batch]", "slurmstepd: [14.extern]", "bash"]
    for number, title in enumerate(titles, 100):
        shell.write(f"/proc/{number}/cmdline", f"{title}\0")
    return shell


def test_results_wait_for_the_steps_of_their_job_and_not_for_a_users_program(pod: Shell) -> None:
    for number, owner in ((100, 0), (102, 6001)):
        pod.write(f"/proc/{number}/status", f"Name:\tx\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\n")
    with pod.here():
        assert [steps.runs(job) for job in (12, 14, 1)] == [True, False, False]


def python(code: str, path: str = os.environ["PATH"], **environment: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", f"import sys; from components.node import run; run.PATH = {path!r}; {code}"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, env={"PATH": path, **environment}, cwd=PROJECT, text=True, **streams)  # type: ignore[call-overload]


def test_the_connection_ends_when_either_side_ends() -> None:
    for ssh, status, output in (
        ('read -r line; echo "$line"; exit 3', 3, '{"job": 12, "arguments": ["--server", "-sr"]}\n'),
        ("exit 255", 255, ""),
        ("read -r line; cat", 0, "from rsync\n"),
    ):
        stub = f"transfer.ssh_command = lambda *_: ['sh', '-c', {ssh!r}]"
        code = f"from components.roles.pods.pod_staging import transfer; {stub}; "
        values = json.dumps({"key": "k", "node": "p1", "job": 12})
        process = python(f"{code}sys.exit(transfer.link(['p1', 'rsync', '--server', '-sr']))", TAILRACK_POD_LINK=values)
        assert process.stdin, ssh
        if "cat" in ssh:
            process.stdin.write("from rsync\n")
            process.stdin.close()
            process.stdin = None
        # The others end although stdin stays open.
        assert process.wait(30) == status, ssh
        assert process.stdout, ssh
        assert process.stdout.read() == output, ssh


def test_a_pod_answers_with_rsync_and_nothing_else(tmp_path: Path) -> None:
    for arguments, status, output in (
        (["--server", "-sltpre.iLsfxCIvu"], 0, "--server -sltpre.iLsfxCIvu\nrest"),
        (["--server", "--sender", "-s", "."], 0, "--server --sender -s .\nrest"),
        (["--daemon"], 2, ""),
        (["--server", "--rsync-path=/bin/sh"], 2, ""),
        (["--server", "/etc/shadow"], 2, ""),
        ([], 2, ""),
    ):
        stub = tmp_path / "rsync"
        stub.write_text('#!/bin/sh\necho "$@"\ncat\n')
        stub.chmod(0o755)
        code = "from components.roles.pods.pod_staging import steps; sys.exit(steps.run_rsync([]))"
        process = python(code, f"{tmp_path}:{os.environ['PATH']}")
        header = json.dumps({"job": 4000000000, "arguments": arguments})
        stdout, _ = process.communicate(f"{header}\nrest", timeout=30)
        assert (process.returncode, stdout) == (status, output), arguments


@pytest.fixture
def two(head: Shell) -> Shell:
    """A head node with a job on two pods."""
    head.write("/var/lib/tailrack/pods/p2", "")
    play(head, job(nodes="p1,p2"))
    return head


def test_a_pod_that_does_not_get_the_folder_ends_the_job_and_is_named(two: Shell) -> None:
    two.stub("rsync", 'case "$*" in *p2:*) echo "No space left on device" >&2; exit 11 ;; esac')
    assert ask(two, "in 12") == "failed"
    assert record(two) == Record(12, "p2", "ada", FOLDER, "pods", NOT_IN, "the pod has no room for it")
    assert called(two, "scancel") == ["scancel 12"]


def test_results_of_the_other_pods_come_back_if_one_does_not_answer(two: Shell) -> None:
    ask(two, "in 12")
    two.stub("rsync", 'case "$*" in *p1:*) exit 255 ;; esac')
    assert ask(two, "out 12") == "failed"
    assert any(f"p2:{FOLDER}/" in call for call in called(two, "rsync")[2:])
    assert record(two) == Record(12, "p1", "ada", FOLDER, "pods", KEPT, LOST)
    # A later job on both pods brings them.
    two.stub("rsync")
    play(two, job(job_id=14, nodes="p1,p2"))
    ask(two, "in 14")
    assert "--update" in next(call for call in reversed(called(two, "rsync")) if " p1:" in call)
    assert "--update" not in next(call for call in reversed(called(two, "rsync")) if " p2:" in call)
    assert ask(two, "out 14") == "done"
    assert record(two) is None
