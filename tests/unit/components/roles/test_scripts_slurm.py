"""Phases `compute`, `reach` and `machine` of role slurm, and `compute` of role gpu: what registers a node anew and what
does not, whose clock is wrong, device files."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from components.node import minute
from components.node.step.step import Step
from components.roles.gpu.gpu.role import HEALTH_TASK as HEALTH
from components.roles.order import roles
from components.roles.role import FOLDER, template
from components.roles.slurm.slurm import node_state
from components.roles.slurm.slurm.host import refuse_another_cluster_name
from components.roles.slurm.slurm.node_state import OUR_DRAINS
from components.steps.composition import compose
from stacks.config import parse
from tests.unit.configs import LAB, RawConfig
from tests.unit.recorded import Build
from tests.unit.shell import Result, Shell, assert_fails, assert_ok, role_header, script_of

WATCHDOG = "tailrack-slurmd-watchdog"
UNIT = "/etc/systemd/system/slurmd.service.d/tailrack.conf"
ASKED = {"features": ["site-rack", "fast"], "gres": "gpu:h200:8", "specialized_memory": 4096}
IDLE = {"name": "a1", **ASKED, "state": ["IDLE", "DYNAMIC_NORM"], "reason": "", "reason_set_by_user": ""}


class Node:
    """A machine that is to be node a1, with stubs of its slurmd and of the cluster's controller."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    def known_as(self, known: dict[str, Any] | None) -> None:
        """Stub a controller that knows a1 as given (None: not at all) and, once it has deleted it, as asked."""
        root = self.shell.root
        if known is not None:
            self.shell.write("node.json", json.dumps({"nodes": [known]}))
        self.shell.write("fresh.json", json.dumps({"nodes": [IDLE]}))
        self.shell.write("run/slurm/conf/slurm.conf", "")
        self.shell.stub(
            "scontrol",
            f"""case "$*" in
"show node a1 --json") cat "{root}/node.json" ;;
"show topology")
    echo "SwitchName=rack Level=0 LinkSpeed=1 Nodes=a1"
    echo "SwitchName=tailnet Level=1 LinkSpeed=1 Nodes=a1 Switches=rack" ;;
# As since 25.05, where the word is the name of a topology (scontrol_print_topo of src/scontrol/info_node.c).
"show topology tailnet") echo "Requested topology configuration is not available" >&2; exit 1 ;;
"show hostnames a1") echo a1 ;;
"update nodename=a1 state=resume") cp "{root}/fresh.json" "{root}/node.json" ;;
"update nodename=a1 state=drain"*) [ ! -e "{root}/slurmd-came-back" ] || echo "$*" >"{root}/drained" ;;
"delete nodename=a1") [ -e "$SLURM_CONF" ] && rm "{root}/node.json" ;;
esac""",
        )
        self.shell.stub("squeue")
        self.shell.stub("slurmd", "echo slurm 24.11.5")
        self.shell.stub("journalctl")
        self.shell.stub(
            "systemctl",
            f"""case "$*" in
"is-active -q slurmd") [ ! -e "{root}/slurmd-stopped" ] ;;
"stop slurmd") touch "{root}/slurmd-stopped"; rm -r "{root}/run/slurm" ;;
"restart --no-block slurmd") rm -f "{root}/slurmd-stopped"; mkdir -p "{root}/run/slurm/conf"
    touch "{root}/run/slurm/conf/slurm.conf" "{root}/slurmd-came-back"
    [ -e "{root}/node.json" ] || cp "{root}/fresh.json" "{root}/node.json" ;;
esac""",
        )

    def compute(self, **values: Any) -> Result:
        """Run the phase for a1, with the given values and limits. What it logs is in stderr too."""
        header = {
            "node_features": "site-rack,fast", "node_gres": "gpu:h200:8", "node_registered_mb": 64000,
            "node_reserved_mb": 4096,
            "node_promised_cpus": 0, "head_cgroups": True, "node_confined": True,
            "head_address": "100.64.0.1", "slurm_job_limit_seconds": 1,
            "slurm_save_seconds": 0, "slurm_save_jobs": "the program", "node_spot": "", **values,
        }  # fmt: skip
        done = self.shell.step(script_of("slurm", "compute"), header)
        done.stderr += self.shell.path("/var/log/tailrack/a1-step.log").read_text()
        return done

    def changes(self) -> list[str]:
        """The calls that change slurmd or the node."""
        words = ("scontrol update", "scontrol delete", "scontrol requeue", "systemctl stop", "systemctl restart")
        return [call for call in self.shell.calls if call.startswith(words) and WATCHDOG not in call]


