"""Each GPU's figures: how they are read, with what they are compared, and which GPU is named."""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from components.validation.gpu_speed import node
from components.validation.gpu_speed.judge import CHECK, judged
from components.validation.gpu_speed.one_gpu import libraries
from components.validation.preflight import dcgm
from components.validation.preflight.foreign import Used
from components.validation.preflight.gpu_health import Reading, read_lines, read_states
from components.validation.untrusted import read
from tests.unit.fake_nvidia_smi import gpu, xml

FIXTURES = Path(__file__).parents[3] / "fixtures/nvidia"
# Measured on two H200 of a rented machine.
H200 = Reading(
    "0000:00:06.0", "GPU-5b2aa168", "NVIDIA H200", 0, 16, 5, True, 55.3, 55.1, 4240.9, 759.3, "bf16", True,
    power_limit=700, default_power_limit=700,
)  # fmt: skip


def eight(**third: Any) -> list[Reading]:
    """Eight GPUs, of which the one with device file 3 differs."""
    gpus = [replace(H200, bus=f"0000:{minor:02x}:00.0", uuid=f"GPU-{minor}", minor=minor) for minor in range(8)]
    gpus[3] = replace(gpus[3], **third)
    return gpus


def seen_in(readings: list[Reading], **more: Any) -> list[tuple[str, str]]:
    return [(item["severity"], item["seen"]) for item in judged(readings, **more)]


def test_two_h200_as_they_were_measured_are_healthy() -> None:
    data = json.loads((FIXTURES / "gpu-speed-2xH200.json").read_text(encoding="utf-8"))
    assert data["seconds"] < 10
    gpus = [read(Reading, item) for item in data["gpus"]]
    assert seen_in(gpus) == []
    assert [(reading.width, reading.gen, reading.loaded) for reading in gpus] == [(16, 5, True)] * 2
    ((severity, seen),) = seen_in([gpus[0], replace(gpus[1], width=4, host_to_gpu=13.8, gpu_to_host=13.8)])
    assert (severity, "its neighbour has 55.5 GB/s over PCIe 5 x16" in seen) == ("error", True)


def test_a_gpu_in_a_x4_riser_is_named_with_its_link_and_the_neighbours() -> None:
    slow = eight(width=4, gen=4, host_to_gpu=6.4, gpu_to_host=6.5)
    ((severity, seen),) = seen_in(slow)
    assert severity == "error"
    assert seen.endswith(": 6.4 GB/s from the host over PCIe 4 x4; its neighbours have 55.3 GB/s over PCIe 5 x16")
    (item,) = judged(slow)
    assert "riser" in item["remedy"]
    assert item["check"] == CHECK


def test_a_throttled_gpu_is_named_with_the_reason() -> None:
    slow, clocks = seen_in(eight(matrix=210.0, throttled=("hw_thermal_slowdown",)))
    text = "210 TFLOP/s with matrices, with clocks reduced by hw_thermal_slowdown; its neighbours have 759 TFLOP/s"
    assert slow == ("error", f"GPU 3 (0000:03:00.0): {text}")
    assert clocks == ("warning", "GPU 3 (0000:03:00.0): clocks are reduced under load by hw_thermal_slowdown")


def test_a_gpu_without_neighbours_is_compared_with_its_kind() -> None:
    ((severity, seen),) = seen_in([replace(H200, gen=4, width=8, host_to_gpu=12.9, gpu_to_host=13.0)])
    assert severity == "warning"
    assert seen.endswith("12.9 GB/s from the host over PCIe 4 x8; a healthy H200 has about 50.4 GB/s")
    # A card that nobody has listed has no such figure.
    assert seen_in([replace(H200, name="NVIDIA H20", host_to_gpu=12.9, gpu_to_host=13.0)]) == []


def test_a_gpu_is_compared_with_those_of_its_kind_in_the_cluster_but_never_drains_for_that() -> None:
    slow = replace(H200, name="NVIDIA H20", matrix=20.0)
    others = [replace(H200, name="NVIDIA H20", matrix=140.0)] * 2
    assert seen_in([slow], cluster=others) == [
        ("warning", "GPU 0 (0000:00:06.0): 20.0 TFLOP/s with matrices; the cluster's other NVIDIA H20 have 140 TFLOP/s")
    ]
    assert seen_in([slow], cluster=[*others[:1], replace(H200, name="NVIDIA L4")]) == []


