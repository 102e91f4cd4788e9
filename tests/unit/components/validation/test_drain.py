"""When a node drains itself, says another reason, or takes its drain back; and what becomes of others' drains."""

import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from components.node.run import Ended
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node as SlurmNode
from components.validation.preflight import drain, health_check
from components.validation.preflight.drain import Drain, Memory, cause, decide
from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.node_checks import Node
from components.validation.untrusted import read_or_default

DISK = finding("error", "disk", "/scratch is full: 0.4 GiB of 8.0 GiB are free", "make room")
XID = finding("error", "Xid", 'GPU 0000:18:00.0: Xid 79: "lost"', "restart the node")
UNJUDGED = finding("info", "GPU count", "UNJUDGED: no driver")
FREE = SlurmNode("a1", frozenset())
OWN = Drain("health: disk: x", 100, "boot-1")


def drained(reason: str = OWN.reason, at: int = OWN.at, by: str = "root") -> SlurmNode:
    return SlurmNode("a1", frozenset({"DRAIN"}), reason, by, at)


def after(*found: Finding, slurm: SlurmNode = FREE, memory: Memory | None = None, boot: str = "boot-1") -> Any:
    return decide(found, slurm, memory or Memory(), boot)


def test_its_own_drain_is_taken_back_when_the_error_is_gone() -> None:
    memory = Memory(OWN, frozenset({cause(DISK)}))
    assert after(DISK, slurm=drained(), memory=memory).action == ""
    done = after(slurm=drained(), memory=memory)
    assert (done.action, done.memory) == ("resume", Memory())
    # Also after a restart, when all that was wrong is well.
    assert after(slurm=drained(), memory=memory, boot="boot-2").action == "resume"


def test_its_own_drain_is_its_own_after_a_shutdown_that_has_called_the_node_down_for_the_same_reason() -> None:
    memory = Memory(OWN, frozenset({cause(DISK)}))
    done = after(DISK, slurm=drained(at=101), memory=memory, boot="boot-2")
    assert (done.action, done.memory.own) == ("", Drain(OWN.reason, 101, "boot-2"))
    assert after(slurm=drained(at=101), memory=memory, boot="boot-2").action == "resume"
    assert after(slurm=drained("ada: do not touch", at=101), memory=memory, boot="boot-2").action == ""


@pytest.mark.parametrize("slurm", [drained(at=101), drained("ada: do not touch"), drained("health: disk: x ")])
def test_a_drain_that_somebody_has_set_since_is_theirs_even_with_the_same_words(slurm: SlurmNode) -> None:
    memory = Memory(OWN, frozenset({cause(DISK)}))
    done = after(slurm=slurm, memory=memory)
    assert (done.action, done.memory.own) == ("", None)
    assert after(slurm=slurm, memory=done.memory).action == ""


def test_a_persons_resume_lasts_until_the_error_clears() -> None:
    memory = Memory(OWN, frozenset({cause(DISK)}))
    resumed = after(DISK, slurm=FREE, memory=memory)
    assert (resumed.action, [*resumed.unhealthy]) == ("", [])
    assert after(DISK, slurm=FREE, memory=resumed.memory).action == ""
    # A new error is another matter, and so is the old one when it comes again.
    assert after(DISK, XID, slurm=FREE, memory=resumed.memory).reason.startswith("health: Xid: ")
    well = after(slurm=FREE, memory=resumed.memory)
    assert after(DISK, slurm=FREE, memory=well.memory).action == "drain"


def test_memory_survives_its_file_and_ignores_invalid_content() -> None:
    memory = Memory(OWN, frozenset({"a"}), frozenset({"b"}))
    assert read_or_default(Memory, json.loads(json.dumps(memory.plain()))) == memory
    wrong: object
    for wrong in (None, [], {}, {"own": [1]}, {"own": None, "causes": 7, "accepted": []}, "x"):
        assert read_or_default(Memory, wrong) == Memory()


def test_every_health_check_records_its_drain_so_that_a_later_resume_is_a_persons() -> None:
    memory = Memory(OWN, frozenset({cause(DISK)}))
    seen = after(DISK, slurm=drained(), memory=memory, boot="boot-1 slurmd-2").memory
    # slurmd was started anew long before the person came.
    assert after(DISK, slurm=FREE, memory=seen, boot="boot-1 slurmd-2").action == ""


