"""What machines answer, read into types: a hostile value of any field goes nowhere, and stops nobody else."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.roles.order import roles
from components.steps import composition
from components.steps.results import MAX_CHARACTERS, MEASUREMENT, read
from stacks.config import parse
from tests.unit.configs import HOST_KEY, LAB, RawConfig
from tests.unit.recorded import Build, certificate_of

GOOD: dict[str, Any] = {
    "cpus": 4, "memory_mb": 8000, "gpus": 2, "gpu_kind": "h200", "gpu_devices": [0, 1],
    "gpu_memory_mb": 143771, "gpu_driver": "580.159.04", "gpu_nvlinks": 18, "kernel_nfs_server": False, "cgroups": True,
    "open_ports": [], "mpi": "5-pmix5", "slurm_version": "1:24.11.5-4+deb13u1~1", "tailnet_ip": "100.64.0.2",
    "firewall": "ufw+nftables", "tailscale_version": "1.102.5-t0a1b2c",
    "sshd_port": 22, "host_key": HOST_KEY,
    "fabric": {
        "interfaces": [
            {"name": "eth1.7", "address": "10.1.2.3/24", "default_route": False, "speed": 100000, "rdma": True}
        ],
        "rdma": [
            {"device": "mlx5_0", "port": 1, "interface": "eth1.7", "link": "Ethernet", "rail": 0},
            {"device": "mlx5_1", "port": 1, "interface": "", "link": "InfiniBand", "rail": -1},
        ],
    },
}  # fmt: skip
PROVEN: dict[str, Any] = {
    "interfaces": ["eth1.7"], "rdma": ["mlx5_0:1"], "with": [["a1", "eth1"]], "note": "for people: é", "error": "",
}  # fmt: skip
OF_THE_HEAD: dict[str, Any] = {
    "own_file_system": True, "user_limits": "none", "left_groups": [], "slurm_version": "24.11.5", "fabric": PROVEN,
    "certificate": certificate_of("a1"), "authorities": f"# 1\n{HOST_KEY}\n# leave {HOST_KEY}",
    "munge_digest": "0" * 64, "path": "peer-relay",
}  # fmt: skip
ROLES = roles(parse(LAB, base_dir=Path()))
CHECK, JOIN, REACH, REGISTER, NODE, HEAD = (
    composition.answer(ROLES, getattr(composition, name))
    for name in ("CHECK_OF_NODE", "JOIN", "JOIN_OF_NODE", "REGISTER", "NODE", "HEAD")
)
STEPS = {"check": CHECK, "join": JOIN, "check_path": REACH, "node": NODE}
HOSTILE: list[Any] = [
    None, "", " ", "x", "100.64.0.2; Squash = No_Root_Squash; Clients = 100.64.0.2", "100.64.0.2\n100.64.0.3",
    "100.64.0.2/10", "100.128.0.1", "10.0.0.1", "127.0.0.1", "::1", "0100.64.0.2", "100.64.0.2 ", "$(id)", "`id`",
    "b1,head", "a\0b", "../../etc/passwd", "-1", -1, 0.5, 1e999, float("nan"), 2**70, "22", True, [], {}, ["a"],
    f"{HOST_KEY} comment", f"{HOST_KEY}\n", HOST_KEY.replace(" ", "  "), HOST_KEY[:-4], f"{HOST_KEY}AAAA",
    HOST_KEY.replace("ssh-ed25519 ", "ssh-rsa "), "ssh-ed25519", "ssh-ed25519 ####", "٤", "x" * 100_000,
    [0, 0], [1, 0], [-1], [256], [True], [0.0], ["0"], [[0]], list(range(300)),
    "24.11.5\nPrivateData=x", "24.11.5 --evil", "direct\n", "Direct",
]  # fmt: skip


# Of HOSTILE: what a head node may say.
VALID = [("own_file_system", True), ("left_groups", []), ("left_groups", ["a"])]


def test_no_field_of_the_head_node_takes_a_value_of_another_kind() -> None:
    taken = {
        (name, repr(found))
        for name in {*OF_THE_HEAD} - {"slurm_version"}
        for value in HOSTILE
        for fields in (HEAD.fields or {}, REGISTER.fields or {})
        if name in fields and not (name == "fabric" and value is None)
        if (found := read(fields, {**OF_THE_HEAD, name: value})[name]) is not None
    }
    assert taken == {(name, repr(value)) for name, value in VALID}


@pytest.mark.parametrize(
    "forged",
    [
        {"interfaces": ["eth1\nPrologFlags=x"]}, {"interfaces": ["eth1"] * 17}, {"rdma": ["mlx5_0:1 x"]},
        {"rdma": ["mlx5_0:1"] * 33},
        {"with": [["a1", "eth1", "x"]]}, {"with": [["a1\nb1", "eth1"]]}, {"note": "\x1b]52;c;aGk=\x07"},
        {"note": "x" * 4001}, {"error": None},
    ],
)  # fmt: skip
def test_every_part_of_a_fabric_result_has_a_type(forged: dict[str, Any]) -> None:
    assert HEAD.fields
    assert read(HEAD.fields, {**OF_THE_HEAD, "fabric": {**PROVEN, **forged}})["fabric"] is None


def test_a_certificate_has_its_kind_inside_and_no_line_after_it() -> None:
    assert REGISTER.fields
    good = certificate_of("a1")
    for bad in (
        f"{good}\n{good}",
        f"{good} key.pub\n{good}",
        good.replace("-cert-v01@openssh.com", ""),
        good.split()[0],
        good[:40],
    ):
        assert read(REGISTER.fields, {**OF_THE_HEAD, "certificate": bad})["certificate"] is None
    assert read(REGISTER.fields, {**OF_THE_HEAD, "certificate": f"{good} key.pub"})["certificate"] == good


def test_a_needed_answer_that_does_not_hold_is_an_error_that_names_the_step_and_quotes_nothing() -> None:
    with pytest.raises(pulumi.RunError, match=r"^step head-head: its answer has no valid own_file_system") as refused:
        HEAD.as_needed().read("head-head", json.dumps({**OF_THE_HEAD, "own_file_system": f"{HOST_KEY}\nhush-hush"}))
    assert "hush" not in str(refused.value)


def test_an_answer_is_bounded_before_it_is_parsed() -> None:
    answer = json.dumps({name: GOOD[name] for name in NODE.fields or ()})
    assert NODE.read("a1-node", answer + " " * (MAX_CHARACTERS - len(answer)))["problem"] == ""
    assert "not a JSON object of at most 1048576" in NODE.read("a1-node", answer + " " * MAX_CHARACTERS)["problem"]


@pytest.mark.parametrize("text", ["", "no", "[1]", '{"a":' * 100 + "1" + "}" * 100, '{"a": NaN}', '{"a": 1} {"b": 2}'])
def test_a_measurement_that_is_no_object_a_program_can_go_through_is_nothing(text: str) -> None:
    assert MEASUREMENT.read("validate-rack", text) == {}
    assert MEASUREMENT.read("validate-rack", '{"any": {"thing": [1]}}') == {"any": {"thing": [1]}}


def test_no_field_of_a_node_takes_a_value_of_another_kind() -> None:
    tried = 0
    for answer in STEPS.values():
        for name in answer.fields or ():
            for value in HOSTILE:
                tried += 1
                row = read(answer.fields or {}, {**GOOD, name: value})
                if row[name] is None:
                    assert row["problem"] == f"its answer has no valid {name}", value
                else:
                    # Accepted: the value is of the field's own kind, such as True where a truth value is wanted.
                    assert type(value) is type(GOOD[name]), (name, value)
                    assert not isinstance(value, str) or value.isprintable(), (name, value)
                    assert not isinstance(value, str) or not set(value) & set(" ;,$`'\"\\/"), (name, value)
    assert tried > 500


@given(st.text())
def test_the_program_continues_after_any_output_of_a_step(text: str) -> None:
    found = REACH.read("a1-prepare", text)
    assert set(found) == {*(REACH.fields or ()), "problem"}
    assert found["problem"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, "9" * 5_000, "NaN", "null", "[]", '{"sshd_port": 1e400}']
)
def test_an_answer_that_breaks_parsers_is_a_problem_and_no_error(text: str) -> None:
    assert JOIN.read("a1-prepare", text)["problem"]


def test_one_node_that_answers_nonsense_stops_no_other(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config, answers={"b1-prepare": "Segmentation fault"})
    assert stack.header("b1-register")["node_problem"].startswith("its answer is not a JSON object of at most 1048576")
    assert stack.header("b1-register")["node_address"] == ""
    assert stack.header("a1-register")["node_problem"] == ""
    nodes = {node["name"]: node["tailnet_ip"] for node in stack.outputs["cluster"]["nodes"]}
    assert nodes["b1"] is None
    assert nodes["a1"]
