"""Preflight's checks of a node: real output gives the findings that it should, and broken output none that is wrong."""

import json
import os
import random
import resource
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from components.validation.preflight import adapters, findings, gpus, links, node, tailnet, xids
from components.validation.preflight.adapters import Port
from components.validation.preflight.findings import CommandResult, finding, health_of, line, read_health, read_lines
from components.validation.preflight.gpu_health import bus_of, read_smi
from tests.unit.fake_nvidia_smi import nvlink as fake_links

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nvidia"
REAL = {path.name: path.read_text(encoding="utf-8") for path in FIXTURES.iterdir() if path.suffix in (".xml", ".txt")}
INFINITY = resource.RLIM_INFINITY


def worst(rows: Iterable[findings.Finding]) -> str:
    found = [findings.SEVERITIES.index(each["severity"]) for each in rows]
    return findings.SEVERITIES[min(found)] if found else ""


def texts(rows: Iterable[findings.Finding]) -> str:
    return "\n".join(f"{each['severity']} {each['check']}: {each['seen']} | {each['remedy']}" for each in rows)


@pytest.mark.parametrize(("name", "bus", "driver"), [
    ("smi-515-a10g.xml", "0000:00:1e.0", "515.105.01"), ("smi-515-t4.xml", "0000:00:1e.0", "515.105.01"),
    ("smi-580-h200.xml", "0000:00:06.0", "580.159.04"),
])  # fmt: skip
def test_a_healthy_gpu_gives_no_error_and_no_warning(name: str, bus: str, driver: str) -> None:
    smi = read_smi(REAL[name])
    assert smi is not None
    assert (smi.driver, [bus_of(each) for each in smi.gpus]) == (driver, [bus])
    found = list(gpus.check_gpus(CommandResult(0, REAL[name]), 1))
    assert [(each["severity"], each["check"], each["seen"]) for each in found] == [("info", "GPU driver", driver)]


CHANGES = yaml.safe_load((FIXTURES / "changes-of-smi-515-a10g.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("before", "after", "expected"), CHANGES)
def test_a_finding_names_the_gpus_address(before: str, after: str, expected: str) -> None:
    changed = REAL["smi-515-a10g.xml"].replace(before, after, 1)
    assert changed != REAL["smi-515-a10g.xml"]
    assert expected in texts(gpus.check_gpus(CommandResult(0, changed), 1))


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (CommandResult(None, ""), "error GPU driver: nvidia-smi does not answer"),
        (CommandResult(0, "<nvidia_smi_log><gpu"), "exits with status 0"),
        (CommandResult(127, "no such file"), "exits with status 127"),
    ],
)
def test_a_driver_that_hangs_or_fails_is_an_error(look: CommandResult, expected: str) -> None:
    assert expected in texts(gpus.check_gpus(look, 8))


@pytest.mark.parametrize(
    ("text", "switches", "wrong"),
    [
        (REAL["nvlink-h100-pcie.txt"], 0, ""),  # bridged: all of its kind leave some unused
        (fake_links(8), 4, ""),
        (fake_links(8, down=2), 4, "GPU 7: 16 of 18 links are up (down: 0, 1; most: 18)"),
        (fake_links(2, down=18), 0, "GPU 1: 0 of 18 links are up"),
        (fake_links(2, links=4, down=0), 0, ""),
        (fake_links(2).replace("26.562 GB/s", "<inactive>"), 4, "GPU 0: 0 of 18"),
        (fake_links(2).replace("26.562 GB/s", "<inactive>"), 0, ""),  # no bridge is there
    ],
)
def test_links_that_are_down_are_named(text: str, switches: int, wrong: str) -> None:
    found = texts(links.check_links(CommandResult(0, text), switches))
    assert wrong in found
    assert bool(found) == bool(wrong)


def test_events_of_the_kernel_are_counted_once_a_gpu_and_code() -> None:
    found = texts(xids.check_xids(REAL["kernel-xid.txt"]))
    assert found.count("\n") == 3
    assert "error Xid: GPU 0000:23:00.0: Xid 79 (2 times): GPU has fallen off the bus." in found
    assert "error Xid: GPU 0000:83:00.0: Xid 48: pid='<unknown>'" in found
    assert "warning Xid: GPU 0000:00:06.0: Xid 31: pid=79749, name=exe" in found
    assert "| drain the node and reset the GPU (nvidia-smi --gpu-reset -i 0000:83:00.0)" in found


