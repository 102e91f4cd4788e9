"""What is measured of a scope with GPUs, in which jobs, and what comes of it."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from components.measurement_jobs.plan import Node, gpu_measurement, mpi_apart, plan
from components.measurement_jobs.scopes import Scope, measurement_of
from components.node.run import Ended
from components.settings.validation import Nccl, Validation
from components.validation import figures, measurement_run, nccl_tests, results, slurm_jobs
from components.validation.model import Measurement
from components.validation.results import Conditions, judge_scope
from components.validation.slurm_jobs import Order
from components.validation.transport import Transport
from components.validation.verdict import Result
from tests.unit.components.validation.test_nccl_output import written
from tests.unit.simulated_slurm import INFINIBAND, NO_RDMA, SOCKETS, SimulatedSlurm

GIB = 2**30
NCCL = Nccl(min_bytes=8 * 2**20, max_bytes=8 * GIB, gate_bytes=8 * GIB, socket_max_bytes=512 * 2**20)
SETTINGS = Validation(nccl=NCCL)
IB_UP = {**NO_RDMA, "rdma": [{"device": "mlx5_0", "port": 1, "driver": "mlx5_core", "link": "InfiniBand", "up": True}]}


class Run:
    """A scope measured: what came back, and what it is worth."""

    def __init__(
        self,
        slurm: SimulatedSlurm,
        settings: Validation,
        sites: Mapping[str, str],
        folder: Path,
        mpi: Mapping[str, str],
    ) -> None:
        there = {name: Node(sites[name], "100.64.0.1", slurm.gpus[name], mpi.get(name, "")) for name in sites}
        spans = len(set(sites.values())) > 1
        asked = measurement_of(Scope("rack", tuple(sorted(sites)), 2 if spans else 1), settings)
        floors = settings.floors_gb_per_s
        self.floors = (floors.get("rack"), floors.get("node"))
        network = {"interface": "tailscale0", "fabric": {}, "rdma": "auto"}
        told = plan("rack", there, settings, asked, self.floors, network, preflight=False)
        measured = measurement_run.MeasurementRun(json.loads(json.dumps(told)), sorted(sites), {}, folder).measure()
        self.report = json.loads(json.dumps({**measured, "left_out": [], "measured_at": 1_800_000_000}))
        self.asked: Measurement = gpu_measurement(there, settings) or asked
        apart = mpi_apart(there, settings, self.asked)
        self.how = Conditions(*self.floors, "tailscale0", spans, mpi=apart)

    def judged(self) -> tuple[Result, dict[str, Result]]:
        return judge_scope(self.asked, self.report, self.how, lambda _: {})


Measure = Callable[..., Run]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measure:
    """Measure a scope on a simulated Slurm; sites are by default one."""

    def run(
        slurm: SimulatedSlurm,
        sites: Mapping[str, str] | None = None,
        settings: Validation = SETTINGS,
        mpi: Mapping[str, str] | None = None,
    ) -> Run:
        monkeypatch.setattr(measurement_run, "run_jobs", slurm.run)
        return Run(slurm, settings, sites or dict.fromkeys(slurm.gpus, "rack"), tmp_path, mpi or {})

    return run


def steady(gb_per_s: float) -> Callable[[tuple[str, ...]], float | None]:
    return lambda nodes: gb_per_s


def with_floors(**floors: float) -> Validation:
    return SETTINGS.model_copy(update={"floors_gb_per_s": floors})


def two(measure: Measure, **how: Any) -> Run:
    """Measure two nodes of one GPU each at 4 GB/s."""
    return measure(SimulatedSlurm(steady(4.0), {"a": "h200:1", "b": "h200:1"}, **how))


def folders(slurm: SimulatedSlurm) -> list[str]:
    return [order.folder.name for order in slurm.orders]


def test_each_node_is_measured_by_itself_and_then_the_site(measure: Measure) -> None:
    slurm = SimulatedSlurm(lambda nodes: 350.0 if len(nodes) == 1 else 3.9, {"a": "h200:2", "b": "h200:2"})
    result, by_node = measure(slurm).judged()
    assert folders(slurm) == ["prepare-h200-2", "node-a", "node-b", "gpus-h200-2"]
    assert {name: round(each["busbw_gb_per_s"] or 0) for name, each in by_node.items()} == {"a": 350, "b": 350}
    assert {each["transport"] for each in by_node.values()} == {"NVLink"}
    assert {each["expected_transport"] for each in by_node.values()} == {"NVLink"}
    assert (result["backend"], result["ranks"], result["gpus"]) == ("nccl-tests", 4, {"a": "h200:2", "b": "h200:2"})
    assert (result["transport"], result["interface"], result["expected_interface"]) == (
        "sockets", "tailscale0", "tailscale0",
    )  # fmt: skip
    assert result["busbw_gb_per_s"] == pytest.approx(3.9, rel=1e-3)
    assert result["verdict"] == "UNJUDGED"


def test_the_job_gets_ranks_gpus_and_sizes_and_three_runs_at_the_gate(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(350.0), {"c": "h200:8"})
    run = measure(slurm)
    (order,) = [order for order in slurm.orders if order.folder.name == "node-c"]
    assert list(order.options) == ["--ntasks=8", "--ntasks-per-node=8", "--gpus-per-node=8", "--switches=1"]
    gate = f"{8 * GIB}:{8 * GIB}"
    assert list(order.arguments) == ["any", "", "1", f"{8 * 2**20}:{8 * GIB}", gate, gate]
    result, by_node = run.judged()
    # A site of one node is that node; it is not measured twice.
    assert result == by_node["c"]
    assert result["spread"] is not None
    assert (len(result["spread"]["runs"]), result["spread"]["relative"]) == (3, 0)


def test_further_collectives_have_tables_and_no_floor_of_another_one(measure: Measure) -> None:
    more = NCCL.model_copy(update={"more_collectives": ("alltoall", "all_gather"), "gpus_per_process": 4})
    settings = SETTINGS.model_copy(update={"nccl": more, "floors_gb_per_s": {"rack": 340.0, "node": 340.0}})
    slurm = SimulatedSlurm(steady(350.0), {"c": "h200:8", "d": "h200:8", "e": "h200:2", "f": "h200:2"}, second_run=0.97)
    result, by_node = measure(slurm, settings=settings).judged()
    order = next(order for order in slurm.orders if order.folder.name == "node-c")
    assert list(order.options) == ["--ntasks=2", "--ntasks-per-node=2", "--gpus-per-node=8", "--switches=1"]
    sizes, gate = f"{8 * 2**20}:{8 * GIB}", f"{8 * GIB}:{8 * GIB}"
    runs = [f"{run}{name}" for name in ("", ":alltoall", ":all_gather") for run in (sizes, gate, gate)]
    assert list(order.arguments) == ["any", "", "4", *runs]
    # Two GPUs are no multiple of four.
    small = next(order for order in slurm.orders if order.folder.name == "node-e")
    assert (small.options[0], small.arguments[2]) == ("--ntasks=2", "1")
    node = by_node["c"]
    assert (node["collective"], node["verdict"], node["floor_gb_per_s"]) == ("all_reduce", "PASS", 340.0)
    assert [*node["collectives"]] == ["alltoall", "all_gather"]
    for name, other in node["collectives"].items():
        assert (other["collective"], other["floor_gb_per_s"], other["verdict"]) == (name, None, "UNJUDGED"), name
        assert other["busbw_gb_per_s"] == pytest.approx(350, rel=1e-3)
        assert len(other["rows"]) == len(node["rows"])
    assert result["collectives"].keys() == node["collectives"].keys()


def test_a_further_collective_with_wrong_data_fails_its_scope(measure: Measure) -> None:
    more = NCCL.model_copy(update={"more_collectives": ("all_gather",)})
    run = measure(SimulatedSlurm(steady(350.0), {"c": "h200:8"}), settings=SETTINGS.model_copy(update={"nccl": more}))
    part = run.report["more"]["all_gather"]
    part["output"] = part["output"].replace("  0  0\n", "  0  7\n").replace("values : 0 OK", "values : 5 FAILED")
    result, _ = run.judged()
    assert (result["verdict"], result["collectives"]["all_gather"]["verdict"]) == ("FAIL", "FAIL")
    assert " all_gather: The data was wrong: " in result["reason"]


def test_nodes_with_different_gpus_are_measured_in_groups_and_the_worst_verdict_is_the_sites(measure: Measure) -> None:
    gpus = {"a": "h200:8", "b": "h200:8", "c": "a100:4", "d": "a100:4", "e": ""}
    speed: dict[tuple[str, ...], float] = {("a", "b"): 400.0, ("c", "d"): 2.0}
    slurm = SimulatedSlurm(lambda nodes: speed.get(nodes, 300.0), gpus, there=IB_UP, between=INFINIBAND)
    settings = with_floors(rack=10.0, node=1.0)
    result, by_node = measure(slurm, settings=settings).judged()
    assert result["busbw_gb_per_s"] == pytest.approx(400, rel=1e-3)
    groups = [(group["gpus"], "".join(group["nodes"]), group["verdict"]) for group in result["groups"]]
    assert groups == [("h200:8", "ab", "PASS"), ("a100:4", "cd", "FAIL")]
    assert result["verdict"] == "FAIL"
    assert result["left_out"] == ["e"]
    assert "Left out: e (no GPUs)." in result["reason"]
    assert "None" not in result["reason"]
    assert by_node.keys() == {"a", "b", "c", "d"}


FOUR = dict.fromkeys("abcd", "h200:8")
TWO_RELEASES = {"a": "4-pmix5", "b": "4-pmix4", "c": "4-pmix5", "d": "4-pmix4"}
APART = "The nodes have incompatible releases of Open MPI (4 with PMIx 4 on b, d; 4 with PMIx 5 on a, c): only nodes"


def test_no_mpi_job_mixes_open_mpi_or_pmix_releases_and_the_report_explains_it(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(400.0), FOUR, there=IB_UP, between=INFINIBAND)
    run = measure(slurm, mpi=TWO_RELEASES)
    together = [(order.folder.name, order.nodes) for order in slurm.orders if order.folder.name.startswith("gpus")]
    assert together == [("gpus-mpi4-pmix4-h200-8", ("b", "d")), ("gpus-mpi4-pmix5-h200-8", ("a", "c"))]
    result, _ = run.judged()
    assert APART in result["reason"]
    assert [group["nodes"] for group in result["groups"]] == [["b", "d"], ["a", "c"]]


def test_an_image_brings_its_own_mpi_and_the_nodes_does_not_matter(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(400.0), FOUR, there=IB_UP, between=INFINIBAND)
    settings = SETTINGS.model_copy(update={"nccl": NCCL.model_copy(update={"image": "docker://nccl-tests"})})
    result, _ = measure(slurm, settings=settings, mpi=TWO_RELEASES).judged()
    assert slurm.orders[-1].nodes == ("a", "b", "c", "d")
    assert "Open MPI" not in result["reason"]


def test_sockets_despite_infiniband_fail_and_name_the_next_check(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(3.0), {"a": "h200:1", "b": "h200:1"}, there=IB_UP, between=SOCKETS)
    result, _ = measure(slurm).judged()
    assert (result["verdict"], result["expected_transport"], result["transport"]) == ("FAIL", "InfiniBand", "sockets")
    for word in ("a mlx5_0:1; b mlx5_0:1", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "ulimit -l"):
        assert word in result["reason"]


def test_the_slow_node_of_a_site_that_fails_is_named_with_its_figures(measure: Measure) -> None:
    gpus = dict.fromkeys("abcdefgh", "h200:1")
    slurm = SimulatedSlurm(lambda nodes: 1.0 if "f" in nodes else 4.0, gpus)
    settings = with_floors(rack=3.0)
    result, _ = measure(slurm, settings=settings).judged()
    assert result["verdict"] == "FAIL"
    assert [suspect["nodes"] for suspect in result["suspects"]] == [["f"]]
    assert result["suspects"][0]["busbw_gb_per_s"] == pytest.approx(1.0, rel=1e-2)
    assert result["suspects"][0]["reason"] in result["reason"]
    assert 1 < len(slurm.rounds) <= 5
    # Side by side: nobody is in two groups of one round.
    for groups in slurm.rounds:
        nodes = [node for group in groups for node in group]
        assert len(nodes) == len(set(nodes))


def test_runs_that_differ_much_start_a_search_and_a_node_without_fault_is_not_named(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(4.0), dict.fromkeys("abcd", "h200:1"), second_run=0.5, second_time=0.5)
    result, _ = measure(slurm).judged()
    assert result["spread"] is not None
    assert result["spread"]["relative"] == pytest.approx(0.5, rel=1e-2)
    assert result["busbw_gb_per_s"] == pytest.approx(4.0, rel=1e-2)
    assert slurm.rounds
    assert result["suspects"] == []


BUSY = "c: GPU 0000:18:00.0 is 97 % busy with 41000 MiB in use by 4711 train.py (40500 MiB)\n"


def test_runs_that_lie_too_far_apart_are_measured_once_more_and_then_no_pass(measure: Measure) -> None:
    often = ("", BUSY, BUSY, "")
    slurm = SimulatedSlurm(steady(364.8), {"c": "h200:8"}, second_run=0.46, second_time=0.5, beside=often)
    settings = with_floors(node=300.0, rack=300.0)
    result, by_node = measure(slurm, settings=settings).judged()
    assert folders(slurm) == ["prepare-h200-8", "node-c", "node-c-again"]
    assert (result["verdict"], by_node["c"]["verdict"]) == ("UNSTABLE", "UNSTABLE")
    assert "its runs gave 364.8" in result["reason"]
    assert "differ by 50%, more than 15%; run 2 is the slow one." in result["reason"]
    assert "It was measured twice; the first runs gave 364.8" in result["reason"]
    assert (
        "Other use of the GPUs: c: GPU 0000:18:00.0 is 97 % busy with 41000 MiB in use by 4711 train.py"
        in result["reason"]
    )


def test_runs_that_agree_the_second_time_pass_and_say_that_they_did_not_at_first(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(364.8), {"c": "h200:8"}, second_run=0.46, beside=("", BUSY, "", ""))
    settings = with_floors(node=300.0, rack=300.0)
    result, _ = measure(slurm, settings=settings).judged()
    assert result["verdict"] == "PASS"
    assert "in a second measurement (the runs of the first gave 364.8" in result["reason"]
    assert result["spread"] is not None
    assert result["spread"]["relative"] == 0


def test_a_job_that_fails_is_a_failure_with_its_own_words(measure: Measure) -> None:
    slurm = SimulatedSlurm(lambda nodes: None, {"a": "h200:1", "b": "h200:1"})
    result, _ = measure(slurm).judged()
    assert (result["verdict"], result["busbw_gb_per_s"], result["backend"]) == ("FAIL", None, "nccl-tests")
    assert "a: NCCL failure" in result["reason"]


def test_a_program_that_cannot_be_built_is_a_failure_and_no_job_follows(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(4.0), {"a": "h200:1", "b": "h200:1"}, prepared="FAILED")
    result, _ = measure(slurm).judged()
    assert folders(slurm) == ["prepare-h200-1"]
    assert (result["verdict"], result["busbw_gb_per_s"]) == ("FAIL", None)


def test_a_missing_run_or_a_log_that_proves_nothing_is_no_complete_measurement(measure: Measure) -> None:
    short, silent = two(measure), two(measure, between=())
    short.report["repeats"].pop()
    for run, reason in (
        (short, "2 runs were found instead of 3"),
        (silent, "does not show which transport carried the data"),
    ):
        result, _ = run.judged()
        assert result["verdict"] == "INCONCLUSIVE"
        assert reason in result["reason"]


def test_an_impossible_or_missing_request_passes_nothing_and_does_not_stop_the_program(measure: Measure) -> None:
    run = two(measure)
    keys = ("min_bytes", "max_bytes", "factor", "gate_bytes", "ranks", "nodes", "runs")
    impossible = [{**run.report["asked"], key: value} for key in keys for value in (math.inf, 1.5, True, 10**400)]
    for asked in (*impossible, None, "all", {}, {"backend": "nccl-tests"}, {"min_bytes": 8}):
        run.report["asked"] = asked
        assert run.judged()[0]["verdict"] == "INCONCLUSIVE", asked


@pytest.mark.parametrize(("meshed", "verdict"), [(True, "FAIL"), (False, "UNJUDGED"), (None, "UNJUDGED")])
def test_one_pair_without_nvlink_beside_others_does_not_switch_the_kinds_floor_off(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, meshed: bool | None, verdict: str
) -> None:
    # What NCCL says of a ring that passes such a pair.
    monkeypatch.setattr(results, "read_transport", lambda *_: Transport("NVLink, SHM", None))
    there = {**NO_RDMA, "gpus": ["NODE", "NV18"], "meshed": meshed}
    slurm = SimulatedSlurm(steady(30.0), {"a": "h200:4"}, there=there)
    result, _ = measure(slurm, {"a": "x"}).judged()
    assert result["verdict"] == verdict
    assert (result["floor_gb_per_s"] is not None) == (verdict == "FAIL")


def suspect(node: str = "a", busbw: object = 1) -> dict[str, object]:
    return {"nodes": [node], "busbw_gb_per_s": busbw, "reference_gb_per_s": 1, "reason": ""}


def test_any_report_gives_a_result_and_a_broken_report_never_passes(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(4.0), {"a": "h200:1", "b": "h200:1"})
    run = measure(slurm, settings=with_floors(rack=1.0, node=1.0))
    assert run.judged()[0]["verdict"] == "PASS"
    good, esc, one = dict(run.report), "\x1b[2J", "h200:1"
    damages: dict[str, list[object]] = {
        "gpus": ["h200:2", {"a": None}, {"a": one, "b": one + esc}, {"a": one, f"b{esc}": one}],
        "alone": [[{"gpus": {"a": "h200:2"}}], 7],
        "others": [[None]],
        "suspects": [[{"nodes": ["a"]}], ["a"], [suspect(busbw=10**400)], [suspect(busbw="nan")], [suspect(esc)]],
        "absent": [["a"], {esc: "down"}],
        "nodes": ["a", ["a", f"b{esc}"], ["a", "\ud800"]],
        "repeats": [[1]],
        "job_id": [[]],
        "seconds": [-1, 10**400],
        "measured_at": [1e300],
        "left_out": ["a" * 100_000],
    }
    for key, values in damages.items():
        for value in values:
            run.report = {**good, key: value}
            assert run.judged()[0]["verdict"] in ("INCONCLUSIVE", "FAIL"), (key, value)


def test_a_jobs_preflight_knows_only_the_nodes_of_that_job(measure: Measure) -> None:
    slurm = SimulatedSlurm(steady(4.0), {"a": "h200:1", "b": "h200:1", "c": "h200:2"})
    measure(slurm, {"a": "rack", "b": "rack", "c": "box"})
    about = {order.nodes: order.files["about.json"] for order in slurm.orders if "about.json" in order.files}
    told = {nodes: tuple(json.loads(text)["nodes"]) for nodes, text in about.items()}
    assert told == {("a", "b"): ("a", "b"), ("c",): ("c",)}


def test_a_jobs_folder_is_emptied_and_stays_the_same_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "rack"
    (folder / "prepare").mkdir(parents=True)
    (folder / "prepare" / "output").write_text("old")
    (folder / "loop").symlink_to(tmp_path)
    (folder / "old").write_text("old")
    seen = folder.stat().st_ino
    monkeypatch.setattr(slurm_jobs, "attempt", lambda *_, **__: Ended(0, "7\n"))
    slurm_jobs._submit(Order(folder, ("a",), {"job.sh": "true"}))
    assert {path.name for path in folder.iterdir()} == {"job.sh", "repeat", "tailrack.pyz"}
    assert folder.stat().st_ino == seen
    assert tmp_path.is_dir()


def test_a_verdict_uses_complete_exact_figures_or_else_the_printed_table() -> None:
    sizes, nodes = [(8 * GIB, 35293.123456, 35290.5)], 2
    exact = nccl_tests.table(json.loads(json.dumps(written(sizes, nodes)), parse_int=str, parse_float=str))
    printed = exact.replace("35293.123456", "35293.1") + "# Reducing maxBytes to 1 due to memory limitation\n"
    assert printed_as(exact, printed) == exact + "# Reducing maxBytes to 1 due to memory limitation\n"
    for damaged in ("", exact[:-30], exact.replace("35293.123456", "3.123456"), exact + exact, "{}"):
        assert printed_as(damaged, printed) == printed


def printed_as(exact: str, printed: str) -> str:
    report = {"state": "COMPLETED", "exit_code": 0, "output": "", "files": {"table.1": printed, "figures.1": exact}}
    return str(figures.with_tables(report)["output"])
