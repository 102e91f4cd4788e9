"""Pods: which phases they run, what their check refuses, how their services are kept, how a container comes back."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from components.node import services
from components.node.failure import Failure
from components.node.install import FOLDER as PROGRAMS
from components.node.step.work import JOINED
from components.roles.access.users.accounts import Account, UsersValues
from components.roles.network.tailnet.pod import tailscaled_program
from components.roles.pods.pod.host import NETWORK, make_homes, use_network
from components.roles.pods.pod.saved import SAVED, require_room, restore, save, save_again
from components.roles.role import template
from components.roles.slurm.munge.switch_key import DIGESTS, digest_of
from components.steps import composition
from components.steps.composition import compose
from tests.unit.configs import AUTH_KEY, HOSTS, MUNGE_KEY, RawConfig
from tests.unit.phases import called
from tests.unit.recorded import Build
from tests.unit.shell import ROLES, Shell, assert_fails, assert_ok

PODS = composition.on_pods(ROLES)
CHECK = compose([r for r in PODS if r.name in ("machine", "munge", "foreign_cluster")], composition.CHECK_OF_POD)
FOLDER = "/usr/local/lib/tailrack/services/slurmd"


def with_pods() -> RawConfig:
    """A cluster of hosts with a pod at a site of its own."""
    pod = {**HOSTS["sites"][0]["hosts"][1], "name": "pod1", "address": "192.0.2.77"}
    site = {"name": "pods", "kind": "hosts", "hosts": [pod], "pods": True, "accept_pod_risk": True}
    return {**HOSTS, "sites": [*HOSTS["sites"], site]}


# Which phases pods run.


def test_a_pod_goes_through_its_own_phases_and_those_that_roles_name_for_pods() -> None:
    assert called(compose(PODS, composition.CHECK_OF_POD).calls)[0] == "machine/pod_check"
    assert called(compose(PODS, composition.JOIN_OF_POD).calls) == [
        "machine/pod_join", "tailnet/pod_join", "tailnet/check_path", "munge/pod_join", "fabric/pod_join",
        "ssh_trust/pod_join",
    ]  # fmt: skip
    node = called(compose(PODS, composition.POD).calls)
    assert [call for call in node if not call.startswith("pod_staging/")] == [
        "machine/node", "names/pod", "users/machine", "user_groups/machine", "ssh_trust/pod", "gpu/pod", "pod/pod",
        "health/pod", "slurm/machine", "slurm/pod",
    ]  # fmt: skip


def test_a_stack_with_a_pod_gives_it_its_plans_and_other_machines_the_same_as_before(build: Build) -> None:
    stack, before = build(with_pods()), build(HOSTS)
    for step in ("dgx1-prepare", "dgx1-node", "dgx1-register"):
        assert stack.plan_text(step) == before.plan_text(step)
    assert "slurm/pod" in stack.called("pod1-node")
    assert "slurm/compute" not in stack.called("pod1-node")
    assert not [name for name in stack.names if name == "validate-pods"], "jobs of measurements need the share"


def test_the_plan_of_the_next_start_has_no_secret(build: Build) -> None:
    kept = json.dumps(build(with_pods()).header("pod1-node"))
    assert "node_boot_values" in kept
    assert MUNGE_KEY not in kept
    assert AUTH_KEY not in kept


# What the check refuses.


@pytest.fixture
def check(shell: Shell) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Check a pod that is all right, unless the test breaks it."""
    shell.write("proc/meminfo", "MemTotal:        8192000 kB\n")
    shell.path("/workspace").mkdir()
    shell.path("/workspace").chmod(0o777)
    shell.path("/run/systemd/system").rmdir()
    shell.stub("apt-get")
    return lambda: shell.step(CHECK, {"munge_cluster": "lab", "node_take_over": False}, name="p1-prepare", host="p1")


def test_a_pod_has_a_size_a_closed_volume_and_no_systemd(check: Callable[[], Any], shell: Shell) -> None:
    assert json.loads(assert_ok(check()).stdout)["memory_mb"] == 8000
    assert shell.path("/workspace").stat().st_mode & 0o777 == 0o755
    shell.path("/workspace").rmdir()
    assert "with a volume that is mounted at /workspace" in check().stderr
    shell.path("/run/systemd/system").mkdir()
    assert_fails(check(), "it is no pod", "without pods: true")


