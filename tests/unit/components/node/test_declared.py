"""What roles declare is recorded before it is made, and removed when it is no longer declared or the machine leaves."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from components.node import files
from components.node.declared import FOLDER, Record, remove_all
from components.node.failure import Failure
from components.node.files import File
from components.node.step.step import Step
from components.roles.order import ROLES, roles
from components.steps.composition import COMPUTING_HEAD, NODE, NODE_SERVICES, POD, SERVICES, Script, compose
from stacks.config import parse
from tests.unit.components.roles.test_any import RICH
from tests.unit.shell import Shell, assert_ok, script_of

UNIT = "/etc/systemd/system/tailrack-one.service"
ONE, TWO, DROP_IN = "/etc/tailrack/one", "/usr/local/lib/tailrack/two", "/etc/systemd/system/x.service.d/tailrack.conf"
EVERY = {
    **RICH,
    **{"job_hangs": {}, "budget": {"per_month": 1}, "scratch": {"folder": "/scratch"}},
    "datasets": [{"name": "d1", "source": "https://example.org/d1.tar", "folder": "/local"}],
}


def left(machine: Shell, *folders: str) -> list[str]:
    found = [path for name in (folders or ("etc", "usr", "var/lib")) for path in machine.path(f"/{name}").rglob("*")]
    return [str(path.relative_to(machine.root)) for path in found]


def run_step(*items: File | str, step: str = "services", owner: str = "services/x", cut_off: bool = False) -> None:
    """Declare items as the phase of a role does."""
    record = Record(step, {owner: []})
    record.begin(owner)
    Step("a1", step, record=record).declare(*items)
    if not cut_off:
        record.begin("")


@pytest.mark.parametrize("phases", [COMPUTING_HEAD, NODE, POD, SERVICES, NODE_SERVICES], ids="-".join)
def test_files_of_every_role_go_with_the_role_and_with_the_machine(shell: Shell, phases: Sequence[str]) -> None:
    every = roles(parse(copy.deepcopy(EVERY), base_dir=Path(), secret_keys=frozenset({"backup"})))
    assert len(every) == len(ROLES) - 2, "all but restore and fio, which have no files"
    calls = [call for call in compose(every, phases).calls["up"] if call[0] in ("owner", "files")]
    on, off = Script({"up": tuple(calls)}), Script({"up": (("owner", phases[0], "none/none", ()),)})
    data = {item.removeprefix("data /") for call in calls if call[0] == "owner" for item in call[3]}
    shell.stub("systemctl")
    before = left(shell)
    for leaves in (False, True):
        assert_ok(shell.step(on, dict.fromkeys(on.reads, "1")))
        assert {row[0].lstrip("/") for call in calls if call[0] == "files" for row in call[1:]} <= {*left(shell)}
        if leaves:
            with shell.here():
                remove_all()
        else:
            assert shell.step(off, {}).returncode == 0
        kept = {"etc/systemd/system", "var/lib/tailrack", "var/lib/tailrack/here"}
        if not leaves:
            kept |= {"var/lib/tailrack/made", f"var/lib/tailrack/made/{phases[0]}", *data}
            kept |= {str(folder) for path in data & {*left(shell)} for folder in PurePosixPath(path).parents}
        outside = {name for name in left(shell) if "tailrack" not in name and shell.path(name).is_dir()}
        assert {*left(shell)} - {*before} - outside <= kept


def test_a_file_and_a_unit_change_and_go(shell: Shell) -> None:
    shell.stub("systemctl")
    with shell.here():
        run_step(File(ONE, "a"), File(UNIT, "u"), File(DROP_IN, "d"))
        run_step(File(ONE, "b"), File(UNIT, "u"))
        assert shell.path(ONE).read_text() == "b\n"
        assert shell.calls == ["systemctl daemon-reload"]
        run_step()
    assert shell.calls[1:] == ["systemctl disable -q --now tailrack-one.service", "systemctl daemon-reload"]
    assert [path for path in (ONE, UNIT, DROP_IN) if shell.path(path).exists()] == []


def test_a_run_that_is_cut_off_leaves_nothing_unknown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with shell.here():
        run_step(File(ONE, "a"), cut_off=True)
        with monkeypatch.context() as full:
            full.setattr(files, "_write", lambda *_: (_ for _ in ()).throw(Failure("the disk is full")))
            with pytest.raises(Failure):
                run_step(File(ONE, "a"), File(TWO, "b"))
        assert not shell.path(TWO).exists(), "the record comes first"
        run_step()
        assert not shell.path(ONE).exists()


def test_what_two_steps_declare_goes_with_the_second(shell: Shell) -> None:
    with shell.here():
        for step in ("machine", "services"):
            run_step(File(ONE, "a"), step=step)
        run_step(step="machine")
        assert shell.path(ONE).exists()
        run_step(step="services")
        assert not shell.path(ONE).exists()
        # The next release calls the role by another name.
        for owner in ("services/x", "services/y"):
            run_step(File(ONE, "a"), owner=owner)
        assert shell.path(ONE).exists()


def test_files_that_prepare_writes_now_stay_though_an_older_node_step_has_them_in_its_record(shell: Shell) -> None:
    script = script_of("names", *NODE)
    paths = [path for call in script.calls["up"] if call[0] == "owner" for path in call[3]]
    for path in paths:
        shell.write(path, "")
    shell.write(f"{FOLDER}/machine", json.dumps({"machine/names": paths}))
    assert_ok(shell.step(script, {"share_mount": "/share"}))
    assert UNIT.replace("one", "names") in paths
    assert {path.lstrip("/") for path in paths} <= {*left(shell)}


def test_data_stays_until_the_machine_leaves_and_accounts_go_with_their_files(shell: Shell) -> None:
    shell.stub("userdel")
    shell.write("/etc/passwd", "tailrack-one:x:990:990::/:/bin/sh\n")
    with shell.here():
        run_step(File(ONE, "a"), f"data {TWO}", "account tailrack-one")
        shell.write(TWO, "data")
        run_step()
        assert (shell.path(ONE).exists(), shell.path(TWO).exists()) == (False, True)
        assert shell.calls == ["userdel tailrack-one"]
        remove_all()
    assert not shell.path(TWO).exists()


def test_another_program_in_the_place_of_a_command_stays(shell: Shell) -> None:
    command = "/usr/local/bin/sll"
    with shell.here():
        for text, stays in (("exec /usr/local/lib/tailrack/program/1", False), ("somebody else's", True)):
            run_step(File(command, "exec /usr/local/lib/tailrack/program/1"))
            shell.write(command, text)
            run_step()
            assert shell.path(command).exists() == stays


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[1]", '{"services/x": 7}', '{"services/x": [["/etc/passwd"]]}', '{"services/x": ["/etc/passwd"]}'),
        '{"services/x": ["/etc/tailrack/../passwd", "account root"]}',
    ],
)
def test_a_record_that_is_not_tailracks_removes_nothing_and_stops_nothing(shell: Shell, text: str) -> None:
    shell.stub("userdel")
    shell.write("/etc/passwd", "root:x:0:0::/:/bin/sh\n")
    shell.write(f"{FOLDER}/services", text)
    with shell.here():
        run_step(File(ONE, "a"))
        run_step()
        assert not shell.path(ONE).exists()
        shell.write(f"{FOLDER}/services", text)
        remove_all()
    assert (shell.path("/etc/passwd").exists(), shell.calls) == (True, [])


def test_an_unfinished_record_keeps_nothing_and_a_path_that_does_not_show_whose_it_is_is_refused(shell: Shell) -> None:
    with shell.here():
        run_step(File(ONE, "a"))
        shell.write(f"{FOLDER}/.machine.0123", f'{{"machine/x": ["{ONE}"]}}')
        run_step()
        with pytest.raises(ValueError, match="/etc/motd"):
            run_step(File("/etc/motd", "a"))
    assert not shell.path(ONE).exists()