def test_a_flood_of_events_stays_short() -> None:
    flood = "\n".join(f"NVRM: Xid (PCI:0000:{bus:02x}:00): 31, pid=1" for bus in range(200))
    assert len(list(xids.check_xids(flood))) == xids.MOST + 1


def infiniband(
    root: Path, device: str, *, state: str = "4: ACTIVE", phys: str = "5: LinkUp", rate: str = "400 Gb/sec (4X NDR)",
    layer: str = "InfiniBand", mtu: int | None = None, numa: int = 0, **counters: int,
) -> None:  # fmt: skip
    """An adapter as sysfs has it."""
    folder = root / "sys/class/infiniband" / device / "ports/1"
    (folder / "counters").mkdir(parents=True)
    pci_device = root / "sys/devices" / f"0000:{10 + numa}:00.{device[-1]}"
    pci_device.mkdir(parents=True)
    (root / "sys/class/infiniband" / device / "device").symlink_to(pci_device)
    (pci_device / "numa_node").write_text(f"{numa}\n")
    for name, text in (("state", state), ("phys_state", phys), ("rate", rate), ("link_layer", layer)):
        (folder / name).write_text(f"{text}\n")
    for name, count in counters.items():
        (folder / "counters" / name).write_text(f"{count}\n")
    if mtu is not None:
        (pci_device / "net" / f"en{device}").mkdir(parents=True)
        (root / f"sys/class/net/en{device}").mkdir(parents=True)
        (root / f"sys/class/net/en{device}/mtu").write_text(f"{mtu}\n")


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ({"state": "1: DOWN", "phys": "3: Disabled"}, "info InfiniBand port: mlx5_1/1 is DOWN (Disabled)"),
        ({"state": "2: INIT"}, "error InfiniBand port: mlx5_1/1 has a link but is INIT, not ACTIVE"),
        ({"rate": "200 Gb/sec (4X HDR)"}, "mlx5_1/1 runs at 200 Gb/s, another port of this node at 400"),
        ({"symbol_error": 4, "link_downed": 1}, "warning InfiniBand port: mlx5_1/1: symbol_error 4, link_downed 1"),
        ({"port_xmit_discards": 1001}, "port_xmit_discards 1001"),
        ({"state": "bogus", "phys": "\x00", "rate": "x"}, "is in an unknown state (no link)"),
    ],
)
def test_a_port_that_is_not_well_is_named(tmp_path: Path, port: dict[str, Any], expected: str) -> None:
    infiniband(tmp_path, "mlx5_0")
    infiniband(tmp_path, "mlx5_1", **port)
    assert expected in texts(adapters.check_ports(adapters.read_ports(tmp_path)))


@pytest.mark.parametrize(("mtu", "warned"), [(1500, True), (8999, True), (9000, False), (9216, False)])
def test_roce_wants_long_frames(tmp_path: Path, mtu: int, warned: bool) -> None:
    infiniband(tmp_path, "mlx5_0", layer="Ethernet", mtu=mtu)
    found = texts(adapters.check_roce(adapters.read_ports(tmp_path), {}, {}, False))
    assert bool(found) == warned
    assert not warned or f"mlx5_0/1 (enmlx5_0) has an MTU of {mtu} | 'ip link set enmlx5_0 mtu 9216'" in found


def test_address_translation_counts_on_virtual_machines_alone() -> None:
    firmware = adapters.read_mlxconfig(REAL["mlxconfig-connectx.txt"])
    controls = links.read_lspci(REAL["lspci-acs.txt"])
    assert (firmware, controls.ats) == ({"0000:45:00.0": False}, {"0000:45:00.0": False})
    ports = [Port("mlx5_0", 1, "ACTIVE", "LinkUp", 200.0, "InfiniBand", bus="0000:45:00.0")]
    assert "ATS_ENABLED is off in its firmware" in texts(adapters.check_roce(ports, firmware, controls.ats, True))
    assert "ATSCtl Enable-" in texts(adapters.check_roce(ports, {}, controls.ats, True))
    assert list(adapters.check_roce(ports, firmware, controls.ats, False)) == []