def test_a_full_volume_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for free_mb, full in ((0, True), (31, True), (32, False)):
        volume = os.statvfs_result((4096, 4096, 10**6, 10**6, free_mb * 256, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _, volume=volume: volume)
        said = shell.failure_of(require_room, "p1")
        assert (f"the volume of p1 at /workspace is full ({free_mb} MB are free)" in said) == full, free_mb
        assert ("du -xm /workspace" in said) == full, free_mb
    monkeypatch.undo()
    shell.path("/workspace").mkdir()
    shell.stub("rsync", 'echo "rsync: write failed: No space left on device (28)" >&2; exit 11')
    assert "the volume of p1 at /workspace is full" in shell.failure_of(save, "p1")
    shell.stub("rsync", 'echo "rsync: connection unexpectedly closed" >&2; exit 12')
    said = shell.failure_of(save, "p1")
    assert "rsync cannot save " in said
    assert " unexpectedly closed" in said


# Services.


def play_runit(shell: Shell, *, runs: bool) -> None:
    shell.write(services.SUPERVISOR, "")
    shell.stub("sv", f'[ "$1" != status ] || echo "{"run: (pid 7)" if runs else "down:"}"')


def test_a_service_is_started_and_restarts_only_with_another_program(shell: Shell) -> None:
    play_runit(shell, runs=False)
    shell.call(services.keep, "slurmd", "#!/bin/sh\nexec slurmd", "p1")
    assert shell.path(f"{FOLDER}/run").stat().st_mode & 0o777 == 0o700
    assert "svlogd" in shell.path(f"{FOLDER}/log/run").read_text()
    assert [call.split()[1] for call in shell.calls] == ["status", "status", "start"]
    play_runit(shell, runs=True)
    shell.call(services.keep, "slurmd", "#!/bin/sh\nexec slurmd", "p1")
    assert not [call for call in shell.calls if "restart" in call]
    shell.call(services.keep, "slurmd", "#!/bin/sh\nexec slurmd -v", "p1")
    assert shell.calls[-1].startswith("sv -w 20 force-restart")
    shell.hurry()
    shell.stub("sv", "exit 1")
    failed = shell.failure_of(services.keep, "slurmd", "#!/bin/sh", "p1")
    assert "tail /var/log/tailrack/slurmd/current" in failed


def test_the_service_functions_use_units_under_systemd(shell: Shell) -> None:
    shell.stub("systemctl")
    with shell.here():
        services.restart("munge")
        services.stop("slurmd")
        assert services.is_active("munge")
        assert "journalctl -u munge" in services.log_of("munge", "a1")
    assert shell.calls == ["systemctl restart munge", "systemctl stop slurmd", "systemctl is-active -q munge"]


def test_tailscaled_gets_the_proxy_in_etc_environment_and_nothing_else_of_it(shell: Shell) -> None:
    with shell.here():
        assert "\nexec tailscaled" in tailscaled_program()
    shell.write("/etc/environment", 'HTTPS_PROXY="http://ada:it\'s $HOME@10.0.0.1:3128"\nLD_PRELOAD=/tmp/x.so\n')
    program = shell.call(tailscaled_program)
    before, _ = program.split("exec tailscaled")
    shown = subprocess.run(
        ["sh", "-c", f'{before.splitlines()[-1]}\nprintf %s "$HTTPS_PROXY"'], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "http://ada:it's $HOME@10.0.0.1:3128"
    assert "LD_PRELOAD" not in program


# Users' homes.


HOMES = UsersValues([Account("ada", 6001, 6001)], "/shared", "/export/shared", "")


def test_a_home_is_on_the_volume_at_the_path_of_the_share_unless_that_has_files(shell: Shell) -> None:
    shell.path("/workspace").mkdir()
    shell.write("/etc/passwd", "ada:x:6001:6001::/shared/home/ada:/bin/bash\n")
    mine = shell.write("/shared/mine", "text")
    assert "move /shared away" in shell.failure_of(make_homes, HOMES, "p1")
    mine.unlink()
    mine.parent.rmdir()
    for _ in range(2):
        shell.call(make_homes, HOMES, "p1")
    assert shell.path("/shared").readlink() == Path("/workspace/shared")
    assert shell.owners["/workspace/shared/home/ada"][0] == "ada"
    assert shell.path("/workspace/shared/home/ada").stat().st_mode & 0o777 == 0o700


# A new container.


def test_a_new_container_gets_files_and_packages_before_later_checks(check: Callable[[], Any], shell: Shell) -> None:
    saved = {"/var/lib/tailrack/node-name": "p1\n", "/etc/tailrack/plans/boot.json": "{}", JOINED: "digest\n{}"}
    saved |= {"/etc/munge/munge.key": MUNGE_KEY, DIGESTS: f"{digest_of(MUNGE_KEY)} lab\n"}
    for path, text in saved.items():
        shell.write(f"{SAVED}{path}", text)
    shell.write("/workspace/.tailrack/packages/munge_0.5.16-1_amd64.deb", "")
    shell.stub("dpkg-query", "exit 1")
    shell.stub("dpkg", f"echo made by the package >{shell.path('/etc/munge/munge.key')}")
    shell.path("/etc/munge").mkdir()
    assert_ok(check())
    (installed,) = [call for call in shell.calls if call.startswith("dpkg ")]
    assert "munge_0.5.16-1_amd64.deb" in installed
    assert shell.path("/etc/tailrack/plans/boot.json").read_text() == "{}"
    assert not shell.path(JOINED).exists(), "the next step installs packages that are missing"
    assert shell.owners["/etc/munge"] == ("root", "root"), "its package gives it to another account"
    assert not shell.call(restore), "its files are there now"


def test_a_restored_program_appears_whole_and_changes_no_file_of_one_that_runs(shell: Shell) -> None:
    for path in ("/var/lib/tailrack/node-name", f"{PROGRAMS}/1/complete", f"{PROGRAMS}/2/complete"):
        shell.write(f"{SAVED}{path}", "saved")
    shell.stub("cp", '/bin/cp "$@"; exit 1')
    assert shell.failure_of(restore)
    assert not shell.path(PROGRAMS).exists()
    shell.stub("cp", '/bin/cp "$@"')
    with shell.write(f"{PROGRAMS}/2/complete", "installed by a step").open() as opened:
        assert shell.call(restore)
        assert opened.read() == "installed by a step"
    assert shell.path(f"{PROGRAMS}/1/complete").read_text() == "saved"


@pytest.mark.parametrize("status", [0, 1])
def test_files_changed_by_a_request_are_saved_for_the_next_container(shell: Shell, status: int) -> None:
    shell.stub("rsync", f"exit {status}")
    shell.write("/etc/munge/munge.key", "new")
    shell.call(save_again)
    assert shell.calls == [], "a machine that saves nothing"
    shell.write(f"{SAVED}/var/lib/tailrack/node-name", "p1\n")
    shell.call(save_again)
    marks = [" --exclude=complete" not in call for call in shell.calls if call.startswith("rsync ")]
    assert marks == [False, True][: 2 - status], "a program's mark comes after the program"
    assert "/etc/munge/munge.key" in shell.calls[0]


# Jobs.


def test_the_prolog_unsets_values_of_another_node_and_keeps_user_values(shell: Shell) -> None:
    given = {"TAILRACK_DEFAULTS": "GLOO_SOCKET_IFNAME=tailscale0 NCCL_NET=Socket", "GLOO_SOCKET_IFNAME": "tailscale0"}
    printed = prolog_of(shell, 1, **given, NCCL_NET="IB")
    assert "unset GLOO_SOCKET_IFNAME" in printed
    assert "unset NCCL_NET" not in printed


def prolog_of(shell: Shell, nodes: int, **environment: str) -> set[str]:
    """Return what a job on some pods with the network ens1 gets."""
    text = template("pod", "task-prolog").replace("/etc/tailrack/pod-network", str(shell.path("/network")))
    shell.write("/network", "ens1\n")
    environment = {**shell.environment, "SLURM_JOB_NUM_NODES": str(nodes), **environment}
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, check=True, env=environment)
    return {line for line in done.stdout.splitlines() if "TAILRACK_DEFAULTS" not in line and "LIBRARY" not in line}


def test_a_job_over_several_pods_gets_their_network_or_keeps_its_users(shell: Shell) -> None:
    assert prolog_of(shell, 1) == set()
    names = ("FI_TCP_IFACE", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include")
    assert prolog_of(shell, 2) == {
        *(f"export {name}=ens1" for name in ("TAILRACK_INTERFACE", "GLOO_SOCKET_IFNAME", *names)),
        "export NCCL_SOCKET_IFNAME==ens1",
    }
    printed = prolog_of(shell, 2, NCCL_SOCKET_IFNAME="ens2")
    assert not any("NCCL" in line for line in printed)
    # A step in the batch script inherits the values that the script's task-prolog has set.
    inherited = {"TAILRACK_DEFAULTS": "GLOO_SOCKET_IFNAME=ens1", "GLOO_SOCKET_IFNAME": "ens1"}
    assert "unset GLOO_SOCKET_IFNAME" not in prolog_of(shell, 2, **inherited)
    assert "unset GLOO_SOCKET_IFNAME" in prolog_of(shell, 1, **inherited)


NEIGHBOURS = json.dumps([{"name": "p2", "address": "10.65.0.3", "tailnet": "100.64.0.7"}])


def network(shell: Shell, on_the_network: str, over_the_tailnet: str) -> str:
    """Let a pod use the network ens1, with ssh's answers from a neighbour. Return the file, or the failure."""
    shell.stub("ssh", f'echo "{on_the_network}" >&2; exit 255')
    shell.stub("ssh-keyscan", f'echo "{over_the_tailnet}"')
    with shell.here(), patch("components.roles.pods.pod.host._NETWORK_SECONDS", 0.1):
        try:
            use_network("ens1", NEIGHBOURS, "p1")
        except Failure as failure:
            return failure.reason
    return shell.path(NETWORK).read_text().strip()


REACHED, LOST = "root@x: Permission denied (publickey).", "ssh: connect to host x port 6815: Connection timed out"


def test_a_pod_uses_a_network_only_if_it_reaches_its_neighbours_there_or_they_are_off(shell: Shell) -> None:
    answer = "[100.64.0.7]:6815 ssh-ed25519 AAAA"
    assert network(shell, REACHED, "") == "ens1"
    assert "GlobalKnownHostsFile=" in shell.calls[-1]
    assert network(shell, LOST, "") == "ens1"
    assert network(shell, LOST, answer) == "p1 does not reach p2 at 10.65.0.3 on ens1 (TCP port 6815)"
    assert not shell.path(NETWORK).exists()
    assert network(shell, "Host key verification failed.", answer).startswith("p1 does not reach p2")
    shell.write(NETWORK, "ens1\n")
    shell.call(use_network, "auto", "[]", "p1")
    assert not shell.path(NETWORK).exists(), "the site has no network"
