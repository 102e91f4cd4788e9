"""Role datasets: the plan of the head node, a node's copies, and what people see."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from components.node import files
from components.node.failure import Failure
from components.roles.datasets import catalog, compute, feature, head_run, paths, rclone, services, stage
from components.roles.datasets.catalog import Source
from components.roles.datasets.copying import Copying
from components.roles.datasets.data_files import listed, sum_of
from components.roles.datasets.known import Known
from components.roles.datasets.model import (
    COMPLETE,
    COPIES,
    FETCHES,
    SUMS,
    WAITS,
    Entry,
    Member,
    Plan,
    PlannedSet,
    Progress,
    files_name,
    read_entries,
    read_plan,
    read_status,
    size_text,
    sums_name,
    write_entries,
)
from components.roles.datasets.planning import missing, planned
from components.roles.datasets.transfer import addresses
from components.roles.datasets.versions import Home
from components.roles.tailrack_command import data
from components.roles.tailrack_command.slurm import SlurmError
from tests.unit.shell import Shell

V1, V2 = "0123456789ab", "ba9876543210"
PROJECT = Path(__file__).parents[4]
NODES = {
    "a1": Member("rack", "100.64.0.2", [["rack/a1/eth1/1", 5, "10.0.0.1"]]),
    "a2": Member("rack", "100.64.0.3", [["rack/a1/eth1/1", 5, "10.0.0.2"]]),
    "b1": Member("cloud", "100.64.0.4"),
}
WANTED = PlannedSet("words", "share", "/data", None, V1, 6, 2)
TEXTS = {"a.txt": b"one", "b/c.txt": b"two"}
ENTRIES = [Entry(name, len(text), hashlib.sha256(text).hexdigest()) for name, text in TEXTS.items()]


def status(**nodes: tuple[str, int]) -> dict[str, dict[str, Progress]]:
    return {name: {"words": Progress(V1, state, done)} for name, (state, done) in nodes.items()}


# The plan


def test_one_node_of_each_site_fetches() -> None:
    one = planned(WANTED, None, NODES, {}, {"a1", "a2", "b1"})
    assert one.fetchers == {"rack": "a1", "cloud": "b1"}
    assert missing(one, NODES) == ["a1", "a2", "b1"]


def test_sites_that_the_data_set_does_not_name_get_nothing() -> None:
    one = planned(replace(WANTED, sites=["cloud"]), None, NODES, {}, {"a1", "b1"})
    assert one.fetchers == {"cloud": "b1"}
    assert missing(one, NODES) == ["b1"]


def test_the_fetching_node_stays_until_it_no_longer_answers() -> None:
    before = replace(WANTED, fetchers={"rack": "a2"})
    assert planned(WANTED, before, NODES, {}, {"a1", "a2"}).fetchers["rack"] == "a2"
    assert planned(WANTED, before, NODES, {}, {"a1"}).fetchers["rack"] == "a1"
    assert planned(WANTED, before, NODES, {}, set()).fetchers["rack"] == "a2"


def test_the_node_that_has_most_becomes_the_next_fetching_node() -> None:
    rows = status(a1=(WAITS, 0), a2=(COPIES, 5))
    assert planned(WANTED, None, NODES, rows, {"a1", "a2"}).fetchers["rack"] == "a2"


def test_only_nodes_with_the_present_version_that_answer_are_sources_for_others() -> None:
    rows = status(a1=(COMPLETE, 6), a2=(COMPLETE, 6))
    assert planned(WANTED, None, NODES, rows, {"a1"}).complete == ["a1"]
    assert planned(replace(WANTED, version=V2), None, NODES, rows, {"a1", "a2"}).complete == []


def test_a_node_copies_over_the_fabric_first_and_over_the_tailnet_otherwise() -> None:
    assert addresses(NODES["a1"], NODES["a2"]) == [("10.0.0.2", 6815), ("100.64.0.3", 6814)]
    assert addresses(NODES["b1"], NODES["a2"]) == [("100.64.0.3", 6814)]


# Texts of other machines


@pytest.mark.parametrize(
    "row",
    [
        ["../x", 1, ""],
        ["/etc/passwd", 1, ""],
        ["a/../b", 1, ""],
        ["a\nb", 1, ""],
        ["", 1, ""],
        ["a", -1, ""],
        ["a", True, ""],
        ["a", 1, "abc"],
        ["a", 1],
        "text",
    ],
)
def test_a_list_with_a_line_that_leads_elsewhere_or_is_malformed_is_refused(row: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_entries(json.dumps(row))


def test_a_list_survives_writing_and_reading() -> None:
    entries = [*ENTRIES, Entry("ä 'x'", 0)]
    assert read_entries(write_entries(entries)) == entries


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sets": [1]}', '{"sets": {"words": {}}}', '{"sets": {"../x": {}}}'])
def test_a_malformed_state_of_a_node_counts_as_none(text: str) -> None:
    assert read_status(text) == {}


def test_a_nodes_error_is_shown_without_control_characters() -> None:
    row = {"version": V1, "state": "failed", "done": 0, "error": "a\x1b[2Jb\n", "source": ""}
    assert read_status(json.dumps({"sets": {"words": row}}))["words"].error == "a[2Jb"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000_000, "2.0 GB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes_are_shown_with_powers_of_a_thousand(size: int, text: str) -> None:
    assert size_text(size) == text


# Files


def test_special_files_and_files_behind_links_that_lead_out_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    assert [(path, size) for path, size, _ in listed(str(tmp_path))] == [("folder/file", 1)]
    (tmp_path / "link").symlink_to("/etc/passwd")
    folder = str(tmp_path)
    for path in ("link", "pipe", "missing", "../x"):
        assert sum_of(folder, path) == (-1, "")
    assert sum_of(folder, "folder/file") == (1, hashlib.sha256(b"x").hexdigest())


def test_links_that_stay_inside_count_as_their_files_and_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0a").write_bytes(b"{}")
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "config.json").symlink_to("../blobs/0a")
    (tmp_path / "main").symlink_to("snapshots")
    rows = [(path, size) for path, size, _ in listed(str(tmp_path))]
    assert rows == [("blobs/0a", 2), ("main/config.json", 2), ("snapshots/config.json", 2)]
    assert sum_of(str(tmp_path), "main/config.json") == (2, hashlib.sha256(b"{}").hexdigest())
    for target in ("/etc/hostname", f"../{tmp_path.name}/blobs/0a", "nothing", ".", "outside"):
        (tmp_path / "outside").symlink_to(target)
        with pytest.raises(OSError, match="1 links lead to no file inside of the folder, such as 'outside'"):
            list(listed(str(tmp_path)))
        (tmp_path / "outside").unlink()


def test_a_link_in_the_place_of_a_folder_of_the_share_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"x")
    (tmp_path / "share").mkdir()
    (tmp_path / "share" / "words").symlink_to("../elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        list(listed(f"{tmp_path}/share/./words"))
    assert sum_of(f"{tmp_path}/share/./words", "file") == (-1, "")


@pytest.mark.parametrize("secret", ["`a", "a#b;c", "ab%(type)scd", "'a\"b\\$HOME"])
def test_rclone_gets_keys_as_they_are_and_none_in_a_file_of_its_format(machine: Shell, secret: str) -> None:
    variable = "RCLONE_CONFIG_SOURCE_SECRET_ACCESS_KEY"
    machine.stub("rclone", f'/usr/bin/printenv {variable} >{machine.path("/got")}; echo "[]"')
    keys = {"endpoint": "https://s3.lab", "region": "", "access_key": "k", "secret_key": secret}
    with machine.here():
        rclone.write_config("/etc/source", rclone.config("s3", "s3://bucket/a", **keys))
        assert rclone.entries("/etc/source") == []
    (call,) = [call for call in machine.calls if call.startswith("rclone ")]
    assert secret not in call
    assert call.startswith("rclone --config /dev/null lsjson")
    assert call.endswith(" source:bucket/a")
    assert machine.path("/got").read_text() == f"{secret}\n"


ROWS = '[{"Path": "a", "Size": 5, "ModTime": "2026-01-01T00:00:00Z"}]'
MORE = '[{"Path": "a", "Size": -1, "ModTime": ""}, {"Path": "b", "Size": -1, "ModTime": ""}]'


def test_a_web_servers_list_without_the_sizes_of_all_files_is_refused(machine: Shell) -> None:
    machine.stub("rclone", f"case $* in *--http-no-head*) echo '{MORE}' ;; *) echo '{ROWS}' ;; esac")
    with machine.here():
        rclone.write_config("/etc/source", rclone.config("https", "https://host/set/", **NO_KEYS))
        with pytest.raises(Failure, match="lists 1 files and reports no size of them, such as b"):
            rclone.entries("/etc/source")


def test_one_file_of_a_web_server_needs_no_list_of_its_folder(machine: Shell) -> None:
    row = ROWS.strip("[]")
    machine.stub("rclone", f"case $* in *--stat*source:a.tar) echo '{row}' ;; *) exit 1 ;; esac")
    with machine.here():
        rclone.write_config("/etc/source", rclone.config("https", "https://host/sets/a.tar", **NO_KEYS))
        assert [row[:2] for row in rclone.entries("/etc/source")] == [("a.tar", 5)]


# The head node


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine whose account of data sets is the one of the test."""
    shell.stub("runuser", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    module = "components.roles.datasets.data_files"
    code = f"import sys; sys.path.insert(0, '{PROJECT}'); from {module} import main; sys.exit(main(sys.argv[1:]))"
    shell.write(paths.FILES_PROGRAM, f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n').chmod(0o755)
    shell.write("/etc/passwd", f"{paths.ACCOUNT}:x:{os.getuid()}:{os.getgid()}::/:/bin/sh\n")
    shell.write("/etc/group", f"{paths.ACCOUNT}:x:{os.getgid()}:\n")
    for name in ("mkdir", "mv", "du"):
        (shell.root / "stubs" / name).unlink(missing_ok=True)
        (shell.root / "stubs" / name).symlink_to(f"/usr/bin/{name}")
    return shell


NO_KEYS = {"endpoint": "", "region": "", "access_key": "", "secret_key": ""}
SOURCE = Source("words", "share", "/export/shared/words", "/shared/words", None, "/data", 0, "", "", "")


def at_source(machine: Shell, texts: dict[str, bytes]) -> None:
    for name, text in texts.items():
        machine.write(f"/export/shared/words/{name}", text.decode())


def test_a_source_on_the_share_is_listed_with_its_sums(machine: Shell) -> None:
    at_source(machine, TEXTS)
    with machine.here():
        result = catalog.keep_listed(SOURCE, 3600)
        text = files.read(f"{paths.PLAN}/{files_name('words', result.version)}")
    assert (result.bytes, result.count, result.error) == (6, 2, "")
    assert read_entries(text or "") == ENTRIES


def test_a_source_that_changes_becomes_another_version_when_it_is_listed_again(machine: Shell) -> None:
    at_source(machine, TEXTS)
    with machine.here():
        first = catalog.keep_listed(SOURCE, 3600)
        at_source(machine, {"d.txt": b"three"})
        assert catalog.keep_listed(SOURCE, 3600) == first
        files.write(f"{paths.FETCHED}/words.again", "")
        second = catalog.keep_listed(SOURCE, 3600)
    assert second.version != first.version
    assert second.count == 3


@pytest.mark.parametrize(
    ("source", "texts", "error"),
    [
        (SOURCE, {}, "No such file"),
        (replace(SOURCE, most=5), TEXTS, "more than max_gb"),
        (SOURCE, {"a\nb": b"x"}, "an unusual name"),
    ],
)
def test_a_source_that_cannot_be_used_is_named_and_the_last_version_stays(
    machine: Shell, source: Source, texts: dict[str, bytes], error: str
) -> None:
    with machine.here():
        files.write(f"{paths.FETCHED}/words.json", json.dumps({"version": V1, "bytes": 1, "count": 1}))
        at_source(machine, texts)
        result = catalog.keep_listed(source, 3600)
    assert error in result.error
    assert result.version == V1


def test_the_sums_of_a_fetching_node_are_published_if_they_belong_to_the_list(machine: Shell) -> None:
    one = replace(WANTED, fetchers={"rack": "a1", "cloud": "b1"})
    path, states = f"{paths.PLAN}/{files_name('words', V1)}", f"{paths.STATE}/nodes"
    without = [Entry(entry.path, entry.size) for entry in ENTRIES]
    with machine.here():
        files.write(path, write_entries(without))
        files.write(f"{states}/a1/{sums_name('words', V1)}", write_entries(ENTRIES[:1]))
        head_run.adopt_sums(one, V1)
        assert read_entries(files.read(path) or "") == without
        files.write(f"{states}/b1/{sums_name('words', V1)}", write_entries(ENTRIES))
        head_run.adopt_sums(one, V1)
        assert read_entries(files.read(path) or "") == ENTRIES


def test_the_plan_survives_writing_and_reading() -> None:
    plan = Plan(0, 0, 10, "100.64.0.1", [WANTED], NODES)
    assert (
        read_plan(json.dumps({**vars(plan), "sets": [vars(WANTED)], "nodes": {n: vars(m) for n, m in NODES.items()}}))
        == plan
    )


# A node


def copying(
    machine: Shell, node: str = "a1", one: PlannedSet = WANTED, **limits: int
) -> tuple[Copying, list[Progress]]:
    shown: list[Progress] = []
    plan = Plan(0, limits.get("quota", 0), limits.get("reserve", 0), "100.64.0.1", [one], NODES)
    with machine.here():
        known = Known.read()
        if not files.exists(f"{paths.FROM_HEAD}/{files_name('words', V1)}"):
            files.write(f"{paths.FROM_HEAD}/{files_name('words', V1)}", write_entries(ENTRIES))
    return Copying(node, plan, one, known, shown.append, limits.get("taken", 0)), shown


def rsync(machine: Shell, texts: dict[str, bytes] = TEXTS, then: str = "") -> None:
    """Let rsync copy these files."""
    for name, text in texts.items():
        machine.write(f"/peer/{name}", text.decode())
    machine.stub("rsync", f'cp -rT {machine.path("/peer")} "${{@: -1}}"; {then}')


FETCHING = replace(WANTED, fetchers={"rack": "a1"})


def test_a_complete_copy_gets_its_name_and_the_link(machine: Shell) -> None:
    rsync(machine)
    work, states = copying(machine, one=FETCHING)
    with machine.here():
        work.bring()
    assert machine.path("/data/words/b/c.txt").read_bytes() == b"two"
    assert machine.path("/data/words").readlink() == Path(f".tailrack-data/words/{V1}")
    assert [one.state for one in states] == [FETCHES, SUMS, COMPLETE]


def test_a_node_that_does_not_fetch_waits_and_then_copies_from_its_neighbour(machine: Shell) -> None:
    rsync(machine)
    work, states = copying(machine, "a2", FETCHING)
    with machine.here():
        work.bring()
    assert states[-1] == Progress(V1, WAITS, 0, "", "a1")
    assert not machine.path("/data/words").exists()
    work, states = copying(machine, "a2", replace(FETCHING, complete=["a1", "b1"]))
    with machine.here():
        work.bring()
    assert states[-1].state == COMPLETE
    (call,) = [call for call in machine.calls if call.startswith("rsync ")]
    assert f"rsync://tailrack@10.0.0.1:6815/set-words/{V1}/" in call


def test_a_node_that_its_neighbour_does_not_know_yet_tries_again_and_then_uses_the_tailnet(
    machine: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr("components.roles.datasets.transfer.now", lambda: seconds[0])
    monkeypatch.setattr(
        "components.roles.datasets.transfer.sleep", lambda pause: seconds.__setitem__(0, seconds[0] + pause)
    )
    refuse = 'case "$*" in *:6815/*) echo "@ERROR: Unknown module" >&2; exit 5;; esac'
    rsync(machine)
    stub = machine.root / "stubs" / "rsync"
    stub.write_text(stub.read_text().replace("cp -rT", f"{refuse}; cp -rT"))
    work, states = copying(machine, "a2", replace(FETCHING, complete=["a1"]))
    with machine.here():
        work.bring()
    assert states[-1].state == COMPLETE
    calls = [call for call in machine.calls if call.startswith("rsync ")]
    assert len([call for call in calls if ":6815/" in call]) > 10
    assert len([call for call in calls if ":6814/" in call]) == 1


@pytest.mark.parametrize(("failing", "error"), [(30, False), (200, True)])
def test_up_fails_only_if_a_copy_fails_again_and_again(
    machine: Shell, monkeypatch: pytest.MonkeyPatch, failing: int, error: bool
) -> None:
    seconds = [0]

    def complete(host: str, names: list[str]) -> bool:
        seconds[0] += 10
        if seconds[0] < failing:
            raise Failure("refused")
        return True

    monkeypatch.setattr(compute, "all_complete", complete)
    monkeypatch.setattr(compute, "now", lambda: seconds[0])
    monkeypatch.setattr(compute, "wait_until", lambda done, *_: any(done() for _ in range(100)))
    with machine.here():
        if error:
            with pytest.raises(Failure, match="refused"):
                compute._wait_for("a1", ["words"])
        else:
            compute._wait_for("a1", ["words"])


def test_files_that_do_not_fit_are_copied_again_and_never_kept(machine: Shell) -> None:
    rsync(machine, {**TEXTS, "a.txt": b"bad"})
    work, _ = copying(machine, one=FETCHING)
    with machine.here(), pytest.raises(Failure, match=r"1 files do not fit their sums, such as a\.txt"):
        work.bring()
    assert len([call for call in machine.calls if call.startswith("rsync ")]) == 2
    assert not machine.path("/data/words").exists()


def test_the_first_fetching_node_reports_its_sums_and_waits_for_the_head_node(machine: Shell) -> None:
    rsync(machine)
    with machine.here():
        without = [Entry(entry.path, entry.size) for entry in ENTRIES]
        files.write(f"{paths.FROM_HEAD}/{files_name('words', V1)}", write_entries(without))
    work, states = copying(machine, one=FETCHING)
    with machine.here():
        work.bring()
        assert read_entries(files.read(f"{paths.HERE}/{sums_name('words', V1)}") or "") == ENTRIES
    assert states[-1].state == WAITS
    with machine.here():
        files.write(f"{paths.FROM_HEAD}/{files_name('words', V1)}", write_entries(ENTRIES))
    work, states = copying(machine, one=FETCHING)
    with machine.here():
        work.bring()
    assert states[-1].state == COMPLETE
    assert len([call for call in machine.calls if call.startswith("rsync ")]) == 1


def test_damaged_files_are_copied_again_when_all_are_read(machine: Shell) -> None:
    rsync(machine)
    work, _ = copying(machine, one=FETCHING)
    with machine.here():
        work.bring()
        work.known.write()
    file = machine.path(f"/data/.tailrack-data/words/{V1}/a.txt")
    file.write_bytes(b"bad")
    work, _ = copying(machine, one=FETCHING)
    with machine.here():
        work.bring()
    assert file.read_bytes() == b"bad"  # not read before a week is over
    with machine.here():
        known = Known.read()
        known.forget_checks([])
        known.write()
    work, states = copying(machine, one=FETCHING)
    with machine.here():
        work.bring()
    assert file.read_bytes() == b"one"
    assert states[-1].state == COMPLETE


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"reserve": 2**62}, "the disk of /data on a1 is full: 6 B are needed"),
        ({"quota": 10, "taken": 5}, "it needs 6 B; 5 B of the quota of 10 B are left"),
    ],
)
def test_a_data_set_without_room_is_not_copied(machine: Shell, limits: dict[str, int], reason: str) -> None:
    rsync(machine)
    work, _ = copying(machine, "a1", FETCHING, **limits)
    with machine.here(), pytest.raises(Failure, match=reason) as failure:
        work.bring()
    assert failure.value.remedy
    assert not [call for call in machine.calls if call.startswith("rsync ")]


