"""Phases `gate` and `accept` of all roles: what they say of a machine, and which machines they stop untouched."""

import json
import subprocess
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from components.node import passwd
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.base.machine.host import check
from components.roles.role import Value
from components.steps.composition import CHECK, CHECK_OF_NODE, compose
from tests.unit import fake_nvidia_smi
from tests.unit.shell import ROLES, Shell, assert_fails, assert_ok

Gate = Callable[..., subprocess.CompletedProcess[str]]
NO_BACKUP = dict.fromkeys(("backup_host", "backup_port", "backup_bucket"), "")
FACTS = {
    "cpus", "memory_mb", "gpus", "gpu_kind", "gpu_devices", "gpu_memory_mb", "gpu_driver", "gpu_nvlinks",
    "kernel_nfs_server", "open_ports", "cgroups", "mpi", "slurm_version",
}  # fmt: skip
# A machine whose config promises no GPU, in a cluster whose controller is the newest and confines no jobs.
HEADER: dict[str, Value] = {
    "node_promised_cpus": 0, "node_promised_mb": 0, "user_keys_identities": [],
    "node_gpu_kind": "", "node_gpu_count": 0, "head_slurm_version": "24.11.5-4", "head_slurm_oldest": "21.08",
    "head_cgroups": False, "slurm_needs_cgroups": "", "node_adopt": False,
    "tailnet_control_url": None, "node_take_over": False,
    "munge_cluster": "lab", "users_lines": ["ada 6001 6001"], "user_groups_lines": [], "user_groups_members": [],
    "share_mount": "/nowhere/shared",
    "share_path": "/nowhere",
    "share_node": "",
    "tailnet_tag": "tag:cluster", "user_limits_enabled": True, "node_login": "", "backup_host": "", "backup_port": 22,
}  # fmt: skip


def packages(shell: Shell, installed: str = "", candidate: str = "", state: str = "installed") -> None:
    """Stub apt: the version of Slurm that is installed, and the one that could be."""
    shell.stub(
        "dpkg-query",
        f'if [ "${{!#}}" = munge ]; then printf "installed 0.5.16-1"; exit; fi\n'
        f'case $* in *" slurmd "*) [ -z "{installed}" ] || echo "slurmd {state} {installed}" ;; *) exit 1 ;; esac',
    )
    shown = candidate or "(none)"
    shell.stub("apt-cache", f'printf "slurmd:\\n  Installed: (none)\\n  Candidate: {shown}\\n  Version table:\\n"')
    shell.stub("apt-get")


@pytest.fixture
def gate(shell: Shell) -> Gate:
    """Run the gate on a machine that is all right, with the given values in its header."""
    shell.write("etc/os-release", 'ID=debian\nVERSION_ID="13"\n')
    shell.write("proc/filesystems", "nodev\tsysfs\nnodev\tnfsd\n\text4\n")
    shell.write("proc/meminfo", "MemTotal:        8192000 kB\nMemFree: 1 kB\n")
    shell.write("proc/1/cgroup", "0::/init.scope\n")
    shell.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
    shell.stub("modprobe", "exit 1")
    (shell.root / "dev/net").mkdir(parents=True)
    (shell.root / "dev/net/tun").symlink_to("/dev/null")  # any device that can be opened
    packages(shell, candidate="24.11.5-4")

    def run(**values: Any) -> subprocess.CompletedProcess[str]:
        return shell.step(compose(ROLES, CHECK_OF_NODE), {**HEADER, **values}, name="a1-prepare")

    return run


def add_gpus(shell: Shell, count: int) -> None:
    fake_nvidia_smi.install(shell, [fake_nvidia_smi.gpu(number) for number in range(count)])
    fake_nvidia_smi.devices(shell, *range(count))


def test_a_good_machine_tells_its_facts_and_is_not_changed(gate: Gate, shell: Shell) -> None:
    before = set(shell.root.rglob("*"))
    facts = json.loads(assert_ok(gate()).stdout)
    assert facts.keys() == FACTS
    assert (facts["memory_mb"], facts["gpus"]) == (8000, 0)
    assert (facts["kernel_nfs_server"], facts["cgroups"]) == (True, True)
    assert facts["slurm_version"] == "24.11.5-4"
    assert isinstance(facts["cpus"], int)
    assert not [call for call in shell.calls if call.startswith(("apt-get", "systemctl", "chown"))]
    made = set(shell.root.rglob("*")) - before
    names = {str(path.relative_to(shell.root)) for path in made if "stubs" not in path.parts}
    assert names <= {
        "calls", "var", "var/lib", "var/lib/tailrack", "var/log", "var/log/tailrack", "var/log/tailrack/a1-prepare.log",
        "run/tailrack-private", "run/tailrack-private/tailrack.lock",
    }  # fmt: skip
    # A container reports its limits and not the resources of its host.
    shell.write("sys/fs/cgroup/cpu.max", "100000 100000\n")
    shell.write("sys/fs/cgroup/memory.max", f"{2000 << 20}\n")
    facts = json.loads(gate().stdout)
    assert (facts["cpus"], facts["memory_mb"]) == (1, 2000)


