"""Role datasets: the plan of the head node, a node's copies, and what people see."""

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
from components.node.declared import Record
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.commands.tailrack import data
from components.roles.storage.datasets import copies, host, model, programs, sources, stage
from components.roles.storage.datasets.copies import Copy, Home
from components.roles.storage.datasets.plan import planned
from components.roles.storage.datasets.programs import read_row
from components.roles.storage.datasets.sources import Source
from components.slurm_commands.slurm import SlurmError
from tests.hub import COMMIT, LARGE, REPOSITORY, hub
from tests.unit.shell import Shell

V1, V2 = "0123456789ab", "ba9876543210"
PROJECT = Path(__file__).parents[4]
NODES = {
    "a1": model.Member("rack", "100.64.0.2", [["rack/a1/eth1/1", 5, "10.0.0.1"]]),
    "a2": model.Member("rack", "100.64.0.3", [["rack/a1/eth1/1", 5, "10.0.0.2"]]),
    "b1": model.Member("cloud", "100.64.0.4"),
}
WANTED = model.PlannedSet("words", "share", "/data", None, V1, 6, 2)
TEXTS = {"a.txt": b"one", "b/c.txt": b"two"}
TIME = "2026/01/01 00:00:00"
ENTRIES = [model.Entry(name, len(text), TIME, hashlib.sha256(text).hexdigest()) for name, text in TEXTS.items()]


def status(**nodes: tuple[str, str]) -> dict[str, dict[str, model.Progress]]:
    return {name: {"words": model.Progress(V1, state, sums=sums)} for name, (state, sums) in nodes.items()}


# The plan


def test_the_fetching_node_stays_until_it_no_longer_answers_and_one_that_has_begun_follows() -> None:
    before = replace(WANTED, fetchers={"rack": "a2"})
    for answering, fetcher in (({"a1", "a2"}, "a2"), ({"a1"}, "a1"), (set[str](), "a2")):
        assert planned(WANTED, before, NODES, {}, answering).fetchers["rack"] == fetcher, answering
    rows = status(a1=(model.WAITS, ""), a2=(model.COPIES, ""))
    assert planned(WANTED, None, NODES, rows, {"a1", "a2"}).fetchers["rack"] == "a2"
    # Others copy only from nodes that answer and have the sums of the first complete copy.
    rows = status(a1=(model.COMPLETE, "c" * 64), a2=(model.COMPLETE, "d" * 64))
    one = planned(WANTED, None, NODES, rows, {"a1"})
    assert (one.complete, one.sums) == (["a1"], "c" * 64)
    assert planned(WANTED, one, NODES, rows, {"a1", "a2"}).complete == ["a1"]
    assert planned(replace(WANTED, version=V2), one, NODES, rows, {"a1", "a2"}).complete == []


# Texts of other machines


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "a\nb", ""])
def test_a_list_with_a_line_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        model.read_entries(json.dumps([path, 1, "", ""]))


