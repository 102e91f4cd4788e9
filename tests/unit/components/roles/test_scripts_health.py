"""Role health: the program that Slurm runs before and after each job, our scripts, and what a node gets of them."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from components.roles.monitoring.health import leftovers
from components.roles.monitoring.health.settings import PROLOG
from components.roles.order import roles
from components.roles.role import folder_of, template
from components.steps.composition import compose
from stacks.config import parse
from tests.unit.configs import LAB, refusal
from tests.unit.shell import Shell, assert_ok

PROGRAM = "/etc/slurm/tailrack-prolog"
LIB = "/usr/local/lib/tailrack"
MINE = "#!/bin/bash\necho mine\n"


def put(shell: Shell, name: str, text: str, mode: int = 0o755) -> None:
    path = shell.write(f"{LIB}/prolog.d/{name}", f"#!/bin/bash\n{text}\n")
    path.chmod(mode)


def run(shell: Shell, limit: int = 20) -> subprocess.CompletedProcess[str]:
    """Slurm's program on a node, with the scripts that are there."""
    text = template("slurm", "tailrack-prolog").replace("KIND", "prolog").replace("LIMIT=20", f"LIMIT={limit}")
    # The stubs are before the machine's own commands.
    text = text.replace("export PATH=", f"export PATH={shell.root / 'stubs'}:").replace("-k 5", "-k 1")
    shell.write("/proc/sys/kernel/random/boot_id", "boot-1\n")
    shell.path("/run/tailrack").mkdir(exist_ok=True)
    path = shell.write(PROGRAM, shell.inside(text))
    shell.stub("systemd-run")
    shell.stub("logger", f"cat >>{shell.root / 'journal'} </dev/stdin 2>/dev/null || true")
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "6001", "SLURMD_NODENAME": "a1"}
    return subprocess.run(["bash", str(path)], env=environment, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)  # fmt: skip


def failure(shell: Shell) -> dict[str, object]:
    found: dict[str, object] = json.loads(shell.path("/run/tailrack/last-failure.json").read_text())
    return found


def test_scripts_run_in_name_order_and_other_files_do_not(shell: Shell) -> None:
    ran = shell.path("/ran")
    for name in ("50-mine", "10-ours", "20-next"):
        put(shell, name, f"echo {name} $SLURM_JOB_ID >>{ran}")
    put(shell, "30-off", f"echo off >>{ran}", 0o644)
    put(shell, "README", f"echo readme >>{ran}")
    assert run(shell).returncode == 0
    assert ran.read_text().splitlines() == ["10-ours 7", "20-next 7", "50-mine 7"]
    assert not shell.path("/run/tailrack/last-failure.json").exists()


def test_the_first_script_that_fails_ends_it_and_is_named_with_its_words(shell: Shell) -> None:
    put(shell, "10-ours", 'echo "next: mount \\"it\\"\\\\again"; echo first; echo "no scratch	here"; echo; exit 3')
    put(shell, "20-next", f"touch {shell.path('/later')}")
    assert run(shell).returncode == 1
    assert not shell.path("/later").exists()
    told = failure(shell)
    assert told["script"] == "prolog.d/10-ours"
    assert told["what"] == "ended with status 3: no scratch here"
    assert (told["job"], told["remedy"], told["boot_id"]) == ("7", 'mount "it"\\again', "boot-1")
    assert shell.path("/run/tailrack/last-failure.json").stat().st_mode & 0o777 == 0o644
    assert any("--unit=tailrack-drain-reason" in call for call in shell.calls)
    assert "no scratch" in shell.path("/journal").read_text()


def test_a_script_that_hangs_is_killed_or_prints_anything_is_named_in_json(shell: Shell) -> None:
    # It leaves a child that hangs too.
    put(shell, "10-ours", "echo waiting for it; trap '' TERM; sleep 60 & sleep 60")
    assert run(shell, limit=1).returncode == 1
    assert failure(shell)["what"] == "took longer than 1 s; its last output: waiting for it"
    assert "see 'journalctl -t tailrack-prolog' on a1" in str(failure(shell)["remedy"])
    put(shell, "10-ours", "echo counting; kill -9 $$")
    assert run(shell).returncode == 1
    assert failure(shell)["what"] == "was killed by a signal (KILL); its last output: counting"
    put(shell, "10-ours", "printf '\\x01\\xff\"\\\\}{\\0 %.0s' {1..9000}; exit 1")
    assert run(shell).returncode == 1
    assert len(str(failure(shell)["what"])) <= 301


