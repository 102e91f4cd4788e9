"""One Slurm release for all machines: what may follow what, who builds for whom, and what takes whose place."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import pytest

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step
from components.roles.order import roles
from components.roles.role import Value, header_of
from components.roles.slurm.slurm_release import build, install, reservations
from components.roles.slurm.slurm_release.build import adapt_packaging
from components.roles.slurm.slurm_release.host import leave
from components.roles.slurm.slurm_release.release import Release, ReleaseValues, has_release
from components.roles.slurm.slurm_release.reservations import hold_older_nodes, unreserve_node
from components.steps.composition import HEAD, NODE, compose
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.phases import called
from tests.unit.shell import Shell, assert_fails, assert_ok

SHA256 = "e1a5547edd212c38b5e3230a284133f777b32746551f094aaa81cc4af375e332"
CONFIG = {**LAB, "slurm": {"release": "24.11.5", "release_sha256": SHA256, "release_source": "/srv/slurm.tar.gz"}}
ROLES = roles(parse(CONFIG, base_dir=Path()))
ROLE = next(role for role in ROLES if role.name == "slurm_release")
VALUES = header_of(ROLES)
KIND = f"debian-13-amd64-24.11.5-{SHA256[:12]}-3"
PACKAGES = ("slurm-smd", "slurm-smd-client", "slurm-smd-dev", "slurm-smd-slurmctld", "slurm-smd-slurmdbd",
            "slurm-smd-slurmd", "slurm-smd-libpam-slurm-adopt")  # fmt: skip
RELEASE_VALUES = ReleaseValues("24.11.5", SHA256, "", "")
OWN = f"var/lib/tailrack/slurm-releases/{KIND}"
SHARE = f"var/shared/slurm/{KIND}"


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine of Debian 13 with stubs for what would need root; every file there is root's."""
    shell.write("etc/os-release", "ID=debian\nVERSION_ID=13\n")
    shell.stub("dpkg", 'case "$*" in *print-architecture) echo amd64 ;; esac')
    # Packages that are installed, one a line: source, state, name.
    shell.write("installed", "")
    shell.stub(
        "dpkg-query",
        f'case "$*" in *source:Package*) cat "{shell.root}/installed" ;; *"f=\\${{db:"*) exit 1 ;; '
        f"*) echo procps installed; awk '{{print $3, $2}}' \"{shell.root}/installed\" ;; esac",
    )
    shell.stubs("apt-cache", "apt-mark", "sync", "useradd", "userdel", "pkill", "getent")
    for folder in ("var/lib/tailrack", "usr/sbin"):
        shell.path(folder).mkdir(parents=True)
    shell.stub("systemctl", "exit 3")  # nothing runs
    apt(shell)
    return shell


@pytest.fixture
def served(machine: Shell) -> Shell:
    """A machine with a share that has whole packages."""
    published(machine, SHARE)
    return machine


@pytest.fixture
def running(served: Shell) -> Shell:
    """Such a machine with a slurmd that runs."""
    running_slurmd(served)
    return served


def values(shell: Shell, **more: Value) -> dict[str, Value]:
    """Header values; the share is a folder of the machine on the head node and on nodes alike."""
    share = "/var/shared"
    return {**VALUES, "share_path": share, "share_mount": share, "head_computes": False, **more}


def run(shell: Shell, phase: str, **more: Value) -> CompletedProcess[str]:
    """Run a phase that does not build. The failure and the log are in stderr."""

    def building(*_: object) -> None:
        note("BUILDING")
        raise Failure("it is not built in this test")

    with mock.patch("components.roles.slurm.slurm_release.host.build_release", building):
        done = shell.step(compose([ROLE], [phase]), values(shell, **more))
    why = re.findall(r"^(?:tailrack: a1: step a1-step failed: |next: )(.*)$", done.stderr, re.MULTILINE)
    done.stderr = "; ".join(why) + "\n" + shell.path("var/log/tailrack/a1-step.log").read_text()
    return done


def published(shell: Shell, place: str) -> None:
    """Put whole packages into a folder."""
    sums = ""
    for package in PACKAGES:
        name = f"{package}_24.11.5-1+tailrack1_amd64.deb"
        shell.write(f"{place}/{name}", f"{package} of {place}\n")
        digest = hashlib.sha256(f"{package} of {place}\n".encode()).hexdigest()
        sums += f"{digest}  {name}\n"
    shell.write(f"{place}/SHA256SUMS", sums)


