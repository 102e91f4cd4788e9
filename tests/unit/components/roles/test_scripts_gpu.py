"""Phase `check` of role gpu: which GPUs are found, and what is said where they are not what they should be."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.roles.gpu.gpu import nvidia_smi
from components.validation.preflight import collect
from tests.unit.fake_nvidia_smi import devices, gpu, install, nvlink, on_the_bus
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nvidia"
Gate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def gate(shell: Shell) -> Gate:
    """Run the phase for a1; what it found is on stdout, what a person would read on stderr."""

    def run(kind: str = "", count: int = 0) -> subprocess.CompletedProcess[str]:
        return shell.step(script_of("gpu", "check"), {"node_gpu_kind": kind, "node_gpu_count": count}, name="a1-check")

    return run


def found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_a_products_name_has_one_short_kind() -> None:
    for product, kind in (
        ("NVIDIA H200", "h200"), ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100 80GB PCIe", "a100"), ("NVIDIA A100-SXM-64GB", "a100"), ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA A100-PG509-200", "a100"), ("NVIDIA H20", "h20"), ("NVIDIA A10G", "a10g"), ("NVIDIA A10", "a10"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"), ("NVIDIA L40S", "l40s"), ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100"), ("Tesla P100-PCIE-16GB", "p100"), ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GH200 144G HBM3e", "gh200"), ("NVIDIA B200", "b200"), ("NVIDIA GB200", "gb200"),
        ("NVIDIA B300 SXM6 AC", "b300"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"), ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "rtx4070laptop"), ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"), ("NVIDIA TITAN V", "titanv"),
        ("NVIDIA Graphics Device", "device"), ("NVIDIA PG506-230", "unknown"), ("", "unknown"), ("NVIDIA", "unknown"),
        ("all", "unknown"), ("$(reboot) ; `id`", "rebootid"), ("9" * 90, "unknown"), ("é\t\x01", "unknown"),
    ):  # fmt: skip
        assert nvidia_smi.kind_of(product) == kind, product


def test_nvidia_smi_runs_without_root_in_a_container(gate: Gate, shell: Shell) -> None:
    install(shell, [gpu(0)])
    devices(shell, 0)
    shell.stub("systemd-detect-virt")
    assert found(gate())["gpus"] == 1
    assert any(call.startswith("runuser -u nobody -- ") and call.endswith("nvidia-smi -q -x") for call in shell.calls)
    (shell.root / "dev/nvidia0").unlink()
    on_the_bus(shell, "0000:10:00.0")  # the host's
    assert found(gate())["gpus"] == 0


def test_a_gpu_that_shows_a_display_does_not_count(gate: Gate, shell: Shell) -> None:
    gt1030 = gpu(0, "NVIDIA GeForce GT 1030", display="Enabled", memory=2048)
    for other in (gt1030, gpu(0, "NVIDIA DGX Display")):
        install(shell, [other, gpu(1), gpu(2)])
        devices(shell, 0, 1, 2)
        facts = found(gate())
        assert (facts["gpus"], facts["gpu_kind"], facts["gpu_devices"]) == (2, "h200", [1, 2])
        assert_fails(gate("h200", 3), "this machine shows 2 in ", "shows a display")


def test_another_kind_than_promised_is_named_and_mig_refused(gate: Gate, shell: Shell) -> None:
    install(shell, [gpu(0), gpu(1)], nvlink(2, 18, down=5))
    devices(shell, 0, 1)
    assert found(gate())["gpu_nvlinks"] == 13, "of the GPU with fewest"
    different = "the config promises 2 GPUs (h100), but the GPUs here are h200"
    assert_fails(gate("h100", 2), different, "next: set gpu: KIND:COUNT for a1")
    install(shell, [gpu(0), gpu(1, mig="Enabled")])
    for promise in (("", 0), ("h200", 2)):
        mig = "MIG is on at GPU 1 (00000000:11:00.0)"
        assert_fails(gate(*promise), mig, "next: run 'nvidia-smi -i 1 -mig 0' on a1")


def test_one_gpu_less_than_promised_is_named_by_its_address(gate: Gate, shell: Shell) -> None:
    install(shell, [gpu(number) for number in range(7)])
    devices(shell, *range(8))
    for number in range(8):
        on_the_bus(shell, f"0000:{number + 16:02x}:00.0")
    on_the_bus(shell, "0000:99:00.0", vendor="0x8086")
    done = assert_fails(
        gate("h200", 8),
        "promises 8 GPUs (h200), this machine shows 7 in ",
        "; 0000:17:00.0 is on the PCI bus, but nvidia-smi does not show it",
    )
    assert done.stderr.count("is on the PCI bus") == 1
    assert "next: correct gpu: of a1 in the config, or see nvidia-smi and 'dmesg" in done.stderr


def test_real_output_is_read(gate: Gate, shell: Shell) -> None:
    install(shell, [])
    devices(shell, 0)
    for kind, memory in (("t4", 15360), ("a10g", 23028)):
        shell.write("fake/query.xml", (FIXTURES / f"smi-515-{kind}.xml").read_text(encoding="utf-8"))
        facts = found(gate(kind, 1))
        assert (facts["gpu_kind"], facts["gpu_memory_mb"], facts["gpu_driver"]) == (kind, memory, "515.105.01")


def test_gpus_without_a_driver_stop_a_machine_that_was_promised_to_have_some(gate: Gate, shell: Shell) -> None:
    on_the_bus(shell, "0000:18:00.0")
    assert_fails(
        gate("h200", 1), "the NVIDIA driver is not installed", "0000:18:00.0", "next: install the driver on a1"
    )
    # Nobody spoke of a GPU: it may be the one that shows the console.
    quiet = gate()
    assert found(quiet)["gpus"] == 0
    log = shell.path("/var/log/tailrack/a1-check.log").read_text()
    assert "NVIDIA GPUs without a driver, which jobs cannot use: 0000:18:00.0" in log


def test_the_error_names_a_broken_driver_and_the_remedy(gate: Gate, shell: Shell) -> None:
    for status, said, problem, remedy in (
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.", "the NVIDIA driver does not load", "'modprobe nvidia'"),
        (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161",
         "the running NVIDIA driver is not the installed one", "restart a1"),
        (15, "Unable to determine the device handle for GPU0000:B3:00.0: GPU is lost.  Reboot the system to recover "
             "this GPU", "a GPU is lost", "see 'dmesg | grep -i xid' on a1 and restart it"),
        (6, "No devices were found", "nvidia-smi fails with status 6", "'dmesg | grep -i nvrm'"),
        (139, "", "nvidia-smi fails with status 139", "run nvidia-smi on a1"),
    ):  # fmt: skip
        on_the_bus(shell, "0000:18:00.0")
        text = shell.write("fake/said", said)
        shell.stub("nvidia-smi", f'cat "{text}"; exit {status}')
        done = assert_fails(gate(), problem)
        assert remedy in done.stderr.split("next: ")[1], status


def test_a_hanging_nvidia_smi_ends_the_gate_in_time(gate: Gate, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.stub("nvidia-smi", "exec tail -f /dev/null")
    devices(shell, 0)
    monkeypatch.setattr(collect, "LIMIT_SECONDS", 1)
    assert_fails(gate(), "nvidia-smi does not answer within 60s", "then restart it")


def test_nvswitches_need_their_fabric_manager(gate: Gate, shell: Shell) -> None:
    install(shell, [gpu(0), gpu(1)])
    devices(shell, 0, 1)
    on_the_bus(shell, "0000:05:00.0", kind="0x068000")
    shell.stub("systemctl")
    assert_ok(gate())
    shell.stub("systemctl", "exit 3")
    remedy = "'systemctl enable --now nvidia-fabricmanager' on a1; its package must have the driver's version, 580"
    assert_fails(gate(), "the fabric manager does not run", remedy)


def test_an_invalid_answer_gives_no_gpu_and_no_wrong_number(gate: Gate, shell: Shell) -> None:
    for text in (
        "",
        "<nvidia_smi_log>",
        '<gpu id="\n</gpu>',
        "\x00\xff<gpu id=x>\n<minor_number>$(id)</minor_number>\n</gpu>",
    ):
        install(shell, [])
        shell.path("fake/query.xml").write_bytes(text.encode("latin-1"))
        devices(shell, 0)
        done = gate()
        if done.returncode:
            assert "nvidia-smi succeeds but lists no GPU" in done.stderr, text
        else:
            assert (found(done)["gpus"], found(done)["gpu_devices"]) == (0, []), text
