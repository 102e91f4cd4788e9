"""The deep check on the head node: which nodes it takes, whom it drains and takes back, and a check that breaks off."""

import fcntl
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from components.measurement_jobs.job_plans import NICE, deep_check_text
from components.node import locks
from components.roles.monitoring.health import deep_check, gpu_records
from components.roles.monitoring.health.deep_check import DeepCheck, run
from components.roles.order import roles
from components.roles.program import program
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import SlurmError
from components.steps.composition import compose
from components.validation import measurement_run
from components.validation.became_slow import Measured, Record
from components.validation.untrusted import read
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell, assert_ok, script_of
from tests.unit.simulated_slurm import SimulatedSlurm

IDLE = frozenset({"IDLE", "DYNAMIC_NORM"})
SLOW = "tailrack deep check: 180.1 GB/s, 364.8 when it was first checked"


def told(**more: Any) -> dict[str, Any]:
    config = parse({**LAB, "health": {"deep_check": {"every_hours": 24, **more}}}, base_dir=Path())
    found: dict[str, Any] = json.loads(deep_check_text(config))
    return found


class FakeSlurm:
    """A controller: nodes by name, reservations, and what it was told."""

    def __init__(self) -> None:
        self.nodes_by_name = {"a1": Node("a1", IDLE, gpus="h200:4")}
        self.reservations: set[str] = set()
        self.said: list[str] = []
        self.now = 1000

    def nodes(self, *names: str) -> list[Node]:
        return [node for name, node in self.nodes_by_name.items() if not names or name in names]

    def set(self, name: str, *flags: str, reason: str = "", by: str = "root") -> None:
        self.now += 1
        node = self.nodes_by_name[name]
        self.nodes_by_name[name] = replace(node, flags=frozenset(flags), reason=reason, by=by, since=self.now)

    def scontrol(self, *words: str) -> str:
        self.said.append(" ".join(words))
        given = dict(word.partition("=")[::2] for word in words if "=" in word)
        if words[0] == "create":
            self.reservations.add(given["reservationname"])
        elif words[0] == "delete":
            if given["reservationname"] not in self.reservations:
                raise SlurmError("The reservation does not exist")
            self.reservations.remove(given["reservationname"])
        elif given["state"] == "drain":
            self.set(given["nodename"], *self.nodes_by_name[given["nodename"]].flags, "DRAIN", reason=given["reason"])
        elif given["state"] == "undrain":
            self.set(given["nodename"], *self.nodes_by_name[given["nodename"]].flags - {"DRAIN"})
        return ""


class Case:
    """The deep check with a fake controller, and figures that are played one after the other."""

    def __init__(self, slurm: FakeSlurm, kept: Path) -> None:
        self.slurm, self.kept, self.played = slurm, kept, list[Measured]()
        self.seen: list[tuple[str, frozenset[str], str, bool]] = []
        self.checks = DeepCheck(told(), self._measure, kept)

    def _measure(self, _told: object, node: Node, reservation: str, dcgm: bool) -> Mapping[str, Any]:
        there = self.slurm.nodes_by_name[node.name].flags
        self.seen.append((node.name, there, reservation, dcgm))
        assert not reservation or reservation in self.slurm.reservations
        return {}

    def play(self, *figures: float | None, names: tuple[str, ...] = ("a1",)) -> int:
        self.played[:] = [each if isinstance(each, Measured) else Measured(each, tolerance=0.15) for each in figures]
        self.seen.clear()
        status = run(self.checks, names)
        assert self.played == []
        return status

    @property
    def node(self) -> Node:
        return self.slurm.nodes_by_name["a1"]

    @property
    def record(self) -> Record:
        return read(Record, json.loads((self.kept / "a1.json").read_text()))


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Case:
    fake = FakeSlurm()
    monkeypatch.setattr(slurm, "nodes", fake.nodes)
    monkeypatch.setattr(slurm, "scontrol", fake.scontrol)
    monkeypatch.setattr(locks, "PRIVATE", str(tmp_path))
    monkeypatch.setattr(deep_check, "REPORTS", tmp_path / "validation")
    monkeypatch.setattr(gpu_records, "FINDINGS", tmp_path / "gpu-findings.json")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    made = Case(fake, tmp_path / "kept")
    monkeypatch.setattr(deep_check, "read_report", lambda *_: made.played.pop(0))
    return made