# What a machine gets.


def health(shell: Shell, phase: str, **section: object) -> None:
    (role,) = [role for role in roles(parse({**LAB, "health": section}, base_dir=Path())) if role.name == "health"]
    assert_ok(shell.step(compose([role], ["machine", phase]), {**role.values, "share_mount": "/shared"}))


def test_a_pod_gets_the_health_check_with_its_library_and_the_users_scripts_without_systemd(shell: Shell) -> None:
    health(shell, "pod", prolog={"50-mine": MINE})
    assert {path.name for path in shell.path(f"{LIB}/prolog.d").iterdir()} == {"10-job", "30-health", "50-mine"}
    health_check = shell.path("/usr/local/sbin/tailrack-nhc").read_text().splitlines()
    assert health_check[1].startswith("export LD_PRELOAD=")
    assert health_check[2].startswith("exec ")
    health(shell, "pod", enabled=False)
    assert not shell.path("/usr/local/sbin/tailrack-nhc").exists()
    assert not [call for call in shell.calls if call.startswith("systemctl")]


def test_the_users_own_scripts_lie_beside_ours_and_go_with_their_line_in_the_config(shell: Shell) -> None:
    health(shell, "compute", prolog={"50-mine": MINE}, epilog={"60-mine": MINE})
    mine = shell.path(f"{LIB}/prolog.d/50-mine")
    assert mine.read_text() == MINE
    assert os.access(mine, os.X_OK)
    health(shell, "compute", epilog={"60-mine": MINE})
    assert [path.name for path in sorted(shell.path(f"{LIB}/prolog.d").iterdir())] == sorted(PROLOG)
    assert shell.path(f"{LIB}/epilog.d/60-mine").exists()
    # Turned off, nothing of it is left.
    health(shell, "compute", enabled=False)
    assert not shell.path(f"{LIB}/prolog.d").exists()
    assert not shell.path(f"{LIB}/epilog.d").exists()


def test_the_config_rejects_an_unusable_script_with_a_remedy() -> None:
    for scripts, words in (
        ({"mine": MINE}, "'mine', which is not two digits"),
        ({"50-../x": MINE}, "which is not two digits"),
        ({"10-job": MINE}, "the name of tailrack's own script"),
        ({"50-mine": "echo no interpreter"}, "whose first line names no interpreter"),
        ({"50-mine": "#!/bin/bash\n" + "x" * 40_000}, "not a text of at most 32768 bytes"),
        ({f"{number}-x": MINE for number in range(10, 40)}, "more than 20 scripts"),
        ({"50-mine": 7}, "a mapping from a name"),
        ("echo", "a mapping from a name"),
    ):
        said = refusal({"health": {"prolog": scripts}})
        assert "tailrack:health.prolog" in said, scripts
        assert words in said, scripts


# Our scripts.


