"""Phase `leave` of all roles: the program a node keeps for the day it leaves, and the one key that may call it."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from components.node import files
from components.node.step.step import Step
from components.roles.access.ssh_trust.host import NodeValues, let_the_head_ask
from components.roles.access.users.host import end_sessions
from components.roles.role import FOLDER, folder_of
from components.roles.slurm.slurm.host import end_steps
from components.steps.command_line import kept_request
from components.steps.composition import HEAD, compose, leave_program
from tests.unit.recorded import public_key
from tests.unit.shell import ROLES, Shell, assert_ok, script_of

KEY, OTHER, AUTHORITY = public_key("leave"), public_key("other"), public_key("authority")
KEY_FILE, TRUSTED = "/etc/ssh/tailrack_leave_key", "/etc/ssh/tailrack_authority.pub"
PROGRAM = "/usr/local/sbin/tailrack-leave"
PLAN = "/etc/tailrack/plans/leave.json"


def values(*, adopt: bool) -> str:
    return kept_request("a1", {"share_mount": "/shared", "node_adopt": adopt})


def let_ask(shell: Shell, authorities: str, head: str = "100.64.0.1", plan: str = "") -> str:
    """Let the head node ask; return why it may not, empty if it may."""
    given = NodeValues(authorities, "", plan, values(adopt=False), head, "/shared")
    return shell.failure_of(let_the_head_ask, Step("a1", "a1-node"), given)


def test_a_leave_key_that_is_not_one_key_is_refused_and_nothing_is_written(shell: Shell) -> None:
    two = f"{KEY}\n{OTHER}"
    for key in ("", "ssh-ed25519 AAAA", two, f"{KEY} x\n{OTHER}", f"\n{KEY}", f'{KEY} "', KEY + "A"):
        said = let_ask(shell, f"# 7\n{AUTHORITY}\n# leave {key}")
        assert said.startswith("the head node's list of SSH authorities is not a list of keys; "), key
    assert not shell.path(KEY_FILE).exists()
    assert not shell.path("/root/.ssh/authorized_keys").exists()


def install(shell: Shell, key: str = KEY, head: str = "100.64.0.1") -> str:
    shell.stub("systemd-escape", "echo shared")
    # As sshd says it with the drop-in.
    heard = ("pubkeyauthentication yes", "authenticationmethods publickey", "allowusers root")
    said = [*heard, f"authorizedkeysfile {KEY_FILE}"]
    shell.stub("sshd", f"printf '%s\\n' {' '.join(map(repr, said))}")
    # As the head node numbers what it says: the latest holds.
    trusted = shell.path(TRUSTED)
    number = int(trusted.read_text().split()[1]) + 1 if trusted.exists() else 7
    assert let_ask(shell, f"# {number}\n{AUTHORITY}\n# leave {key}", head, leave_program(ROLES).file) == ""
    return str(shell.path(PROGRAM).read_text())


# Where `machine_leave` takes away all that is there and has the cluster's name.
SWEPT = re.compile(
    r"/etc/systemd/system/(tailrack-[^/]*|[^/]*\.d/tailrack(-(protect|restart))?\.conf)$|/usr/local/sbin/tailrack-|/usr/local/lib/tailrack/"
    r"|/etc/tailrack/|/etc/opk/|/var/lib/tailrack/|/run/|/workspace/\.tailrack/"
)
# What a role puts back for another one, or writes into a folder of the record.
RESTORED = {
    ("user_keys", "/etc/opk/{name}"): "the record has the folder",
    ("restore", "/var/lib/tailscale/tailscaled.state"): "tailscaled's own, which logging out empties",
    ("restore", "/etc/exports.d/{name}"): "share removes its lines of nodes",
}


def values_in(path: Path) -> dict[str, Any]:
    return vars(importlib.import_module(".".join(path.parts[-5:]).removesuffix(".py")))


def written() -> set[tuple[str, str]]:
    """Every path that a role writes on a machine, with the role; a path in a variable as the file sets it."""
    # The record has the others (test_declared.py).
    found = {(role.name, file.path) for role in ROLES for file in role.files.get("join", ())}
    for module in FOLDER.glob("*/*/*.py"):
        names = values_in(module)
        for path in re.findall(r"""files\.(?:write|link|File)\(\s*f?("[^"]+"|[A-Z_]+\b)""", module.read_text()):
            whole = path.strip('"') if '"' in path else names[path]
            for name in re.findall(r"\{([A-Z_]+)\}", whole):
                whole = whole.replace(f"{{{name}}}", names[name])
            found.add((module.parent.name, whole))
    return found


