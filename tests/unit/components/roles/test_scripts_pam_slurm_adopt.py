"""Role pam_slurm_adopt: who needs a job to log in to a compute node, and that whoever manages it gets in always."""

import multiprocessing
import os
import signal
import subprocess
from typing import Any
from unittest import mock

import pytest

from components.node import files
from components.node.failure import Failure
from components.roles.access.pam_slurm_adopt import host as pam_slurm_adopt_host
from components.roles.role import Value
from components.steps.command_line import kept_request
from components.steps.composition import leave_program
from tests.unit.shell import ROLES, Shell, assert_fails, assert_ok, script_of

DEBIANS = """# PAM configuration for the Secure Shell service
@include common-auth
account    required     pam_nologin.so
@include common-account
session    required     pam_loginuid.so
@include common-session
session    required     pam_limits.so
@include common-password
"""
WITH_JOBS = """# PAM configuration for the Secure Shell service
@include common-auth
account    required     pam_nologin.so
@include common-account
# tailrack: begin
account [success=ignore default=1] pam_listfile.so item=user sense=allow onerr=fail quiet file=/etc/tailrack/job-users
account required pam_slurm_adopt.so nodename=a1 action_adopt_failure=deny action_generic_failure=deny
# tailrack: end
session    required     pam_loginuid.so
# tailrack: begin
# was: @include common-session
session [success=1 default=ignore] pam_listfile.so item=user sense=allow onerr=fail quiet file=/etc/tailrack/job-users
session substack common-session
session [success=1 default=ignore] pam_listfile.so item=user sense=deny onerr=succeed quiet file=/etc/tailrack/job-users
session substack tailrack-jobs
# tailrack: end
session    required     pam_limits.so
@include common-password
"""
SSHD = "/etc/pam.d/sshd"
JOB_USERS = "/etc/tailrack/job-users"
# A login by a stack that takes it. Its name is in sshd's configuration or, before OpenSSH 9.8, that of the program.
LOGIN = """
for word in "$@"; do case $word in ProxyCommand=*) command=${word#ProxyCommand=} ;; esac; done
service=$(sed -n 's/^PAMServiceName //p' "${command##* }")
service=${service:-$(basename "${command%%%% *}")}
echo "$service" >>"%(root)s/tried"
case " %(refused)s " in *" $service "*) exit 255 ;; esac
"""