def apt(shell: Shell, removes: str = "", status: int = 0, fetched: int = 0) -> None:
    """Stub apt-get: a simulation says what would go, an installation makes it so; how these two end."""
    gone = "|".join(removes.split()) or "-"
    shell.stub(
        "apt-get",
        f"""case "$*" in
    *" -s "*) for each in {removes}; do echo "Remv $each [1]"; done ;;
    *" --download-only "*) exit {fetched} ;;
    *" install "*)
        [ {status} -eq 0 ] || {{ echo "E: broken" >&2; exit {status}; }}
        grep -vE ' ({gone})$' "{shell.root}/installed" >"{shell.root}/after"
        for each in "$@"; do
            case $each in *.deb) each=${{each##*/}}; echo "slurm-smd installed ${{each%%_*}}" ;; esac
        done >>"{shell.root}/after"
        cat "{shell.root}/after" >"{shell.root}/installed" ;;
esac""",
    )


def node(shell: Shell, **more: Value) -> CompletedProcess[str]:
    """Run the node's phase."""
    return run(shell, "node", **more)


# --- who has what from whom


def test_a_node_installs_once_the_packages_that_a_similar_head_node_built(served: Shell) -> None:
    done = assert_ok(node(served))
    assert "BUILDING" not in done.stderr
    assert " slurm-smd-slurmd\n" in served.path("installed").read_text()
    before = len(served.calls)
    assert node(served).returncode == 0
    assert not [call for call in served.calls[before:] if call.startswith(("apt-get", "apt-mark", "systemctl"))]


@pytest.mark.parametrize("spoilt", ["owner", "package", "sum"])
def test_spoilt_packages_are_not_installed(served: Shell, monkeypatch: pytest.MonkeyPatch, spoilt: str) -> None:
    owner_of = files.owner_of
    if spoilt == "owner":
        monkeypatch.setattr(files, "owner_of", lambda path: "nobody" if "shared" in path else owner_of(path))
    elif spoilt == "package":
        served.write(f"{SHARE}/slurm-smd-slurmd_24.11.5-1+tailrack1_amd64.deb", "another node's\n")
    else:
        served.write(f"{SHARE}/SHA256SUMS", "")
    served.write("var/shared/slurm/source/" + f"slurm-24.11.5-{SHA256[:12]}.tar", "source\n")
    done = node(served)
    assert "does not have the checksum in the config" in done.stderr  # the source is looked at before it is built
    assert served.path("installed").read_text() == ""


def test_a_node_of_another_kind_builds_its_own_once_and_leaves_the_share_alone(machine: Shell) -> None:
    published(machine, OWN)
    before = sorted(path.name for path in machine.path("var/shared").rglob("*"))
    machine.write("var/lib/tailrack/slurm-releases/debian-13-amd64-24.05.8-aaaaaaaaaaaa-1/half", "")
    done = assert_ok(node(machine))
    assert "BUILDING" not in done.stderr
    # Neither what was built for another release nor the copies that were installed stay.
    assert [path.name for path in machine.path(OWN).parent.iterdir()] == [KIND]
    assert not machine.path("var/lib/tailrack/slurm-install").exists()
    assert sorted(path.name for path in machine.path("var/shared").rglob("*")) == before


def test_the_compiler_has_no_network_no_other_processes_and_no_more_rights(machine: Shell) -> None:
    machine.stub("nice", 'shift 2; exec "$@"')
    machine.stub("unshare")
    done = in_build(machine, lambda made: made.compile())
    assert done == ("True", "")
    (call,) = [line for line in machine.calls if line.startswith("unshare ")]
    assert {"--mount", "--pid", "--net", "--ipc", "--uts", "chroot"} <= {*call.split()}
    assert "--no-new-privs" in "\n".join(machine.calls)


def test_packages_are_published_whole_or_not_at_all(machine: Shell) -> None:
    for package in PACKAGES:
        machine.write(f"made/{package}_1_amd64.deb", package)
    machine.write("made/slurm-smd-slurmrestd_1_amd64.deb", "nobody's")
    machine.write("kept/x.new/half", "")
    assert in_build(machine, lambda made: made.publish("/made", "/kept/x")) == ("None", "")
    assert machine.call(has_release, "/kept/x")
    assert sorted(path.name for path in machine.path("kept").iterdir()) == ["x"]
    assert len(list(machine.path("kept/x").iterdir())) == len(PACKAGES) + 1


