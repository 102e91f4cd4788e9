"""What nobody merges without having asked for it by name: each rule, and what becomes of what it finds."""

import copy
import inspect
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.rpc import UNKNOWN

from cli import commands
from cli.changes_to_allow import GROUP, HEAD, LONGEST_SECONDS, RULES, Checks, head_replaced
from cli.changes_to_allow import KEY as AUTH_KEY_TYPE
from cli.run_events import Event
from cli.stack_config.written_config import WrittenConfig
from components.steps.command_line import render_request
from components.steps.label import StepLabel
from stacks.config import ConfigError, parse
from stacks.config.model import FINDINGS
from tests.unit.cli.conftest import Play
from tests.unit.configs import HEADS, HOST_KEY, HOSTS, LAB
from tests.unit.recorded import Build, Recorded

COMMAND = "command:remote:Command"


def event(
    operation: str, kind: str, name: str, before: Any = None, after: Any = None, command: str = "", said: str = ""
) -> Event:
    """The start of one step of a preview; `said` is what the step said when it ran last."""
    of = "HeadNode" if name.startswith(HEADS) else "ComputeNode"
    chain = f"tailrack:cluster:Cluster$tailrack:cluster:{of}${kind}" if kind == COMMAND else kind
    urn = f"urn:pulumi:prod::tailrack::{chain}::{name}"
    inputs: dict[str, Any] = {"before": before or {}, "after": after or {}}
    return Event("start", operation, urn, name, kind, command=command, outputs={"stdout": said}, **inputs)


def planned(before: Recorded, after: Recorded) -> Iterator[Event]:
    """What a preview tells of a stack that was built one way and is now built another."""
    was, becomes = ({(one.type, one.name): one.inputs for one in stack.resources} for stack in (before, after))
    for kind, name in was.keys() | becomes.keys():
        old, new = was.get((kind, name)), becomes.get((kind, name))
        if old != new:
            operation = "create" if old is None else "delete" if new is None else "update"
            command = str((new or old or {}).get("create", ""))
            yield event(operation, kind, name, old, new, command)


def found(*events: Event) -> list[tuple[str, str]]:
    """The names and words of what the rules find."""
    checks = Checks(())
    for one in events:
        checks.on_event(one)
    return [(finding.name, finding.text) for finding in checks.refused]


def group(**rule: Any) -> Event:
    return event("create", GROUP, "one-group", after={"ingress": [{"fromPort": 22, "toPort": 22, **rule}]})