def test_the_check_reports_major_versions_of_open_mpi_and_pmix(gate: Gate, shell: Shell) -> None:
    installed = '*munge) printf "installed 0.5.16-1" ;; *" slurmd "*) echo "slurmd installed 24.11.5-4" ;;'
    shell.stub("dpkg-query", f'case "$*" in {installed} esac')
    for version, pmix, told in (
        ("4.1.6-7ubuntu2", "libpmix2t64 5.0.1-4.1", "4-pmix5"),  # Ubuntu 24.04
        ("4.1.2-2ubuntu1", "libpmix2 4.1.2-2ubuntu1", "4-pmix4"),  # Ubuntu 22.04
        ("1:5.0.7-1", "other 1", "5"),
        ("", "libpmix2 4.1.2-2ubuntu1", ""),
        ("git-2031", "libpmix2 4.1.2-2ubuntu1", ""),
    ):
        name, _, number = pmix.partition(" ")
        candidates = f"openmpi-bin) echo '{version or '(none)'}' ;; {name}) echo {number} ;; *) echo '(none)' ;;"
        shown = f'echo "$name:"; echo "  Candidate: $(case $name in {candidates} esac)"'
        shell.stub("apt-cache", f"shift; for name; do {shown}; done")
        assert json.loads(gate().stdout)["mpi"] == told, (version, pmix)


def test_a_machine_without_slurm_its_release_or_its_gpus_is_stopped(gate: Gate, shell: Shell) -> None:
    promised = {"node_gpu_kind": "h200", "node_gpu_count": 8}
    for there in (0, 7):
        if there:
            add_gpus(shell, there)
        shows = f"the config promises 8 GPUs (h200), this machine shows {there} in "
        assert_fails(gate(**promised), shows, "next: correct gpu: of a1 in the config")
    shell.write("var/lib/tailrack/slurm-release", "debian-13-amd64-25.11.7-aaaaaaaaaaaa-1\n")
    assert_fails(gate(), "set tailrack:slurm.release again")
    shell.path("var/lib/tailrack/slurm-release").unlink()
    packages(shell)
    remedy = "next: add Debian's or Ubuntu's (universe) package source"
    assert_fails(gate(), "no package source of this machine has slurmd", remedy)


def test_a_node_runs_the_controllers_release_or_one_that_it_accepts(gate: Gate, shell: Shell) -> None:
    for here, controller, oldest, problem in (
        ("24.11.5-4", "24.11.5-4", "23.02", None),
        ("24.11.1-1", "24.11.5-4", "23.02", None),
        ("24.11.9-1", "24.11.5-4", "23.02", None),  # of one release
        ("1:23.11.4-1", "24.11.5-4", "23.02", None),
        ("23.11.4-1", "25.05.5-4", "24.05", "is too old for the controller's 25.05, which accepts 24.05 and newer"),
        ("23.02.7-1", "24.11.5-4", "23.02", "Slurm 23.02 is too old: dynamic nodes need 23.11 or newer"),
        ("22.05.8-4", "24.11.5-4", "23.02", "Slurm 22.05 is too old: dynamic nodes need 23.11 or newer"),
        ("23.11.4-1", "25.11.2-1", "25.11", "whose srun reaches only nodes of its own"),
        ("25.05.9-1", "25.11.2-1", "25.11", "Slurm 25.05 is older than the controller's 25.11"),
        ("25.05.1-1", "24.11.5-4", "23.02", "Slurm 25.05 is newer than the controller's 24.11"),
        ("25.11.2-1", "1:24.11.5-4", "23.02", "Slurm 25.11 is newer than the controller's 24.11"),
        ("2:25.05.1-1", "24.11.5-4", "23.02", "Slurm 25.05 is newer"),
    ):
        packages(shell, candidate=here)
        done = gate(head_slurm_version=controller, head_slurm_oldest=oldest)
        if problem is None:
            assert json.loads(done.stdout)["slurm_version"] == here, (here, controller)
        else:
            assert (done.returncode, done.stdout) == (1, ""), (here, controller)
            assert done.stderr.startswith("tailrack: a1: step a1-prepare failed: "), (here, controller)
            assert problem in done.stderr, (here, controller)
            assert "\nnext: " in done.stderr, (here, controller)