# --- packages that somebody has built already


READY = "srv/ready"


def listed(shell: Shell, kinds: tuple[str, ...] = ("debian-13-amd64",), without: str = "") -> dict[str, Any]:
    """Lay ready packages out for kinds of machine; header values that name them and no source."""
    lines = []
    for kind in kinds:
        for package in (*PACKAGES, "slurm-smd-slurmrestd"):
            text = f"{package} for {kind}\n"
            path = f"{kind}/{package}_24.11.5-1_amd64.deb"
            shell.write(f"{READY}/{path}", text)
            if package != without:
                lines.append(f"{hashlib.sha256(text.encode()).hexdigest()}  {path}\n")
    # What it has besides is nobody's business.
    lines.append(f"{'0' * 64}  debian-13-amd64/slurm-smd_23.11.10-1_amd64.deb\n{'0' * 64}  ../../../etc/passwd\n")
    shell.write(f"{READY}/SHA256SUMS", "".join(lines))
    of_list = hashlib.sha256("".join(lines).encode()).hexdigest()
    return {
        "slurm_release_sha256": "",
        "slurm_release_packages": f"{shell.root}/{READY}",
        "slurm_release_packages_sha256": of_list,
    }


def head(shell: Shell, **more: Value) -> CompletedProcess[str]:
    """Run the head node's phase; nothing is built."""
    return run(shell, "head", **more)


def brought(shell: Shell) -> list[str]:
    """The folders of packages on the share."""
    return sorted(path.name for path in shell.path("var/shared/slurm").iterdir() if path.name != "source")


def test_ready_packages_come_to_the_share_for_every_kind_and_are_installed_without_a_build(machine: Shell) -> None:
    ready = listed(machine, ("debian-13-amd64", "ubuntu-24.04-arm64"))
    for _ in range(2):
        assert_ok(head(machine, **ready))
    of_list = str(ready["slurm_release_packages_sha256"])[:12]
    assert brought(machine) == [f"{kind}-24.11.5-{of_list}-ready" for kind in ("debian-13-amd64", "ubuntu-24.04-arm64")]
    for folder in brought(machine):
        assert len([*machine.path(f"var/shared/slurm/{folder}").iterdir()]) == len(PACKAGES) + 1
    machine.write("installed", "")
    machine.path("var/lib/tailrack/slurm-release").unlink()
    assert_ok(node(machine, **ready))
    assert " slurm-smd-slurmd\n" in machine.path("installed").read_text()
    assert machine.path("var/lib/tailrack/slurm-release").read_text().strip() == brought(machine)[0]


def test_a_node_installs_no_package_that_the_list_of_the_config_does_not_have(machine: Shell) -> None:
    ready = listed(machine)
    assert head(machine, **ready).returncode == 0
    machine.write("installed", "")
    machine.path("var/lib/tailrack/slurm-release").unlink()
    # Whole by its own sums, and another one.
    published(machine, f"var/shared/slurm/{brought(machine)[0]}")
    assert_fails(node(machine, **ready), "are incomplete or do not match the list")
    assert machine.path("installed").read_text() == ""


def test_a_ready_package_or_list_with_another_sum_or_without_a_package_is_refused(machine: Shell) -> None:
    ready = listed(machine, without="slurm-smd-dev")
    assert_fails(head(machine, **ready), "has no slurm-smd-dev of 24.11.5 for debian-13-amd64; add it there")
    assert brought(machine) == []
    another = "which is not the config's; find out which of the two is right"
    for path in ("SHA256SUMS", "debian-13-amd64/slurm-smd-slurmctld_24.11.5-1_amd64.deb"):
        ready = listed(machine)
        machine.write(f"{READY}/{path}", "another one\n")
        assert_fails(head(machine, **ready), another)
        assert [name for name in brought(machine) if not name.endswith(".new")] == [], path
        assert machine.path("installed").read_text() == ""