def test_a_gpu_that_became_slow_is_named_with_its_first_figure() -> None:
    first = {H200.uuid: H200}
    ((severity, seen),) = seen_in([replace(H200, host_to_gpu=12.0)], first=first)
    assert severity == "error"
    assert seen.endswith("PCIe 5 x16; became slow: it had 55.3 GB/s when it was first measured")
    # Another card in the same place has no earlier figure.
    ((severity, seen),) = seen_in([replace(H200, uuid="GPU-other", host_to_gpu=12.0)], first=first)
    assert (severity, "a healthy H200" in seen) == ("warning", True)


def test_a_narrow_link_is_named_although_nothing_was_measured() -> None:
    nothing: dict[str, Any] = {"host_to_gpu": None, "gpu_to_host": None, "memory": None, "matrix": None}
    gpus = [replace(reading, **nothing, loaded=False) for reading in eight(width=4)]
    assert seen_in(gpus) == [("warning", "GPU 3 (0000:03:00.0): PCIe x4 (at idle); its neighbours have x16")]
    # Clouds' T4 all have x8 of x16.
    assert seen_in([replace(reading, width=8) for reading in gpus]) == []
    assert seen_in([replace(reading, width=None) for reading in gpus]) == []


def test_row_remaps_that_wait_or_failed_are_errors_and_counts_that_grow_are_warnings() -> None:
    assert seen_in(eight(remap_pending=True)) == [("error", "GPU 3 (0000:03:00.0): a row remap is pending")]
    assert seen_in(eight(remap_failed=True)) == [("error", "GPU 3 (0000:03:00.0): a row remap failed")]
    (item,) = judged(eight(remap_pending=True))
    assert "-i 0000:03:00.0'" in item["remedy"]
    last = {"GPU-3": replace(H200, uncorrectable=1)}
    assert seen_in(eight(uncorrectable=1, corrected=9), last=last) == []
    assert [seen for _, seen in seen_in(eight(uncorrectable=3, remapped=1), last=last)] == [
        "GPU 3 (0000:03:00.0): 3 memory errors that ECC could not correct, 1 at the last check",
        "GPU 3 (0000:03:00.0): 1 remapped rows of its memory, 0 at the last check",
    ]


def test_power_limits_and_ecc_that_differ_are_warnings() -> None:
    assert seen_in(eight(power_limit=400.0)) == [
        ("warning", "GPU 3 (0000:03:00.0): its power limit is 400 W; its neighbours have 700 W")
    ]
    capped = [replace(reading, power_limit=500.0) for reading in eight()]
    assert seen_in(capped) == [("warning", "GPUs 0, 1, 2, 3, 4, 5, 6, 7: its power limit is 500 W of 700 W")]
    assert seen_in(eight(ecc=False)) == [("warning", "GPU 3 (0000:03:00.0): ECC is off; its neighbours have it on")]
    assert seen_in([replace(H200, ecc=False)]) == []


# What nvidia-smi says


def test_values_that_a_virtual_machine_hides_are_unknown() -> None:
    text = (FIXTURES / "smi-580-h200.xml").read_text(encoding="utf-8")
    for value in ("<current_link_width>16x<", "<current_link_gen>5<", "<current_ecc>Enabled<"):
        text = text.replace(value, value.partition(">")[0] + ">N/A<")
    (state,) = read_states(text)
    assert (state.width, state.gen, state.ecc) == (None, None, None)
    assert read_states("no devices were found") == []