def test_a_failed_transfer_is_named_with_its_reason(machine: Shell) -> None:
    rsync(
        machine,
        then="echo '  3  50%  1MB/s'; echo 'rsync: [receiver] write failed: No space left on device (28)' >&2; exit 11",
    )
    work, states = copying(machine, one=FETCHING)
    with machine.here(), pytest.raises(Failure, match="No space left") as failure:
        work.bring()
    assert "df -h /data" in failure.value.remedy
    assert states[-1].done == 3


def write_plan(machine: Shell, one: PlannedSet) -> None:
    plan = Plan(0, 0, 0, "100.64.0.1", [one], NODES)
    with machine.here():
        files.write(f"{paths.FROM_HEAD}/{paths.PLAN_FILE}", json.dumps(asdict(plan)))


@pytest.mark.parametrize(
    ("state", "error", "result"),
    [
        (COMPLETE, "", True),
        (COPIES, "", False),
        ("failed", "no room; next: df", "words cannot be copied: no room; next: df"),
        ("", "", False),
    ],
)
def test_up_waits_until_a_node_has_its_data_sets_and_names_the_failure(
    machine: Shell, state: str, error: str, result: bool | str
) -> None:
    write_plan(machine, WANTED)
    with machine.here():
        if state:
            row = asdict(Progress(V1, state, 0, error))
            files.write(f"{paths.HERE}/{paths.STATUS_FILE}", json.dumps({"sets": {"words": row}}))
        if isinstance(result, bool):
            assert compute.all_complete("a1", ["words"]) == result
        else:
            with pytest.raises(Failure, match=result):
                compute.all_complete("a1", ["words"])


