"""Role user_limits: the drop-ins of a head node, and the reasons why they have no effect there."""

import json
import os
from typing import Any

import pytest

from components.node import packages
from components.roles.access.user_limits import host as user_limits_host
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of

UNITS = "/etc/systemd/system"
ON: dict[str, Any] = {
    "user_limits_enabled": True,
    "user_limits_memory_percent": 50,
    "user_limits_cpu_percent": 75,
    "user_limits_tasks": 4096,
}
OFF = {**ON, "user_limits_enabled": False}


@pytest.fixture(autouse=True)
def machine(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A head node of four CPUs with a running slurmctld, on which limits have an effect, which `admin` manages."""
    shell.write("/etc/passwd", "root:x:0:0::/root:/bin/bash\nadmin:x:1000:1000::/home/admin:/bin/bash\n")
    shell.write("/etc/pam.d/common-session", "session required pam_unix.so\nsession optional pam_systemd.so\n")
    shell.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids\n")
    shell.write("/proc/4711/oom_score_adj", "0")
    shell.stub("sshd", "echo usepam yes")
    monkeypatch.setattr(packages, "missing_of", lambda names: [])
    systemctl = """
    case "$*" in
    "show -P MainPID slurmctld.service "*) printf '4711\\n\\n0\\n' ;;
    "show -P ControlGroup "*) echo /system.slice ;;
    list-units*) echo "user-6001.slice loaded active active User Slice of UID 6001" ;;
    esac"""
    shell.stub("systemctl", systemctl)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(user_limits_host, "managing_login", lambda: "admin")
    monkeypatch.setattr(user_limits_host, "exists", lambda program: True)
    return shell


def run(shell: Shell, values: dict[str, Any] = ON) -> str:
    """Run the step twice; return the reason that it reports why users are not limited."""
    for _ in range(2):
        done = assert_ok(shell.step(script_of("user_limits", "machine", "head"), values))
    return str(json.loads(done.stdout)["user_limits"])


def test_users_have_the_limits_of_the_config_and_daemons_and_the_managers_do_not(shell: Shell) -> None:
    assert run(shell) == "none"
    expected = ["MemoryMax=50%", "MemorySwapMax=0", "TasksMax=4096", "CPUWeight=100", "CPUQuota=300%"]
    # cron and atd start users' programs outside of slices of users, and go on when the kernel ends one of these.
    outside = ["[Service]", *expected, "OOMPolicy=continue"]
    manager = ["[Slice]", "CPUWeight=1000", "MemoryMin=3%"]
    for unit, its_lines in (
        ("user-.slice.d/tailrack", ["[Slice]", *expected]),
        ("cron.service.d/tailrack", outside),
        ("atd.service.d/tailrack", outside),
        ("user-0.slice.d/tailrack", manager),
        ("user-1000.slice.d/tailrack", manager),
        ("slurmctld.service.d/tailrack-protect", ["[Service]", "MemoryMin=3%", "OOMScoreAdjust=-900"]),
    ):
        assert shell.path(f"{UNITS}/{unit}.conf").read_text().splitlines()[1:] == its_lines, unit
    assert shell.path("/proc/4711/oom_score_adj").read_text() == "-900"
    assert [call for call in shell.calls if "restart" in call] == []
    for unit in ("system.slice", "user.slice"):
        assert shell.path(f"{UNITS}/{unit}.d/tailrack.conf").exists()
    assert_ok(shell.step(script_of("machine", "leave"), {"node_adopt": False}))
    assert list(shell.path(UNITS).iterdir()) == []


def test_another_login_of_tailrack_takes_the_place_of_the_former(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    run(shell)
    shell.write(f"{UNITS}/user-1234.slice.d/own.conf", "[Slice]\n")
    monkeypatch.setattr(user_limits_host, "managing_login", lambda: "root")
    run(shell)
    assert not shell.path(f"{UNITS}/user-1000.slice.d").exists()
    assert shell.path(f"{UNITS}/user-0.slice.d/tailrack.conf").exists()
    assert shell.path(f"{UNITS}/user-1234.slice.d/own.conf").exists()


def test_limits_taken_out_of_the_config_go_and_daemons_stay_protected(shell: Shell) -> None:
    run(shell)
    shell.write(f"{UNITS}/cron.service.d/own.conf", "[Service]\n")
    assert run(shell, OFF) == "none"
    there = {str(path.relative_to(shell.path(UNITS))) for path in shell.path(UNITS).rglob("*.conf")}
    assert not any(name.startswith(("user-.slice.d", "atd")) for name in there)
    assert {name for name in there if name.startswith("cron")} == {"cron.service.d/own.conf"}
    assert "slurmctld.service.d/tailrack-protect.conf" in there


def test_a_machine_without_controllers_is_reported(shell: Shell) -> None:
    shell.write("/sys/fs/cgroup/cgroup.controllers", "hugetlb\n")
    assert run(shell) == "controllers"
    assert run(shell, OFF) == "none"


@pytest.mark.parametrize("lacking", ["pam_systemd", "UsePAM"])
def test_logins_that_stay_outside_of_slices_are_reported(shell: Shell, lacking: str) -> None:
    if lacking == "UsePAM":
        shell.stub("sshd", "echo usepam no")
    else:
        shell.write("/etc/pam.d/common-session", "session required pam_unix.so\n# pam_systemd.so\n")
    assert run(shell) == "logins"
    check = shell.step(script_of("user_limits", "check_node"), {**ON, "node_login": "192.0.2.1 22"})
    assert_fails(check, "users of the log-in node a1 would have no limits", lacking, "user_limits: {enabled: false}")


def test_a_small_debian_gets_the_module_that_makes_slices(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    monkeypatch.setattr(packages, "missing_of", lambda names: [name for name in names if name not in installed])
    monkeypatch.setattr(packages, "try_ensure", lambda host, *names: installed.extend(names))
    run(shell)
    assert installed == ["libpam-systemd"]
    assert shell.calls.count("systemctl start systemd-logind.service") == 1