def test_a_machine_without_ready_packages_builds_from_a_known_source_or_names_the_available(machine: Shell) -> None:
    ready = listed(machine)
    assert head(machine, **ready).returncode == 0
    machine.write("etc/os-release", "ID=debian\nVERSION_ID=12\n")
    before = machine.path("installed").read_text()
    remedy = "release_packages has it for debian-13-amd64; add its packages there in a folder debian-12-amd64"
    assert_fails(node(machine, **ready), "there is no Slurm 24.11.5 for debian-12-amd64", remedy)
    assert machine.path("installed").read_text() == before
    source = machine.write("srv/slurm.tar.gz", "source\n")
    digest = hashlib.sha256(b"source\n").hexdigest()
    known = {"slurm_release_sha256": digest, "slurm_release_from": str(source)}
    assert_fails(head(machine, **{**ready, **known}), "BUILDING")


# --- what takes whose place


DEBIANS = "slurm-wlm installed slurmd\nslurm-wlm installed slurm-client\nslurm-wlm installed libslurm42t64\n"


def test_the_distributions_packages_go_in_the_same_transaction_and_are_kept_away_afterwards(served: Shell) -> None:
    served.write("installed", f"{DEBIANS}hwloc installed libhwloc15\n")
    apt(served, removes="slurmd slurm-client libslurm42t64")
    done = assert_ok(node(served))
    assert "instead of libslurm42t64 slurm-client slurmd" in done.stderr
    fetch, install = [
        call for call in served.calls if call.startswith("apt-get") and " -s " not in call and "deb" in call
    ]
    assert fetch.replace(" --download-only", "") == install
    assert install.endswith(" slurmd- slurm-client- libslurm42t64-")
    assert "APT::Get::Remove=false" not in install
    assert "Pin-Priority: -1" in served.path("etc/apt/preferences.d/tailrack-slurm").read_text()
    assert any(call.startswith("apt-mark hold") and "slurm-smd-slurmd" in call for call in served.calls)


def test_the_step_never_removes_packages_outside_slurm(served: Shell) -> None:
    served.write("installed", DEBIANS)
    apt(served, removes="slurmd slurm-client libslurm42t64 python3-pyslurm")
    assert_fails(node(served), "would remove python3-pyslurm too; remove it yourself")
    assert served.path("installed").read_text() == DEBIANS
    assert not served.path("etc/apt/preferences.d/tailrack-slurm").exists()


def test_a_failed_transaction_restarts_daemons_and_ends_the_turn(running: Shell) -> None:
    running.write("installed", DEBIANS)
    apt(running, removes="slurmd slurm-client libslurm42t64", status=100)
    assert_fails(node(running), "apt could not install Slurm 24.11.5 (E: broken)")
    assert turns(running) == ["scontrol create", "systemctl stop", "install", "systemctl start", "scontrol delete"]
    daemons = [call for call in running.calls if call.startswith("systemctl s")]
    assert daemons == ["systemctl stop slurmd", "systemctl start slurmd"]


# A slurmd and a controller; what lies in `turns` are reservations that others have.
def running_slurmd(shell: Shell) -> None:
    """Let the machine have a slurmd that runs, and a controller that keeps one reservation at most."""
    shell.path("turns").mkdir()
    shell.write("run/slurm/conf/slurm.conf", "ClusterName=lab\n")
    shell.stub("systemctl", 'case "$*" in "is-active -q slurmd") ;; "is-active -q "*) exit 3 ;; esac')
    shell.stub(
        "scontrol",
        f"""cd "{shell.root}/turns"; case $1,$2 in
    create,*) set -C; echo "$*" 2>/dev/null >turn || {{ echo "Error: Duplicate reservation name" >&2; exit 1; }} ;;
    delete,*) [ -s "${{SLURM_CONF:-/etc/hosts}}" ] && rm turn ;;
    -o,*) [ ! -e turn ] || echo "ReservationName=tailrack-release Nodes=$(sed 's/.*nodes=//' turn) NodeCnt=1" ;;
esac""",
    )


def turns(shell: Shell) -> list[str]:
    """What was asked of the controller and of slurmd, in order."""
    asked = ("scontrol create", "scontrol delete", "systemctl stop", "systemctl start", "apt-get")
    told = [call for call in shell.calls if call.startswith(asked) and " update" not in call and " -s " not in call]
    return [
        " ".join(call.split()[:2]) if call.startswith("s") else "install" for call in told if "download" not in call
    ]