@pytest.fixture
def node(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(node_state, "REGISTER_LIMIT", 3)
    return Node(shell)


def test_a_node_that_is_as_asked_is_left_alone_and_slurmd_restarts_for_changed_files(node: Node) -> None:
    node.known_as({**IDLE, "state": ["MIXED", "DYNAMIC_NORM"]})
    node.shell.write("etc/tailrack/slurm.conf", "TaskPlugin=task/none\n")
    assert node.compute().returncode == 0
    assert node.shell.calls[-3] == f"systemctl restart {WATCHDOG}"
    before = len(node.changes())
    assert_ok(node.compute())
    assert len(node.changes()) == before
    assert node.shell.calls[-3] == f"systemctl start tailrack-shutdown {WATCHDOG}"
    unit = node.shell.path(UNIT)
    assert "RealMemory=64000 MemSpecLimit=4096 Gres=gpu:h200:8" in unit.read_text()
    # Another line in the unit, and the machine's own keys; no job is touched.
    node.shell.write("etc/tailrack/slurm.conf", "TaskPlugin=task/affinity,task/cgroup\n")
    for _ in range(2):
        assert node.compute().returncode == 0
        assert node.changes()[before:] == ["systemctl restart --no-block slurmd"]
    unit.write_text(unit.read_text().replace("LimitMEMLOCK=infinity", "LimitMEMLOCK=77"))
    assert_ok(node.compute())
    assert node.changes()[before:] == ["systemctl restart --no-block slurmd"] * 2


def test_an_unconfined_node_has_a_feature_if_the_head_node_confines_jobs(node: Node) -> None:
    for head, here, feature in ((True, False, "unconfined"), (True, True, ""), (False, False, "")):
        node.known_as(IDLE)
        assert_ok(node.compute(head_cgroups=head, node_confined=here))
        path = node.shell.path("var/lib/tailrack/features/slurm")
        assert (path.read_text().split() if path.exists() else []) == ([feature] if feature else []), (head, here)


def test_a_container_with_fewer_cpus_than_its_host_registers_its_own(node: Node) -> None:
    node.known_as(IDLE)
    node.shell.write("proc/1/cgroup", "0::/init.scope\n")
    for quota, expected in {"100000": "CPUs=1 Feature=", "max": '"Feature=', "9900000000": '"Feature='}.items():
        node.shell.write("sys/fs/cgroup/cpu.max", f"{quota} 100000\n")
        assert node.compute().returncode == 0
        assert f"{expected}site-rack,fast RealMemory=64000" in node.shell.path(UNIT).read_text(), quota
    # It registers again with a changed limit, and not with another kernel.
    node.shell.write("sys/fs/cgroup/cpu.max", "100000 100000\n")
    for cpus, real_memory, again in ((1, 64000, False), (1, 64500, False), (2, 64000, True), (1, 128000, True)):
        node.known_as({**IDLE, "cpus": cpus, "real_memory": real_memory})
        before = len(node.shell.calls)
        assert node.compute().returncode == 0
        assert ("scontrol delete nodename=a1" in node.shell.calls[before:]) == again, (cpus, real_memory)


def test_a_changed_node_registers_again_after_its_jobs(node: Node) -> None:
    for known in ({"features": ["site-rack"]}, {"gres": "gpu:h200:4"}, {"gres": ""}, {"specialized_memory": 0}):
        node.known_as({**IDLE, **known})
        before = len(node.changes())
        assert_ok(node.compute())
        assert node.changes()[before:] == [
            "scontrol update nodename=a1 state=drain reason=tailrack: registers anew",
            "systemctl stop slurmd",
            # By a copy of the configuration that slurmd takes with it.
            "scontrol delete nodename=a1",
            "systemctl restart --no-block slurmd",
        ], known


def test_a_persons_drain_is_kept_and_fails_nothing(node: Node) -> None:
    for why in ("the disk clicks", "tailrack: Xid 79 at GPU 3", "tailrack: leaves the cluster on Friday"):
        node.known_as({**IDLE, "state": ["IDLE", "DRAIN"], "reason": why, "reason_set_by_user": "root"})
        done = assert_ok(node.compute())
        assert not [call for call in node.changes() if "scontrol" in call]
        assert f"a person drained this node; it stays drained: {why}" in done.stderr


def test_a_change_that_was_cut_off_after_slurmd_stopped_is_finished(node: Node) -> None:
    drained = {"state": ["IDLE", "DRAIN", "DYNAMIC_NORM"], "reason_set_by_user": "root", "features": ["site-rack"]}
    node.known_as({**IDLE, **drained, "reason": "tailrack: registers anew"})
    node.shell.write("slurmd-stopped", "")
    assert_ok(node.compute())
    again = "systemctl restart --no-block slurmd"
    calls = node.changes()
    assert (calls[0], calls[-2:]) == (again, ["scontrol delete nodename=a1", again])


def test_slurms_own_drain_is_named_and_not_lifted_and_one_of_the_program_is(node: Node) -> None:
    # root writes the script of a failed prolog into the reason.
    prolog = "Prolog error: prolog.d/50-mine: ended with status 3: no room; next: make room"
    for why, by in (("Kill task failed", "slurm"), (prolog, "root")):
        node.known_as({**IDLE, "state": ["IDLE", "DRAIN"], "reason": why, "reason_set_by_user": by})
        done = assert_fails(node.compute(), f"does not see this node as usable (DRAIN+IDLE {why})")
        assert "a person" not in done.stderr
    assert "scontrol update nodename=a1 state=resume" not in node.shell.calls
    left = {"state": ["IDLE", "DRAIN"], "reason": "tailrack: leaves the cluster", "reason_set_by_user": "root"}
    node.known_as({**IDLE, **left})
    assert node.compute().returncode == 0
    assert "scontrol update nodename=a1 state=resume" in node.shell.calls


def test_every_reason_that_a_role_drains_a_node_for_is_one_that_a_step_brings_back() -> None:
    texts = [path.read_text() for part in ("*.sh", "templates/*") for path in FOLDER.glob(f"*/*/{part}")]
    reasons = {found for text in texts for found in re.findall(r"reason=.{0,12}?(tailrack: [a-z ]+)", text)}
    for path in FOLDER.glob("*/*/*.py"):
        reasons |= set(re.findall(r'"(?:reason=)?(tailrack: [a-z ]+)"', path.read_text()))
    # A node is called down that does not answer, and a pod before its slurmd starts; both are back when they register.
    down = {"tailrack: does not answer", "tailrack: the pod started again"}
    assert {reason for reason in reasons if not OUR_DRAINS.fullmatch(reason)} == down
    assert {"tailrack: leaves the cluster", "tailrack: registers anew"} <= reasons


@pytest.mark.parametrize("own", [True, False])
def test_a_recreated_node_restores_only_the_drain_of_a_person(node: Node, own: bool) -> None:
    why = "health: disk: /x is full"
    drained = {"state": ["IDLE", "DRAIN"], "reason": why, "reason_set_by_user": "root"}
    node.known_as({**IDLE, **drained, "features": ["site-rack"]})
    node.shell.stub("tailrack-nhc", f'[ "$*" != --own ] || exit {0 if own else 1}')
    assert node.compute().returncode == 0
    # A look drains it as soon as the controller knows it; what a step has set it would take for a person's.
    words = ("tailrack-nhc", "scontrol delete", "scontrol update")
    end = [call.strip() for call in node.shell.calls if call.startswith(words)][-2:]
    said = "tailrack-nhc" if own else f"scontrol update nodename=a1 state=drain reason={why}"
    assert end == ["scontrol delete nodename=a1", said]
    assert node.shell.path("/drained").exists() is not own


@pytest.mark.parametrize("over", [True, False])
def test_a_node_drained_by_its_health_check_is_checked_once_more(node: Node, over: bool) -> None:
    # Its next look by itself is two minutes away, and what measures the cluster comes at once.
    why = "health: share: /shared gives no answer in 10 s"
    node.known_as({**IDLE, "state": ["IDLE", "DRAIN"], "reason": why, "reason_set_by_user": "root"})
    shown, fresh = node.shell.root / "node.json", node.shell.root / "fresh.json"
    node.shell.stub("tailrack-nhc", f'if [ "$*" = --wait ]; then {f"cp {fresh} {shown}" if over else ":"}; fi')
    done = assert_ok(node.compute())
    assert [call.strip() for call in node.shell.calls].count("tailrack-nhc --wait") == 1
    assert not [call for call in node.changes() if "scontrol" in call]
    assert ("the health check drained this node; it stays drained: " + why in done.stderr) is not over
    assert "a person drained this node" not in done.stderr


def test_a_node_that_munge_rejects_for_its_clock_gets_that_reason(node: Node) -> None:
    node.known_as({**IDLE, "state": ["DOWN", "NOT_RESPONDING"]})
    node.shell.stub("journalctl", "echo 'error: Munge decode failed: Rewound credential'")
    node.shell.hurry()
    assert "; the clocks of this node and the head node differ by more than five minutes" in node.compute().stderr


def test_a_node_with_gpus_has_its_health_looked_at_and_its_driver_kept_awake(shell: Shell) -> None:
    shell.stub("systemctl", 'case "$*" in "-q cat nvidia-persistenced.service") ;; esac')
    shell.stub("systemd-run")
    shell.write(f"{minute.FOLDER}/machine.json", json.dumps([asdict(HEALTH)]))
    shell.write("/usr/bin/python3", "")
    for _ in range(2):
        assert_ok(shell.step(script_of("gpu", "compute"), {**role_header("gpu"), "node_gpu_count": 8}))
    assert "systemctl start nvidia-persistenced.service" in shell.calls
    assert "systemctl --root=/ enable -q nvidia-persistenced.service tailrack-gpu.service" in shell.calls
    (call,) = {call for call in shell.calls if call.startswith("systemd-run")}
    assert "--unit=tailrack-health.service" in call
    assert call.endswith("/usr/local/sbin/tailrack-health")
    assert ' gpu-health "$@"' in shell.path("/usr/local/sbin/tailrack-health").read_text()


def test_at_boot_device_files_are_made_but_in_a_container(shell: Shell) -> None:
    assert shell.step(script_of("gpu", "compute"), {**role_header("gpu"), "node_gpu_count": 8}).returncode == 0
    shell.write("sys/class/infiniband/mlx5_0/ports/1/state", "")
    shell.stubs("nvidia-smi", "nvidia-modprobe", "modprobe", "mount")
    made = ["nvidia-smi -L", "nvidia-modprobe -u -c 0", "modprobe -q nvidia_peermem"]
    for container, persistenced, ran in (
        (False, False, ["nvidia-smi -pm 1", *made]),
        (False, True, made),
        (True, False, []),
    ):
        shell.stub("systemd-detect-virt", f"exit {int(not container)}")
        shell.stub("systemctl", f"exit {3 * (not persistenced)}")
        shell.path("/calls").unlink()
        assert shell.program("/usr/local/sbin/tailrack-gpu").returncode == 0
        assert [call for call in shell.calls if call.startswith(("nvidia", "modprobe"))] == ran, (
            container,
            persistenced,
        )


@pytest.mark.parametrize("asked", [True, False])
def test_the_step_sets_up_roce_ports_only_on_request(shell: Shell, asked: bool) -> None:
    settings = parse({**LAB, "fabric": {"roce": {"apply": asked}}}, base_dir=Path())
    (gpu,) = [role for role in roles(settings) if role.name == "gpu"]
    assert shell.step(compose([gpu], ["compute"]), {**gpu.values, "node_gpu_count": 0}).returncode == 0
    assert ("systemctl restart tailrack-roce.service" in shell.calls) == asked
    program = shell.path("/usr/local/sbin/tailrack-roce")
    assert program.exists() == asked
    if not asked:
        return
    for adapter, layer, mtu in (
        ("mlx5_0", "InfiniBand", 4092),
        ("mlx5_1", "Ethernet", 1500),
        ("mlx5_2", "Ethernet", 9216),
    ):
        shell.write(f"sys/class/infiniband/{adapter}/ports/1/link_layer", f"{layer}\n")
        shell.write(f"sys/class/infiniband/{adapter}/device/net/en{adapter}/mtu", f"{mtu}\n")
    shell.stub("ip")
    shell.stub("readlink", 'echo "/devices/0000:45:00.0"')
    shell.stub("mlxconfig", '[ "$3" = query ] && echo "  ATS_ENABLED   False(0)"')
    shell.path("/calls").unlink()
    assert shell.program("/usr/local/sbin/tailrack-roce").returncode == 0
    assert [call for call in shell.calls if call.startswith("ip ")] == ["ip link set enmlx5_1 mtu 9216"]
    assert "mlxconfig -y -d 0000:45:00.0 set ATS_ENABLED=true" in shell.calls


def test_device_files_of_gpus_and_more_shared_memory_are_made_at_boot_before_slurmd_looks(shell: Shell) -> None:
    assert shell.step(script_of("gpu", "compute"), {**role_header("gpu"), "node_gpu_count": 8}).returncode == 0
    unit = shell.path("/etc/systemd/system/tailrack-gpu.service").read_text()
    assert "Before=slurmd.service" in unit
    # No driver must not keep slurmd from starting: its own message says which file is missing.
    assert all(line.startswith("ExecStart=-") for line in unit.splitlines() if line.startswith("ExecStart"))
    assert "systemctl start tailrack-gpu.service" in shell.calls
    shell.stubs("systemd-detect-virt", "mount")
    for size, enlarged in ((1048576, False), (65536, True)):
        shell.stub("df", f"echo 1K-blocks; echo {size}")
        assert shell.program("/usr/local/sbin/tailrack-gpu").returncode == 0
        assert any(call.startswith("mount -o remount,size=50% ") for call in shell.calls) == enlarged, size


@pytest.mark.parametrize("seconds", [0, 7200])
def test_steps_that_wait_for_jobs_have_more_time(build: Build, lab_config: RawConfig, seconds: int) -> None:
    stack = build({**lab_config, "slurm": {"job_limit_seconds": seconds}})
    commands = {
        "a1-register": stack["a1-register"].inputs["delete"],
        "a1-node": stack["a1-node"].inputs["create"],
        "head-head": stack["head-head"].inputs["create"],
    }
    for name, command in commands.items():
        assert command.endswith(f" {1800 + seconds}'"), name


RELOAD, REBIND = "systemctl reload slurmd", "tailscale debug rebind"


def watched(shell: Shell, **stubs: str) -> list[str]:
    """Run the watchdog of a1 until its `sleep` fails; return what it told slurmd and tailscaled."""
    shell.path("/calls").unlink(missing_ok=True)
    shell.path("/naps").unlink(missing_ok=True)
    for name, body in {"hostname": "echo a1", "systemctl": "", "tailscale": "", **stubs}.items():
        shell.stub(name, body)
    shell.run(template("slurm", "tailrack-slurmd-watchdog"))
    return [call for call in shell.calls if call.startswith(("systemctl", "tailscale"))]


def test_the_watchdog_of_a_silent_node_reloads_slurmd_or_rebinds(shell: Shell) -> None:
    for says, told in (("mix*", [RELOAD]), ("down*", [RELOAD]), ("idle", []), ("drain", []), ("", [REBIND])):
        sleep = f'[ "$*" = 40 ] || mkdir "{shell.root}/naps"'
        sinfo = f'[ "$*" = "-h -n a1 -o %t" ] && echo "{says}" | grep .'
        assert watched(shell, sleep=sleep, sinfo=sinfo) == told, says
        assert shell.calls.count("sleep 20") == 2
        shell.path("/naps").rmdir()


def test_a_job_without_process_registers_its_node(shell: Shell) -> None:
    # Four looks in the time of 24 naps.
    sleep = f'echo >>"{shell.root}/naps"; [ "$(wc -l <"{shell.root}/naps")" -le 24 ]'
    for running, processes, told in (
        ("7 a1\n", "8", [RELOAD]),
        ("7 a1\n", "7", []),
        ("7 b1\n", "8", []),  # another node says what becomes of it
        ("", "8", []),
    ):
        pgrep = f"[ \"$2\" = '^slurmstepd: \\[{processes}\\.' ]"
        stubs = {"sinfo": "echo mix", "squeue": f"printf '{running}'", "pgrep": pgrep}
        assert watched(shell, sleep=sleep, **stubs) == told, (running, processes)
        assert len([call for call in shell.calls if call.startswith("squeue")]) == 4


# A cluster that is called by another name is refused before slurmctld is touched.


NAMED = "/var/lib/slurm/slurmctld/clustername"


def test_another_name_is_refused_with_both_names_and_the_way_out(shell: Shell) -> None:
    shell.write(NAMED, "lab|4711\n")
    conf = "# ours\nClusterName=prod\nSlurmUser=slurm"
    said = shell.failure_of(refuse_another_cluster_name, Step("head", "head-head"), conf)
    assert re.search(r"created as 'lab' .*'prod'.*; set tailrack:cluster.name", said)
