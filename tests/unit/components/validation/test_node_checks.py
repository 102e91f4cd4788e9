"""Checks of a node by root: each thing broken in a folder that stands for the machine, and what comes of it."""

import json
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from components.node import run
from components.roles.monitoring.health import boot_check
from components.roles.role import template
from components.validation.preflight import adapters, checks, dcgm, holders, node_checks, storage, xids
from components.validation.preflight import node as preflight_node
from components.validation.preflight.checks import NODE, Machine
from components.validation.preflight.findings import CommandResult, Finding, Health, finding, unjudged
from components.validation.preflight.holders import device_numbers
from components.validation.preflight.node import check_synchronized
from components.validation.preflight.xids import check_xids

Write = Callable[[str, str], Path]
XID_79 = "NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus."


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of the machine."""

    def put(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return put


def errors(found: list[Finding]) -> list[str]:
    return [f"{item['check']}: {item['seen']}" for item in found if item["severity"] == "error"]


def on(root: Path, **given: object) -> list[Finding]:
    """What NODE finds on a machine that is a folder."""
    values: dict[str, object] = {"gpus": 0, "health": None, "root": root, "stdout": lambda *_words: ""}
    return checks.run(Machine(**{**values, **given}), NODE)  # type: ignore[arg-type]


def test_every_error_and_warning_has_a_remedy(tmp_path: Path, write: Write) -> None:
    write("dev/kmsg", f"6,1,1,-;{XID_79}\n")
    write("sys/devices/system/edac/mc/mc0/ue_count", "1\n")
    before = adapters.PortHistory({"mlx5_0/1": 400.0})
    events = xids.read_kmsg(tmp_path)[0][1]
    share = str(tmp_path / "none")
    found = on(tmp_path, gpus=2, port_history=before, events=events, share=share)
    assert {item["check"] for item in found if item["severity"] == "error"} >= {
        "Xid", "memory", "InfiniBand port", "share", "device files",
    }  # fmt: skip
    assert [item for item in found if item["severity"] != "info" and not item["remedy"]] == []


# One by one.


def test_a_gpu_that_fell_off_the_bus_is_seen_in_the_kernels_log(write: Write, tmp_path: Path) -> None:
    write("dev/kmsg", f"6,41,100,-;usb 1-1: new device\n3,42,101,-;{XID_79}\n SUBSYSTEM=pci\n4,43,102,-;NVRM: loaded\n")
    found = xids.read_kmsg(tmp_path)
    assert [number for number, _ in found] == [42, 43]
    item = next(check_xids("\n".join(text for _, text in found)))
    assert (item["severity"], "Xid 79" in item["seen"], "restart the node" in item["remedy"]) == ("error", True, True)


def test_an_event_that_the_buffer_has_forgotten_is_kept_and_none_counts_twice() -> None:
    kept = xids.joined([], [(5, XID_79)])
    assert xids.joined(kept, [(5, XID_79), (9, "NVRM: more")]) == [(5, XID_79), (9, "NVRM: more")]
    # The collector has the same event of the journal.
    found = list(check_xids(f"2026-11-23T01:00:00+0000 n1 kernel: {XID_79}", XID_79))
    assert len(found) == 1
    assert "times" not in found[0]["seen"]


ACTION = "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from {} to {}"
RESET = ACTION.format("0x0 (None)", "0x1 (GPU Reset Required)")
NONE = ACTION.format("0x1 (GPU Reset Required)", "0x0 (None)")
OTHER = XID_79.replace("18:00", "3b:00")


@pytest.mark.parametrize(
    ("words", "severity", "remedy"),
    [
        *((words, "error", "nvidia-smi --gpu-reset -i 0000:18:00.0")
          for words in ("0x1 (GPU Reset Required)", "0x1 (PF FLR)", "0x4 (Drain and Reset)")),
        ("0x2 (Node Reboot Required)", "error", "drain the node and restart it"),
        ("0x2 (OS Reboot)", "error", "drain the node and restart it"),
        ("0x3 (Drain P2P)", "warning", "watch it"),
    ],
)  # fmt: skip
def test_the_second_word_of_xid_154_names_the_remedy(words: str, severity: str, remedy: str) -> None:
    (item,) = check_xids(ACTION.format("0x0 (None)", words))
    assert item["severity"] == severity
    assert remedy in item["remedy"]


def test_a_gpu_that_was_reset_is_held_against_no_older_event() -> None:
    log = f"{XID_79}\n{OTHER}\n{RESET}\n{NONE}"
    assert [item["seen"].partition(": Xid")[0] for item in check_xids(log)] == ["GPU 0000:3b:00.0"]
    again = list(check_xids(f"{log}\n{XID_79}\n{RESET}"))
    assert [(item["severity"], "times" in item["seen"]) for item in again] == [("error", False)] * 3


def test_an_nvidia_smi_of_an_unknown_form_is_unjudged(tmp_path: Path, write: Write) -> None:
    write("dev/nvidia0", "")
    health = Health(int(time.time()), {"nvidia-smi": CommandResult(0, "NVIDIA System Management 2030: all is well")})
    found = on(tmp_path, gpus=1, health=health)
    assert errors(found) == []
    assert any(item["seen"].startswith("UNJUDGED: ") for item in found)


def test_a_gpu_that_the_driver_has_no_more_is_an_error(tmp_path: Path, write: Write) -> None:
    write("dev/nvidia0", "")
    write("dev/nvidia1", "")
    write("proc/driver/nvidia/gpus/0000:18:00.0/information", "")
    assert errors(on(tmp_path, gpus=2)) == ["GPU count: the driver has 1 of 2 GPUs (0000:18:00.0)"]


def port(write: Write, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", downed: int = 0) -> None:
    folder = "sys/class/infiniband/mlx5_0/ports/1"
    physical = "5: LinkUp" if "ACTIVE" in state else "3: Disabled"
    for name, text in {"state": state, "phys_state": physical, "rate": rate, "link_layer": "InfiniBand"}.items():
        write(f"{folder}/{name}", f"{text}\n")
    write(f"{folder}/counters/link_downed", f"{downed}\n")


def port_errors(root: Path, history: adapters.PortHistory | None = None) -> list[str]:
    """The errors of ports on a machine, each without the check's name and the port's."""
    found = errors(on(root, port_history=history) if history else on(root))
    return [text.removeprefix("InfiniBand port: mlx5_0/1") for text in found]


def test_only_a_port_that_was_up_and_is_down_or_slower_is_an_error(tmp_path: Path, write: Write) -> None:
    port(write, "1: DOWN")
    assert port_errors(tmp_path) == []
    port(write)
    before = adapters.updated_ports(adapters.PortHistory(), Machine(0, None, root=tmp_path).ports, 1000)
    port(write, "1: DOWN")
    assert port_errors(tmp_path, before) == [" was ACTIVE and now is DOWN (Disabled)"]
    port(write, rate="100 Gb/sec (4X EDR)")
    assert port_errors(tmp_path, before) == [" ran at 400 Gb/s and now runs at 100 Gb/s"]


def test_a_flapping_link_is_an_error_for_three_hours(tmp_path: Path, write: Write) -> None:
    port(write, downed=7)
    for hours, found in ((1, [": its link went down 5 times in three hours"]), (4, [])):
        history = adapters.PortHistory({}, {"mlx5_0/1": ((time.time() - hours * 3600, 2),)})
        assert port_errors(tmp_path, history) == found


def test_a_share_that_is_not_mounted_or_does_not_answer_is_an_error() -> None:
    line = "36 25 0:32 / /shared rw,relatime shared:1 - {} head:/ rw\n"
    mounted, waits = storage.read_mounts(line.format("nfs4")), storage.read_mounts(line.format("autofs"))
    assert list(storage.check_share("/shared", lambda: mounted, lambda _path: True)) == []
    for mounts, answer, words in (
        (mounted, None, "does not answer within 10 s"), (waits, True, "is not mounted"), ({}, True, "is not mounted"),
        (waits, False, "is not mounted"),
    ):  # fmt: skip
        (item,) = storage.check_share("/shared", lambda mounts=mounts: mounts, lambda _path, answer=answer: answer)  # type: ignore[misc]
        assert (item["severity"], words in item["seen"]) == ("error", True)
    assert "data-a\\x2db.mount" in next(storage.check_share("/data/a-b", dict, lambda _path: True))["remedy"]


def test_a_look_at_a_folder_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text("#!/bin/sh\nexec sleep 60\n")
    stat.chmod(0o755)
    monkeypatch.setattr(run, "PATH", f"{tmp_path}:{run.PATH}")
    assert storage.answers("/", 0.2) is None
    monkeypatch.undo()
    assert (storage.answers("/"), storage.answers(str(tmp_path / "none"))) == (True, False)


class Statvfs:
    """A file system of 1 GiB, with what a test says of it."""

    f_frsize, f_blocks, f_bavail, f_files, f_favail, f_flag = 4096, 262_144, 200_000, 1000, 900, 0

    def __init__(self, **given: int) -> None:
        self.__dict__ |= given


def test_a_disk_that_is_full_or_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    for given, words in (
        ({"f_bavail": 1000}, "disk: /tmp is full: 0.0 GiB of 1.0 GiB are free"),
        ({"f_favail": 5}, "disk: /tmp has no room for more files (5 of 1000 are free)"),
        ({"f_flag": os.ST_RDONLY}, "disk: /tmp is read-only"),
        ({}, ""),
        # 3 GiB of 100: as full in percent, and room for jobs.
        ({"f_blocks": 26_214_400, "f_bavail": 786_432}, ""),
    ):
        monkeypatch.setattr(os, "statvfs", lambda _path, given=given: Statvfs(**given))
        found = errors(list(storage.check_disks({}, ("/tmp",), tmp_path)))  # noqa: S108
        assert found == ([words] if words else [])


def test_memory_with_errors_that_ecc_cannot_correct_is_an_error(tmp_path: Path, write: Write) -> None:
    write("sys/devices/system/edac/mc/mc0/ue_count", "0\n")
    write("sys/devices/system/edac/mc/mc0/ce_count", "4000\n")
    assert [item["severity"] for item in preflight_node.check_memory_errors(tmp_path)] == ["warning"]
    write("sys/devices/system/edac/mc/mc0/ue_count", "2\n")
    assert errors(on(tmp_path)) == ["memory: mc0: 2 errors since boot that ECC could not correct"]


def test_memory_taken_without_a_job_and_an_unsynchronized_clock_are_warnings(tmp_path: Path, write: Write) -> None:
    write("proc/meminfo", "MemTotal:       64000000 kB\nMemFree:  10 kB\nMemAvailable:   20000000 kB\n")
    check_memory = preflight_node.check_idle_memory
    assert [item["severity"] for item in check_memory(0, tmp_path)] == ["warning"]
    assert [*check_memory(1, tmp_path), *check_memory(None, tmp_path)] == []
    assert [item["severity"] for item in check_synchronized("no\n", False)] == ["warning"]
    in_order = [("yes\n", False), ("no\n", True), ("", False)]  # the second in a container
    assert [item for clock in in_order for item in check_synchronized(*clock)] == []


# Who uses a job's GPUs.


def process(
    root: Path, pid: int, *files: str, cgroup: str = "0::/user.slice", parent: int = 1, name: str = "python"
) -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)
    (folder / "cgroup").write_text(f"{cgroup}\n")
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(f"Name:\t{name}\nPPid:\t{parent}\n")


def test_a_process_in_no_job_on_gpus_is_named(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("etc/tailrack/gres.conf", "# Written by tailrack.\nNodeName=a1 Name=gpu Type=h200 File=/dev/nvidia[0-1,5]\n")
    assert device_numbers(tmp_path) == [0, 1, 5]
    for bus, minor in ("18", 0), ("2a", 5):
        write(f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information", f"Model: \t H200\nDevice Minor: \t {minor}\n")
    process(tmp_path, 100, "/dev/nvidia5", "/dev/nvidia-uvm")
    # CUDA opens the files of all GPUs.
    process(tmp_path, 104, "/dev/nvidia0", "/dev/nvidia5", "/dev/nvidia-uvm")
    # One that watches, one of a job, one on another GPU.
    process(tmp_path, 101, "/dev/nvidia5", "/dev/nvidiactl", name="nvidia-persiste")
    process(tmp_path, 102, "/dev/nvidia5", "/dev/nvidia-uvm", cgroup="0::/system.slice/slurmstepd.scope/job_7/step_0")
    process(tmp_path, 103, "/dev/nvidia0", "/dev/nvidia-uvm")
    answer = "00000000:2A:00.0, 100\n00000000:18:00.0, 104\n"
    assert holders.main(["2"], tmp_path, lambda: answer) == 1
    said = capsys.readouterr().out
    assert "process 104" not in said
    assert "process 100 (python) of" in said
    assert "uses GPU 5 and is in no job" in said
    assert said.startswith("next: ")
    assert holders.main(["0"], tmp_path, lambda: answer.replace("18", "2A")) == 0
    assert holders.main(["0"], tmp_path, lambda: "") == 0
    assert holders.main(["1"], tmp_path) == 0
    assert holders.main([""], tmp_path) == holders.main([], tmp_path) == 0


def test_an_nvidia_smi_that_hangs_leaves_the_prolog_time_to_say_so() -> None:
    limit = re.search(r"^LIMIT=(\d+)$", template("slurm", "tailrack-prolog"), re.MULTILINE)
    assert limit is not None
    assert int(limit[1]) - 5 >= holders.ASK_SECONDS


@pytest.mark.parametrize("answer", [None, "No devices were found\n", "00000000:99:00.0, 100\n", "0:1, [N/A]\n"])
def test_a_silent_nvidia_smi_leaves_the_device_file_to_the_finding(tmp_path: Path, answer: str | None) -> None:
    process(tmp_path, 100, "/dev/nvidia0", "/dev/nvidia-uvm")
    (found,) = holders.check_holders({0}, tmp_path, lambda: answer)
    assert found["severity"] == "error"
    assert "has the device file of GPU 0" in found["seen"]
    assert "nvidia-smi does not report which GPU it uses" in found["seen"]
    assert " uses GPU 0" not in found["seen"]


def test_a_process_named_slurmstepd_belongs_to_slurm_only_if_root_owns_it(tmp_path: Path) -> None:
    process(tmp_path, 200, name="slurmstepd")
    process(tmp_path, 201, "/dev/nvidia0", "/dev/nvidia-uvm", parent=200)
    os.chown(tmp_path / "proc/200", 6001, 6001)
    assert holders.holders({0}, tmp_path) == {"201": [0]}
    os.chown(tmp_path / "proc/200", 0, 0)
    assert holders.holders({0}, tmp_path) == {}


# The program.


def test_the_status_says_whether_errors_exist(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    node = node_checks.Node(tmp_path)
    assert node_checks.main([], node) == 0
    write("sys/devices/system/edac/mc/mc0/ue_count", "2\n")
    assert node_checks.main([], node) == 1
    assert "error   memory: mc0: 2 errors" in capsys.readouterr().out
    assert node_checks.main(["--json"], node) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][0].keys() == {"severity", "check", "seen", "remedy"}
    assert node_checks.main(["--what"], node) == 2


def test_a_pod_is_held_to_nothing_that_it_sees_of_its_host(tmp_path: Path, write: Write) -> None:
    write("usr/local/lib/tailrack/supervise", "")
    write("sys/devices/system/edac/mc/mc0/ue_count", "2\n")
    port(write, "1: DOWN")
    assert errors(node_checks.findings(node_checks.Node(tmp_path))) == []
    assert not (tmp_path / "var/lib/tailrack/health/ports.json").exists()


def test_a_pods_lost_gpu_and_full_volume_are_errors(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("usr/local/lib/tailrack/supervise", "")
    write("etc/tailrack/gres.conf", "Name=gpu Type=h100 File=/dev/nvidia0\n")
    (tmp_path / "workspace").mkdir()
    monkeypatch.setattr(os, "statvfs", lambda _path: Statvfs(f_bavail=1000))
    found = node_checks.findings(node_checks.Node(tmp_path))
    full = "disk: /workspace is full: 0.0 GiB of 1.0 GiB are free"
    assert {"device files: 0 of 1 GPUs have a device file", full} <= {*errors(found)}
    (lost,) = (item for item in found if item["check"] == "device files")
    assert lost["remedy"] == "stop the pod and start it again, or rent another one"


def test_a_port_is_remembered_from_look_to_look_until_it_is_forgotten(tmp_path: Path, write: Write) -> None:
    node = node_checks.Node(tmp_path)
    port(write)
    assert errors(node_checks.findings(node)) == []
    port(write, "1: DOWN")
    assert errors(node_checks.findings(node)) == ["InfiniBand port: mlx5_0/1 was ACTIVE and now is DOWN (Disabled)"]
    assert (tmp_path / "var/lib/tailrack/health/ports.json").stat().st_mode & 0o777 == 0o600
    assert node_checks.main(["--forget-ports"], node) == 0
    assert errors(node_checks.findings(node)) == []


def test_a_node_has_an_error_until_its_check_at_boot_ends_and_restarts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, ran = node_checks.Node(tmp_path), list[str]()
    bad = [finding("error", "DCGM", "memory on GPU 0", "reset it"), unjudged("DCGM", "nothing else")]
    diagnosed = iter([bad, bad, []])
    monkeypatch.setattr(dcgm, "diagnosed", lambda level, seconds: next(diagnosed))
    monkeypatch.setattr("components.roles.monitoring.health.boot_check.device_numbers", lambda root: [0])
    monkeypatch.setattr(checks, "run", lambda machine, by: [])

    def run(*words: str) -> list[str]:
        boot_check.main([*words], node, lambda *command: ran.append(" ".join(command)), lambda seconds: None)
        return errors(node_checks.findings(node))

    unfinished = ["check at boot: it has not ended"]
    assert run("begin") == unfinished
    # The machine is about to restart, so it takes no job.
    assert (run("dcgm", "reboot"), ran) == (unfinished, ["systemctl reboot"])
    assert run("dcgm", "reboot") == ["DCGM: memory on GPU 0"]
    assert run("dcgm", "reboot") == []
    assert ran[1:] == ["/usr/local/sbin/tailrack-nhc --wait"] * 2
    assert not (node.persistent / "restarted").exists()


def test_a_check_at_boot_waits_for_what_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, ran = iter([[finding("error", "share", "it is not mounted")], []]), list[str]()
    monkeypatch.setattr(checks, "run", lambda machine, by: next(late))
    run = partial(boot_check.main, node=node_checks.Node(tmp_path), run=lambda *words: ran.append(words[0]))
    assert run(["quick", "reboot"], wait=lambda seconds: None) == 0
    assert ran == ["/usr/local/sbin/tailrack-nhc"]