@pytest.fixture
def slow(case: Case) -> Case:
    """A node that became slow after its first check, and is drained."""
    case.play(364.8)
    case.play(180.0, 180.1)
    return case


def test_a_node_that_became_slow_is_drained_with_both_figures_after_a_second_look(case: Case) -> None:
    # One that was slow for a moment is left alone.
    for figures in ((364.8,), (340.0,), (180.0, 360.0), (180.0, None)):
        assert case.play(*figures) == 0
        assert case.slurm.said == [], figures
    case.play(180.0, 180.1)
    assert (case.node.reason, "DRAIN" in case.node.flags) == (SLOW, True)
    assert [each[3] for each in case.seen] == [True, False]
    assert case.record.own == (SLOW, case.node.since)


def test_the_deep_check_measures_its_drained_node_alone_and_resumes_it(slow: Case) -> None:
    slow.play(181.0, 180.0)
    assert slow.node.reason == "tailrack deep check: 181.0 GB/s, 364.8 when it was first checked"
    assert {each[2] for each in slow.seen} == {"tailrack-deep-check-a1"}
    assert {each[1] for each in slow.seen} == {IDLE}
    assert slow.slurm.reservations == set()
    # What gives no figure changes nothing.
    slow.play(None)
    assert slow.node.reason == "tailrack deep check: 181.0 GB/s, 364.8 when it was first checked"
    assert "DRAIN" in slow.node.flags
    slow.play(360.0)
    assert slow.node.flags == IDLE
    assert slow.record.own is None
    assert slow.slurm.reservations == set()
    assert any("users=ada" in said and "nodes=a1" in said for said in slow.slurm.said)


def test_a_node_with_jobs_or_kept_for_one_or_drained_by_others_is_not_touched(case: Case) -> None:
    for flags in (
        ("ALLOCATED",), ("MIXED",), ("IDLE", "COMPLETING"), ("IDLE", "PLANNED"), ("IDLE", "RESERVED"),
        ("IDLE", "DRAIN"), ("DOWN",), ("IDLE", "NOT_RESPONDING"), ("IDLE", "REBOOT_REQUESTED"), ("IDLE", "MAINTENANCE"),
    ):  # fmt: skip
        case.slurm.set("a1", *flags, reason="new disk")
        case.play(names=())
        case.play(names=("a1",))
        assert case.seen == [], flags
        assert [said for said in case.slurm.said if not said.startswith("delete")] == [], flags


def test_a_drain_with_the_same_words_is_somebody_elses_when_it_was_set_at_another_time(slow: Case) -> None:
    slow.slurm.set("a1", *IDLE, "DRAIN", reason=SLOW)
    slow.play()
    assert slow.seen == []
    assert slow.record.own is None


def test_the_deep_check_accepts_a_resumed_slow_node_until_it_recovers(slow: Case) -> None:
    slow.slurm.set("a1", *IDLE)
    slow.play(178.0)
    assert slow.node.flags == IDLE
    slow.play(360.0)
    slow.play(180.0, 180.1)
    assert slow.node.reason == SLOW


def test_one_that_is_drained_and_still_has_a_job_stays_ours(slow: Case) -> None:
    drained = slow.node
    slow.slurm.nodes_by_name["a1"] = replace(drained, flags=frozenset({"ALLOCATED", "DRAIN"}))
    slow.play()
    slow.slurm.nodes_by_name["a1"] = drained
    slow.play(360.0)
    assert slow.node.flags == IDLE


def test_a_check_that_was_cut_off_leaves_no_slow_node_at_work(slow: Case) -> None:
    # As it is after the loss of power in the middle of a second look.
    record = replace(slow.record, trying=True)
    (slow.kept / "a1.json").write_text(json.dumps(asdict(record)))
    slow.slurm.reservations.add("tailrack-deep-check-a1")
    slow.slurm.set("a1", *IDLE)
    slow.play(names=())
    assert slow.node.reason == SLOW
    assert slow.slurm.reservations == set()
    assert (slow.record.trying, slow.record.own) == (False, (SLOW, slow.node.since))
    slow.play(360.0)
    assert slow.node.flags == IDLE


