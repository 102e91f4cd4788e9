"""The order of the parts in the measuring job, and the job's report. A stub replaces srun."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from components.validation import job_runs, storage_job, storage_node
from components.validation.storage_figures import read_storage

# srun as a program that reports a line for each node, or fails as FAILS says: `node part`.
STUB = """#!/bin/bash
for word; do
    case $word in --nodelist=*) nodes=${word#*=} ;; esac
done
words=("$@")
for index in "${!words[@]}"; do
    if [ "${words[index]}" = storage-node ]; then rest=("${words[@]:index+1}"); fi
done
name=$(sed 's/.*"name": "\\([a-z/]*\\)".*/\\1/' <<<"${rest[0]}")
echo "$name ${rest[1]} $nodes ${rest[2]:-}" >>"$CALLS"
for node in ${nodes//,/ }; do
    [ "$FAILS" != "$node ${rest[1]}" ] || { echo "srun: error: $node" >&2; continue; }
    [ "$READ_ONLY" != "$node ${rest[1]}" ] || only=', \"read_only\": true'
    echo "tailrack-storage {\\"node\\": \\"$node\\", \\"target\\": \\"$name\\", \\"direct\\": true$only}"
    only=
done
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    (programs / "srun").write_text(STUB, encoding="utf-8")
    (programs / "srun").chmod(0o755)
    calls.touch()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("FAILS", "")
    monkeypatch.setenv("READ_ONLY", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return calls


def target(name: str, nodes: list[str], **changes: Any) -> dict[str, Any]:
    place = {"place": storage_node.IN_JOB, "shared": True, "checkpoint": 0, "ranks": dict.fromkeys(nodes, 2), **changes}
    return {"name": name, "path": f"/{name}", "size": 2**20, "seconds": 2, **place}


def run(*targets: dict[str, Any], nodes: tuple[str, ...] = ("l1", "l2", "l3"), seconds: float = 20) -> None:
    plan = {"targets": targets, "nodes": nodes, "step_seconds": seconds}
    Path(storage_job.PLAN).write_text(json.dumps(plan), encoding="utf-8")
    assert storage_job.main([]) == 0


def parts(calls: Path) -> list[str]:
    """The parts in their order: target, part, nodes, and the node whose file is read."""
    return [" ".join(line.split()) for line in calls.read_text().splitlines()]


def of_share(calls: Path) -> str:
    assert all(part.startswith("share ") for part in parts(calls))
    return ", ".join(part.removeprefix("share ") for part in parts(calls))


def test_nodes_measure_a_shared_target_in_turn_and_read_another_nodes_files(calls: Path) -> None:
    run(target("share", ["l1", "l2", "l3"]))
    assert of_share(calls) == "write l1, write l2, read l2 l1, write l3, read l3 l2, read l1 l3"


def test_nodes_measure_their_own_disks_at_the_same_time_and_no_target_of_other_sites(calls: Path) -> None:
    run(target("scratch", ["l1", "l2", "l3"], shared=False, place=storage_node.IN_SCRATCH))
    assert parts(calls) == ["scratch all l1,l2,l3"]
    run(target("data", ["x9"]), target("share", ["l2", "x9"]))
    assert parts(calls)[1:] == ["share write l2", "share read l2 l2"]


def test_all_nodes_save_a_checkpoint_at_once_and_then_restore_it(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(target("share", ["l1", "l2"], checkpoint=2**20))
    assert of_share(calls).endswith("read l1 l2, save l1,l2, restore l1,l2")
    calls.write_text("")
    # Nodes that could not write have no part.
    monkeypatch.setenv("FAILS", "l2 write")
    run(target("share", ["l1", "l2"], checkpoint=2**20))
    assert of_share(calls).endswith("save l1, restore l1")
    calls.write_text("")
    monkeypatch.setenv("FAILS", "l2 save")
    run(target("share", ["l1", "l2"], checkpoint=2**20))
    assert of_share(calls).endswith("save l1,l2")


def test_a_node_that_cannot_write_is_named_and_others_measured(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "l2 write")
    run(target("share", ["l1", "l2", "l3"]))
    assert of_share(calls) == "write l1, write l2, write l3, read l3 l1, read l1 l3"
    figures = read_storage(Path("figures.0").read_text())
    assert figures["l2", "share"].problem == "its task ended without a figure"
    assert not figures["l3", "share"].problem


def test_a_node_that_may_only_read_reads_a_file_that_was_there(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READ_ONLY", "l2 write")
    run(target("/data", ["l1", "l2"]))
    assert parts(calls) == ["/data write l1", "/data write l2", "/data read l2 /", "/data read l1 l1"]
    # A mount that the first node lacks is cleaned on a node that has it.
    run(target("data", ["l2"], place=storage_node.IN_MOUNT))
    assert parts(calls)[-1] == "data clean l2"


def test_a_storage_that_hangs_is_named(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = calls.parent / "bin" / "srun"
    srun.write_text("#!/bin/bash\nexec sleep 60\n", encoding="utf-8")
    run(target("share", ["l1"]), nodes=("l1",), seconds=0.2)
    problem = read_storage(Path("figures.0").read_text())["l1", "share"].problem
    assert problem == "its task did not end within 0 s: does the storage answer there?"


def test_files_go_also_when_the_job_is_cancelled(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("data").mkdir()
    Path("data/l1").touch()

    def cancelled(*_: Any) -> bool:
        raise SystemExit(143)

    monkeypatch.setattr(storage_job.Task, "run", cancelled)
    with pytest.raises(SystemExit):
        run(target("share", ["l1"]))
    assert not Path("data").exists()


def test_the_job_spans_the_sites_of_its_nodes(tmp_path: Path) -> None:
    plan = {"sites": {"a1": "rack", "b1": "cloud", "b2": "cloud"}, "targets": [], "step_seconds": 9, "job": ""}
    order = job_runs.storage_order(plan, ["a1", "b1"], tmp_path)
    assert order.options == ["--ntasks=2", "--ntasks-per-node=1", "--switches=2"]
    assert json.loads(order.files["plan.json"])["nodes"] == ["a1", "b1"]