@pytest.mark.parametrize(
    ("rule", "networks"),
    [
        ({"protocol": "tcp", "cidrBlocks": ["0.0.0.0/0"]}, ["0.0.0.0/0"]),
        ({"protocol": "tcp", "cidrBlocks": ["203.0.113.7/32", "128.0.0.0/1"]}, ["128.0.0.0/1"]),
        ({"protocol": "tcp", "ipv6CidrBlocks": ["::/0"], "cidrBlocks": None}, ["::/0"]),
        ({"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}, ["0.0.0.0/0"]),
        ({"protocol": "tcp", "fromPort": 1, "toPort": 1024, "cidrBlocks": ["0.0.0.0/0"]}, ["0.0.0.0/0"]),
        ({"protocol": "udp", "fromPort": 41641, "toPort": 41641, "cidrBlocks": ["0.0.0.0/0"]}, []),
        ({"protocol": "tcp", "fromPort": 443, "toPort": 443, "cidrBlocks": ["0.0.0.0/0"]}, []),
        ({"protocol": "tcp", "cidrBlocks": ["203.0.113.0/24", "unknown-yet"]}, []),
        ({"protocol": "-1", "self": True}, []),
    ],
)
def test_a_security_group_that_lets_the_world_in_by_ssh_is_found(rule: dict[str, Any], networks: list[str]) -> None:
    wanted = [("ssh-open", f"one-group allows SSH from {each}: anyone there could try to log in") for each in networks]
    assert found(group(**rule)) == wanted


@pytest.mark.parametrize(
    ("key", "endless"),
    [
        ({"reusable": True}, True),
        ({"reusable": True, "expiry": 0}, True),
        ({"reusable": True, "expiry": LONGEST_SECONDS + 1}, True),
        ({"reusable": True, "expiry": LONGEST_SECONDS}, False),
        ({"reusable": False}, False),
        ({}, False),
    ],
)
def test_a_reusable_key_without_an_end_is_found(key: dict[str, Any], endless: bool) -> None:
    names = [name for name, _ in found(event("create", AUTH_KEY_TYPE, "join-key", after=key))]
    assert names == ["key-endless"] * endless


def exported(line: str) -> Event:
    return event("update", COMMAND, "b1-register", {"stdin": ""}, request(node_export=line))


def request(**values: str) -> dict[str, str]:
    return {"stdin": render_request("step", "machine", "", "", values)}


@pytest.mark.parametrize("client", ["100.64.0.0/10", "*", "0.0.0.0/0", "*.lab.ts.net", "@all", "100.64.0.7/31"])
def test_an_export_to_more_than_one_machine_is_found(client: str) -> None:
    wanted = [("export-wide", f"b1-register exports the share to {client}, which is more than one machine")]
    assert found(exported(f"/export/shared {client}(rw,root_squash)")) == wanted
    assert found(exported(f"/export/shared 100.64.0.7/32(rw) {client}(ro)")) == wanted


def bandwidth(**floors: float) -> dict[str, Any]:
    return {"floors_gb_per_s": {name.replace("_", "-"): floor for name, floor in floors.items()}}


def training(floor: float | None = None) -> dict[str, Any]:
    return {"training": {} if floor is None else {"floor_images_per_second": floor}}


def storage(**floors: float) -> dict[str, Any]:
    return {"storage": {"floors": [{"target": "share", **floors}]}}


@pytest.mark.parametrize(
    ("before", "now", "finding"),
    [
        (bandwidth(cloud_a=0.5, cross_site=0.1), bandwidth(cross_site=0.1), "cloud-a loses its floor of 0.5 GB/s: any"),
        (bandwidth(cloud_a=0.5), bandwidth(cloud_a=0.4), "the floor of cloud-a falls from 0.5 to 0.4 GB/s"),
        (bandwidth(cloud_a=0.5), bandwidth(cloud_a=0.6, cross_site=0.1), ""),
        (training(90), training(), "training loses its floor of 90 images a second: any result would pass"),
        (training(90), training(80), "the floor of training falls from 90 to 80 images a second"),
        (training(90), training(95), ""),
        (storage(read_mb_per_s=90, latency_us=500), storage(read_mb_per_s=95, latency_us=400), ""),
        (
            storage(read_mb_per_s=9),
            storage(read_mb_per_s=8),
            "the floor of share at {}: read_mb_per_s falls from 9 to",
        ),
        (storage(latency_us=5), storage(latency_us=6), "the limit of share at {}: latency_us rises from 5 to 6"),
        (
            storage(read_mb_per_s=90, latency_us=5),
            storage(read_mb_per_s=90),
            "share at {}: latency_us loses its limit of 5: any result would pass",
        ),
    ],
)
def test_a_weaker_floor_is_found(build: Build, before: dict[str, Any], now: dict[str, Any], finding: str) -> None:
    told = found(*planned(*(build({**LAB, "validation": each}) for each in (before, now))))
    sites = ("cloud-a", "cloud-b") if "{}" in finding else ("cloud-a",) * bool(finding)
    assert [name for name, _ in told] == ["floor-removed" if "loses" in finding else "floor-lowered"] * len(sites)
    assert all(text.startswith(finding.format(site)) for (_, text), site in zip(told, sites, strict=True))


HEAD_LOST = (
    "the head node door would be removed from the cluster; its disk has the homes, Slurm's state and the cluster's keys"
)
STEP = StepLabel("door-head", "door", "door: users, NFS server, slurmctld").on("exec true")


@pytest.mark.parametrize("changed", ["door", "dgx1"])
def test_the_checks_find_a_changed_host_key_of_a_head_node_alone(build: Build, changed: str) -> None:
    raw = copy.deepcopy(HOSTS)
    before = build(raw)
    host = next(host for site in raw["sites"] for host in site["hosts"] if host["name"] == changed)
    assert host["host_key"] == HOST_KEY
    host["host_key"] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsxVUzmBpSdwFQZtphurk0GoVLg/WuFmDC4lSWKF7Kp"
    text = "the head node door has another host key: it is another machine, or was reinstalled"
    assert found(*planned(before, build(raw))) == [("head-replaced", text)] * (changed == "door")


@pytest.mark.parametrize(
    ("operation", "inputs", "lost"),
    [
        ("replace", {"create": STEP}, True),  # its machine is made anew, and takes its steps with it
        ("delete", {"create": STEP, "delete": STEP}, True),
        ("delete", {"create": STEP}, False),  # a step of an older version, which undoes nothing
        ("update", {"create": STEP, "delete": STEP}, False),
    ],
)
def test_the_checks_find_repeated_or_undone_head_steps_once(operation: str, inputs: dict[str, str], lost: bool) -> None:
    after = {} if operation == "delete" else inputs
    step = event(operation, COMMAND, "door-head", inputs, after, STEP)
    assert found(step, step) == [("head-replaced", HEAD_LOST)] * lost


def test_every_name_that_can_be_allowed_is_one_that_a_rule_can_find() -> None:
    words = "\n".join(Path(inspect.getfile(rule)).read_text(encoding="utf-8") for rule in RULES)
    named = {name for name in FINDINGS if name.upper().replace("-", "_") in words}
    assert named == set(FINDINGS)


def test_a_name_that_is_no_findings_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tailrack:allow\[0\].*did you mean 'floor-removed'"):
        parse({**LAB, "allow": ["floors-removed"]}, base_dir=tmp_path)


def releasing(wanted: str, head: str, *nodes: str, was: str = "") -> list[tuple[str, str]]:
    """What is found where a release is wanted, by what head node and nodes had."""

    def has(version: str) -> str:
        return json.dumps({"slurm_version": version})

    before, after = ({"slurmRelease": each} if each else {} for each in (was, wanted))
    unknown = {"stdin": UNKNOWN}
    return found(
        event("update", HEAD, HEADS[0], before, after),
        event("update", COMMAND, f"{HEADS[0]}-head", {}, unknown, said=has(head)),
        *(event("update", COMMAND, f"n{at}-node", {}, unknown, said=has(each)) for at, each in enumerate(nodes)),
    )


def test_a_release_that_may_follow_is_no_finding() -> None:
    for wanted, *had in (["24.11.5"] * 3, ["25.11.7", "24.11.5", "24.05.8", "24.11.5"], ["24.11.6", "24.11.5"]):
        assert releasing(wanted, *had) == []


def stops(*releases: str, then: str) -> tuple[str, ...]:
    first = f"Upgrade by way of {', '.join(releases)}: set tailrack:slurm.release to a release of {releases[0]} and run"
    return first, f"; then {then}. Upgrade pools after each"


@pytest.mark.parametrize(
    ("wanted", "had", "parts"),
    [
        # A way back
        ("24.11.5", ["24.11.10"], ("24.11.5 is older; it cannot read the newer release's state. Set 24.11.10 or",)),
        ("24.05.9", ["24.11.10"], ("24.05.9 is older",)),
        ("24.11.9", ["24.11.10"], ("24.11.9 is older",)),
        # A release that cannot read the state
        ("25.11.7", ["23.11.4"], stops("25.05", then="25.11.7")),
        ("26.11.1", ["23.11.4"], stops("25.05", then="26.11.1")),
        ("26.11.1", ["22.05.8"], stops("23.11", "25.05", then="26.11.1")),
        # A node that the new controller would not accept
        ("25.11.7", ["24.11.5", "24.11.5", "23.11.4"], ("slurmctld 25.11.7 accepts nodes of 24.05 and newer, and n1 has"
                                                        " 23.11.4. Upgrade it",)),
        # A release that the config no longer sets
        ("", ["24.11.5"], ("the cluster has Slurm 24.11.5, but the config no longer sets a release. Set",)),
    ],
)  # fmt: skip
def test_a_release_that_may_not_follow_is_found(wanted: str, had: list[str], parts: tuple[str, ...]) -> None:
    ((name, text),) = releasing(wanted, *had, was="" if wanted else had[0])
    assert name == "slurm-release"
    assert [part for part in parts if part not in text] == []


def test_no_name_allows_an_impossible_change_and_an_invalid_answer_finds_nothing() -> None:
    checks = Checks(["slurm-release"])
    checks.on_event(event("update", HEAD, HEADS[0], {}, {"slurmRelease": "24.05.1"}))
    for said in ("", "null", "[]", '{"slurm_version": 7}', '{"slurm_version": "99.11.1"}', "[secret]"):
        checks.on_event(event("update", COMMAND, f"{HEADS[0]}-head", said=said))
    assert checks.refused == []
    checks.on_event(event("update", COMMAND, f"{HEADS[0]}-head", said='{"slurm_version": "24.11.5"}'))
    assert [finding.name for finding in checks.refused] == ["slurm-release"]
    assert "tailrack:allow" not in next(checks.lines())


def test_the_head_node_shows_the_release_in_a_preview_already(build: Build) -> None:
    stack = build({**LAB, "slurm": {"release": "25.11.7", "release_sha256": "a" * 64}})
    assert [one.inputs["slurmRelease"] for one in stack.resources if one.type == HEAD] == ["25.11.7"]


def checked(*allowed: str) -> Checks:
    checks = Checks(allowed)
    checks.on_event(event("delete", "tailrack:cluster:HeadNode", "door"))
    return checks


def test_the_checks_report_but_allow_a_change_requested_by_name() -> None:
    assert checked().refused == [("head-replaced", HEAD_LOST)]
    allowed = checked("head-replaced", "ssh-open")
    assert allowed.refused == []
    assert [*allowed.lines()] == [
        f"head-replaced: {HEAD_LOST}. Allowed by tailrack:allow.",
        "tailrack:allow has ssh-open, but no change needs it. Remove it, or it allows the next change unseen.",
    ]


@pytest.mark.parametrize(("allowed", "status"), [([], 1), (["head-replaced"], 0)])
def test_a_preview_shows_findings_first_and_fails_if_no_request_allows_them(
    play: Play, tmp_path: Path, capsys: pytest.CaptureFixture[str], allowed: list[str], status: int
) -> None:
    events = [
        event("update", COMMAND, "door-prepare", {"create": "a"}, {"create": "b"}),
        event("delete", "tailrack:cluster:HeadNode", "door"),
    ]
    written = WrittenConfig({"tailrack:allow": allowed})
    play(events, written=written, config=partial(parse, LAB, base_dir=Path()))
    note = tmp_path / "comment.md"
    assert commands.main(["--stack", "prod", "preview", "--comment", str(note)]) == status
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert lines[0].startswith(" ! head-replaced: the head node door")
    assert lines[1].startswith(" - head node door")
    assert lines[2].startswith(" ~ door-prepare")
    assert "head-replaced" in note.read_text()


def test_a_head_node_is_replaced_by_its_check_and_not_by_a_repeated_join_or_a_removal_from_the_tailnet() -> None:
    inputs, head = {"triggers": "[secret]"}, HEADS[0]
    by_its_key = event("replace", COMMAND, f"{head}-prepare", inputs, inputs, StepLabel("join", head, "x").on("true"))
    device = StepLabel("device", "", "x").on(":")
    removed = event("delete", COMMAND, f"{head}-device", {"delete": "exec python3"}, None, device)
    with_its_machine = event("replace", COMMAND, f"{head}-prepare")
    assert [len(list(head_replaced(each))) for each in (by_its_key, removed, with_its_machine)] == [0, 0, 1]