def test_the_deep_check_keeps_the_drain_of_a_person(case: Case) -> None:
    case.play(364.8)

    def drained_meanwhile(*_: object) -> Mapping[str, Any]:
        case.slurm.set("a1", *IDLE, "DRAIN", reason="new disk")
        return {}

    case.checks.measure = drained_meanwhile
    case.play(180.0, 180.1)
    assert case.node.reason == "new disk"
    assert case.record.own is None


def test_nodes_are_checked_when_they_are_due_and_no_figure_is_tried_again_after_an_hour(case: Case) -> None:
    case.play(364.8, names=())
    case.play(names=())
    due = case.record.due - time.time()
    assert 23 * 3600 < due <= 24 * 3600
    case.play(None)
    assert case.record.due - time.time() <= 3600


def test_another_machine_gets_its_own_figure(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    joined_at = {"a1": "100.64.0.1"}
    monkeypatch.setattr(deep_check, "address_of", lambda name: joined_at[name])
    case.play(364.8)
    joined_at["a1"] = "100.64.0.9"
    case.play(180.0)
    assert (case.node.flags, case.record.reference) == (IDLE, 180.0)
    (tmp_path / "a1").mkdir()
    (tmp_path / "a1" / "address").write_text("100.64.0.9\n")
    monkeypatch.undo()
    assert [deep_check.address_of(name, tmp_path) for name in ("a1", "b1")] == ["100.64.0.9", ""]


def test_a_measurement_that_goes_on_is_not_disturbed(case: Case) -> None:
    with (case.kept.parent / "measure.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        case.play()
    assert case.seen == []


def test_the_deep_check_measures_a_forgotten_node_again(slow: Case) -> None:
    deep_check.forget(slow.checks, "a1")
    slow.play(180.0)
    assert slow.node.flags == IDLE
    assert slow.record.reference == 180.0


Play = Callable[[float], Mapping[str, Any]]


@pytest.fixture
def on_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    """Have a node with GPUs measured by the program itself, with a Slurm that is simulated."""

    def play(gb_per_s: float) -> Mapping[str, Any]:
        simulated = SimulatedSlurm(lambda _: gb_per_s, {"a1": "h200:4"})
        monkeypatch.setattr(measurement_run, "run_jobs", simulated.run)
        asked = json.loads(json.dumps(deep_check.program_input(told(), NODE, each_gpu=True)))
        measured = measurement_run.MeasurementRun(asked["plan"], asked["nodes"], {}, tmp_path / "job").measure()
        assert [order.folder.name for order in simulated.orders] == ["prepare-h200-4", "node-a1"]
        assert simulated.orders[0].arguments == ["gpu-check"]
        jobs = [
            {*order.files["job.sh"].splitlines(), *(f"#SBATCH {option}" for option in order.options)}
            for order in simulated.orders
        ]
        assert all(job >= {f"#SBATCH {NICE}", "#SBATCH --time=15"} for job in jobs)
        # The gate size alone, three times.
        assert simulated.orders[1].arguments[3:] == ["8589934592:8589934592"] * 3
        found: Mapping[str, Any] = json.loads(json.dumps(measured))
        return found

    return play


NODE = Node("a1", IDLE, gpus="h200:4")


def test_a_malformed_report_or_one_of_a_rejected_job_gives_no_figure() -> None:
    why = "drained: Prolog error: prolog.d/50-mine: timed out"
    rejected: dict[str, Any] = {"state": "UNAVAILABLE", "nodes": [], "output": "", "absent": {NODE.name: why}}
    rejected |= dict.fromkeys(("job_id", "exit_code", "seconds"))
    malformed: tuple[Any, ...] = (
        None,
        {},
        {"job_id": 1, "state": "COMPLETED"},
        {"gpus": {"a1": 7}, "asked": []},
        {"alone": 3},
    )
    for said in (*malformed, rejected):
        found = deep_check.read_report(told(), NODE, said)
        assert (found.gb_per_s, found.broken) == (None, ())
        assert found.doubt
    assert found.doubt == f"Nothing was measured: {NODE.name} ({why}) cannot run a job."


def test_the_user_measures_with_the_program(shell: Shell, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep_check, "ROOT", installed / program().digest)
    shell.write("etc/passwd", "ada:x:6001:6001::/home/ada:/bin/bash\n")
    shell.stub("env", f"""echo "$*" >{shell.root}/words; cat >{shell.root}/task; echo '{{"state": "COMPLETED"}}'""")
    with shell.here():
        report = deep_check.measure_as_user({**told(), "user": "ada"}, NODE, "tailrack-deep-check-a1", True)
        assert report == {"state": "COMPLETED"}
        assert deep_check.measure_as_user({**told(), "user": "bob"}, NODE, "", True) is None
        shell.stub("env", "echo '[]'")
        assert deep_check.measure_as_user({**told(), "user": "ada"}, NODE, "", True) is None
    words = (shell.root / "words").read_text().split()
    assert f"HOME={shell.root}/home/ada" in words
    assert "SBATCH_RESERVATION=tailrack-deep-check-a1" in words
    assert words[-3:] == ["-S", str(installed / program().digest), "measure"]
    assert json.loads((shell.root / "task").read_text())["nodes"] == [NODE.name]


def test_a_node_with_gpus_is_measured_as_it_was_when_it_joined(on_gpus: Play) -> None:
    report = on_gpus(364.8)
    found = deep_check.read_report(told(), NODE, report)
    assert found.gb_per_s == pytest.approx(364.8, rel=1e-3)
    # A floor of its hardware is known, and NVLink's runs lie close together.
    assert found.floor == pytest.approx(0.9 * 365.08)
    assert found.tolerance == 0.15
    slow = deep_check.read_report(told(), NODE, on_gpus(180.1))
    assert slow.gb_per_s == pytest.approx(180.1, rel=1e-3)
    finding = {"severity": "error", "check": "DCGM", "seen": "memory on GPU 3", "remedy": ""}
    broken = {**report, "preflight": f"# tailrack preflight a1 {json.dumps([finding])}\n"}
    assert deep_check.read_report(told(), NODE, broken).broken == ("DCGM: memory on GPU 3",)


def test_the_deep_check_reads_the_figure_of_the_join_from_saved_results(on_gpus: Play, tmp_path: Path) -> None:
    asked = deep_check.measurement_settings(told(), NODE)
    of = {"address": "100.64.0.1", "gpus": NODE.gpus, "asked": asked}
    report = on_gpus(364.8)
    kept = {"members": {"a1": "100.64.0.1"}, "alone": [report], "measured_at": 7, "there": report["there"]}
    (tmp_path / "cloud-a.json").write_text(json.dumps(kept))
    record = deep_check.with_figure(Record(of), NODE, tmp_path)
    assert record.reference == pytest.approx(364.8, rel=1e-3)
    assert record.since == "when it joined"
    # Of another machine, other GPUs, or measured in another way it says nothing; nor do words that are none.
    assert deep_check.with_figure(Record({**of, "address": "100.64.0.9"}), NODE, tmp_path).reference is None
    assert deep_check.with_figure(Record(of), replace(NODE, gpus="h200:8"), tmp_path).reference is None
    assert deep_check.with_figure(Record({**of, "asked": {**asked, "gate_bytes": 8}}), NODE, tmp_path).reference is None
    (tmp_path / "cloud-a.json").write_text(json.dumps({**kept, "alone": [7, {"gpus": 3}]}))
    assert deep_check.with_figure(Record(of), NODE, tmp_path).reference is None


def test_the_deep_check_follows_its_key_and_keeps_its_records(shell: Shell) -> None:
    settings = parse({**LAB, "health": {"deep_check": {"every_hours": 24}}}, base_dir=Path())
    (role,) = [role for role in roles(settings) if role.name == "health"]
    values = {"head_deep_check": json.dumps({"user": "ada"})}
    assert shell.step(compose([role], ["services"]), values).returncode == 0
    path = shell.path("/etc/tailrack/deep-check.json")
    assert json.loads(path.read_text()) == {"user": "ada"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert shell.path("/var/lib/tailrack/deep-check").stat().st_mode & 0o777 == 0o700
    shell.write("/var/lib/tailrack/deep-check/a1.json", "{}")
    for _ in range(2):
        assert_ok(shell.step(script_of("health", "services"), {"head_deep_check": ""}))
    assert not path.exists()
    assert shell.path("/var/lib/tailrack/deep-check/a1.json").exists()
    values = {"node_name": "a1"}
    assert shell.step(script_of("health", "register"), values, "down").returncode == 0
    assert not shell.path("/var/lib/tailrack/deep-check/a1.json").exists()
