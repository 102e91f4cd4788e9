"""`tailrack session`: what it submits, what its user sees while it waits and afterwards, and bad input."""

import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.tailrack import session
from components.roles.commands.tailrack.main import main

NUMBER = 28
# Each call is a line of a file; sbatch keeps the script.
SBATCH = """#!/bin/bash
printf '%s\\n' "sbatch $*" >>"$STUBS/calls"
cat >"$STUBS/script"
[ ! -e "$STUBS/refuse" ] || { cat "$STUBS/refuse" >&2; exit 1; }
echo 28
"""
# The first answers come from jobs.0, jobs.1 and so on, the rest from the last.
SCONTROL = """#!/bin/bash
printf '%s\\n' "scontrol $*" >>"$STUBS/calls"
case "$*" in
    'show nodes --json') echo '{"nodes": []}' ;;
    'show job '*)
        n=$(cat "$STUBS/asked" 2>/dev/null || echo 0)
        [ -e "$STUBS/jobs.$((n + 1))" ] && echo $((n + 1)) >"$STUBS/asked"
        ! grep '^slurm_' "$STUBS/jobs.$n" >&2 || exit 1
        cat "$STUBS/jobs.$n" ;;
esac
"""
OTHER = """#!/bin/bash
printf '%s\\n' "${0##*/} $*" >>"$STUBS/calls"
[ ! -e "$STUBS/${0##*/}" ] || cat "$STUBS/${0##*/}"
"""
JUPYTER = """#!/bin/bash
# A stub of Jupyter.
printf '%s\\n' "$*" >"$STUBS/arguments"
stat -c %a "$JUPYTER_TOKEN_FILE" >"$STUBS/mode"
file=$JUPYTER_RUNTIME_DIR/jpserver-5.json
printf '{"port": 20028, "token": "%s", "password": false}' "$(cat "$JUPYTER_TOKEN_FILE")" >"$file"
cp "$file" "$STUBS/written"
"""


def answer(state: str, **changed: Any) -> str:
    job = {
        "job_id": NUMBER,
        "name": "session",
        "user_name": "ada",
        "user_id": os.getuid(),
        "job_state": [state],
        "state_reason": "None",
        "partition": "all",
        "nodes": "" if state == "PENDING" else "a1",
        "node_count": 1,
        "end_time": 1_790_000_000,
        "tres_req_str": "cpu=1,node=1,gres/gpu=1",
        **changed,
    }
    return json.dumps({"jobs": [job]})