def test_up_names_a_source_that_cannot_be_listed_and_waits_for_a_plan(machine: Shell) -> None:
    with machine.here():
        assert not compute.all_complete("a1", ["words"])
    write_plan(machine, replace(WANTED, version="", error="access denied"))
    with machine.here(), pytest.raises(Failure, match="words cannot be copied: access denied"):
        compute.all_complete("a1", ["words"])
    write_plan(machine, replace(WANTED, sites=["cloud"]))
    with machine.here():
        assert compute.all_complete("a1", ["words"])


def test_a_folder_of_a_user_in_the_place_of_the_link_is_named_and_stays(machine: Shell) -> None:
    machine.write("/data/words/mine", "x")
    work, _ = copying(machine, one=FETCHING)
    with machine.here(), pytest.raises(Failure, match="exists on a1 and was not made by tailrack"):
        work.bring()
    assert machine.path("/data/words/mine").exists()


def versions(machine: Shell, *names: str) -> None:
    for name in names:
        machine.write(f"/data/.tailrack-data/words/{name}/a.txt", "one")
    machine.write(paths.FOLDERS, "/data\n")


@pytest.mark.parametrize(("oldest", "kept"), [(0.0, True), (None, True), (float("inf"), False)])
def test_a_replaced_version_stays_while_an_older_job_runs_or_slurm_is_silent(
    machine: Shell, monkeypatch: pytest.MonkeyPatch, oldest: float | None, kept: bool
) -> None:
    versions(machine, V1, V2)
    monkeypatch.setattr(stage, "oldest_job", lambda node: oldest)
    with machine.here():
        stage.remove_unused("a1", [WANTED], Known())
    assert machine.path(f"/data/.tailrack-data/words/{V2}").exists() == kept
    assert machine.path(f"/data/.tailrack-data/words/{V1}").exists()


