"""What machines answer, read into types: a hostile value of any field goes nowhere, and stops nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.answers import GATE, JOIN, NODE, REACH, read, reader
from tests.unit.configs import HOST_KEY, RawConfig
from tests.unit.recorded import Build

GOOD: dict[str, Any] = {
    "cpus": 4, "memory_mb": 8000, "gpus": 2, "gpu_kind": "h200", "gpu_devices": [0, 1],
    "gpu_memory_mb": 143771, "gpu_driver": "580.159.04", "gpu_nvlinks": 18, "kernel_nfs_server": False, "cgroups": True,
    "slurm_version": "1:24.11.5-4+deb13u1~1", "tailnet_ip": "100.64.0.2", "tailscale_version": "1.102.5-t0a1b2c",
    "sshd_port": 22, "host_key": HOST_KEY, "path": "peer-relay",
    "fabric": {
        "interfaces": [
            {"name": "eth1.7", "address": "10.1.2.3/24", "default_route": False, "speed": 100000, "rdma": True}
        ],
        "rdma": [
            {"device": "mlx5_0", "port": 1, "interface": "eth1.7"}, {"device": "mlx5_1", "port": 1, "interface": ""},
        ],
    },
}  # fmt: skip
STEPS = {"gate": GATE, "join": JOIN, "reach": REACH, "node": NODE}
HOSTILE: list[Any] = [
    None, "", " ", "x", "100.64.0.2; Squash = No_Root_Squash; Clients = 100.64.0.2", "100.64.0.2\n100.64.0.3",
    "100.64.0.2/10", "100.128.0.1", "10.0.0.1", "127.0.0.1", "::1", "0100.64.0.2", "100.64.0.2 ", "$(id)", "`id`",
    "b1,head", "a\0b", "../../etc/passwd", "-1", -1, 0.5, 1e999, float("nan"), 2**70, "22", True, [], {}, ["a"],
    f"{HOST_KEY} comment", f"{HOST_KEY}\n", HOST_KEY.replace(" ", "  "), HOST_KEY[:-4], f"{HOST_KEY}AAAA",
    HOST_KEY.replace("ssh-ed25519 ", "ssh-rsa "), "ssh-ed25519", "ssh-ed25519 ####", "٤", "x" * 100_000,
    [0, 0], [1, 0], [-1], [256], [True], [0.0], ["0"], [[0]], list(range(300)),
    "24.11.5\nPrivateData=x", "24.11.5 --evil", "direct\n", "Direct",
]  # fmt: skip


@pytest.mark.parametrize("fields", STEPS.values(), ids=STEPS)
def test_an_honest_answer_is_read_whole(fields: Any) -> None:
    answer = {name: GOOD[name] for name in fields}
    assert read(fields, answer) == {**answer, "problem": ""}


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize("name", GOOD)
def test_no_field_takes_what_is_not_of_its_kind(name: str, value: Any) -> None:
    for fields in STEPS.values():
        if name not in fields:
            continue
        found = read(fields, {**GOOD, name: value})
        if found[name] is None:
            assert found["problem"] == f"its answer has no {name} that could be one"
        else:
            # Taken: then it is of the field's own kind, such as true where a truth value is asked for.
            assert type(value) is type(GOOD[name])
            assert not isinstance(value, str) or value.isprintable()
            assert not isinstance(value, str) or not set(value) & set(" ;,$`'\"\\/")


@given(st.text())
def test_whatever_a_step_prints_the_program_goes_on(text: str) -> None:
    found = reader(REACH)(text)
    assert set(found) == {*REACH, "problem"}
    assert found["problem"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, "9" * 5_000, "NaN", "null", "[]", '{"sshd_port": 1e400}']
)
def test_an_answer_that_breaks_parsers_is_a_problem_and_no_error(text: str) -> None:
    assert reader(JOIN)(text)["problem"]


@given(
    st.dictionaries(st.sampled_from(sorted(GOOD)), st.none() | st.booleans() | st.integers() | st.floats() | st.text())
)
def test_only_values_of_their_kind_are_ever_taken(answer: dict[str, Any]) -> None:
    found = reader(REACH)(json.dumps(answer))
    for name in REACH:
        assert found[name] is None or type(found[name]) is type(GOOD[name])


def test_one_node_that_answers_nonsense_stops_no_other(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config, answers={"b1-join": "Segmentation fault"})
    assert stack.header("b1-member")["NODE_PROBLEM"].startswith("its answer has no tailnet_ip, tailscale_version")
    assert stack.header("b1-member")["NODE_ADDRESS"] == ""
    assert stack.header("a1-member")["NODE_PROBLEM"] == ""
    nodes = {node["name"]: node["tailnet_ip"] for node in stack.outputs["cluster"]["nodes"]}
    assert nodes["b1"] is None
    assert nodes["a1"]