@pytest.fixture
def node(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A node with Debian's files of PAM, whose sshd lets everybody in that manages it: ops."""
    shell.write(SSHD, DEBIANS)
    shell.write("/etc/pam.d/common-session", "session required pam_unix.so\nsession optional pam_systemd.so\n")
    shell.stub("sshd", "echo usepam yes; echo pamservicename sshd")
    shell.stub("ssh-keygen", 'touch "${@: -1}" "${@: -1}.pub"')
    monkeypatch.setattr(pam_slurm_adopt_host, "managing_login", lambda: "ops")
    refuse(shell, "")
    return shell


@pytest.mark.parametrize(("variables", "login_name"), [({"SUDO_USER": "ops"}, "ops"), ({}, "root")])
def test_the_manager_is_the_account_that_the_step_logged_in_with(variables: dict[str, str], login_name: str) -> None:
    with mock.patch.dict(os.environ, variables, clear=True):
        assert pam_slurm_adopt_host.managing_login() == login_name


def refuse(shell: Shell, stacks: str) -> None:
    """Have ssh take no login by these stacks."""
    shell.stub("ssh", LOGIN % {"root": shell.root, "refused": stacks})


def step(shell: Shell, **values: Value) -> subprocess.CompletedProcess[str]:
    header: dict[str, Value] = {
        "pam_slurm_adopt_wanted": True,
        "node_confined": True,
        "node_login": "",
        "users_lines": ["ada 6001 6001", "bob 6002 6002"],
    }
    return shell.step(script_of("pam_slurm_adopt", "node"), {**header, **values}, name="a1-node")


def stack(shell: Shell) -> str:
    return shell.path(SSHD).read_text(encoding="utf-8")


def tried(shell: Shell) -> list[str]:
    path = shell.path("tried")
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def test_only_users_of_the_cluster_need_a_job_and_real_logins_of_the_manager_are_tried(node: Shell) -> None:
    assert_ok(step(node))
    assert stack(node) == WITH_JOBS
    assert node.path(JOB_USERS).read_text() == "ada\nbob\n"
    copied = node.path("/etc/pam.d/tailrack-jobs").read_text().splitlines()
    assert [line for line in copied if not line.startswith("#")] == ["session required pam_unix.so"]
    # The manager gets in before, by the new stack, and after.
    assert tried(node) == ["sshd", "tailrack-tried", "sshd"]
    assert all("ops@here true" in call for call in node.calls if call.startswith("ssh "))
    assert not list(node.path("/run").glob("tailrack-login*"))
    names = ["common-session", "sshd", "tailrack-jobs"]
    assert sorted(path.name for path in node.path("/etc/pam.d").iterdir()) == names
    # A second time nothing is tried, and the manager needs no job under any name.
    assert step(node, users_lines=["bob 6002 6002", "ops 6003 6003"]).returncode == 0
    assert tried(node) == ["sshd", "tailrack-tried", "sshd"]
    assert stack(node) == WITH_JOBS
    assert node.path(JOB_USERS).read_text() == "bob\n"


@pytest.mark.parametrize("stacks", ["sshd", "tailrack-tried"])
def test_a_stack_that_would_lock_the_manager_out_is_not_taken(node: Shell, stacks: str) -> None:
    refuse(node, stacks)
    assert_fails(step(node), "ops c", "or set tailrack:slurm.ssh_needs_job to false")
    assert stack(node) == DEBIANS


def test_the_old_stack_comes_back_when_the_manager_cannot_log_in_any_more(node: Shell) -> None:
    node.stub("ssh", f'if grep -q tailrack "{node.path(SSHD)}"; then exit 255; fi')
    assert_fails(step(node), "ops could not log in with the new PAM stack")
    assert stack(node) == DEBIANS


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_step_that_is_killed_at_a_login_leaves_a_stack_by_which_the_manager_gets_in(node: Shell, number: int) -> None:
    refuse(node, "")
    stub = node.path("stubs/ssh")
    stub.write_text(stub.read_text() + f'[ "$(wc -l <"{node.root}/tried")" != {number} ] || kill -KILL $PPID\n')
    child = multiprocessing.get_context("fork").Process(target=step, args=(node,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert tried(node) == ["sshd", "tailrack-tried", "sshd"][:number]
    # Only what the second login has tried takes the place of the old one.
    assert stack(node) == (DEBIANS if number < 3 else WITH_JOBS)


def test_before_openssh_9_8_the_program_has_the_stacks_name(node: Shell) -> None:
    node.stub("sshd", "echo usepam yes")
    step(node)
    assert tried(node) == ["sshd", "tailrack-tried", "sshd"]


@pytest.mark.parametrize(
    "off", [{"node_confined": False}, {"node_login": "203.0.113.9 22"}, {"pam_slurm_adopt_wanted": False}]
)
def test_a_node_without_cgroups_or_with_the_option_off_restores_pam(node: Shell, off: dict[str, Value]) -> None:
    assert step(node, **off).returncode == 0
    assert (stack(node), tried(node)) == (DEBIANS, [])
    step(node)
    assert step(node, **off).returncode == 0
    assert stack(node) == DEBIANS
    assert [path.name for path in node.path("/etc/pam.d").iterdir() if "tailrack" in path.name] == []
    assert not node.path(JOB_USERS).exists()


def test_a_stack_that_cannot_be_undone_keeps_the_files_that_it_needs(node: Shell) -> None:
    step(node)
    write = files.write

    def full(path: str, *how: Any) -> bool:
        if path == SSHD:
            raise Failure("the disk is full")
        return write(path, *how)

    with mock.patch.object(files, "write", full):
        done = step(node, pam_slurm_adopt_wanted=False)
    assert "the disk is full" in done.stderr
    assert stack(node) == WITH_JOBS
    assert node.path(JOB_USERS).exists()
    assert node.path("/etc/pam.d/tailrack-jobs").exists()


def test_leaving_restores_pam_and_keeps_later_edits(node: Shell) -> None:
    step(node)
    more = "session optional pam_other.so\n"
    node.path(SSHD).write_text(stack(node) + more)
    node.stubs("systemd-escape", "systemd-run")
    request = kept_request("a1", {"share_mount": "/shared", "node_adopt": False})
    node.write("/etc/tailrack/plans/leave.json", f"{node.inside(leave_program(ROLES).file)}\n{request}\n")
    assert node.kept("leave").stdout == "left\n"
    assert stack(node) == DEBIANS + more


def test_an_sshd_without_pam_and_another_stack_than_debians_are_refused_and_left_alone(node: Shell) -> None:
    node.stub("sshd", "echo usepam no")
    assert_fails(step(node), "next: set UsePAM yes in ", "sshd_config on a1, or tailrack:slurm.ssh_needs_job to false")
    assert stack(node) == DEBIANS
    node.stub("sshd", "echo usepam yes; echo pamservicename sshd")
    node.write(SSHD, "auth required pam_unix.so\n")
    assert_fails(step(node), "includes no common-account and common-session")
    assert stack(node) == "auth required pam_unix.so\n"