# The program of a node


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play nvidia-smi: four GPUs, the last one with x4. Nothing is in use."""
    gpus = [gpu(minor, width=4 if minor == 3 else 16) for minor in range(4)]
    monkeypatch.setattr(node, "query", lambda: xml(gpus))
    monkeypatch.setattr(node, "used", lambda: None)


def figures(host: float) -> dict[str, Any]:
    return {"host_to_gpu": host, "gpu_to_host": host, "memory": 4000.0, "doubts": ["no cuBLAS"]}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("slow_again", [True, False])
def test_each_gpu_is_measured_and_a_slow_one_again(tmp_path: Path, slow_again: bool) -> None:
    seen = tmp_path / "seen"

    def measure(bus: str, _uuid: str) -> dict[str, Any]:
        if bus != "0000:13:00.0" or seen.exists():
            return figures(55.0)
        if not slow_again:
            seen.touch()
        return figures(6.4)

    result = node.readings(measure)
    assert [reading.minor for reading in result] == [0, 1, 2, 3]
    assert [reading.host_to_gpu for reading in result] == [55.0, 55.0, 55.0, 6.4 if slow_again else 55.0]
    assert (result[3].width, result[0].doubts) == (4, ("no cuBLAS",))


def test_a_gpu_that_another_process_uses_is_not_measured(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Used("00000000:11:00.0", 97, 40000, ("4711 python (40000 MiB)",))
    monkeypatch.setattr(node, "used", lambda: [busy])
    result = node.readings(lambda *_: figures(55.0))
    assert [reading.host_to_gpu for reading in result] == [55.0, None, 55.0, 55.0]
    assert "4711 python" in result[1].doubts[0]


@pytest.mark.usefixtures("machine")
def test_a_gpu_that_hangs_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_GPU_SECONDS", 1)

    def measure(bus: str, _uuid: str) -> dict[str, Any]:
        if bus == "0000:11:00.0":
            time.sleep(60)
        return figures(55.0)

    start = time.monotonic()
    result = node.readings(measure)
    assert time.monotonic() - start < 40
    assert result[1].host_to_gpu is None
    assert result[1].doubts == ("the measurement did not end within 1 s",)


def test_the_state_under_load_counts(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    copying = {"width": 16, "gen": 5, "throttled": []}
    multiplying = {"width": 16, "gen": 5, "throttled": ["sw_thermal_slowdown"]}
    result = node.readings(lambda *_: {**figures(55.0), "copying": copying, "multiplying": multiplying})
    assert (result[3].width, result[3].loaded, result[3].throttled) == (16, True, ("sw_thermal_slowdown",))


def test_the_program_prints_readings_and_dcgms_findings(
    machine: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "a1")
    monkeypatch.setattr(dcgm, "diagnosed", lambda *_: [])
    assert node.main([json.dumps({"dcgm_level": 0, "dcgm_seconds": 90})]) == 0
    (printed,) = capsys.readouterr().out.splitlines()
    (readings,) = read_lines(printed).values()
    # This machine has no driver of NVIDIA.
    assert readings[3].width == 4
    assert "libcuda" in readings[3].doubts[0]
    assert node.main([json.dumps({"dcgm_level": 2, "dcgm_seconds": 90})]) == 0
    assert [text.split()[2] for text in capsys.readouterr().out.splitlines()] == ["gpu-speed", "preflight"]


def test_a_search_finds_cublas_in_toolkits_and_wheels(tmp_path: Path) -> None:
    for path in ("usr/local/cuda-12.8/lib64", "usr/local/lib/python3.12/dist-packages/nvidia/cublas/lib"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "libcublas.so.12").touch()
    result = list(libraries(tmp_path))
    assert result[0] == "libcublas.so.13"
    assert len([path for path in result if path.startswith(str(tmp_path))]) == 2


# The line of a job


WRONG = {"memory": ("fast", -1, True, 1e999), "name": ("a\x1bb", "a" * 999), "throttled": ("hot",), "doubts": ([7],)}
BAD = [{"bus": H200.bus, key: value} for key, values in WRONG.items() for value in values]


@pytest.mark.parametrize("bad", [{"bus": "../../etc"}, {"bus": 3}, {}, {"bus": H200.bus, "more": 1}, *BAD, 7, None])
def test_a_users_output_does_not_replace_a_reading(bad: object) -> None:
    good = asdict(H200)
    text = f"# tailrack gpu-speed a1 {json.dumps([bad, good])}\n"
    assert read_lines(text) == {"a1": [H200]}