def test_a_running_slurmd_is_replaced_in_the_nodes_turn_and_the_next_node_has_its_own_then(running: Shell) -> None:
    assert_ok(node(running))
    assert turns(running) == ["scontrol create", "systemctl stop", "install", "scontrol delete"]
    (made,) = [call for call in running.calls if call.startswith("scontrol create")]
    assert made.endswith("duration=15 nodes=a1 users=root flags=maint,ignore_jobs")


@pytest.mark.parametrize("holder", ["a1", "b1"])
def test_a_later_phase_ends_the_turn_and_no_other_nodes(machine: Shell, holder: str) -> None:
    running_slurmd(machine)
    with machine.here():
        reservations.take_turn(Step("a1", "a1-node"))
        # slurmd takes its configuration with it.
        shutil.rmtree(machine.path("run/slurm"))
        machine.write("turns/turn", f"nodes={holder}")
        reservations.end_turn("a1")
        reservations.end_turn("a1")
    assert turns(machine) == ["scontrol create", *(["scontrol delete"] if holder == "a1" else [])]
    assert not machine.path("run/tailrack-private/slurm-turn").exists()


def test_a_node_that_the_controller_does_not_know_waits_for_no_turn(running: Shell) -> None:
    running.stub("scontrol", 'case "$*" in "show node a1") exit 1 ;; create*) exit 1 ;; esac')
    assert node(running).returncode == 0
    assert turns(running) == ["systemctl stop", "install"]