@pytest.mark.parametrize(
    "row", [["a", -1, "", ""], ["a", True, "", ""], ["a", 1, "", "abc"], ["a"], ["a", 1, 5, ""], "x"]
)
def test_a_list_with_a_malformed_line_is_refused(row: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        model.read_entries(json.dumps(row))


# Files


def test_links_and_special_files_and_those_with_another_size_or_sum_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    digest, folder = hashlib.sha256(b"x").hexdigest(), str(tmp_path)
    for row in (["link", 1, "", ""], ["pipe", 0, "", ""], ["missing", 0, "", ""], ["file", 2, "", ""]):
        assert read_row(folder, row)[1:] == [-1, "", ""]
    assert read_row(folder, ["file", 1, "", "0" * 64])[1:] == [-1, "", ""]
    assert read_row(folder, ["file", 1, "t", ""]) == ["file", 1, "t", digest]


LINES = """drwxr-xr-x        4096 2026/11/28 11:48:24 .
-rw-r--r--           2 2026/11/28 11:48:24 a  b
prw-r--r--           0 2026/11/28 11:48:24 pipe
-rw-r--r--  1234567890 2026/11/28 11:48:25 sub/\u00e4
"""


def test_a_folder_of_the_share_is_listed_by_the_server_that_confines_itself_to_it(machine: Shell) -> None:
    machine.stub("env", 'shift; exec "$@"')
    machine.stub("rsync", f"cat <<'END'\n{LINES}END")
    with machine.here():
        rows = [entry.key for entry in programs.rsync_list("rsync://head/source-words/")]
    assert rows == [("a  b", 2, "2026/11/28 11:48:24"), ("sub/\u00e4", 1234567890, "2026/11/28 11:48:25")]
    machine.stub("rsync", "cat <<'END'\n-rw-r--r-- 1 2026/11/28 11:48:24 new\\#012line\nEND")
    assert "unusual name" in machine.failure_of(programs.rsync_list, "rsync://head/source-words/")
    machine.stub("rsync", "echo 'symlink has no referent: \"abs\" (in words)' >&2; echo 'rsync error: x' >&2; exit 23")
    assert "no referent" in machine.failure_of(programs.rsync_list, "rsync://head/source-words/")


def test_rclone_gets_keys_as_they_are_and_none_in_a_file_of_its_format(machine: Shell) -> None:
    variable = "RCLONE_CONFIG_SOURCE_SECRET_ACCESS_KEY"
    machine.stub("rclone", f'/usr/bin/printenv {variable} >{machine.path("/got")}; echo "[]"')
    for secret in ("`a", "a#b;c", "ab%(type)scd", "'a\"b\\$HOME"):
        keys = {"endpoint": "https://s3.lab", "region": "", "access_key": "k", "secret_key": secret}
        machine.call(programs.write_config, "/etc/source", programs.rclone_config("s3", "s3://bucket/a", **keys))
        assert machine.call(programs.rclone_list, "/etc/source") == []
        call = [call for call in machine.calls if call.startswith("rclone ")][-1]
        assert secret not in call
        assert call.startswith("rclone --config /dev/null lsjson")
        assert call.endswith(" source:bucket/a")
        assert machine.path("/got").read_text() == f"{secret}\n"


SOURCE_ON_HUB = f"hf://{REPOSITORY}@{COMMIT}"
ROWS = '[{"Path": "a", "Size": 5, "ModTime": "2026-01-01T00:00:00Z"}]'
MORE = '[{"Path": "a", "Size": -1, "ModTime": ""}, {"Path": "b", "Size": -1, "ModTime": ""}]'


def test_a_web_server_lists_the_sizes_of_all_files_or_serves_one_file(machine: Shell) -> None:
    machine.stub("rclone", f"case $* in *--http-no-head*) echo '{MORE}' ;; *) echo '{ROWS}' ;; esac")
    machine.call(programs.write_config, "/etc/source", programs.rclone_config("https", "https://host/set/", **NO_KEYS))
    said = machine.failure_of(programs.rclone_list, "/etc/source")
    assert "lists 1 files and reports no size of them, such as b" in said
    row, address = ROWS.strip("[]"), "https://host/sets/a.tar"
    machine.stub("rclone", f"case $* in *--stat*source:a.tar) echo '{row}' ;; *) exit 1 ;; esac")
    machine.call(programs.write_config, "/etc/source", programs.rclone_config("https", address, **NO_KEYS))
    assert [entry.key[:2] for entry in machine.call(programs.rclone_list, "/etc/source")] == [("a.tar", 5)]


def test_a_repository_of_hugging_face_is_listed_in_pages_with_the_sums_of_its_large_files(machine: Shell) -> None:
    contents = {"a b.txt": b"one", "large/x.tar": b"x" * LARGE, "large/y.tar": b"y" * LARGE}
    with hub(contents, "hf_secret") as port:
        keys = {**NO_KEYS, "endpoint": f"http://localhost:{port}", "secret_key": "hf_secret"}
        for folder in ("", "/large"):
            config = programs.rclone_config("hf", f"hf://{REPOSITORY}@{COMMIT}{folder}", **keys)
            assert json.loads(config)["settings"]["url"].endswith(f"/{REPOSITORY}/resolve/{COMMIT}{folder}/")
        machine.call(programs.write_config, "/etc/source", programs.rclone_config("hf", SOURCE_ON_HUB, **keys))
        rows = machine.call(programs.hub_list, "/etc/source")
        large = hashlib.sha256(b"x" * LARGE).hexdigest()
        assert [(row.path, row.size) for row in rows] == [(path, len(text)) for path, text in contents.items()]
        assert [row.sum for row in rows][:2] == ["", large]
        assert not [call for call in machine.calls if "hf_secret" in call]
        machine.stub("rclone", "")
        machine.call(programs.rclone_copy, "/etc/source", "/data", "/paths", 0)
        (call,) = [call for call in machine.calls if call.startswith("rclone ")]
        assert "--no-traverse" in call
        assert " source: " in call
        wrong = programs.rclone_config("hf", SOURCE_ON_HUB, **{**keys, "secret_key": "another"})
        machine.call(programs.write_config, "/etc/source", wrong)
        said = machine.failure_of(programs.hub_list, "/etc/source")
        assert "HTTP Error 401" in said
        assert "another" not in said


# The head node


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine whose account of data sets is the one of the test."""
    shell.stub("runuser", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    module = "components.roles.storage.datasets.programs"
    code = (
        f"import sys; sys.path.insert(0, '{PROJECT}'); from {module} import work_with_files as main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    shell.write(model.FILES_PROGRAM, f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n').chmod(0o755)
    shell.write("/etc/passwd", f"{model.ACCOUNT}:x:{os.getuid()}:{os.getgid()}::/:/bin/sh\n")
    shell.write("/etc/group", f"{model.ACCOUNT}:x:{os.getgid()}:\n")
    for name in ("mkdir", "mv", "du", "rm", "sync", "xargs"):
        (shell.root / "stubs" / name).unlink(missing_ok=True)
        (shell.root / "stubs" / name).symlink_to(f"/usr/bin/{name}")
    return shell


NO_KEYS = {"endpoint": "", "region": "", "access_key": "", "secret_key": ""}
SOURCE = Source("words", "share", "/export/shared/words", "/shared/words", None, "/data", 0, "", "", "")


def at_source(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    monkeypatch.setattr(Source, "entries", lambda *_: [model.Entry(path, 3, TIME) for path in paths])


def listed(source: Source = SOURCE) -> sources.Listed:
    return sources.keep_listed(source, 3600, "100.64.0.1")


def test_a_changed_source_is_another_version_when_listed_again(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    at_source(monkeypatch, *TEXTS)
    with machine.here():
        first = listed()
        text = files.read(f"{model.PLAN}/{model.list_name('words', first.version)}")
        at_source(monkeypatch, *TEXTS, "d.txt")
        assert listed() == first
        files.write(f"{model.FETCHED}/words.again", "")
        second = listed()
    assert (first.bytes, first.count, first.error) == (6, 2, "")
    assert [entry.key for entry in model.read_entries(text or "")] == [entry.key for entry in ENTRIES]
    assert second.version != first.version
    assert second.count == 3


def test_a_source_that_cannot_be_used_is_named_and_the_last_version_stays(
    machine: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source, names, error in (
        (SOURCE, [], "no files"),
        (replace(SOURCE, most=5), [*TEXTS], "more than max_gb"),
        (SOURCE, ["a\nb"], "an unusual name"),
        (SOURCE, ["../b"], "an unusual name"),
    ):
        at_source(monkeypatch, *names)
        with machine.here():
            files.write(f"{model.FETCHED}/words.json", json.dumps({"version": V1, "bytes": 1, "count": 1}))
            result = listed(source)
        assert error in result.error, names
        assert "; next: check /shared/words" in result.error, names
        assert result.version == V1, names


# A node


def copy_of(
    machine: Shell, node: str = "a1", one: model.PlannedSet = WANTED, reserve: int = 0
) -> tuple[Copy, list[model.Progress]]:
    shown: list[model.Progress] = []
    with machine.here():
        path = f"{model.FROM_HEAD}/{model.list_name('words', V1)}"
        if not files.exists(path):
            files.write(path, model.write_entries([replace(entry, sum="") for entry in ENTRIES]))
    return Copy(node, model.Plan(0, reserve, "100.64.0.1", [one], NODES), one, shown.append), shown


def rsync(machine: Shell, texts: dict[str, bytes] = TEXTS, then: str = "") -> None:
    """Let rsync copy these files, and the list of sums of another node."""
    for name, text in texts.items():
        machine.write(f"/peer/{name}", text.decode())
    machine.write(f"/sums/{model.list_name('words', V1)}", model.write_entries(ENTRIES))
    machine.stub(
        "rsync",
        f'from={machine.path("/peer")}; case "$*" in *--link-dest*) exit 0;; */state/*) from={machine.path("/sums")};; '
        f'esac; cp -rT "$from" "${{@: -1}}"; {then}',
    )


def copies_by(machine: Shell, program: str) -> list[str]:
    return [call for call in machine.calls if call.startswith(f"{program} ") and "/state/" not in call]


FETCHING = replace(WANTED, fetchers={"rack": "a1"})
DIGEST = hashlib.sha256(model.write_entries(ENTRIES).encode()).hexdigest()


def test_a_complete_copy_gets_its_name_its_sums_and_the_link(machine: Shell) -> None:
    rsync(machine)
    work, states = copy_of(machine, one=FETCHING)
    with machine.here():
        work.bring()
        assert model.read_entries(files.read(Home("/data", "words").sums(V1)) or "") == ENTRIES
    assert machine.path("/data/words/b/c.txt").read_bytes() == b"two"
    assert machine.path("/data/words").readlink() == Path(f".tailrack-data/words/{V1}")
    assert [one.state for one in states] == [model.COPIES, model.SUMS, model.COMPLETE]
    assert states[-1].sums == DIGEST


def test_a_node_that_does_not_fetch_waits_and_then_copies_from_its_neighbour(machine: Shell) -> None:
    rsync(machine)
    work, states = copy_of(machine, "a2", FETCHING)
    machine.call(work.bring)
    assert states[-1] == model.Progress(V1, model.WAITS, "", "a1")
    assert not machine.path("/data/words").exists()
    work, states = copy_of(machine, "a2", replace(FETCHING, complete=["a1", "b1"], sums=DIGEST))
    machine.call(work.bring)
    assert states[-1].state == model.COMPLETE
    (call,) = copies_by(machine, "rsync")
    assert f"rsync://tailrack@10.0.0.1:6815/set-words/{V1}/" in call


def test_sums_or_files_that_the_head_node_does_not_vouch_for_are_refused(machine: Shell) -> None:
    near = replace(FETCHING, complete=["a1"], sums=DIGEST)
    for name, one, texts, problem in (
        ("a2", replace(near, sums="0" * 64), TEXTS, "a1 does not give its list of sums"),
        ("a2", near, {"a.txt": b"bad"}, "1 files do not fit their sums, such as a.txt"),
        ("a1", replace(FETCHING, sums=DIGEST), {**TEXTS, "a.txt": b"new"}, "the sums differ from other nodes'"),
    ):
        rsync(machine, texts)
        work, _ = copy_of(machine, name, one)
        assert problem in machine.failure_of(work.bring), problem
        assert not machine.path("/data/words").exists(), problem
    assert len(copies_by(machine, "rsync")) == 3


def test_a_node_that_does_not_answer_on_the_fabric_is_read_over_the_tailnet(machine: Shell) -> None:
    rsync(machine)
    stub = machine.root / "stubs" / "rsync"
    stub.write_text(stub.read_text().replace("from=", 'case "$*" in *:6815/*) exit 10;; esac; from=', 1))
    work, states = copy_of(machine, "a2", replace(FETCHING, complete=["a1"], sums=DIGEST))
    machine.call(work.bring)
    assert states[-1].state == model.COMPLETE
    assert [":6815/" in call for call in copies_by(machine, "rsync")] == [True, False]


@pytest.mark.parametrize(("failing", "error"), [(30, False), (200, True)])
def test_up_fails_if_copies_fail(machine: Shell, monkeypatch: pytest.MonkeyPatch, failing: int, error: bool) -> None:
    seconds = [0]

    def complete(host: str, names: list[str]) -> bool:
        seconds[0] += 10
        if seconds[0] < failing:
            raise Failure("refused")
        return True

    monkeypatch.setattr(host, "all_complete", complete)
    monkeypatch.setattr(host, "now", lambda: seconds[0])
    monkeypatch.setattr(host, "wait_until", lambda done, *_: any(done() for _ in range(100)))
    with machine.here():
        if error:
            with pytest.raises(Failure, match="refused"):
                host._wait_for("a1", ["words"])
        else:
            host._wait_for("a1", ["words"])


def test_damaged_files_are_copied_again_when_all_are_read(machine: Shell) -> None:
    rsync(machine)
    file = machine.path(f"/data/.tailrack-data/words/{V1}/a.txt")
    for asked, text in ((False, b"bad"), (True, b"one")):
        work, states = copy_of(machine, one=FETCHING)
        with machine.here():
            work.bring()
            file.write_bytes(b"bad")
            if asked:
                files.write(f"{copies.VERIFY}/words", "")
            work.bring()
        assert file.read_bytes() == text
        assert states[-1].state == model.COMPLETE


def test_a_copy_without_room_or_in_the_place_of_a_users_folder_is_refused(machine: Shell) -> None:
    rsync(machine, then="echo 'rsync: [receiver] write failed: No space left on device (28)' >&2; exit 11")
    for reserve, reason in ((2**62, "the disk of /data on a1 is full: 6 B are needed"), (0, "No space left")):
        work, _ = copy_of(machine, "a1", FETCHING, reserve)
        said = machine.failure_of(work.bring)
        assert reason in said
        assert "df -h /data" in said
    assert len(copies_by(machine, "rsync")) == 1
    machine.write("/data/words/mine", "x")
    work, _ = copy_of(machine, one=FETCHING)
    assert "exists on a1 and was not made by tailrack" in machine.failure_of(work.bring)
    assert machine.path("/data/words/mine").exists()


def write_plan(machine: Shell, one: model.PlannedSet) -> None:
    with machine.here():
        files.write(model.HEAD_ADDRESS, "100.64.0.1")
        files.write(
            f"{model.FROM_HEAD}/{model.PLAN_FILE}", json.dumps(asdict(model.Plan(0, 0, "100.64.0.1", [one], NODES)))
        )


def test_up_waits_until_a_node_has_its_data_sets_and_names_the_failure(machine: Shell) -> None:
    write_plan(machine, WANTED)
    with machine.here():
        assert not host.all_complete("a1", ["words"])
        report = stage.Report([WANTED])
        report.set("words", model.Progress(V1, "failed", "no room; next: df"))
        # It stays visible while the node tries again.
        report.set("words", model.Progress(V1, model.COPIES))
        with pytest.raises(Failure, match="words cannot be copied: no room; next: df"):
            host.all_complete("a1", ["words"])
        report.set("words", model.Progress(V1, model.COMPLETE))
        assert host.all_complete("a1", ["words"])
        assert stage.Report([WANTED]).rows["words"].state == model.COMPLETE
        assert stage.Report([replace(WANTED, version=V2)]).rows["words"].state == model.WAITS


def test_up_names_a_source_that_cannot_be_listed_and_waits_for_a_plan(machine: Shell) -> None:
    with machine.here():
        files.write(model.HEAD_ADDRESS, "100.64.0.1")
        assert not host.all_complete("a1", ["words"])
    write_plan(machine, replace(WANTED, version="", error="access denied"))
    assert "words cannot be copied: access denied" in machine.failure_of(host.all_complete, "a1", ["words"])
    write_plan(machine, replace(WANTED, sites=["cloud"]))
    assert machine.call(host.all_complete, "a1", ["words"])


def versions(machine: Shell, *names: str) -> None:
    for name in names:
        machine.write(f"/data/.tailrack-data/words/{name}/a.txt", "one")
    machine.write(copies.FOLDERS, "/data\n")


def test_a_replaced_version_stays_while_an_older_job_runs_or_slurm_is_silent(
    machine: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions(machine, V1, V2)
    for oldest, kept in ((0.0, True), (None, True), (float("inf"), False)):
        monkeypatch.setattr(copies, "oldest_job", lambda node, oldest=oldest: oldest)
        machine.call(copies.remove_unused, "a1", {Home("/data", "words"): V1})
        assert machine.path(f"/data/.tailrack-data/words/{V2}").exists() == kept, oldest
        assert machine.path(f"/data/.tailrack-data/words/{V1}").exists()
    # An unwanted data set goes with its folders.
    machine.call(copies.remove_unused, "a1", {})
    assert not machine.path("/data/.tailrack-data").exists()


def test_files_that_did_not_change_at_the_source_are_linked_and_damaged_ones_fetched_again(machine: Shell) -> None:
    versions(machine, V2)
    machine.stub("rclone", 'for word; do folder=$word; done; mkdir -p "$folder/b"; printf two >"$folder/b/c.txt"')
    machine.stub("rsync", f'ln {machine.path(f"/data/.tailrack-data/words/{V2}/a.txt")} "${{@: -1}}"')
    home = Home("/data", "words")
    with machine.here():
        files.write(f"{model.FROM_HEAD}/remote.words", programs.rclone_config("s3", "s3://lab/words", **NO_KEYS))
        files.write(home.sums(V2), model.write_entries([ENTRIES[0]]))
        files.link(home.link, f".tailrack-data/words/{V2}")
    work, _ = copy_of(machine, one=replace(FETCHING, kind="s3"))
    with machine.here():
        work.bring()
        assert model.read_entries(files.read(home.sums(V1)) or "") == ENTRIES
    place = machine.path("/data/.tailrack-data/words")
    assert (place / V1 / "a.txt").samefile(place / V2 / "a.txt")
    (call,) = copies_by(machine, "rclone")
    assert " --fast-list " in call
    assert " --no-unicode-normalization " in call


def test_features_are_set_when_they_change_and_now_and_then(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    answers = [False, True, True, True]

    def update(node: str, role: str, features: list[str]) -> bool:
        calls.append(features)
        return answers.pop(0)

    monkeypatch.setattr(stage, "set_live_features", update)
    with machine.here():
        stage.set_features("a1", [])
        for _ in range(3):
            stage.set_features("a1", ["words"])
        assert calls == [["data-words"]] * 2  # Slurm was silent at first
        os.utime(machine.path(stage.FEATURES), (1, 1))
        stage.set_features("a1", ["words"])
        stage.set_features("a1", [])
        stage.set_features("a1", [])
    assert calls == [["data-words"]] * 3 + [[]]


# What people see


def shown(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    row = {"name": "words", "source": "/shared/words", "folder": "/data", "version": V1, "bytes": 6, "files": 2}
    return {**row, "error": "", "nodes": [*nodes], **more}


def node(name: str, state: str, **more: Any) -> dict[str, Any]:
    row = {"node": name, "site": "rack", "answers": True, "version": V1, "state": state, "error": "", "source": ""}
    return {**row, **more}


def test_the_command_shows_sizes_nodes_progress_and_errors() -> None:
    rows = [
        node("a1", model.COMPLETE),
        node("a2", model.COPIES, source="a1"),
        node("a3", "failed", error="no room; next: df"),
        node("a4", model.WAITS),
    ]
    text = data.as_text([shown(*rows, error="access denied")], 0, 0)
    head, line, *details = text.splitlines()
    assert head.split() == ["NAME", "VERSION", "SIZE", "FILES", "NODES", "FOLDER", "SOURCE"]
    assert line.split() == ["words", V1, "6", "B", "2", "1/4", "/data", "/shared/words"]
    assert [detail.strip() for detail in details] == [
        "source: access denied",
        "a2: copies from a1",
        "a3: no room; next: df",
        "a4: waits",
    ]


def test_a_failure_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    data.arguments(parser)

    def run(*words: str) -> int:
        return data.run(parser.parse_args([*words]))

    file = tmp_path / "report.json"
    monkeypatch.setattr(data, "REPORT", str(file))
    file.write_text(json.dumps({"time": 0, "sets": [shown(node("a1", model.COMPLETE))]}))
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out)["sets"][0]["name"] == "words"
    assert run("--watch") == 0
    with pytest.raises(SlurmError, match="there is no data set more"):
        run("more")
    file.write_text(json.dumps({"time": 0, "sets": [shown(node("a1", "failed", error="no room"))]}))
    assert run() == 1
    file.unlink()
    with pytest.raises(SlurmError, match="tailrack:datasets"):
        run()


def test_the_program_stays_while_it_has_to_remove_copies(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.stub("systemctl")
    monkeypatch.setattr(host, "one_pass", lambda: False)
    for homes in ([Home("/data", "words")], []):
        monkeypatch.setattr(host, "homes", lambda homes=homes: homes)
        with machine.here():
            record = Record("machine", {"compute/datasets": [model.STAGE_PROGRAM]})
            files.write(model.STAGE_PROGRAM, "x")
            files.write(model.HEAD_ADDRESS, "100.64.0.1")
            record = Record("machine", {"compute/datasets": []})
            record.begin("compute/datasets")
            host.compute(Step("a1", "a1-node", record=record), host.ComputeValues(False, [], ""))
            record.begin("")
        assert machine.path(model.STAGE_PROGRAM).exists() == bool(homes)
