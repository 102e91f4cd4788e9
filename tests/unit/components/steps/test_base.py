"""scripts/base.sh: the JSON a step prints, files that converge, the report of a failure."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.steps.composition import SCRIPTS, Script
from tests.unit.shell import Shell, bash_script

TEXTS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=12)


@settings(max_examples=40)
@given(TEXTS)
@example(["", "\\", '"', "\\n", "a\tb\r\nc", "$(id) `id` ${HOME} %s", "ü€𝄞", "'", "-n", "\n\n"])
@example([chr(code) for code in range(1, 33)] + ["\x7f", "\x1b[31mred\x1b[0m", "\u2028"])
def test_any_text_as_a_json_string_is_read_back_the_same(texts: list[str]) -> None:
    functions = (SCRIPTS / "base.sh").read_text(encoding="utf-8")
    told = subprocess.run(
        ["bash", "-euc", f'{functions}\nfor text; do json_string "$text"; echo; done', "bash", *texts],
        env={"HOST_NAME": "a1", "STEP_NAME": "test", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    assert [json.loads(line) for line in told.stdout.splitlines()] == texts


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ("", {}),
        ("result a 1", {"a": 1}),
        (
            "result cpus 4; result name '\"x y\"'; result ok true; result none null",
            {"cpus": 4, "name": "x y", "ok": True, "none": None},
        ),
    ],
)
def test_results_become_one_json_object(shell: Shell, results: str, expected: dict[str, object]) -> None:
    assert json.loads(run(shell, with_up(results or ":")).stdout) == expected


# Files that converge.


def ensure(
    shell: Shell, path: Path, text: str, mode: str = "0640", owner: str = "root:root", umask: str = "022"
) -> str:
    done = shell.call(
        'umask "$MASK"; CHANGED=; ensure_file "$FILE" "$FILE_MODE" "$FILE_OWNER" "$FILE_TEXT"\n'
        'echo "changed=$CHANGED"; [ "$(umask)" = "0$MASK" ]',
        {"FILE": str(path), "FILE_MODE": mode, "FILE_TEXT": text, "FILE_OWNER": owner, "MASK": umask},
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_a_missing_file_is_written_with_its_mode_owner_and_folder(shell: Shell) -> None:
    path = shell.root / "new folder" / "file"
    assert ensure(shell, path, "one\ntwo") == "changed=yes\n"
    assert path.read_text() == "one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_files_that_come_together_get_their_modes_and_places_from_one_process(shell: Shell) -> None:
    perl = shutil.which("perl")
    shell.stub("perl", f'exec {perl} "$@"')
    shell.write("etc/there", "two\n").chmod(0o600)
    names, modes = ("one", "there", "folder/three"), ("0640", "0644", "0755")
    files = " ".join(f"{shell.root}/etc/{name} {mode} root:root two" for name, mode in zip(names, modes, strict=True))
    done = shell.call(f'CHANGED=; ensure_files {files}; echo "changed=$CHANGED"', {})
    assert (done.returncode, done.stdout) == (0, "changed=yes\n"), done.stderr
    for name, mode in zip(names, modes, strict=True):
        path = shell.root / "etc" / name
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("two\n", int(mode, 8))
    assert len([call for call in shell.calls if call.startswith("perl ")]) == 1


def test_of_files_that_come_together_none_is_left_beside_its_place_where_one_cannot_be_written(shell: Shell) -> None:
    (shell.root / "etc/file").write_text("")
    files = (f"{shell.root}/etc/{name} 0644 root:root x" for name in ("one", "two", "file/three"))
    shell.stub("mkdir")
    done = shell.call(f"ensure_files {' '.join(files)}", {})
    assert done.returncode != 0
    assert sorted(path.name for path in (shell.root / "etc").iterdir()) == ["file"]


def test_of_files_that_come_together_a_folder_in_the_way_of_one_is_an_error(shell: Shell) -> None:
    (shell.root / "etc/folder").mkdir()
    done = shell.call(
        f"ensure_files {shell.root}/etc/one 0644 root:root x {shell.root}/etc/folder 0644 root:root x", {}
    )
    assert done.returncode != 0
    assert "folder: Is a directory" in done.stderr
    assert not list((shell.root / "etc/folder").iterdir())


@pytest.mark.parametrize("before", ["", "text\n"])
def test_a_file_of_another_owner_is_given_to_that_one(shell: Shell, before: str) -> None:
    path = shell.write("etc/file", before)
    ensure(shell, path, "text", owner="munge:munge")
    assert any(call.startswith(f"chown munge:munge {path}") for call in shell.calls)


@pytest.mark.skipif(os.geteuid() != 0, reason="nothing that is made here is root's")
def test_a_file_that_root_made_is_given_to_root_where_it_is_not_already(shell: Shell) -> None:
    ensure(shell, shell.root / "etc/file", "text")
    assert shell.calls == []
    # There all that is new is of the folder's group.
    folder = shell.root / "etc/shared"
    folder.mkdir()
    os.chown(folder, 0, 65534)
    folder.chmod(0o2755)
    ensure(shell, folder / "file", "text")
    assert any(call.startswith(f"chown root:root {folder}/file") for call in shell.calls)


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_nobody_else_can_read_a_file_before_it_has_its_mode(shell: Shell, umask: str) -> None:
    # put_in_place: perl -e PROGRAM MODE PATH NEW_PATH
    shell.stub("perl", f'{shutil.which("stat")} -c %a "$4" >>"{shell.root}/modes"; {shutil.which("perl")} "$@"')
    ensure(shell, shell.root / "etc/file", "secret", mode="0644", umask=umask)
    assert (shell.root / "modes").read_text() == "600\n"
    assert stat.S_IMODE((shell.root / "etc/file").stat().st_mode) == 0o644


def test_a_file_as_it_should_be_is_left_alone_but_for_its_mode(shell: Shell) -> None:
    path = shell.write("etc/file", "text\n")
    before = path.stat()
    path.chmod(0o777)
    assert ensure(shell, path, "text") == "changed=\n"
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert stat.S_IMODE(after.st_mode) == 0o640


@pytest.mark.parametrize("old", ["", "other\n", "text", "text\n\n", "text\n ", "tex\n"])
def test_a_file_that_differs_by_a_byte_is_replaced_by_a_new_one(shell: Shell, old: str) -> None:
    path = shell.write("etc/file", old)
    reader = path.open()  # somebody who reads the old file goes on reading it whole
    assert ensure(shell, path, "text") == "changed=yes\n"
    assert path.read_text() == "text\n"
    assert reader.read() == old
    reader.close()
    assert list(path.parent.iterdir()) == [path]  # nothing is left beside it


def test_a_file_that_goes_on_after_a_zero_byte_is_replaced(shell: Shell) -> None:
    path = shell.write("etc/file", "text\n\0more\n")
    assert ensure(shell, path, "text") == "changed=yes\n"
    assert path.read_text() == "text\n"


def test_a_second_time_changes_nothing(shell: Shell) -> None:
    path = shell.root / "etc/file"
    text = "quotes \" ' and $(id)\n\n  end  "
    assert ensure(shell, path, text) == "changed=yes\n"
    assert ensure(shell, path, text) == "changed=\n"
    assert path.read_text() == f"{text}\n"


def test_a_disk_that_is_full_leaves_the_old_file_whole_and_says_so(shell: Shell) -> None:
    path = shell.write("etc/file", "old\n")
    # A process that may write no more than 4 KiB into a file is told so like one whose disk is full.
    done = run(
        shell,
        with_up(f'trap "" XFSZ; ulimit -f 4; ensure_file {path} 0644 root:root "$(printf "%9000s" x)"'),
    )
    assert done.returncode == 1
    assert f"cannot write {path}" in done.stderr
    assert "next: make room on a1" in done.stderr
    assert path.read_text() == "old\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_step_that_fails_where_there_is_no_room_says_that_and_where(shell: Shell) -> None:
    # A process that may write no more than 4 KiB into a file is told so like one whose disk is full.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        done = run(shell, bash_script("up() { fail 'Slurm does not start' 'see its log'; }"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    first, *_, last = done.stderr.splitlines()
    assert first == "tailrack: a1: step probe failed: Slurm does not start; /var/log/tailrack: File too large"
    assert last == "next: make room in /var/log/tailrack on a1 (see 'df -h /var/log/tailrack'), then run up again"


# The frame around every step.


def with_up(body: str, down: str = "false") -> Script:
    """A whole step whose `up` is the given commands."""
    return bash_script(f"up() {{\n{body}\n}}\ndown() {{\n{down}\n}}")


def run(shell: Shell, script: Script, action: str = "up", here: str = "") -> subprocess.CompletedProcess[str]:
    return shell.step(script, {}, action, "probe", here=here == "here")


def test_its_result_is_the_only_output_and_the_rest_is_logged(shell: Shell) -> None:
    done = run(shell, with_up('echo chatter; echo trouble >&2; note "step one"; result ok true'))
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"ok":true}\n', "")
    log = (shell.root / "var/log/tailrack/probe.log").read_text()
    assert log.index("probe up on a1") < log.index("chatter") < log.index("step one") < log.index("done in")
    assert "trouble" in log


@pytest.fixture
def login_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of the login that a step runs as, as sudo keeps it."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.parametrize("login_umask", [0o027, 0o077], indirect=True, ids=["027", "077"])
@pytest.mark.usefixtures("login_umask")
def test_modes_do_not_depend_on_the_logins_umask(shell: Shell) -> None:
    body = """mkdir -p /etc/a/b; echo text >/etc/a/fetched; CHANGED=
        ensure_file /etc/new/file 0644 root:root text; mkdir /var/lib/shared
        echo secret | (umask 077; cat >/etc/secret); result ok true"""
    done = run(shell, with_up(body))
    assert done.returncode == 0, done.stderr
    wanted = {
        "etc/a": 0o755, "etc/a/b": 0o755, "etc/a/fetched": 0o644, "etc/new": 0o755, "etc/new/file": 0o644,
        "var/lib/shared": 0o755, "var/lib/tailrack": 0o755, "etc/secret": 0o600,
    }  # fmt: skip
    assert {path: stat.S_IMODE(shell.path(path).stat().st_mode) for path in wanted} == wanted


def test_folders_that_an_earlier_step_has_closed_to_users_are_opened_and_links_are_not_followed(shell: Shell) -> None:
    for folder in ("var/lib/tailrack", "usr/local/lib/tailrack", "elsewhere"):
        shell.path(folder).mkdir(parents=True, mode=0o700)
        shell.path(folder).chmod(0o750)
    shell.path("etc/tailrack").symlink_to(shell.path("elsewhere"))
    assert run(shell, with_up("result ok true")).returncode == 0
    modes = [stat.S_IMODE(shell.path(each).stat().st_mode) for each in ("var/lib/tailrack", "usr/local/lib/tailrack")]
    assert modes == [0o755, 0o755]
    assert stat.S_IMODE(shell.path("elsewhere").stat().st_mode) == 0o750


def test_the_action_chooses_the_function(shell: Shell) -> None:
    step = with_up("result went 1", "result went 0")
    assert run(shell, step, "up").stdout == '{"went":1}\n'
    assert run(shell, step, "down").stdout == '{"went":0,"left":true}\n'


def test_a_failure_names_host_and_step_quotes_the_end_of_the_log_and_says_what_is_next(shell: Shell) -> None:
    done = run(shell, with_up("for i in {1..30}; do echo line $i; done; ls-does-not-exist"))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "tailrack: a1: step probe failed"
    assert lines[1] == "--- last lines of /var/log/tailrack/probe.log on a1"
    assert lines[2:16] == [f"line {number}" for number in range(17, 31)]
    assert "ls-does-not-exist: command not found" in lines[16]
    assert lines[17] == "---"
    assert lines[18].startswith("next: ssh to a1, read ")
    assert len(lines) == 19
    assert done.stdout == ""


def test_a_reason_and_a_remedy_are_told_on_lines_of_their_own(shell: Shell) -> None:
    done = run(shell, with_up('fail "the disk is full" "make room on $HOST_NAME"'))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "tailrack: a1: step probe failed: the disk is full"
    assert done.stderr.splitlines()[-1] == "next: make room on a1"


def test_a_reason_without_a_remedy_leads_to_the_log(shell: Shell) -> None:
    last = run(shell, with_up('fail "no luck"')).stderr.splitlines()[-1]
    assert last == "next: read /var/log/tailrack/probe.log on a1, then run up again"


@pytest.mark.parametrize("command", ["false", "false | cat", "echo $UNSET_NAME", "local x; x=$(false)"])
def test_a_command_that_fails_ends_the_step(shell: Shell, command: str) -> None:
    done = run(shell, with_up(f"{command}\nresult ok true"))
    assert done.returncode != 0
    assert done.stdout == ""
    assert "step probe failed" in done.stderr


def test_a_log_folder_that_cannot_be_made_is_told_without_a_log(shell: Shell) -> None:
    shell.write("var/log/tailrack", "a file in the way")
    done = run(shell, with_up("true"))
    assert done.returncode == 1
    assert "tailrack: a1: step probe failed: /var/log/tailrack is a link or a file" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: ")
    assert "--- last lines" not in done.stderr


@pytest.mark.parametrize(("old", "new"), [("", " here"), (" here", "")], ids=["by SSH", "local"])
def test_a_step_that_was_made_anew_the_other_way_is_not_undone_by_the_old_one(shell: Shell, old: str, new: str) -> None:
    script = with_up("echo made >>/etc/done", down="echo undone >>/etc/done")
    for way in (f"up{old}", f"up{new}", f"down{old}"):
        done = run(shell, script, *way.split())
        assert done.returncode == 0, done.stderr
    assert shell.path("/etc/done").read_text() == "made\nmade\n"
    assert done.stdout == "{}\n"
    assert run(shell, script, *f"down{new}".split()).returncode == 0
    assert shell.path("/etc/done").read_text() == "made\nmade\nundone\n"


@pytest.mark.parametrize("end", ["true", "false"], ids=["ends well", "fails"])
def test_what_a_step_has_made_for_itself_goes_with_it(shell: Shell, end: str) -> None:
    made = (
        'make_temporary folder -d; make_temporary file; : >"$folder/file"; echo "$folder $file" >/var/made; cat "$file"'
    )
    run(shell, with_up(f"{made}; {end}"))
    paths = [Path(path) for path in shell.path("/var/made").read_text().split()]
    assert [path.parent for path in paths] == [shell.root, shell.root]
    assert [path for path in paths if path.exists()] == []


def test_a_step_waits_for_the_one_before_it_and_says_who_holds_the_lock(shell: Shell) -> None:
    shell.hurry()
    path = shell.write("run/tailrack-private/tailrack.lock", "")
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run(shell, with_up("result ok true"))
    assert done.returncode == 1
    assert "another step has held /run/tailrack-private/tailrack.lock for 600s" in done.stderr
    assert done.stdout == ""
    assert run(shell, with_up("result ok true")).returncode == 0


def test_a_call_that_reads_stdin_does_not_eat_the_next_one(shell: Shell) -> None:
    script = with_up('eaten=$(cat <&0); result eaten "$(json_string "$eaten")"')
    twice = replace(script, calls={"up": (("bash", "up"), ("bash", "result", "rest", "1"))})
    assert json.loads(run(shell, twice).stdout) == {"eaten": "", "rest": 1}


def test_what_comes_within_a_second_is_seen_a_fifth_of_one_later_at_most(shell: Shell) -> None:
    shell.stub("sleep")
    shell.stub("seventh-time", f'[ "$(grep -c seventh-time "{shell.root}/calls")" -ge 7 ]')
    assert shell.call("wait_until 30 seventh-time", {}).returncode == 0
    slept = [call for call in shell.calls if call.startswith("sleep ")]
    assert slept == ["sleep 0.1", *["sleep 0.2"] * 4, "sleep 0.5"]


@pytest.mark.parametrize(("lock", "nice"), [("tailrack", 0), ("", 0), ("tailrack-services", 5)])
def test_what_no_node_waits_for_gives_way_to_what_they_wait_for(shell: Shell, lock: str, nice: int) -> None:
    with mock.patch("os.setpriority") as lowered:
        done = shell.step(with_up("result ok true"), {}, lock=lock)
    assert (done.returncode, done.stdout) == (0, '{"ok":true}\n'), done.stderr
    assert [call.args[2] for call in lowered.call_args_list] == ([nice] if nice else [])


def test_waiting_ends_with_success_or_at_the_limit(shell: Shell) -> None:
    shell.stub("third-time", f'[ "$(grep -c third-time "{shell.root}/calls")" -ge 3 ]')
    done = shell.call("wait_until 30 third-time && echo yes; wait_until 0 false || echo no", {})
    assert done.stdout == "yes\nno\n"
    assert shell.calls == ["third-time"] * 3
