"""Answers of tools in a form that nobody expected: a broken machine is never silent, a working one never taken out."""

import json
from pathlib import Path

import pytest
import yaml

from components.slurm_commands.nodes import read_nodes
from components.validation.preflight import gpus, links, tailnet, xids
from components.validation.preflight.checks import JOB, NODE, Machine, run
from components.validation.preflight.collect import _EVENT
from components.validation.preflight.findings import CommandResult as Answer
from components.validation.preflight.findings import Health
from components.validation.preflight.xids import _records
from tests.unit.components.validation.test_preflight_checks import REAL, texts, worst
from tests.unit.fake_nvidia_smi import gpu, xml
from tests.unit.fake_nvidia_smi import nvlink as fake_links

TWO = xml([gpu(0), gpu(1)])
LOST = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU\n"
SICK_FIELDS = Path(__file__).parents[3] / "fixtures/nvidia/fields-of-sick-gpus.yaml"
CORRUPTED = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"


def with_fields(text: str) -> str:
    """An answer of a whole machine with fields in its first GPU."""
    return TWO.replace("</gpu>", f"{text}</gpu>", 1)


@pytest.mark.parametrize("look", [Answer(14, CORRUPTED + TWO), Answer(14, TWO + CORRUPTED), Answer(0, CORRUPTED + TWO)])
def test_a_warning_beside_the_gpus_is_a_warning_and_takes_no_node_out(look: Answer) -> None:
    found = list(gpus.check_gpus(look, 2))
    assert worst(found) == "warning"
    assert "infoROM is corrupted" in texts(found)