@pytest.mark.parametrize(("virtual", "severity"), [(False, "warning"), (True, "info"), (None, "info")])
def test_acs_is_judged_by_whether_this_is_a_virtual_machine(virtual: bool | None, severity: str) -> None:
    controls = links.read_lspci(REAL["lspci-acs.txt"])
    assert controls.redirecting == ("0000:40:01.1",)
    assert worst(links.check_acs(controls, virtual, 8)) == severity
    assert list(links.check_acs(controls, virtual, 0)) == []


def test_gpus_without_an_adapter_near_them_are_named(tmp_path: Path) -> None:
    infiniband(tmp_path, "mlx5_0", numa=0)
    for bus, numa in (("0000:18:00.0", 0), ("0000:98:00.0", 1)):
        device = tmp_path / "sys/bus/pci/devices" / bus
        device.mkdir(parents=True)
        for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("numa_node", str(numa))):
            (device / name).write_text(f"{text}\n")
    there = links.nvidia_devices(links.DISPLAYS, tmp_path / "sys/bus/pci/devices")
    assert there == ["0000:18:00.0", "0000:98:00.0"]
    found = texts(links.check_numa(there, adapters.read_ports(tmp_path), tmp_path))
    assert "info NUMA: GPUs 0000:98:00.0 are on a NUMA node without an adapter (adapters are on [0])" in found
    assert "0000:18" not in found


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({}, "warning"), ({"sys/module/nvidia_peermem/version": "580"}, "warning"),
        ({"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"}, "info"),
        ({"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03"}, "warning"),
    ],
)  # fmt: skip
def test_adapters_reach_gpus_by_peermem_alone_with_a_warning(
    tmp_path: Path, files: dict[str, str], severity: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    ports = [Port("mlx5_0", 1, "ACTIVE", "LinkUp", 400.0, "InfiniBand")]
    assert worst(adapters.check_direct(ports, 8, tmp_path)) == severity
    assert list(adapters.check_direct(ports, 0, tmp_path)) == []
    assert list(adapters.check_direct([], 8, tmp_path)) == []


def test_the_preflight_reports_the_limits_of_a_job_on_its_node(tmp_path: Path) -> None:
    assert "a job may pin only 8192 KiB" in texts(node.check_memlock(8192 * 1024, True))
    assert not [*node.check_memlock(INFINITY, True), *node.check_memlock(65536, False)]
    assert "64 MiB are free for 8 GPUs" in texts(node.check_shared(64 * 2**20, 8))
    assert not [*node.check_shared(2**30, 8), *node.check_shared(0, 0)]
    (tmp_path / "dev").mkdir()
    for name in ("nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert "1 of 2 GPUs have a device file" in texts(node.check_devices(2, tmp_path))
    assert not list(node.check_devices(1, tmp_path))
    assert worst(node.check_confined("0::/system.slice/slurmd.service", 8)) == "info"
    assert not list(node.check_confined("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", 8))


@pytest.mark.parametrize(("container", "promised", "warned"), [(False, 0, True), (True, 0, False), (False, 8, False)])
def test_gpus_without_a_driver_are_a_warning(tmp_path: Path, container: bool, promised: int, warned: bool) -> None:
    assert bool(list(node.check_driver(["0000:18:00.0"], promised, container, tmp_path))) == warned


STATUS = {
    "Peer": {
        "a": {"TailscaleIPs": ["100.64.0.2"], "CurAddr": "10.0.0.2:41641", "Relay": "lab", "Active": True},
        "b": {"TailscaleIPs": ["100.64.0.3", "fd7a::3"], "CurAddr": "", "Relay": "lab", "Active": True},
        "c": {"TailscaleIPs": ["100.64.0.4"], "CurAddr": "", "PeerRelay": "10.0.0.9:7", "Active": True},
        "d": {"TailscaleIPs": ["100.64.0.5"], "CurAddr": "", "Relay": "lab", "Active": False},
    }
}


@pytest.mark.parametrize(
    ("address", "same_site", "path", "severity"),
    [
        ("100.64.0.2", True, "direct", "info"), ("100.64.0.3", True, "relay", "warning"),
        ("100.64.0.3", False, "relay", "info"), ("100.64.0.4", True, "peer-relay", "warning"),
        ("100.64.0.5", True, "idle", "info"), ("100.64.0.9", True, None, "info"),
    ],
)  # fmt: skip
def test_a_relay_is_a_warning_inside_a_site(address: str, same_site: bool, path: str | None, severity: str) -> None:
    text = json.dumps(STATUS)
    assert tailnet.read_path(text, address) == path
    assert worst(tailnet.check_path(text, "b1", address, same_site=same_site)) == severity


def test_the_preflight_names_the_peers_with_the_most_traffic() -> None:
    def peer(name: str, sent: object, received: object, **way: str) -> dict[str, object]:
        return {"DNSName": f"{name}.lab.ts.net.", "TxBytes": sent, "RxBytes": received, **way}

    idle = {f"quiet{number}": peer(f"quiet{number}", 0, 0) for number in range(3)}
    busy = {f"b{number}": peer(f"b{number}", number, 1) for number in range(1, 20)}
    text = json.dumps(
        {"Peer": {**idle, **busy, "c": peer("c", 10**9, 5, PeerRelay="10.0.0.9:7"), "d": peer("d", "1", True)}}
    )
    told = [each["seen"] for each in tailnet.check_traffic(text)]
    assert told[:2] == ["c by peer-relay: 1000000000 B sent, 5 B received", "b19 by idle: 19 B sent, 1 B received"]
    assert len(told) == tailnet.MOST_PEERS


def test_health_is_believed_of_root_alone(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text(json.dumps({"time": 5, "looks": {"nvlink": {"status": 0, "output": "x"}}}))
    health = read_health(path.read_text())
    assert health is not None
    assert (health.time, health.output("nvlink"), health.output("lspci")) == (5, "x", "")
    if os.geteuid() == 0:
        os.chown(path, 1000, 1000)
    assert health_of(path) is None
    assert health_of(tmp_path / "none") is None


def test_findings_come_back_as_they_were_sent_worst_first() -> None:
    sent = [finding("info", "a", "é \u2028 \x00 \n x"), finding("error", "b", "s" * 999, "r")]
    text = line("dgx-1", sent)
    assert text.isascii()
    assert "\n" not in text
    assert read_lines(f"noise\n{text}\r\n{line('dgx-1', [])}\n") == {"dgx-1": sent[::-1]}
    assert all(len(each["seen"]) <= 500 for each in sent)


PARSERS: dict[str, Callable[[str], object]] = {
    "smi": lambda text: list(gpus.check_gpus(CommandResult(0, text), 2)),
    "nvlink": lambda text: list(links.check_links(CommandResult(0, text), 4)),
    "xid": lambda text: list(xids.check_xids(text)),
    "lspci": lambda text: list(links.check_acs(links.read_lspci(text), False, 8)),
    "mlxconfig": adapters.read_mlxconfig,
    "tailnet": lambda text: list(tailnet.check_path(text, "b", "100.64.0.3", same_site=True)),
    "traffic": lambda text: list(tailnet.check_traffic(text)),
    "health": read_health,
    "findings": read_lines,
}


NESTED = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["Peer", "TailscaleIPs", "time", "looks", "a"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(st.text() | NESTED.map(json.dumps))
def test_no_text_breaks_a_parser(text: str) -> None:
    for parse in PARSERS.values():
        parse(text)


def mutated(text: str, rng: random.Random) -> str:
    """A text with a piece cut out, doubled, swapped, flipped, or its end missing."""
    start, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    end = min(end, start + rng.choice([1, 7, 200, len(text)]))
    piece = text[start:end]
    replacement = rng.choice(["", piece * 2, piece[::-1], "\x00", "<", "9" * 40, rng.choice(list(REAL.values()))[:300]])
    return text[:start] if rng.random() < 0.2 else text[:start] + replacement + text[end:]


@pytest.mark.parametrize("name", REAL)
def test_mutated_real_output_never_breaks_a_parser_and_never_invents_a_gpu(name: str) -> None:
    rng = random.Random(name)  # noqa: S311  the same mutations every time
    addresses = {bus_of(each) for text in REAL.values() if (smi := read_smi(text)) for each in smi.gpus}
    for _ in range(400):
        text = REAL[name]
        for _ in range(rng.randrange(1, 4)):
            text = mutated(text, rng)
        for parse in PARSERS.values():
            parse(text)
        smi = read_smi(text)
        # A GPU that was cut off must not be counted as lost, or as healthy.
        assert smi is None or not smi.whole or "</nvidia_smi_log>" in text
        assert smi is None or all(bus_of(each) in addresses | {""} or bus_of(each) in text.lower() for each in smi.gpus)