def leaving(path: Path) -> str:
    """The text of what leaving runs in a module: its functions, the constants that they use, modules of the role."""
    tree = ast.parse(path.read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    names, new = set[str](), {"leave", "pod_leave"} & functions.keys()
    while new:
        trees = (ast.walk(functions[name]) for name in new & functions.keys())
        used = {one.id for tree in trees for one in tree if isinstance(one, ast.Name)}
        names, new = names | new, used - names - new
    if not names:
        return ""
    values = values_in(path)
    text = "".join(ast.unparse(functions[name]) for name in sorted(names & functions.keys()))
    own = (values[name] for name in sorted(names & values.keys()))
    text += "\n".join(str(value) for value in own if isinstance(value, str | tuple))
    for node in (node for node in tree.body if isinstance(node, ast.ImportFrom)):
        for name in (one.name for one in node.names if one.name in names):
            for module in (f"{node.module}", f"{node.module}.{name}"):
                file = FOLDER.parents[1] / f"{module.replace('.', '/')}.py"
                text += file.read_text() if file.is_file() and file.parent == path.parent else ""
    return text


def test_no_role_writes_a_file_that_leaving_does_not_know() -> None:
    unknown = set()
    for role, path in written():
        # A path that begins with a variable of a function lies in the cluster's own folder, or on the share.
        if SWEPT.match(path) or path.startswith("{") or (role, path) in RESTORED:
            continue
        own = "".join(leaving(path) for path in folder_of(role).glob("*.py"))
        folder, _, name = path.rpartition("/")
        # Of files with any names, leaving removes the folder.
        if not any(known in own for known in (path, folder if name.startswith("{") else name)):
            unknown.add((role, path))
    assert unknown == set()


def authorized(shell: Shell, file: str = KEY_FILE) -> list[str]:
    return str(shell.path(file).read_text()).splitlines()


def test_the_key_may_run_the_program_from_the_head_node_and_nothing_else(shell: Shell) -> None:
    command = f'#!/bin/sh\nexec /usr/bin/python3 -I -S {FOLDER.parents[1]} kept leave "$@"\n'
    assert install(shell) == command
    assert shell.path(PROGRAM).stat().st_mode & 0o777 == 0o755
    assert authorized(shell) == [
        f'restrict,from="100.64.0.1",command="{PROGRAM}" {KEY} tailrack-leave',
        # Only what the authority has signed for this: not the authority's own key, and no other name.
        'restrict,from="100.64.0.1",cert-authority,principals="tailrack-ask",'
        f'command="/usr/local/sbin/tailrack-answer" {AUTHORITY} tailrack-ask',
    ]
    assert not shell.path("/root/.ssh/authorized_keys").exists()
    login = shell.path("/etc/ssh/sshd_config.d/tailrack-leave.conf").read_text().splitlines()
    rules = ["PermitRootLogin forced-commands-only", "PubkeyAuthentication yes", "AuthenticationMethods publickey"]
    rules += [f"AuthorizedKeysFile {KEY_FILE}", "AllowUsers root", "AllowGroups *", "DenyUsers nobody"]
    rules += ["DenyGroups nobody"]
    assert login[1:] == ["Match User root Address 100.64.0.1", *(f"    {rule}" for rule in rules)]
    # Never an sshd that will not start.
    assert shell.calls.index("sshd -t") < shell.calls.index("systemctl restart ssh")


def test_leaving_stops_slurm_before_the_share_and_the_tailnet_last(shell: Shell) -> None:
    install(shell)
    for path in ("etc/munge/munge.key", "var/lib/tailrack/munge.digests"):
        shell.write(path, "secret")
    for unit in ("etc/systemd/system/shared.automount", "etc/systemd/system/shared.mount"):
        shell.write(unit, "")
    shell.write("etc/systemd/system/slurmd.service.d/tailrack.conf", "")
    shell.write("etc/systemd/system/tailrack-slurmd-watchdog.service", "")
    shell.stub("systemd-run")
    done = shell.kept("leave")
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
    assert not shell.path("/etc/systemd/system/tailrack-slurmd-watchdog.service").exists()
    calls = [call for call in shell.calls if call.startswith("system") and "escape" not in call]
    words = ("tailrack-slurmd-watchdog", "now slurmd", "shared.automount", "stop shared.mount", "munge", "systemd-run")
    order = [next(index for index, call in enumerate(calls) if word in call) for word in words]
    assert order == sorted(order)
    assert "tailscale logout" in next(call for call in calls if call.startswith("systemd-run"))
    assert not shell.path("/etc/munge/munge.key").exists()
    assert not shell.path("/etc/systemd/system/shared.mount").exists()
    assert not shell.path(KEY_FILE).exists()
    assert not shell.path("/root/.ssh/authorized_keys").exists(), "nothing else was in it"
    assert list(shell.path("/etc/ssh/sshd_config.d").iterdir()) == []


def test_leaving_goes_on_when_a_part_of_it_fails_and_removes_the_key_of_a_killed_join(shell: Shell) -> None:
    install(shell)
    for path in ("etc/munge/munge.key", "var/lib/tailrack/munge.digests"):
        shell.write(path, "secret")
    shell.stub("systemctl", "exit 1")
    shell.stub("systemd-run")
    assert shell.kept("leave").stdout == "left\n"
    assert not shell.path("/etc/munge/munge.key").exists()
    assert any(call.startswith("systemd-run ") for call in shell.calls)
    for adopt in (False, True):
        shell.write(PLAN, f"{shell.inside(leave_program(ROLES).file)}\n{values(adopt=adopt)}\n")
        lent = shell.write("run/.tailrack-key.x7Kq2a.f00d", "tskey-auth-k")
        assert shell.kept("leave").stdout == "left\n"
        assert not lent.exists(), adopt


_unlink = files._unlink


class _Cut(BaseException):
    """The end of a step that is killed."""


@pytest.mark.parametrize("cut", range(1, 20, 3))
def test_the_down_of_a_head_node_ends_well_from_wherever_it_was_cut(shell: Shell, cut: int) -> None:
    script = compose(ROLES, HEAD, leaves=True)
    values: dict[str, Any] = dict.fromkeys(script.reads, "") | {
        "share_mount": "/shared",
        "share_path": "/export",
        "node_adopt": False,
    }
    values |= {"host_name": "head", "STEP_NAME": "head-head"}
    for name in ("systemd-escape", "systemd-run", "systemctl", "userdel", "getent", "pgrep", "exportfs"):
        shell.stub(name, {"systemd-escape": "echo shared", "pgrep": "exit 1"}.get(name, ""))
    shell.stub("id", f"! grep -qs userdel {shell.root}/calls")
    made = ["slurmctld.service.d/tailrack.conf", "tailrack-expire.timer", "tailrack-firewall.service"]
    for path in (
        *(f"/etc/systemd/system/{name}" for name in made),
        "/etc/munge/munge.key", "/etc/hostname", "/usr/local/sbin/tailrack-sign", "/var/lib/tailrack/leave_key",
        "/var/lib/tailrack/backup/etc/munge/munge.key", "/var/lib/tailrack/tailnet", "/var/lib/tailrack/node-name",
        "/var/lib/slurm/slurmctld/job_state", "/var/lib/tailrack/munge.digests",
    ):  # fmt: skip
        shell.write(path, "")
    shell.write("/etc/slurm/slurm.conf", "# Written by tailrack.\n")
    shell.write("/var/lib/tailrack/users", "ada\n")
    shell.write("/var/lib/tailrack/packages", "munge\n")
    shell.path("/root").mkdir()
    removals = iter(range(cut))

    def unlink(place: Path) -> bool:
        if next(removals, None) is None:
            raise _Cut
        return _unlink(place)

    with mock.patch.object(files, "_unlink", unlink), pytest.raises(_Cut):
        shell.step(script, values, "down", "head-head")
    assert_ok(shell.step(script, values, "down", "head-head"))
    left = {str(path.relative_to(shell.root)) for path in shell.path("/var/lib").rglob("*") if path.is_file()}
    assert left == {"var/lib/tailrack/tailnet"}
    # The file from before the cluster is back.
    for folder, there in {"systemd/system": [], "munge": ["munge.key"], "slurm": [], "../usr/local/sbin": []}.items():
        assert [path.name for path in shell.path(f"/etc/{folder}").rglob("*") if path.is_file()] == there, folder
    assert shell.path("/var/log/tailrack/left").exists()


def test_programs_that_end_by_themselves_just_then_hold_nothing_up(shell: Shell) -> None:
    """They are there when they are looked for, and not when they are to be ended."""
    shell.stub("pgrep")
    shell.stub("pkill", "exit 1")
    shell.stubs("id", "userdel")
    scope = "tailrack_slurmstepd.scope"
    shell.write("/etc/systemd/system/slurmd.service.d/tailrack.conf", "")
    shell.write(f"/etc/systemd/system/{scope}.d/tailrack.conf", "")
    shell.stub(
        "systemctl", f'[ "$1" = is-active ] && [ ! -e {shell.root}/gone ] || {{ : >{shell.root}/gone; exit 5; }}'
    )
    shell.write("/var/lib/tailrack/users", "ada\n")
    with shell.here():
        end_steps()
        end_sessions()
    assert f"systemctl stop {scope}" in shell.calls
    assert_ok(shell.step(script_of("slurm_release", "leave"), {}))


@pytest.mark.parametrize("change", [{}, {"key": OTHER}, {"head": "100.64.0.2"}])
def test_the_keys_file_is_written_as_a_whole_and_roots_own_keys_stay(shell: Shell, change: dict[str, str]) -> None:
    shell.write("root/.ssh/authorized_keys", "ssh-ed25519 CCCC admin@desk\n")
    install(shell)
    shell.write(KEY_FILE.lstrip("/"), f"{OTHER} somebody\n{shell.path(KEY_FILE).read_text()}")
    install(shell, **change)
    mine, _ = authorized(shell)
    assert change.get("key", KEY) in mine
    assert f'from="{change.get("head", "100.64.0.1")}"' in mine
    assert authorized(shell, "/root/.ssh/authorized_keys") == ["ssh-ed25519 CCCC admin@desk"]