@pytest.mark.parametrize(
    ("look", "seen", "remedy"),
    [
        (Answer(15, LOST), "a GPU is lost", "restart it"),
        (Answer(0, LOST + xml([gpu(0)])), "a GPU is lost", "restart it"),
        (Answer(6, "No devices were found\n"), "the driver finds no GPU", "lspci"),
        (Answer(0, "No devices were found\n"), "the driver finds no GPU", "lspci"),
        (Answer(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"),
         "the loaded driver is not the installed one", "restart the node"),
        (Answer(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
         "the driver does not load", "modprobe nvidia"),
        (Answer(139, TWO[: TWO.index("<gpu id", TWO.index("</gpu>"))]),
         "stops with status 139 after 1 GPUs", "restart"),
    ],
    ids=["lost", "lost beside one that is well", "none", "none, and status 0", "mismatch", "no module", "dies"],
)  # fmt: skip
def test_a_message_instead_of_gpus_is_an_error_with_a_remedy(look: Answer, seen: str, remedy: str) -> None:
    found = [each for each in gpus.check_gpus(look, 2) if each["severity"] == "error"]
    assert seen in found[0]["seen"]
    assert remedy in found[0]["remedy"]
    if "modprobe" not in remedy:
        assert "modprobe" not in texts(found)


def test_an_answer_that_is_cut_off_is_judged_as_far_as_it_goes_and_counts_no_gpu_as_lost() -> None:
    cut = TWO[: TWO.index("<gpu id", TWO.index("</gpu>")) + 30]
    assert worst(gpus.check_gpus(Answer(0, cut), 2)) == "warning"
    failed = "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>"
    sick = cut.replace("</gpu>", f"{failed}</gpu>")
    assert "error GPU health: GPU 0000:10:00.0: a row remap failed" in texts(gpus.check_gpus(Answer(0, sick), 2))


def test_a_hostile_process_name_drains_no_node() -> None:
    for name in ("\x01\x02", "GPU is lost", "<"):
        process = f"<processes><process_info><process_name>{name}</process_name></process_info></processes>"
        assert worst(gpus.check_gpus(Answer(0, with_fields(process)), 2)) == "info"


@pytest.mark.parametrize(("fields", "severity"), yaml.safe_load(SICK_FIELDS.read_text(encoding="utf-8")))
def test_fields_of_a_sick_gpu_keep_their_severity(fields: str, severity: str) -> None:
    assert worst(gpus.check_gpus(Answer(0, with_fields(fields)), 2)) == severity


@pytest.mark.parametrize(
    ("look", "severity"),
    [
        (Answer(0, "active\n"), ""),
        (Answer(0, "Warning: a unit file has changed\nactive\n"), ""),
        (Answer(3, "activating\n"), "warning"),
        *((Answer(3, state), "error") for state in ("failed\n", "inactive\n", "")),
        (Answer(None, ""), "info"),
        (Answer(127, "no such file"), "info"),
    ],
)
def test_a_starting_or_silent_fabric_manager_drains_no_node(look: Answer, severity: str) -> None:
    assert worst(gpus.check_fabric_manager(look, 4)) == severity
    assert not list(gpus.check_fabric_manager(look, 0))


ALL_DOWN = "\t NVML: Unable to retrieve NVLink information as all links are inActive\n"


@pytest.mark.parametrize(
    ("text", "switches", "severity"),
    [
        (f"GPU 0: NVIDIA H200 (UUID: GPU-1)\n{ALL_DOWN}", 4, "error"),
        (f"{fake_links(1)}GPU 1: NVIDIA H200 (UUID: GPU-1)\n{ALL_DOWN}", 0, "error"),
        (f"{fake_links(2)}GPU 2: NVIDIA T400 (UUID: GPU-1)\n{ALL_DOWN}", 4, ""),
        (f"GPU 0: NVIDIA RTX A6000 (UUID: GPU-1)\n{ALL_DOWN}", 0, ""),
        ("", 4, "info"),
        ("NVML: Insufficient Permissions\n", 4, "info"),
        (fake_links(2).replace("Link 3: 26.562 GB/s", "Link 3: <Error>"), 4, "error"),
        ("a warning\n" + fake_links(2), 4, ""),
    ],
)
def test_links_have_a_verdict_for_any_text_of_nvidia_smi(text: str, switches: int, severity: str) -> None:
    assert worst(links.check_links(Answer(0, text), switches)) == severity


FATAL = "[131453.7] nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
NOT_FATAL = "[8123.6] nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error"


def test_a_fatal_event_of_an_nvswitch_is_an_error_and_another_one_a_warning() -> None:
    first, second = texts(xids.check_switches("\n".join([NOT_FATAL, FATAL, FATAL]), FATAL)).splitlines()
    assert first.startswith("error SXid: NVSwitch 0000:06:00.0: SXid 20034")
    assert second.startswith("warning SXid: NVSwitch 0000:05:00.0: SXid 12028")


def test_events_of_nvswitches_come_through_every_filter_to_the_checks_of_a_node() -> None:
    assert _EVENT.search(FATAL)
    assert _records(f"3,1,2,-;{FATAL}\n") == [(1, FATAL)]
    for by in (JOB, NODE):
        machine = Machine(8, Health(0, {"kernel": Answer(0, FATAL)}), stdout=lambda *_: "")
        assert "error SXid: NVSwitch 0000:06:00.0" in texts(run(machine, by))


def test_a_log_that_cannot_be_read_is_said_and_one_with_a_mere_warning_is_read() -> None:
    assert worst(xids.check_log(Answer(1, ""), 8)) == "info"
    assert not list(xids.check_log(Answer(0, ""), 8))
    machine = Machine(8, Health(0, {"kernel": Answer(1, REAL["kernel-xid.txt"])}), stdout=lambda *_: "")
    assert "Xid 79" in texts(run(machine, NODE))


def test_a_warning_status_of_lspci_or_mlxconfig_keeps_their_output() -> None:
    health = Health(0, {"lspci": Answer(1, "pcilib: a warning\n" + REAL["lspci-acs.txt"]), "mlxconfig": Answer(3, "x")})
    machine = Machine(8, health, stdout=lambda *_: "none")
    assert machine.controls.redirecting
    assert machine.text("mlxconfig") == "x"
    assert Machine(8, Health(0, {"lspci": Answer(127, "no such file")})).text("lspci") == ""


PEER = {"DNSName": "a2.x.", "TailscaleIPs": ["100.64.0.2"], "CurAddr": "203.0.113.1:1", "TxBytes": 7, "RxBytes": 9}


@pytest.mark.parametrize("other", [None, 7, {"TailscaleIPs": None}, {"DNSName": None, "TxBytes": None}, []])
def test_one_odd_peer_takes_no_other_with_it(other: object) -> None:
    text = "Warning: client version != tailscaled version\n" + json.dumps({"Peer": {"x": other, "a2": PEER}})
    assert tailnet.read_path(text, "100.64.0.2") == "direct"
    assert tailnet.read_traffic(text) == [("a2", "direct", 7, 9)]


@pytest.mark.parametrize("text", ['{"nodes": [{"name": "a1", "state": ["IDLE"]}, {"na', '{"nodes": null}', "nodes", ""])
def test_nodes_that_are_cut_off_are_no_nodes(text: str) -> None:
    with pytest.raises(ValueError, match="no list of nodes"):
        read_nodes(text)