class Head:
    """A head node of stubs."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.home, self._capsys = folder / "stubs", folder / "home", capsys
        self.folder.mkdir()
        self.home.mkdir()
        for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL)):
            self.program(self.folder / "bin" / name, text)
        for name in ("scancel", "srun", "sacct"):
            self.program(self.folder / "bin" / name, OTHER)

    def program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def jobs(self, *answers: str) -> None:
        for number, text in enumerate(answers):
            (self.folder / f"jobs.{number}").write_text(text)

    def containers(self) -> None:
        (self.folder / "srun").write_text("  --container-image=[USER@][REGISTRY#]IMAGE\n")

    def session(self, *words: str) -> str:
        """Run the command, which succeeds, and return its output."""
        assert main(["session", *words]) == 0
        return self._capsys.readouterr().out

    def refused(self, *words: str) -> str:
        """Run the command, which fails, and return its error."""
        assert main(["session", *words]) == 1
        return self._capsys.readouterr().err

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def script(self) -> str:
        return (self.folder / "script").read_text()

    def serve(self, **changed: object) -> None:
        place = self.home / session.FOLDER / str(NUMBER)
        place.mkdir(parents=True)
        row = {"port": 20030, "token": "f00d", "password": False, **changed}
        (place / "jpserver-77.json").write_text(json.dumps(row))


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Head:
    made = Head(tmp_path, capsys)
    monkeypatch.setenv("STUBS", str(made.folder))
    monkeypatch.setenv("PATH", f"{made.folder}/bin:/usr/bin:/bin")
    monkeypatch.setenv("SSH_CONNECTION", "198.51.100.9 50000 203.0.113.7 22")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    account = pwd.getpwuid(os.getuid())
    named = pwd.struct_passwd((*account[:5], str(made.home), account[6]))
    monkeypatch.setattr(pwd, "getpwuid", lambda number: named)
    # No test runs as another user, and root has no sessions.
    monkeypatch.setattr(os, "getuid", lambda: 6001)
    monkeypatch.setattr(session, "FIRST_SECONDS", 0.01)
    made.jobs(answer("RUNNING"))
    return made


def test_a_session_is_one_job_that_waits_and_its_user_sees_how_to_reach_it(head: Head) -> None:
    text = head.session()
    options = head.calls[0].split()
    assert options[:2] == ["sbatch", "--parsable"]
    assert {"--time=480", "--gpus=1", "--nodes=1", "--ntasks=1", "--no-requeue", "--job-name=session"} <= set(options)
    assert f"--output={head.home}/{session.FOLDER}/%j.out" in options
    assert head.script == "#!/bin/bash\nexec sleep infinity\n"
    assert text == (
        "submitted job 28\n"
        "job 28 runs on a1 until 2026-09-21 14:13 UTC\n"
        "\n"
        "Once, on your computer, so that it knows the nodes:\n"
        "    ssh ada@203.0.113.7 tailrack ssh-config --head 203.0.113.7 >>~/.ssh/config\n"
        "Then, on your computer:\n"
        "    ssh a1\n"
        "On the head node, a shell with the job's CPUs and GPUs:\n"
        "    srun --jobid=28 --overlap --pty bash\n"
        "To end it: scancel 28\n"
    )


def test_the_options_reach_sbatch_and_an_earlier_session_is_shown(head: Head) -> None:
    assert "    ssh a1\n" in head.session("--job", "28")
    assert head.calls == ["scontrol show job 28 --json"]
    head.session("--gpus", "h200:2", "--hours", "0.1", "--cpus", "6", "--partition", "rack")
    assert head.calls[1].endswith("--gpus=h200:2 --cpus-per-task=6 --partition=rack")
    assert "--time=6 " in head.calls[1]


def test_why_it_waits_is_printed_once_for_each_reason(head: Head) -> None:
    waits = [answer("PENDING", state_reason=reason) for reason in ("None", "Resources", "Resources", "JobHeldUser")]
    configuring = answer("RUNNING", job_state=["RUNNING", "CONFIGURING"])
    head.jobs(*waits, configuring, answer("RUNNING"))
    text = head.session()
    assert text.count("Ctrl-C cancels it") == 1
    assert text.count("It waits for 1 node with cpu=1,node=1,gres/gpu=1 in total, and is next.") == 1
    assert "It is held by its user." in text
    assert "next: scontrol release 28" in text
    assert text.index("held by its user") < text.index("ssh a1")


def test_a_slurmctld_that_restarts_ends_no_wait(head: Head) -> None:
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    head.jobs(answer("PENDING", state_reason="Resources"), away, away, answer("RUNNING"))
    assert "    ssh a1\n" in head.session()


def test_another_port_and_an_unknown_address_are_printed(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "198.51.100.9 50000 203.0.113.7 2022")
    line = "ssh -p 2022 ada@203.0.113.7 tailrack ssh-config --head 203.0.113.7 --port 2022 >>~/.ssh/config"
    assert line in head.session()
    monkeypatch.delenv("SSH_CONNECTION")
    assert "ssh ada@HEAD-NODE tailrack ssh-config --head HEAD-NODE >>" in head.session()


def test_without_waiting_the_user_sees_how_to_ask_later(head: Head) -> None:
    head.containers()
    text = head.session("--no-wait", "--code", "--jupyter", "--image", "nvcr.io#nvidia/pytorch:25.08-py3")
    assert "tailrack session --job 28 --code --jupyter '--image=nvcr.io#nvidia/pytorch:25.08-py3'\n" in text
    assert "To end it: scancel 28" in text
    assert not [call for call in head.calls if call.startswith("scontrol")]


def test_a_job_of_somebody_else_that_ended_or_is_refused_is_explained(head: Head) -> None:
    head.jobs(answer("RUNNING", user_id=6002, user_name="bob"))
    assert "job 28 is a job of bob, not yours" in head.refused("--job", "28")
    head.jobs(answer("PENDING", state_reason="Resources"), answer("CANCELLED"))
    error = head.refused()
    assert "job 28 (session) of ada: cancelled" in error
    assert "It was cancelled" in error
    (head.folder / "refuse").write_text("sbatch: error: the job asks for 1 GPUs of any kind\n")
    error = head.refused()
    assert "the job asks for 1 GPUs of any kind" in error
    assert "--gpus 0" in error


def stopped(head: Head, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in another process, and send it Ctrl-C when it waits."""
    # A shell's job in the background, which the tests may be, passes on that it ignores Ctrl-C.
    program = (
        "import os, pwd, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "account = pwd.getpwuid(os.getuid()); "
        "pwd.getpwuid = lambda number: pwd.struct_passwd((*account[:5], sys.argv[1], account[6])); "
        "os.getuid = lambda: 6001; "
        "from components.roles.commands.tailrack.main import main; sys.exit(main(sys.argv[2:]))"
    )
    line = [sys.executable, "-c", program, str(head.home), "session", *words]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    first = ""
    while "Ctrl-C" not in first and "is starting" not in first:
        first += process.stdout.readline()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    return subprocess.CompletedProcess(line, process.returncode, first + output, errors)