def test_a_node_logs_that_it_waits_for_anothers_turn(running: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    running.write("turns/turn", "nodes=b1")
    monkeypatch.setattr(reservations, "sleep", lambda seconds: running.path("turns/turn").unlink())
    done = assert_ok(node(running))
    assert "waiting for a turn; b1 is getting its release now" in done.stderr
    assert turns(running)[:3] == ["scontrol create", "scontrol create", "systemctl stop"]


def test_without_a_turn_or_a_controller_that_answers_no_slurmd_ends(
    running: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "LIMIT", 20)
    running.write("turns/turn", "nodes=b1")
    running.hurry()
    others = "waited 20s for other nodes, which get their release one at a time (Error: Duplicate reservation name)"
    assert_fails(node(running), others)
    running.stub("scontrol", "exit 1")
    assert_fails(node(running), "the controller does not answer, and it decides which node")
    assert not {"systemctl stop", "install"} & {*turns(running)}


def test_a_turn_of_this_node_that_was_cut_off_is_its_own_again(running: Shell) -> None:
    running.write("turns/turn", "nodes=a1")
    assert node(running).returncode == 0
    assert turns(running) == [
        *("scontrol create", "scontrol delete", "scontrol create", "systemctl stop", "install", "scontrol delete")
    ]


def test_room_and_dependencies_are_checked_before_a_daemon_stops(running: Shell) -> None:
    with mock.patch.object(shutil, "disk_usage", return_value=mock.Mock(free=150 * 2**20)):
        assert_fails(node(running), "needs up to 200 MB, and ", "/usr has 150; make room there on a1")
    apt(running, fetched=100)
    assert_fails(node(running), "apt cannot download what Slurm 24.11.5 needs")
    assert turns(running) == []


def test_daemons_stop_before_the_state_is_saved_and_restart_after_a_failure(served: Shell) -> None:
    served.stub("tar", "exit 2")
    served.stub("systemctl", 'case "$*" in "is-active -q slurmdbd") exit 3 ;; esac')
    served.write("var/lib/slurm/slurmctld/job_state", "jobs")
    assert_fails(node(served), "cannot save slurmctld's state")
    calls = [call for call in served.calls if call.startswith("systemctl s")]
    assert calls == ["systemctl stop slurmd", "systemctl stop slurmctld", "systemctl start slurmctld slurmd"]
    assert served.path("installed").read_text() == ""


def test_the_step_saves_slurmctlds_whole_state_before_it_installs_another_release(served: Shell) -> None:
    served.stub("tar", "echo state")
    served.write("var/lib/slurm/slurmctld/job_state", "jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(install, "_STATE_MOST", 4)
        assert_fails(node(served), "cannot save slurmctld's state")
    assert [path.name for path in served.path("var/lib/tailrack/slurm").iterdir()] == []
    assert node(served).returncode == 0
    assert served.path("var/lib/tailrack/slurm/state-before-24.11.5.tar").read_text() == "state\n"


def test_leaving_returns_slurm_to_the_package_manager(machine: Shell) -> None:
    machine.write("etc/apt/preferences.d/tailrack-slurm", "x")
    machine.write("installed", "slurm-smd installed slurm-smd-slurmd\n")
    machine.call(leave, Step("a1", "tailrack-leave"))
    assert not machine.path("etc/apt/preferences.d/tailrack-slurm").exists()
    assert "apt-mark unhold slurm-smd-slurmd" in machine.calls


# --- what may follow what


def lead(shell: Shell, before: str, release: str = "24.11.5", nodes: str = "") -> CompletedProcess[str]:
    """Look at a head node whose controller is of `before`, for a release."""
    shell.write("var/lib/slurm/slurmctld/clustername", "lab")
    shell.stub("dpkg-query", f'printf "installed {before}\\n"')
    shell.stub("sinfo", f'printf "{nodes}"')
    config = {**CONFIG, "slurm": {"release": release, "release_sha256": SHA256}}
    own = header_of(roles(parse(config, base_dir=Path())))
    return run(shell, "check_head", **own)


def test_a_release_may_follow_one_that_it_reads(machine: Shell) -> None:
    for before, release in (
        ("24.11.5-4", "24.11.5"),
        ("24.11.5-1+tailrack1", "25.11.7"),
        ("23.11.4-1.2ubuntu5", "25.05.1"),
    ):
        assert_ok(lead(machine, before, release))


def test_a_release_that_machines_cannot_follow_is_refused(machine: Shell) -> None:
    window = "Slurm 25.11.7 reads the state of 24.05 and newer, and the cluster has 23.11.4"
    back = "cannot read the newer release's state; set tailrack:slurm.release to 25.11.7 or newer"
    nodes = "a1 24.11.5\\nc1 23.11.4\\n"
    assert_fails(lead(machine, "23.11.4-1.2ubuntu5", "25.11.7"), window, "upgrade by way of 25.05")
    assert_fails(lead(machine, "25.11.7-1+tailrack1", "24.11.5"), back)
    assert_fails(lead(machine, "24.11.5-4", "25.11.7", nodes), "node c1 has Slurm 23.11.4")


# --- building


def test_a_missing_or_wrong_source_leaves_the_cluster_as_it_was(machine: Shell) -> None:
    machine.write("installed", DEBIANS)
    wrong = 'while [ "$1" != -o ]; do shift; done; echo half >"$2"'
    for answer, said in (
        ("exit 22", "cannot be fetched from here; open the way there for a1, or set"),
        (wrong, "which is not the config's; find out which of the two"),
    ):
        machine.stub("curl", answer)
        assert_fails(head(machine, slurm_release_from="https://files.example/slurm-24.11.5.tar.bz2"), said)
        assert not [*machine.path("var/shared/slurm/source").iterdir()]
    assert machine.path("installed").read_text() == DEBIANS
    assert not [call for call in machine.calls if call.startswith(("systemctl s", "apt-get"))]


def test_schedmds_packaging_is_adapted_and_one_that_is_not_known_refused(machine: Shell) -> None:
    folder = machine.path("source/debian")
    changelog = "slurm-smd (24.11.5-1) UNRELEASED; urgency=medium\n"
    for rules, known in (("#!/usr/bin/make -f\n", False), (RULES, True)):
        for name, text in (("control", CONTROL), ("rules", rules), ("changelog", changelog)):
            machine.write(f"source/debian/{name}", text)
        assert bool(machine.call(adapt_packaging, "/source")) is known
    control, rules = (folder / "control").read_text(), (folder / "rules").read_text()
    assert "sview" not in control
    assert "slurmrestd" not in control + rules.replace("--disable-slurmrestd", "")
    assert "--disable-slurmrestd --disable-static" in rules
    assert "gtk" not in control
    assert "Package: slurm-smd\nReplaces: libslurm36, libslurm36t64," in control
    assert "Package: slurm-smd-client\nArch" in control
    assert "--with-pmix=/usr/lib/$(DEB_HOST_MULTIARCH)/pmix2 --enable-pam" in rules
    assert rules.index("architecture.mk") > rules.index("#!/usr/bin/make")
    assert "(24.11.5-1+tailrack3)" in (folder / "changelog").read_text()


def in_build(shell: Shell, function: Callable[[build.Build], object]) -> tuple[str, str]:
    """Call a part of a build; what it returns, and what it fails with."""
    with shell.here():
        files.make_folder(build.BUILD, 0o700)
        files.make_folder("/var/log/tailrack")
        release = Release("a1", RELEASE_VALUES, {})
        with os.fdopen(files.open_to_write(build.LOG, 0o644), "wb", buffering=0) as log:
            try:
                return str(function(build.Build(release, log))), ""
            except Failure as failure:
                return "", f"{failure.reason}; {failure.remedy}"


def built(shell: Shell, compiler: Callable[[], bool], free: int = 9000, **stubs: str) -> str:
    """Build from a source whose root, compiler and sources are stubs; what that fails with."""
    shell.stub("tar", 'shift 3; mkdir -p "$1/debian"; echo "  Version:  24.11.5" >"$1/META"')
    for name, text in stubs.items():
        shell.stub(name, text)
    shell.write("srv/slurm.tar", "source")
    shell.path("var/log/tailrack").mkdir(parents=True, exist_ok=True)
    apt(shell)

    def root(made: build.Build) -> None:
        files.rename(f"{build.BUILD}/made", build.MADE)

    with ExitStack() as patches:
        for target, name, new in (
            (build, "adapt_packaging", lambda source: True),
            (build.Build, "fetch_bootstrap", lambda made: None),
            (build.Build, "make_root", root),
            (build.Build, "compile", lambda made: compiler()),
            (shutil, "disk_usage", lambda path: mock.Mock(free=free * 2**20)),
        ):
            patches.enter_context(mock.patch.object(target, name, new))
        patches.enter_context(shell.here())
        try:
            build.build_release(Release("a1", RELEASE_VALUES, {}), "/srv/slurm.tar", f"/{OWN}")
        except Failure as failure:
            return f"{failure.reason}; {failure.remedy}"
    return ""


def fails() -> bool:
    """A compiler that fails."""
    return False


def left(shell: Shell) -> list[str]:
    """What a build has left on the machine."""
    return [each for each in ("var/lib/tailrack/slurm-build", OWN) if shell.path(each).exists()]


def test_a_failed_compiler_is_one_error_and_leaves_nothing(machine: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    def compiler() -> bool:
        machine.write(build.LOG, "cc1: out of memory\n")
        return False

    said = built(machine, compiler)
    assert "cc1: out of memory" in capsys.readouterr().err
    assert f"Slurm 24.11.5 cannot be built for {KIND}: the compiler or the packaging failed; " in said
    assert left(machine) == []


def test_a_source_as_its_makers_pack_it_is_unpacked_on_a_machine_without_bzip2(machine: Shell) -> None:
    machine.stub("apt-get", "exit 1")
    machine.stub("perl", "printf 5.40.1")
    assert "cannot download mmdebstrap" in in_build(machine, lambda made: made.fetch_bootstrap())[1]
    (fetched,) = [call for call in machine.calls if call.startswith("apt-get -q download")]
    assert fetched.endswith(" mmdebstrap perl-modules-5.40 libperl5.40 bzip2")
    finds = 'case $PATH in *slurm-build/tool/usr/bin:*) ;; *) exit 2 ;; esac; shift 3; mkdir -p "$1/debian"'
    said = built(machine, fails, tar=f'{finds}; echo "  Version:  24.11.5" >"$1/META"')
    assert "the compiler or the packaging failed" in said


def test_a_build_needs_room_and_a_source_of_its_release(machine: Shell) -> None:
    assert "it needs 4000 MB, and /var/lib/tailrack has 900; " in built(machine, fails, free=900)
    assert not [call for call in machine.calls if call.startswith("tar")]
    said = built(machine, fails, tar='shift 3; mkdir -p "$1/debian"; echo "  Version:  24.05.8" >"$1/META"')
    assert "its source contains 24.05.8" in said
    assert left(machine) == []


def test_the_build_publishes_its_packages_or_leaves_no_files(machine: Shell) -> None:
    open_to_write = files.open_to_write

    def full(path: str, mode: int = 0o600) -> int:
        if path.endswith(".deb"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_to_write(path, mode)

    lacking = "the packaging made no slurm-smd-libpam-slurm-adopt; see above"
    assert lacking in built(machine, lambda: compiled(machine, *PACKAGES[:-1]))
    with mock.patch.object(files, "open_to_write", full):
        assert "cannot write its packages into " in built(machine, lambda: compiled(machine, *PACKAGES))
    assert left(machine) == []
    assert not machine.path(f"{OWN}.new").exists()
    assert built(machine, lambda: compiled(machine, *PACKAGES)) == ""
    assert left(machine) == [OWN]


def compiled(shell: Shell, *packages: str) -> bool:
    """Make packages as a compiler does."""
    for name in packages:
        shell.write(f"{build.MADE}/{name}_24.11.5-1+tailrack3_amd64.deb", name)
    return True


# --- the steps


def test_the_release_comes_before_slurm_and_pyxis_and_the_distributions_packages_are_not_asked_for() -> None:
    for phases, first in ((HEAD, "slurm_release/head"), (NODE, "slurm_release/node")):
        calls = compose(ROLES, phases).calls
        names = called(calls)
        assert names.index(first) < names.index("slurm/head" if phases == HEAD else "slurm/compute")
        assert not {"slurm-client", "slurmd"} & {word for call in calls["up"] for word in call if isinstance(word, str)}


CONTROL = """Source: slurm-smd
Build-Depends:
 bash-completion,
 libgtk2.0-dev,
 libpmix-dev,

Package: slurm-smd
Architecture: any
Depends:
 ${shlibs:Depends},

Package: slurm-smd-client
Architecture: any

Package: slurm-smd-slurmrestd
Architecture: any

Package: slurm-smd-sview
Architecture: any
"""
RULES = """#!/usr/bin/make -f

override_dh_auto_configure:
\tdh_auto_configure -- --sysconfdir=/etc/slurm --with-slurmrestd --with-pmix --enable-pam SUCMD=/bin/su

override_dh_installinit:
\tdh_installinit -pslurm-smd-slurmd --name=slurmd
\tdh_installinit -pslurm-smd-slurmrestd --name=slurmrestd
"""


# Nodes that are older than a head node from 25.11 on get no job until they have its release.


@pytest.fixture
def controller(shell: Shell) -> Shell:
    """A played controller of the head node, a1 and b1 of 24.11 and c1 of 25.11, which keeps one reservation at most."""
    shell.stub("sinfo", "printf '%s\\n' 'head 24.11.5' 'a1 24.11.5' 'b1 24.11.5' 'b1 24.11.5' 'c1 25.11.7'")
    shell.stub(
        "scontrol",
        f"""held="{shell.root}/held"; case "$*" in
    "-o show reservation"*) [ ! -e "$held" ] || echo "ReservationName=tailrack-older Nodes=$(cat "$held") NodeCnt=1" ;;
    "show hostnames"*) tr , '\\n' <<<"$3" ;;
    create*) sed 's/.*nodes=\\([^ ]*\\).*/\\1/' <<<"$*" >"$held" ;;
    delete*) rm "$held" ;;
    *nodes-=*) sed -i "s/\\b${{3#*=}}\\b//; s/^,//; s/,$//; s/,,/,/" "$held" ;;
    update*) sed 's/.*nodes=//' <<<"$*" >"$held" ;;
esac""",
    )
    return shell


def held(shell: Shell) -> str | None:
    """The nodes that are kept from jobs; None where there is no reservation."""
    path = shell.path("held")
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def hold(shell: Shell, version: str = "25.11.7") -> bool:
    return shell.call(hold_older_nodes, "head", version)


def release_nodes(shell: Shell, *nodes: str) -> None:
    with shell.here():
        for node in nodes:
            unreserve_node(node)


def test_older_nodes_are_held_until_each_has_the_release_and_the_head_node_is_not(controller: Shell) -> None:
    assert hold(controller)
    (made,) = [asked for asked in controller.calls if asked.startswith("scontrol create")]
    assert made.endswith("starttime=now duration=infinite nodes=a1,b1 users=root flags=maint,ignore_jobs")
    assert hold(controller), "after a step that was cut off"
    assert held(controller) == "a1,b1"
    release_nodes(controller, "c1", "a1")
    assert held(controller) == "b1"
    release_nodes(controller, "b1", "b1")
    assert held(controller) is None


def test_a_controller_that_refuses_the_reservation_stops_the_change(controller: Shell) -> None:
    controller.stub("scontrol", "exit 1")
    assert not hold(controller)
    controller.stub("sinfo", "exit 1")
    assert not hold(controller), "no answer does not mean that there are no older nodes"