class Controller:
    """A controller of a test, not the real one: one node, and a clock of its own."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {"state": ["IDLE"], "reason": "", "reason_set_by_user": ""}
        self.clock, self.answers = 1000, True

    def __call__(self, _scontrol: str, *words: str, **_how: object) -> Ended:
        if not self.answers:
            return Ended(1, "")
        self.clock += 1
        if words[0] == "show":
            return Ended(0, json.dumps({"nodes": [{"name": words[2], **self.node}]}))
        for word in words[2:]:
            key, _, value = word.partition("=")
            if key == "comment":
                self.node["comment"] = value
            elif key == "reason":
                self.say(value, "root")
            elif value == "drain":
                self.node["state"] = ["IDLE", "DRAIN"]
            elif value == "undrain":
                self.node = {"state": ["IDLE"], "reason": "", "reason_set_by_user": ""}
        return Ended(0, "")

    def say(self, reason: str, by: str) -> None:
        changed = {"set": True, "infinite": False, "number": self.clock}
        self.node |= {"reason": reason, "reason_set_by_user": by, "reason_changed_at": changed}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("boot-1\n")
    return Node(tmp_path)


def break_memory(node: Node, count: int) -> None:
    path = node.root / "sys/devices/system/edac/mc/mc0/ue_count"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{count}\n")


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    """The controller that health_check asks."""
    controller = Controller()
    monkeypatch.setattr(slurm, "attempt", controller)
    return controller


def check(node: Node, errors: int | None = None) -> None:
    """Check the node, with so many errors of its memory if a number is given."""
    if errors is not None:
        break_memory(node, errors)
    health_check.check(node, "a1")


def test_a_look_drains_remembers_and_takes_back(node: Node, controller: Controller) -> None:
    check(node)
    assert controller.node["state"] == ["IDLE"]
    check(node, errors=2)
    assert controller.node["state"] == ["IDLE", "DRAIN"]
    assert controller.node["reason"].startswith("health: memory: mc0: 2 errors since boot that ECC could not correct")
    assert "next: " in (node.shown / "unhealthy").read_text()
    assert json.loads((node.shown / "verdict.json").read_text())["findings"][0]["check"] == "memory"
    said = controller.node["reason_changed_at"]
    check(node)
    assert controller.node["reason_changed_at"] == said
    check(node, errors=0)
    assert controller.node["state"] == ["IDLE"]
    assert not (node.shown / "unhealthy").exists()


def test_an_old_version_becomes_the_nodes_comment_without_a_drain(
    node: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = node.root / "sys/module/nvidia/version"
    module.parent.mkdir(parents=True)
    module.write_text("580.159.04\n")
    check(node)
    assert controller.node["comment"].startswith("tailrack: versions: NVIDIA driver 580.159.04 is older than")
    assert controller.node["state"] == ["IDLE"]
    calls = controller.clock
    check(node)
    assert controller.clock == calls + 1, "an unchanged comment is not sent again"
    monkeypatch.setenv("SLURMD_NODENAME", "a1")
    assert health_check.main(["--clear"], node) == 0
    assert controller.node["comment"] == ""


def test_a_controller_that_does_not_answer_costs_no_memory(node: Node, controller: Controller) -> None:
    check(node, errors=2)
    controller.answers = False
    check(node)
    assert (node.shown / "unhealthy").exists()
    check(node, errors=0)
    controller.answers = True
    check(node)
    assert controller.node["state"] == ["IDLE"]


def test_a_node_that_slurm_does_not_know_or_shows_otherwise_is_left_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_memory(node, 2)
    for said in ("", "{}", "[]", '{"nodes": []}', '{"nodes": [7]}'):
        played = Mock(return_value=Ended(0, said))
        monkeypatch.setattr(slurm, "attempt", played)
        check(node)
        assert [call.args for call in played.mock_calls if call.args[1] == "update"] == []


def test_a_node_that_registers_again_restores_its_drain(
    node: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurmd = "first"
    monkeypatch.setattr(health_check, "stdout_of", lambda *_: f"{slurmd}\n")
    check(node, errors=2)
    assert health_check.is_own(node, "a1")
    # With the node its drain is deleted, and a new slurmd makes it known.
    slurmd = "second"
    controller.node = {"state": ["IDLE"], "reason": "", "reason_set_by_user": ""}
    check(node)
    assert controller.node["reason"].startswith("health: memory: ")
    check(node, errors=0)
    assert controller.node["state"] == ["IDLE"]


def test_a_node_returns_when_the_remains_of_a_doubled_job_ended(
    node: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = node.root / "proc/70"
    step.mkdir()
    (step / "cmdline").write_text("slurmstepd: [7.batch]")
    (step / "status").write_text("Name:\tslurmstepd\nUid:\t0\t0\t0\t0\n")
    listed = "8\n"
    monkeypatch.setattr(health_check, "jobs_in_slurm", lambda _: {*listed.split()})

    def drained_after(reason: str, by: str) -> bool:
        controller.node["state"] = ["IDLE", "DRAIN"]
        controller.say(reason, by)
        check(node)
        return "DRAIN" in controller.node["state"]

    assert drained_after("Duplicate jobid", "slurm")
    # Job 7 belongs to slurmctld again, as another job of the node would.
    listed = "7\n8\n"
    assert not drained_after("Duplicate jobid", "slurm")
    listed = ""
    (step / "cmdline").write_text("bash")
    assert not drained_after("Duplicate jobid", "slurm")
    assert drained_after("Duplicate jobid", "ada")
    assert drained_after("Kill task failed", "slurm")


def test_a_node_does_not_own_a_persons_drain_or_one_without_an_answer(node: Node, controller: Controller) -> None:
    check(node, errors=2)
    controller.answers = False
    assert not health_check.is_own(node, "a1")
    controller.answers = True
    controller.say(controller.node["reason"], "root")
    assert not health_check.is_own(node, "a1")
    controller.node["state"] = ["IDLE"]
    assert not health_check.is_own(node, "a1")


def failure(node: Node, script: str, boot: str = "boot-1") -> None:
    node.shown.mkdir(parents=True, exist_ok=True)
    said = {"what": 'ended with status 3: no "room"', "remedy": "make it"}
    told = {"script": script, "job": "7", **said, "boot_id": boot}
    (node.shown / "last-failure.json").write_text(json.dumps(told))


def test_the_reason_of_slurms_drain_says_which_script_and_why(
    node: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure(node, "prolog.d/50-mine")

    def drained_meanwhile(_seconds: float) -> None:
        controller.node["state"] = ["IDLE", "DRAIN"]
        controller.say("Prolog error", "slurm")

    monkeypatch.setattr(time, "sleep", drained_meanwhile)
    health_check.set_reason(node, "a1", 60)
    said = "Prolog error: prolog.d/50-mine: ended with status 3: no 'room'; next: make it"
    assert controller.node["reason"] == said
    # It is Slurm's drain all the same: a person takes it back.
    check(node)
    assert "DRAIN" in controller.node["state"]


@pytest.mark.parametrize(("what", "remedy"), [("x" * 400, "y" * 400), ("x" * 400, ""), ("", "y" * 400), ("x", "y")])
def test_a_reason_has_room_for_the_script_and_for_its_remedy(what: str, remedy: str) -> None:
    reason = drain.script_reason("Epilog error", "epilog.d/20-mine", what, remedy)
    assert len(reason) <= 250
    read = drain.SCRIPT.fullmatch(reason)
    assert read is not None
    assert read[2] == "epilog.d/20-mine"
    for whole, part in ((what, read[3]), (remedy, read[4] or "")):
        assert part == whole or (len(part) >= 90 and part.endswith("...") and whole.startswith(part[:-3]))


def test_a_job_that_our_own_look_kept_away_leaves_a_drain_that_ends_with_the_error(
    node: Node, controller: Controller
) -> None:
    break_memory(node, 2)
    controller.node["state"] = ["IDLE", "DRAIN"]
    controller.say("Prolog error", "slurm")
    failure(node, "prolog.d/30-health")
    health_check.set_reason(node, "a1", 60)
    assert controller.node["reason"].startswith("health: memory: ")
    check(node, errors=0)
    assert controller.node["state"] == ["IDLE"]


def test_a_persons_reason_and_an_earlier_boots_failure_stay(
    node: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.node["state"] = ["IDLE", "DRAIN"]
    for reason, by, boot in (("new disk", "ada", "boot-1"), ("Prolog error", "slurm", "boot-0")):
        controller.say(reason, by)
        failure(node, "prolog.d/50-mine", boot)
        health_check.set_reason(node, "a1", 0)
        assert controller.node["reason"] == reason


def test_only_a_lasting_loss_of_the_share_drains_a_node(
    node: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node.root / "etc/tailrack").mkdir(parents=True)
    (node.root / "etc/tailrack/share-mounted").write_text(f"{node.root}/none\n")
    monotonic = time.monotonic
    check(node)
    assert controller.node["state"] == ["IDLE"]
    assert json.loads((node.shown / "verdict.json").read_text())["findings"][0]["check"] == "share"
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 120)
    check(node)
    assert controller.node["reason"].startswith(f"health: share: {node.root}/none is not mounted")


def test_a_finding_that_cleared_or_predates_the_boot_starts_again() -> None:
    before = {"boot_id": "b", "since": {cause(DISK): 50.0, "x": 1.0}}
    assert health_check.since_when([DISK, XID], before, "b", 100) == {cause(DISK): 50.0, cause(XID): 100}
    other: object
    for other in (None, {}, [], {"boot_id": "b", "since": 7}, {**before, "boot_id": "c"}):
        assert health_check.since_when([DISK], other, "b", 100) == {cause(DISK): 100}