def test_the_last_version_stays_until_the_new_one_is_complete(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    versions(machine, V2, f"{V1}.part", "00000000000a.part")
    monkeypatch.setattr(stage, "oldest_job", lambda node: float("inf"))
    known = Known()
    known.of("words").pointed = V2
    with machine.here():
        stage.remove_unused("a1", [WANTED], known)
        assert Home("/data", "words").versions() == [V2]
        assert Home("/data", "words").parts() == [V1]


def fetching_from_s3(machine: Shell, entries: list[Entry]) -> PlannedSet:
    """A node with the last version, whose source in S3 changed; rclone brings the file `b/c.txt` only."""
    machine.write(f"/data/.tailrack-data/words/{V2}/a.txt", "one")
    machine.write(paths.FOLDERS, "/data\n")
    machine.stub("rclone", 'for word; do folder=$word; done; mkdir -p "$folder/b"; printf two >"$folder/b/c.txt"')
    with machine.here():
        files.write(f"{paths.FROM_HEAD}/remote.words", rclone.config("s3", "s3://lab/words", **NO_KEYS))
        files.write(f"{paths.FROM_HEAD}/{files_name('words', V1)}", write_entries(entries))
        files.write(f"{paths.LISTS}/words.{V2}", write_entries([ENTRIES[0]]))
        known = Known.read()
        known.of("words").pointed = V2
        known.write()
    return replace(FETCHING, kind="s3")


def test_files_that_did_not_change_at_the_source_are_linked_from_the_last_version(machine: Shell) -> None:
    one = fetching_from_s3(machine, [Entry(entry.path, entry.size) for entry in ENTRIES])
    work, _ = copying(machine, one=one)
    with machine.here():
        work.bring()
        assert read_entries(files.read(f"{paths.HERE}/{sums_name('words', V1)}") or "") == ENTRIES
    versions = machine.path("/data/.tailrack-data/words")
    assert (versions / f"{V1}.part" / "a.txt").samefile(versions / V2 / "a.txt")
    (call,) = [call for call in machine.calls if call.startswith("rclone ")]
    assert " --fast-list " in call
    assert " --no-unicode-normalization " in call
    assert f"--compare-dest={versions / V2}" in call


def test_a_damaged_file_of_the_last_version_is_fetched_again(machine: Shell) -> None:
    one = fetching_from_s3(machine, [Entry(entry.path, entry.size) for entry in ENTRIES])
    machine.write(f"/data/.tailrack-data/words/{V2}/a.txt", "bad")
    work, _ = copying(machine, one=one)
    with machine.here():
        work.bring()
    calls = [call for call in machine.calls if call.startswith("rclone ")]
    assert ["--ignore-times" in call for call in calls] == [False, True]


@pytest.mark.parametrize("in_use", [True, False])
def test_without_other_room_the_last_version_is_taken_from_new_jobs_and_goes_once_none_uses_it(
    machine: Shell, monkeypatch: pytest.MonkeyPatch, in_use: bool
) -> None:
    versions(machine, V2)
    rsync(machine)
    known = Known()
    known.of("words").pointed = V2
    with machine.here():
        known.write()
        Home("/data", "words").point_to(V2)
    monkeypatch.setattr("components.roles.datasets.room.used", lambda folder: 10)
    monkeypatch.setattr(stage, "oldest_job", lambda node: 0.0 if in_use else float("inf"))
    work, states = copying(machine, "a1", FETCHING, quota=12)
    with machine.here():
        work.bring()
        assert states[-1] == Progress(V1, WAITS, 0, "", f"the end of jobs that may use {V2}")
        assert not files.kind_of("/data/words")
        stage.remove_unused("a1", [FETCHING], work.known)
    assert machine.path(f"/data/.tailrack-data/words/{V2}").exists() == in_use


def test_a_version_that_never_fits_leaves_the_last_one_alone(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    versions(machine, V2)
    with machine.here():
        known = Known()
        known.of("words").pointed = V2
        known.write()
        Home("/data", "words").point_to(V2)
    monkeypatch.setattr("components.roles.datasets.room.used", lambda folder: 1)
    work, _ = copying(machine, "a1", FETCHING, quota=5)
    with machine.here():
        with pytest.raises(Failure, match="it needs 6 B; 4 B of the quota of 5 B are left"):
            work.bring()
        assert files.kind_of("/data/words")


def test_a_data_set_that_is_not_wanted_any_more_goes_with_its_folders(
    machine: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions(machine, V1)
    monkeypatch.setattr(stage, "oldest_job", lambda node: float("inf"))
    with machine.here():
        stage.remove_unused("a1", [], Known())
    assert not machine.path("/data/.tailrack-data").exists()


def test_features_are_set_when_they_change_and_now_and_then(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    answers = [False, True, True, True]

    def update(node: str, role: str, features: list[str]) -> bool:
        calls.append(features)
        return answers.pop(0)

    monkeypatch.setattr(feature, "set_live_features", update)
    with machine.here():
        feature.set_features("a1", [])
        for _ in range(3):
            feature.set_features("a1", ["words"])
        assert calls == [["data-words"]] * 2  # Slurm was silent at first
        os.utime(machine.path(paths.FEATURES), (1, 1))
        feature.set_features("a1", ["words"])
        feature.set_features("a1", [])
        feature.set_features("a1", [])
    assert calls == [["data-words"]] * 3 + [[]]


# What people see


def shown(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    row = {
        "name": "words",
        "source": "/shared/words",
        "folder": "/data",
        "version": V1,
        "bytes": 6,
        "files": 2,
        "error": "",
    }
    return {**row, "nodes": [*nodes], **more}


def node(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "node": name,
        "site": "rack",
        "answers": True,
        "version": V1,
        "state": state,
        "done": 3,
        "error": "",
        "source": "",
        **more,
    }


def test_the_command_shows_sizes_nodes_progress_and_errors() -> None:
    rows = [
        node("a1", COMPLETE),
        node("a2", COPIES, source="a1"),
        node("a3", "failed", error="no room; next: df"),
        node("a4", WAITS),
    ]
    text = data.as_text([shown(*rows, error="access denied")], 0, 0)
    head, line, *details = text.splitlines()
    assert head.split() == ["NAME", "VERSION", "SIZE", "FILES", "NODES", "FOLDER", "SOURCE"]
    assert line.split() == ["words", V1, "6", "B", "2", "1/4", "/data", "/shared/words"]
    assert [detail.strip() for detail in details] == [
        "source: access denied",
        "a2: copies from a1, 50 %",
        "a3: no room; next: df",
        "a4: waits",
    ]


def test_the_exit_status_tells_whether_something_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    data.arguments(parser)

    def run(*words: str) -> int:
        return data.run(parser.parse_args([*words]))

    file = tmp_path / "report.json"
    monkeypatch.setattr(data, "REPORT", str(file))
    file.write_text(json.dumps({"time": 0, "sets": [shown(node("a1", COMPLETE))]}))
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out)["sets"][0]["name"] == "words"
    assert run("--watch") == 0
    with pytest.raises(SlurmError, match="there is no data set more"):
        run("more")
    file.write_text(json.dumps({"time": 0, "sets": [shown(node("a1", "failed"))]}))
    assert run() == 1
    file.unlink()
    with pytest.raises(SlurmError, match="tailrack:datasets"):
        run()


def test_a_complete_copy_stays_complete_while_a_pass_works_on_others(machine: Shell) -> None:
    row = asdict(Progress(V1, COMPLETE, 6))
    with machine.here():
        files.write(f"{paths.HERE}/{paths.STATUS_FILE}", json.dumps({"sets": {"words": row}}))
        assert stage.Report([WANTED]).rows["words"].state == COMPLETE
        assert stage.Report([replace(WANTED, version=V2)]).rows["words"].state == WAITS


def test_a_head_node_without_data_sets_keeps_nothing_of_them(machine: Shell) -> None:
    machine.stub("systemctl")
    for path in (paths.SETTINGS, paths.PASSWORD, f"{paths.PLAN}/{paths.PLAN_FILE}"):
        machine.write(path, "{}")
    with machine.here():
        services.remove_head()
    assert not machine.path(paths.STATE).exists()