def script(shell: Shell, kind: str, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    text = shell.inside(template("health", f"{kind}-{name}")).replace("-ge 1000", "-ge 0")
    path = shell.write(f"/{kind}-{name}", text)
    given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_JOB_UID": "6001", "SLURM_JOB_GID": "6001"}
    return subprocess.run(["bash", str(path)], env={**given, **environment}, capture_output=True, text=True, timeout=60)


def test_a_job_is_noted_and_forgotten_and_an_unhealthy_node_rejects_it_for_limited_time(shell: Shell) -> None:
    for kind, noted in (("prolog", True), ("epilog", False)):
        assert script(shell, kind, "10-job").returncode == 0
        file = shell.path("/run/tailrack-private/jobs/7")
        assert (file.read_text() if file.exists() else "") == "6001\n" * noted, kind
    assert script(shell, "prolog", "30-health").returncode == 0
    path = shell.write("/run/tailrack/unhealthy", "next: make room\ndisk: /x is full\n")
    done = script(shell, "prolog", "30-health")
    assert (done.returncode, done.stdout) == (1, "next: make room\ndisk: /x is full\n")
    os.utime(path, (0, 0))
    assert script(shell, "prolog", "30-health").returncode == 0


def test_nothing_is_cleaned_while_the_user_has_another_job_here(shell: Shell) -> None:
    shell.write("/run/tailrack-private/jobs/8", "6001\n")
    shell.write("/run/tailrack-private/jobs/9", "60010\n")
    cleaned = "# uses: health/jobs\nonly_after_the_last_job\necho cleaned"
    text = cleaned.replace("# uses: health/jobs", (folder_of("health") / "jobs.sh").read_text())
    path = shell.write("/clean", shell.inside(text))

    def said(uid: str) -> str:
        given = {"PATH": os.environ["PATH"], "SLURM_JOB_UID": uid, "SLURM_JOB_GID": uid}
        return subprocess.run(["bash", str(path)], env=given, capture_output=True, text=True, timeout=60).stdout

    assert (said("6001"), said("6002"), said("0"), said("x")) == ("", "cleaned\n", "", "")


def test_a_folder_of_enroots_that_somebody_else_has_made_is_named(shell: Shell) -> None:
    shell.write("/etc/tailrack/containers", f"LOCAL={shell.path('/local')}\n")
    mine = str(os.getuid())
    own = {"SLURM_JOB_UID": mine, "SLURM_JOB_GID": mine, "SLURM_JOB_USER": "bob"}
    for folder in (f"/run/enroot/user-{mine}", f"/local/imported/user-{mine}-bob"):
        shell.path(folder).parent.mkdir(parents=True)
        assert script(shell, "prolog", "40-enroot", **own).returncode == 0
        assert shell.path(folder).stat().st_mode & 0o777 == 0o700
    shell.path("/run/enroot/user-6002").symlink_to("/etc")
    done = script(shell, "prolog", "40-enroot", SLURM_JOB_UID="6002")
    assert done.returncode == 1
    assert "should be a folder of uid 6002 and is: 0 symbolic link" in done.stdout


def test_a_folder_that_root_created_before_a_power_cut_becomes_the_users(shell: Shell) -> None:
    shell.write("/etc/tailrack/containers", f"LOCAL={shell.path('/local')}\n")
    folder = shell.path("/local/imported/user-6002-bob")
    folder.mkdir(parents=True)
    shell.stubs("flock", "chown")
    job = {"PATH": f"{shell.root}/stubs:{os.environ['PATH']}", "SLURM_JOB_UID": "6002", "SLURM_JOB_USER": "bob"}
    assert script(shell, "prolog", "40-enroot", **job).returncode == 0
    assert shell.calls == ["flock -w 15 9", f"chown -h 6002:6001 {folder}"]


def test_the_epilog_tells_jobs_from_logins_and_services(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_name="ada"))
    # The second one is beside other hierarchies, as some hosts of containers have them.
    for groups, of_slurm in (
        ("0::/system.slice/slurmd.service", True),
        ("9:name=systemd:/docker/1f\n4:memory:/docker/1f\n0::/docker/1f/system.slice/slurmd.service", True),
        ("0::/system.slice/slurmstepd.scope/system", True),
        ("0::/user.slice/user-6001.slice/session-3.scope", False),
        ("0::/system.slice/cron.service", False),
        ("", False),
    ):
        shell.write("/proc/77/cgroup", f"{groups}\n")
        assert leftovers.started_by_slurm("77", 6001, shell.root) == of_slurm, groups
        # Where a login needs a job, what it left is a job's.
        users = shell.write("/etc/tailrack/job-users", "ada\n")
        assert leftovers.started_by_slurm("77", 6001, shell.root) == (of_slurm or "user.slice" in groups), groups
        users.unlink()


def test_what_a_job_left_running_is_killed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "60"])
    texts = {"status": "State:\tS\nUid:\t6001\t", "cgroup": "0::/system.slice/slurmd.service", "comm": "a\x1bb"}
    files = [shell.write(f"/proc/{process.pid}/{name}", text) for name, text in texts.items()]
    monkeypatch.setenv("SLURM_JOB_UID", "6001")
    monkeypatch.setattr(leftovers, "time", SimpleNamespace(sleep=lambda _: files[0].unlink()))
    assert leftovers.main([], shell.root) == 0
    assert process.wait(10) == -9
