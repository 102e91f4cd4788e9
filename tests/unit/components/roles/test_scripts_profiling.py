"""Role profiling: the driver's option and perf's, on, off, twice, and what the health check says until a restart."""

import pytest

from components.validation.preflight.node import check_profiling
from tests.unit.shell import Shell, assert_ok, script_of

OPTION = "/etc/modprobe.d/tailrack-profiling.conf"
SYSCTL = "/etc/sysctl.d/91-tailrack-profiling.conf"
PARANOID = "/proc/sys/kernel/perf_event_paranoid"
PARAMETERS = "/proc/driver/nvidia/params"
BOOT = "/proc/sys/kernel/random/boot_id"


@pytest.fixture(autouse=True)
def machine(shell: Shell) -> Shell:
    """A machine of Debian with a driver that was loaded without the option."""
    shell.stub("systemd-detect-virt", "exit 1")
    shell.write(PARANOID, "3\n")
    shell.write(PARAMETERS, "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    shell.write(BOOT, "boot-1\n")
    return shell


def run(shell: Shell, *, on: bool, gpus: int = 2) -> None:
    values = {"profiling_enabled": on, "node_gpu_count": gpus}
    for _ in range(2):
        assert_ok(shell.step(script_of("profiling", "compute", used=on), values))


def log(shell: Shell) -> str:
    return str(shell.path("/var/log/tailrack/a1-step.log").read_text())


def paranoid(shell: Shell) -> str:
    return str(shell.path(PARANOID).read_text().strip())


def findings(shell: Shell) -> list[str]:
    return [item["seen"] for item in check_profiling(shell.root)]


def restart(shell: Shell, restricted: int) -> None:
    shell.write(PARAMETERS, f"RmProfilingAdminOnly: {restricted}\n")
    shell.write(BOOT, "boot-2\n")


def test_users_get_gpu_counters_after_a_restart_and_perf_at_once(shell: Shell) -> None:
    run(shell, on=True)
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in shell.path(OPTION).read_text()
    assert paranoid(shell) == "2"
    assert "kernel.perf_event_paranoid = 2" in shell.path(SYSCTL).read_text()
    assert "users can read GPU counters after the next restart of a1" in log(shell)
    assert findings(shell) == ["users cannot read GPU counters yet: the driver is still loaded as before"]
    restart(shell, 0)
    run(shell, on=True)
    assert "after the next restart" not in log(shell)
    assert findings(shell) == []


def test_taken_out_of_the_config_it_is_undone(shell: Shell) -> None:
    run(shell, on=True)
    restart(shell, 0)
    run(shell, on=False)
    assert not shell.path(OPTION).exists()
    assert not shell.path(SYSCTL).exists()
    assert paranoid(shell) == "3"
    assert findings(shell) == ["users can still read GPU counters: the driver is still loaded as before"]
    shell.write(BOOT, "boot-3\n")
    shell.write(PARAMETERS, "RmProfilingAdminOnly: 1\n")
    assert findings(shell) == []


def test_off_it_touches_nothing(shell: Shell) -> None:
    shell.write(PARAMETERS, "RmProfilingAdminOnly: 0\n")
    run(shell, on=False)
    assert paranoid(shell) == "3"
    assert not shell.path("/etc/modprobe.d").exists()
    # The machine's own option.
    assert findings(shell) == []


def test_a_kernel_that_allows_as_much_or_more_stays_as_it_is(shell: Shell) -> None:
    for own in ("2", "1", "-1"):
        shell.write(PARANOID, f"{own}\n")
        run(shell, on=True)
        assert (paranoid(shell), shell.path(SYSCTL).exists()) == (own, False)
        run(shell, on=False)
        assert paranoid(shell) == own
    shell.write(PARANOID, "3\n")
    run(shell, on=True)
    shell.write(PARANOID, "1\n")
    run(shell, on=False)
    assert paranoid(shell) == "1", "somebody has set it meanwhile"


def test_in_a_container_the_kernel_of_its_host_stays_as_it_is(shell: Shell) -> None:
    shell.stub("systemd-detect-virt")
    run(shell, on=True)
    assert paranoid(shell) == "3"
    assert not shell.path(SYSCTL).exists()