def test_ctrl_c_before_it_runs_cancels_the_job_or_names_one_that_stays(head: Head) -> None:
    head.jobs(answer("PENDING", user_id=6001, state_reason="Resources"))
    done = stopped(head)
    assert (done.returncode, done.stderr) == (1, "")
    assert "cancelled job 28" in done.stdout
    assert head.calls[-1] == "scancel 28"
    head.program(head.folder / "bin/scancel", "#!/bin/bash\necho 'slurmctld is away' >&2; exit 1\n")
    done = stopped(head)
    assert "job 28 is not cancelled: scancel 28: slurmctld is away; run 'scancel 28'" in done.stderr


def test_ctrl_c_while_jupyter_starts_leaves_the_job(head: Head) -> None:
    head.program(head.home / "venv/bin/jupyter-lab", JUPYTER)
    head.jobs(answer("RUNNING", user_id=6001))
    done = stopped(head, "--jupyter")
    assert "job 28 runs on a1; Jupyter is starting" in done.stdout
    assert "tailrack session --job 28 --jupyter; to end it: scancel 28" in done.stdout
    assert "scancel 28" not in head.calls


def test_a_server_without_token_and_password_is_ended(head: Head) -> None:
    head.serve(token="")
    error = head.refused("--job", "28", "--jupyter")
    assert "every user of the node could run programs as you" in error
    assert "cancelled job 28" in error
    assert head.calls[-1] == "scancel 28"


def test_a_jupyter_that_fails_is_shown_with_the_end_of_its_output(head: Head) -> None:
    output = head.home / "out"
    output.write_text("socket timed out\njupyter-lab: not found\n")
    failed = answer(
        "FAILED",
        standard_output=str(output),
        exit_code={"return_code": {"set": True, "number": 127}, "signal": {"id": {"set": False, "number": 0}}},
    )
    head.jobs(answer("RUNNING"), failed)
    error = head.refused("--job", "28", "--jupyter")
    assert "command was not found" in error
    assert "  | socket timed out\n  | jupyter-lab: not found" in error


