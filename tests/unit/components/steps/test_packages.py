"""Packages on a machine that somebody else is still at work on, or that others' sources and packages have spoilt."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from components.node import packages
from components.node.failure import Failure
from components.steps.composition import Script
from tests.unit.configs import RawConfig
from tests.unit.recorded import Build
from tests.unit.shell import Shell, assert_ok

APT_LOCK = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4321 (unattended-upgr)"
DPKG_LOCK = "dpkg: error: dpkg frontend lock was locked by another process with pid 4321"
BROKEN = "E: The repository 'https://packages.example.com/cuda stable Release' does not have a Release file."


@pytest.fixture
def apt(shell: Shell) -> Shell:
    """A machine on which `apt-get install` installs what it is given, and every package has a candidate."""
    (shell.root / "usr/sbin").mkdir(parents=True)
    # As the real one: a line for each that is there, and a failure where one is not known.
    shell.stub(
        "dpkg-query",
        f"""shift 2
        for name; do grep -qsx "$name" "{shell.root}/installed" && echo "$name installed 1.0" || lacks=1; done
        exit $lacks""",
    )
    candidates(shell, "1.0")
    shell.stub("dpkg")
    installs(shell)
    return shell


def candidates(shell: Shell, version: str, first: str = "") -> None:
    """Stub apt-cache: the version that every package has, after a command."""
    shell.stub("apt-cache", f'{first}\nshift; for name; do printf "%s:\\n  Candidate: {version}\\n" "$name"; done')


def installs(shell: Shell, before: str = "", status: int = 0) -> None:
    """Stub apt-get: what it does first, then it installs, then its exit status."""
    policy = shell.path("/usr/sbin/policy-rc.d")
    body = f"""case " $* " in *" -s "*) echo 'Remv nvidia-driver-550 [550.1]' ;; esac
    {before}
    case " $* " in
        *" -s "*) ;;
        *" install "*) printf '%s\\n' "$@" >>"{shell.root}/installed"; cat "{policy}" >"{shell.root}/policy-then" ;;
    esac
    exit {status}"""
    shell.stub("apt-get", body)


def busy(shell: Shell, program: str, lock: str, times: int) -> None:
    """Have a program complain of a lock the first times."""
    stub = shell.root / "stubs" / program
    waiting = f'[ "$(grep -c "^{program} " "{shell.root}/calls")" -gt {times} ] || {{ echo "{lock}" >&2; exit 100; }}\n'
    first, rest = stub.read_text().split("\n", 3)[:3], stub.read_text().split("\n", 3)[3]
    stub.write_text("\n".join([*first, waiting + rest]))


@contextmanager
def machine(shell: Shell, wait: int = 600) -> Iterator[None]:
    """Let functions run on the machine, with its log. `wait`: the seconds to wait for others."""
    with (
        shell.here(),
        shell.path("/log").open("a", encoding="utf-8") as stream,
        contextlib.redirect_stderr(stream),
        mock.patch.object(packages, "APT_SECONDS", wait),
    ):
        yield


def log(shell: Shell) -> str:
    return shell.path("/log").read_text()


def ensure(shell: Shell, *names: str, wait: int = 600) -> None:
    """Have packages installed."""
    with machine(shell, wait):
        packages.ensure("a1", *names)


def failure(shell: Shell, *names: str, wait: int = 600) -> Failure:
    """Return the failure of having packages installed."""
    with pytest.raises(Failure) as caught:
        ensure(shell, *names, wait=wait)
    return caught.value


def test_missing_packages_are_installed_without_starting_daemons(apt: Shell) -> None:
    (apt.root / "installed").write_text("jq\n")
    ensure(apt, "munge", "jq")
    assert "munge" in (apt.root / "installed").read_text().split()
    assert (apt.root / "policy-then").read_text().endswith("exit 101\n")
    assert not apt.path("/usr/sbin/policy-rc.d").exists()


@pytest.mark.parametrize(
    ("program", "lock", "said"),
    [
        ("apt-get", APT_LOCK, "at most 600s: Could not get lock "),
        ("dpkg", DPKG_LOCK, "at most 600s: error: dpkg frontend lock was locked by another process"),
    ],
)
def test_a_lock_is_waited_for_and_its_holder_is_named(apt: Shell, program: str, lock: str, said: str) -> None:
    busy(apt, program, lock, times=3)
    apt.write("/proc/4321/comm", "unattended-upgr\n")
    ensure(apt, "munge")
    (line,) = [line for line in log(apt).splitlines() if "waiting" in line]
    assert said in line
    assert "4321 (unattended-upgr)" in line


def test_a_lock_that_is_never_given_back_ends_the_step_with_its_holders_name(apt: Shell) -> None:
    # It is taken again during the installation.
    installs(apt, before=f'case "$*" in *install*) echo "{APT_LOCK}" >&2; exit 100 ;; esac')
    failed = failure(apt, "munge", wait=0)
    assert failed.reason.startswith("another process has used the package manager for 0s: Could not get lock")
    assert "held by process 4321 (unattended-upgr)" in failed.reason
    assert failed.remedy.startswith("wait until that process ends")
    assert not apt.path("/usr/sbin/policy-rc.d").exists(), "others may start daemons again"


def test_while_a_lock_is_waited_for_others_may_start_daemons(apt: Shell) -> None:
    policy = apt.path("/usr/sbin/policy-rc.d")
    failing = f'case "$*" in *install*) [ -e "{apt.root}/again" ] || {{ echo "{APT_LOCK}" >&2; exit 100; }} ;; esac'
    installs(apt, before=failing)
    policies = []

    def pause(seconds: float) -> None:
        policies.append(policy.exists())
        apt.write("again", "")

    with mock.patch.object(packages, "sleep", pause):
        ensure(apt, "munge")
    assert policies == [False]


def test_a_broken_foreign_source_and_a_package_that_cannot_be_configured_stop_nothing(apt: Shell) -> None:
    installs(apt, before=f'case "$*" in *update) echo "{BROKEN}" >&2; exit 100 ;; esac')
    ensure(apt, "munge")
    assert BROKEN in log(apt)
    assert "munge" in (apt.root / "installed").read_text().split()
    apt.stub("dpkg", "echo 'dpkg: error processing package agent' >&2; exit 1")
    installs(apt, status=100)
    ensure(apt, "jq")


def test_no_package_removes_another_and_the_error_names_the_conflict(apt: Shell) -> None:
    refuses = 'case "$*" in *Remove=false*install*) echo "E: Packages need to be removed" >&2; exit 100 ;; esac'
    installs(apt, before=refuses)
    assert failure(apt, "munge").reason == "installing munge would remove nvidia-driver-550"
    assert all("APT::Get::Remove=false" in call for call in apt.calls if " install " in call and " -s " not in call)


NEW = "Inst munge (1.0 Debian:13 [amd64])\nInst libmunge2 (1.0 Debian:13 [amd64])"


@pytest.mark.parametrize(("rows", "unsafe"), [(NEW, True), (f"{NEW}\nInst libc6 [2.40] (2.41 x [amd64])", False)])
def test_packages_that_a_power_cut_may_have_emptied_come_again(apt: Shell, rows: str, unsafe: bool) -> None:
    record, then = apt.path(packages.UNSAFE), apt.root / "then"
    installs(apt, f"""case " $* " in *" -s "*) echo '{rows}' ;; *" install "*) cp "{record}" "{then}" ;; esac""")
    ensure(apt, "munge")
    assert any("--force-unsafe-io" in call for call in apt.calls) == unsafe
    assert not unsafe or then.read_text() == "munge\nlibmunge2\n"
    assert not record.exists()
    # The power went before the files were on the disk, and comes back; dpkg calls both installed.
    apt.write(packages.UNSAFE, "munge\nlibmunge2\n")
    installs(apt, 'case "$*" in *--reinstall*) exit 100 ;; esac')
    assert "could not install them again: munge libmunge2" in failure(apt, "munge").reason
    assert record.exists()
    installs(apt)
    ensure(apt, "munge")
    (call,) = {call for call in apt.calls if "--reinstall" in call}
    assert call.endswith("--reinstall --no-install-recommends munge libmunge2")
    assert not record.exists()


def updates(shell: Shell) -> int:
    return sum(call.endswith(" update") for call in shell.calls)


def test_package_lists_are_read_once_for_all_steps_of_an_up(apt: Shell) -> None:
    for package in ("munge", "jq", "slurmd"):
        ensure(apt, package)
    assert updates(apt) == 1
    # Those of an hour ago say nothing of now.
    subprocess.run(["touch", "-d", "1 hour ago", apt.path("/run/tailrack-private/package-lists")], check=True)
    ensure(apt, "nftables")
    assert updates(apt) == 2


def test_a_step_that_needs_packages_waits_for_a_running_refresh(apt: Shell) -> None:
    first = f'case "$*" in *update) until [ -e "{apt.root}/joined" ]; do :; done ;; esac'
    installs(apt, before=first)
    with machine(apt):
        packages.begin_lists("munge", "jq")
        apt.write("joined", "")
        packages.ensure("a1", "munge", "jq")
    assert updates(apt) == 1
    # Where nothing is missing nobody looks, nor where they have just been read.
    with machine(apt):
        packages.begin_lists("munge", "jq")
        packages.begin_lists("slurmd")
        assert not packages._reading
    assert updates(apt) == 1


def test_lists_that_an_ended_step_reads_still_are_waited_for_by_the_next_and_not_read_again(apt: Shell) -> None:
    wait = f'until [ -e "{apt.root}/next" ] || [ $SECONDS -gt 50 ]; do :; done'
    installs(apt, before=f'case "$*" in *update) {wait}; : >"{apt.root}/read" ;; esac')
    assert_ok(apt.step(Script({"up": (("begin_lists", "munge"),)}), {}))
    assert not (apt.root / "read").exists()
    with machine(apt):
        # It waits for the lock, as the next step does.
        packages.begin_lists("munge")
        apt.write("next", "")
        packages.refresh_lists("a1")
        assert (apt.root / "read").exists()
    assert updates(apt) == 1


# cloud-init


def wait(shell: Shell, limit: float = 600) -> None:
    with machine(shell), mock.patch.object(packages, "CLOUD_INIT_SECONDS", limit):
        packages.wait_for_cloud_init("a1")


def cloud_init(shell: Shell, state: str, ends: str = "exit 0") -> None:
    """Stub cloud-init: the state it is in, and what waiting for its end does."""
    shell.stub("cloud-init", f'case "$*" in *--wait) {ends} ;; esac\necho "status: {state}"')


def waited(shell: Shell) -> bool:
    return "cloud-init status --wait" in shell.calls


@pytest.mark.parametrize("ends", ["exit 0", "exit 1", "exit 2"], ids=["well", "failed", "with warnings"])
def test_cloud_init_at_work_is_waited_for_however_it_ends(shell: Shell, ends: str) -> None:
    cloud_init(shell, "running", ends)
    wait(shell)
    assert waited(shell)
    assert "waiting for cloud-init, at most 600s" in log(shell)


def test_cloud_init_that_has_not_begun_is_waited_for_while_the_machine_starts(shell: Shell) -> None:
    cloud_init(shell, "not started")
    shell.stub("systemctl", "echo running")
    wait(shell)
    assert not waited(shell)
    shell.stub("systemctl", "echo starting; exit 1")
    wait(shell)
    assert waited(shell)


def test_cloud_init_that_does_not_end_is_named(shell: Shell) -> None:
    cloud_init(shell, "running", "while :; do :; done")
    with pytest.raises(Failure, match=r"^cloud-init has not finished after 0\.2s$") as caught:
        wait(shell, 0.2)
    assert caught.value.remedy.startswith("see 'cloud-init status --long'")


def test_a_head_nodes_package_lists_are_read_while_it_joins(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    (looked,) = stack.packages("head-prepare", "begin_lists")
    (wanted,) = [packages for packages in stack.packages("head-head") if "slurmctld" in packages]
    assert looked == wanted
    assert wanted not in stack.packages("head-prepare")


def test_a_nodes_packages_come_while_the_head_node_is_being_set_up(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    calls = json.loads(stack.plan_text("a1-prepare"))["calls"]["up"][-1][4:]
    (later,) = [packages for packages in stack.packages("a1-prepare") if "slurmd" in packages]
    # slurmd brings munge with it, which would make a key of its own.
    install = next(at for at, call in enumerate(calls) if "slurmd" in call and call[0] != "begin_lists")
    munge = next(at for at, call in enumerate(calls) if "components.roles.slurm.munge.host" in call)
    assert munge < max(at for at, call in enumerate(calls) if "slurmd" in call)
    assert install < munge, "the packages are remembered"
    assert stack.packages("a1-node") == [later]
    # While the machine joins the tailnet their lists are read.
    assert calls[0][0] == "begin_lists"
    assert stack.packages("a1-prepare", "begin_lists") == [later]
    assert stack.packages("a1-prepare", "remember_ahead") == [later]