def test_the_check_requires_cgroups_if_the_config_requires_them_everywhere(gate: Gate, shell: Shell) -> None:
    needed = {"head_cgroups": True, "slurm_needs_cgroups": "tailrack:slurm.cgroups is true"}
    assert gate(**needed).returncode == 0
    shell.write("sys/fs/cgroup/cgroup.controllers", "cpu pids\n")
    assert json.loads(gate().stdout)["cgroups"] is False
    assert gate(head_cgroups=True).returncode == 0, "other machines may confine jobs"
    assert_fails(
        gate(**needed),
        "tailrack:slurm.cgroups is true, but systemd has no memory controller on this machine",
        "set tailrack:slurm.cgroups to false for the whole cluster",
    )


def test_a_machine_confines_jobs_only_with_both_controllers_and_one_hierarchy(gate: Gate, shell: Shell) -> None:
    own, others, docker = "0::/init.scope\n", "1:memory:/\n0::/init.scope\n", "0::/docker/0abc/init.scope\n"
    for systemds_own, folder, controllers, confines in (
        (own, "", "cpuset cpu memory\n", True),
        (own, "", "cpu memory\n", False),
        (own, "", "cpuset cpu\n", False),
        (own, "", "", False),
        # Others beside the unified hierarchy: slurmd ends there.
        (others, "", "cpuset cpu memory\n", False),
        # In a container its own count.
        (docker, "docker/0abc/", "pids\n", False),
        (docker, "docker/0abc/", "cpuset memory pids\n", True),
    ):
        shell.write("proc/1/cgroup", systemds_own)
        shell.write(f"sys/fs/cgroup/{folder}cgroup.controllers", controllers)
        assert json.loads(gate().stdout)["cgroups"] is confines, (systemds_own, controllers)


def test_the_check_rejects_a_head_node_with_an_old_slurm(gate: Gate, shell: Shell) -> None:
    packages(shell, candidate="22.05.8-4")
    done = shell.step(compose(ROLES, CHECK), HEADER | NO_BACKUP, name="head-prepare")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Slurm 22.05 is too old: dynamic nodes need 23.11 or newer" in done.stderr


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda shell: shell.path("/run/systemd/system").rmdir(), "systemd does not run here"),
        (lambda shell: (shell.root / "stubs/apt-get").unlink(), "this is not Debian or Ubuntu"),
        (lambda shell: shell.path("/dev/net/tun").unlink(), "/dev/net/tun does not work"),
    ],
    ids=["no systemd", "no apt", "no tun"],
)
def test_an_unsuitable_machine_is_named(gate: Gate, shell: Shell, damage: Callable[[Any], None], problem: str) -> None:
    damage(shell)
    assert assert_fails(gate(), problem, "\nnext: ").stdout == ""


def test_the_error_for_an_unsuitable_pod_names_an_alternative(shell: Shell, gate: Gate) -> None:
    (shell.root / "run/systemd/system").rmdir()
    (shell.root / "dev/net/tun").unlink()
    assert_fails(gate(), "without systemd and without a TUN device", "rent a virtual machine")


def test_a_login_that_is_not_root_is_refused(shell: Shell) -> None:
    refused = pytest.raises(Failure, match="the login is not root, and sudo did not give root")
    with shell.here(), mock.patch.object(passwd, "is_root", return_value=False), refused:
        check(Step("a1", "a1-prepare"))


def test_one_check_reports_all_problems_of_a_machine(gate: Gate, shell: Shell) -> None:
    shell.write("etc/passwd", "eve:x:6001:6001::/home/eve:/bin/sh\n")
    add_gpus(shell, 2)
    shell.write("etc/slurm/slurm.conf", "ClusterName=atlas\n")
    done = gate(node_gpu_kind="h200", node_gpu_count=8, head_slurm_version="24.05.1")
    assert done.returncode != 0
    assert done.stdout == ""
    (first,) = [line for line in done.stderr.splitlines() if line.startswith("tailrack: ")]
    for problem in (
        "uid 6001 is eve here and should be ada",
        "; also: the config promises 8 GPUs (h200), this machine shows 2",
        "; also: this machine serves another cluster",
        "; also: Slurm 24.11 is newer than the controller's 24.05",
    ):
        assert first.count(problem) == 1, done.stderr
    (remedy,) = [line for line in done.stderr.splitlines() if line.startswith("next: ")]
    assert "from 6002 up, which is free on a1" in remedy
    assert remedy.count("; also: ") == first.count("; also: ")
    assert not [path for path in shell.path("/run").rglob("*") if path.is_file() and path.suffix != ".lock"]