def test_without_any_jupyter_or_with_one_that_never_starts_the_error_says_so(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    makes = "make one with 'python3 -m venv ~/venv && ~/venv/bin/pip install jupyterlab'"
    assert f"you have no JupyterLab; {makes}" in head.refused("--jupyter")
    assert head.calls == []
    monkeypatch.setattr(session, "SERVER_SECONDS", 0)
    assert "Jupyter has not started within 0 minutes" in head.refused("--job", "28", "--jupyter")


def test_jupyter_is_searched_in_three_places(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "mine/bin/jupyter-lab", head.home / "venv/bin/jupyter-lab", head.folder / "bin/jupyter-lab"]
    for path in paths:
        head.program(path, JUPYTER)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "mine"))
    for path in paths:
        assert session.find_jupyter(head.home) == str(path)
        path.unlink()


def test_jupyter_of_an_image_runs_in_it_and_so_do_shells(head: Head) -> None:
    head.containers()
    head.serve()
    text = head.session("--jupyter", "--image", "pytorch")
    inside = "--container-image=pytorch --container-mount-home --no-container-remap-root"
    assert f"srun {inside} --container-env=JUPYTER_TOKEN_FILE,JUPYTER_RUNTIME_DIR jupyter-lab --no-bro" in head.script
    assert f"srun --jobid=28 --overlap {inside} --pty bash" in text


def test_bad_input_is_refused_before_anything_is_submitted(head: Head) -> None:
    for words, error in (
        (["--gpus", "-1"], "--gpus '-1' is not a number of GPUs"),
        (["--gpus", "two"], "write 2, or h200:2 for a kind"),
        (["--gpus", "1 --uid=0"], "is not a number of GPUs"),
        (["--hours", "0"], "--hours 0 is not between 0 and 8760"),
        (["--hours", "nan"], "--hours nan is not"),
        (["--hours", "1e9"], "write 8, or 0.5"),
        (["--cpus", "0"], "--cpus 0 is not a number of CPUs"),
        (["--partition", "a b"], "'sinfo -s' shows all"),
        (["--partition", ""], "--partition '' is no partition"),
        (["--image", "x\n#SBATCH --uid=0"], "is no image; write pytorch"),
        (["--image", "$(touch x);"], "is no image"),
        (["--job", "28,29"], "is not the number of a job"),
    ):
        # argparse takes a value that begins with a dash only after an equals sign.
        assert error in head.refused(f"{words[0]}={words[1]}"), words
        assert head.calls == [], words


def test_the_token_is_in_a_file_for_the_user_alone_and_leaves_with_the_job(head: Head) -> None:
    jupyter = head.home / "my programs" / "jupyter-lab"
    head.program(jupyter, JUPYTER)
    environment = {"PATH": "/usr/bin:/bin", "STUBS": str(head.folder), "SLURM_JOB_ID": str(NUMBER)}
    text = session.script(head.home, str(jupyter))
    done = subprocess.run(["bash"], input=text, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    row = json.loads((head.folder / "written").read_text())
    assert len(row["token"]) == 48
    assert int(row["token"], 16)
    assert (head.folder / "mode").read_text() == "600\n"
    assert (head.folder / "arguments").read_text() == "--no-browser --ip=127.0.0.1 --port=61028\n"
    assert not (head.home / session.FOLDER / str(NUMBER)).exists()


def test_the_folder_is_the_users_alone_and_old_output_goes(head: Head) -> None:
    session.prepare(head.home)
    folder = head.home / session.FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name, days in (("1.out", 40), ("2.out", 1), ("mine.txt", 40)):
        (folder / name).write_text("")
        os.utime(folder / name, (time.time() - days * 86400,) * 2)
    session.prepare(head.home)
    assert sorted(path.name for path in folder.iterdir()) == ["2.out", "mine.txt"]


def test_a_servers_file_that_is_not_whole_is_no_server_yet(head: Head) -> None:
    place = head.home / session.FOLDER / str(NUMBER)
    place.mkdir(parents=True)
    for text in ("", "{", "[]", '{"port": "1", "token": "x"}', '{"port": true, "token": "x"}', '{"port": 1}', "\udcff"):
        (place / "jpserver-1.json").write_bytes(text.encode(errors="surrogateescape"))
        assert session.read_server(head.home, NUMBER) is None, text
