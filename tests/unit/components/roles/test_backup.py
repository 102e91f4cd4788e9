"""Role backup: what its section refuses, who gets its secrets, and what is saved."""

import json
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.node.failure import Failure
from components.node.step.values import read_values
from components.roles.order import roles
from components.roles.role import Role, Value
from components.roles.storage.backup import program
from components.roles.storage.backup.host import MADE
from components.roles.storage.backup.program import RECORD, STAGE
from components.roles.storage.backup.role import BACKUP
from components.roles.storage.backup.target import TargetValues, check_target, close_target, try_target
from components.roles.storage.restore.host import RestoreValues, place_files, read_backup, wanted_backup
from components.steps.composition import compose
from stacks.config import parse
from tests.unit.configs import HOST_KEY, LAB, PRIVATE_KEY, RawConfig, refusal
from tests.unit.recorded import Build
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of

SFTP: RawConfig = {
    "target": "sftp:keeper@192.0.2.9:/srv/backup/lab",
    "host_key": HOST_KEY,
    "private_key": PRIVATE_KEY,
    "password": "password-nobody-may-see",
}
S3: RawConfig = {"target": "s3:https://s3.example.org/lab", "access_key": "AKIAEXAMPLE", "secret_key": "nobody-may-see"}
NO_TARGET = "tailrack:backup.target: [secret] is not sftp:USER@HOST:/FOLDER"


def refused(backup: RawConfig, secret: frozenset[str] = frozenset({"backup"}), **others: Any) -> str:
    """What is said of a config with this section."""
    return refusal({"backup": backup, **others}, *secret)


def test_a_target_that_would_save_nothing_is_refused_by_name() -> None:
    for change, what in (
        ({"target": "/mnt/usb"}, NO_TARGET),
        ({"target": "sftp:keeper@192.0.2.9:/srv/x;reboot"}, NO_TARGET),
        ({"target": "sftp:-oProxyCommand=x@h:/srv/x"}, NO_TARGET),
        ({"target": "s3:http://s3.example.org/lab"}, NO_TARGET),
        ({"target": "sftp:keeper@head:/srv/backup"}, "is the head node itself"),
        ({"target": "sftp:keeper@HEAD:/srv/backup"}, "is the head node itself"),
        ({"target": "sftp:keeper@127.0.1.1:/srv/backup"}, "is the head node itself"),
        (
            {"target": "sftp:keeper@a1:/srv/backup"},
            "is a node that this stack makes; destroying the stack would delete the backups",
        ),
        ({"target": "sftp:keeper@192.0.2.9:/shared/backup"}, "is on the share (storage.mount is /shared)"),
        ({"target": "sftp:keeper@192.0.2.9:/export/shared"}, "is on the share (storage.path is /export/shared)"),
        ({"host_key": None}, "host_key"),
        ({"private_key": None}, "private_key"),
        ({"host_key": "ssh-ed25519 AAAA\nssh-ed25519 AAAA"}, "host_key"),
        ({"private_key": "no key"}, "is no OpenSSH private key"),
        ({"password": "two words"}, "contains blanks"),
        ({"port": 0}, "a whole number from 1"),
    ):
        section = {key: value for key, value in {**SFTP, **change}.items() if value is not None}
        said = refused(section)
        assert what in said, change
        assert "tailrack:backup" in said, change
        assert "nobody-may-see" not in said, change


def test_all_roles_state_is_saved_and_the_names_of_their_files_are_the_roles_own() -> None:
    made = roles(parse({**LAB, "backup": SFTP}, base_dir=Path(), secret_keys=frozenset({"backup"})))
    backup = next(role for role in made if role.name == "backup")
    assert backup.values["backup_state"] == list(dict.fromkeys(path for role in made for path in role.state))
    assert {"/var/lib/slurm/slurmctld", "/var/lib/tailrack/slurm"} <= {*backup.values["backup_state"]}


def test_only_the_head_node_has_the_secrets_and_no_plain_state_has_them(build: Build) -> None:
    raw = {**LAB, "backup": SFTP, "head": {**LAB["head"], "restore_from": "latest"}}
    stack = build(raw, secret=["backup"])
    commands = [*stack.remote, *stack.local]
    notes = stack.outputs["cluster"]["notes"]
    assert [
        note for note in notes if "was restored from the backup of 2026-11-24 05:05 UTC, which was 26 h 1 min" in note
    ]
    steps = {one.name for one in commands if SFTP["password"] in str(one.inputs.get("stdin"))}
    assert steps == {"head-prepare", "head-services"}
    for name in steps:
        assert "stdin" in stack[name].secret_paths
    assert not [one.name for one in stack.resources if "password-nobody-may-see" in one.in_plain_state]


def test_how_old_the_last_backup_is_or_why_it_failed_is_one_line(shell: Shell) -> None:
    for kept, said in (
        ("", "backup: none has been made; next: systemctl start tailrack-backup"),
        ("done={now}\n", "backup: the last one is 0 minutes old"),
        (
            "done={old}\n",
            "backup: STALE: the last one is 200 minutes old; next: systemctl status tailrack-backup.timer",
        ),
        (
            "done={now}\nfailed={now}\nreason=it was full\n",
            "backup: FAILED: it was full; next: journalctl -u tailrack-backup, then systemctl start tailrack-backup",
        ),
    ):
        now = int(time.time())
        shell.write(RECORD, kept.format(now=now, old=now - 200 * 60))
        assert shell.call(program.status) == said, kept


def prepared(shell: Shell, state: str = "") -> None:
    """A machine with the settings of a backup; an earlier one has succeeded."""
    shell.write("/etc/tailrack/backup/cluster", "lab\n")
    shell.write("/etc/tailrack/backup/state", state)
    shell.write("/etc/tailrack/backup/repository", "sftp:x:/y\n")
    shell.write(RECORD, f"done={int(time.time())}\n")
    for name in ("cp", "rm"):
        (shell.root / "stubs" / name).unlink(missing_ok=True)
        (shell.root / "stubs" / name).symlink_to(f"/usr/bin/{name}")


def test_a_failed_backup_is_recorded_and_leaves_no_copy(shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    prepared(shell, "/etc/kept\n")
    shell.write("/etc/kept", "text")
    shell.stub("restic", "echo 'Fatal: no such host' >&2; exit 1")
    with shell.here():
        assert program.main(["run"]) == 1
        assert "FAILED: unlock: Fatal: no such host" in program.status()
    assert "<3>backup failed: unlock: Fatal: no such host\n" in capfd.readouterr().err
    assert shell.path(RECORD).read_text().startswith("done=")
    assert not shell.path(STAGE).exists()


def test_a_killed_backup_counts_as_failed_and_systemd_has_it_reported_and_its_copy_removed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prepared(shell)
    shell.write(RECORD, "done=5\nbegan=6\nprocess=77\n")
    shell.write(f"{STAGE}/dumps/kept", "the munge key")
    shell.write("/proc/77/cmdline", "python3\0/program\0backup\0run\0")
    with shell.here():
        assert "FAILED" not in program.status()
        shell.path("/proc/77/cmdline").unlink()
        assert program.status().startswith("backup: FAILED: it was killed before it finished; next: ")
        monkeypatch.setenv("SERVICE_RESULT", "signal")
        monkeypatch.setenv("EXIT_STATUS", "KILL")
        assert program.main(["ended"]) == 1
        assert not shell.path(STAGE).exists()
        # A run that reported its own end is reported once.
        assert program.main(["ended"]) == 0
        assert "FAILED: it was killed before it finished (signal, KILL)" in program.status()
    assert capfd.readouterr().err.count("<3>backup failed: it was killed") == 1
    assert "ExecStopPost=/usr/local/sbin/tailrack-backup ended" in BACKUP.text


def test_the_next_backup_contains_restored_dumps_that_no_service_has_loaded(shell: Shell) -> None:
    prepared(shell)
    shell.write("/var/lib/tailrack/dumps/mlflow.db", "of the lost head node")
    shell.write("/var/lib/tailrack/dumps/accounting.sql", "of the lost head node")
    hook = '#!/bin/bash\nprintf newer >"$1/accounting.sql"\n'
    shell.write("/usr/local/lib/tailrack/backup.d/accounting", hook).chmod(0o755)
    shell.stub("restic", f'[[ " $* " != *" backup "* ]] || cp -r dumps "{shell.root}/saved"')
    assert shell.call(program.main, ["run"]) == 0
    saved = {path.name: path.read_text() for path in shell.path("/saved").iterdir()}
    assert saved == {"mlflow.db": "of the lost head node", "accounting.sql": "newer"}
    assert shell.path("/var/lib/tailrack/dumps/mlflow.db").exists()


ANSWERS = Path(__file__).parents[3] / "fixtures" / "restic" / "answers.yaml"
FOUND: dict[str, tuple[int, str]] = yaml.safe_load(ANSWERS.read_text(encoding="utf-8"))


def values_of(backup: RawConfig) -> dict[str, Value]:
    """The values of the role with this section."""
    config = parse({**LAB, "backup": backup}, base_dir=Path(), secret_keys=frozenset({"backup"}))
    role = next(role for role in roles(config) if role.name == "backup")
    values = {**role.values, **role.texts, **role.secrets, "restore_from": "latest", "node_adopt": True}
    return {**values, "share_path": "/export/shared", "share_mount": "/shared", "users_lines": []}


def on_the_head(shell: Shell, backup: RawConfig, part: Callable[[TargetValues], object]) -> tuple[int, Any]:
    """Do a part of the role's work with this section: 0 and what it returns, or 1 and what it fails by."""
    with shell.here():
        try:
            return 0, part(read_values(RestoreValues, values_of(backup)))
        except Failure as failure:
            return 1, failure.reason


def check(values: TargetValues) -> object:
    return check_target("/lent", values)


@pytest.mark.parametrize("said", FOUND)
def test_the_check_explains_an_error_of_a_bucket_in_one_sentence(shell: Shell, said: str) -> None:
    """What restic wrote is as it was, against moto's server."""
    status, words = FOUND[said]
    place = "Is there a repository at the following location?\ns3:https://s3.example.org/lab"
    shell.stub("restic", f"cat <<'EOF' >&2\n{words}\n{place}\nEOF\nexit {status}")
    assert on_the_head(shell, S3, check) == ((1, said) if status else (0, True))


def test_a_bucket_without_a_repository_gets_one_and_one_that_takes_nothing_is_said_before_that(shell: Shell) -> None:
    missing = "Fatal: unable to open config file: Stat: The specified key does not exist."
    shell.stub("restic", f"echo '{missing}' >&2; exit 1")
    assert on_the_head(shell, S3, check) == (0, False)
    full = "Save(<lock/6be6657462>) returned error, retrying after 552.330144ms: client.PutObject: no room is left."
    shell.stub("restic", f"echo '{full}' >&2; exit 124")
    assert on_the_head(shell, S3, lambda _: try_target("/lent")) == (
        1, "cannot write to the backup's target: client.PutObject: no room is left.",
    )  # fmt: skip


def test_a_target_that_does_not_answer_is_said_by_the_gate(shell: Shell) -> None:
    for target, said in (
        ("s3:https://127.0.0.1:1/lab", (1, "the backup's target 127.0.0.1 does not answer at port 1")),
        ("s3:https://nobody.invalid/lab", (1, "cannot resolve the backup's target nobody.invalid")),
        ("s3:https://storage/lab", (1, "cannot resolve the backup's target storage")),
        ("sftp:keeper@nobody.invalid:/srv/lab", (1, "cannot resolve the backup's target nobody.invalid")),
        ("sftp:keeper@vault:/srv/lab", (0, "")),
    ):
        section = {**(S3 if target.startswith("s3") else SFTP), "target": target}
        done = shell.step(script_of("backup", "check_head"), values_of(section))
        assert done.returncode == said[0], target
        assert f"failed: {said[1]}" in done.stderr or not said[1], target


THERE = """sftp> -cd /srv/backup/lab
sftp> pwd
Remote working directory: {real}
sftp> -ls -lan /srv/backup/lab
{mode}    ? 1001     1001         4096 Nov 23 11:02 /srv/backup/lab/.
drwxr-xr-x    ? 0        0            4096 Nov 23 11:02 /srv/backup/lab/..
sftp> -df /srv/backup/lab
        Size         Used        Avail       (root)    %Capacity
   102626232      5124632     {free}     97501600           5%
"""
AT = "the backup's target /srv/backup/lab on 192.0.2.9"
HERE = {"real": "/srv/backup/lab", "mode": "drwx------", "free": "92242800"}


def test_a_folder_that_is_full_open_to_others_or_on_the_share_is_refused(shell: Shell) -> None:
    for change, said in (
        ({}, ""),
        ({"free": "262144"}, ""),
        ({"free": "262143"}, f"{AT} is full: 262143 KB are free"),
        ({"mode": "drwxr-x---"}, f"{AT} is open to other accounts there (drwxr-x---)"),
        ({"mode": "drwx-----x"}, f"{AT} is open to other accounts there (drwx-----x)"),
        ({"real": "/shared/x"}, "the backup's target /srv/backup/lab is /shared/x there, which is on the share"),
    ):  # fmt: skip
        shell.stub("sftp", f"cat >/dev/null; cat <<'EOF'\n{THERE.format(**{**HERE, **change})}EOF")
        shell.stub("restic")
        assert on_the_head(shell, SFTP, check) == ((1, said) if said else (0, True)), change


def get_wanted(name: str, _: TargetValues) -> object:
    return wanted_backup("/lent", name, "lab")


def test_the_backup_that_is_meant_is_the_clusters_own(shell: Shell) -> None:
    clusters = {"a1": "lab", "b2": "lab", "c3": "other"}
    found = [{"id": name, "hostname": host, "time": f"2026-11-2{name[1]}"} for name, host in clusters.items()]
    note = "List(snapshot) returned error, retrying after 1.2s: i/o timeout"
    shell.stub("restic", f"echo '{note}' >&2; echo '{json.dumps(found)}'")
    shell.write("/lent/repository", "sftp:x:/y\n")
    for wanted, said in (
        ("latest", (0, "b2")),
        ("a1", (0, "a1")),
        ("c3", (1, "there is no backup (c3) of cluster lab at the backup's target, only of lab, other")),
    ):
        status, found_backup = on_the_head(shell, SFTP, partial(get_wanted, wanted))
        assert (status, getattr(found_backup, "id", found_backup)) == said, wanted


def test_endless_output_of_a_target_is_cut(shell: Shell) -> None:
    shell.path("/lent").mkdir()
    for name, part in (
        ("restic", check),
        ("restic", lambda _: try_target("/lent")),
        ("sftp", check),
        ("sftp", lambda values: close_target("/lent", values)),
        ("restic", lambda _: read_backup("/lent", "a1", "lab", "/var/lib/tailrack/restoring")),
        ("restic", lambda _: wanted_backup("/lent", "latest", "lab")),
    ):
        for other in ("restic", "sftp"):
            words = "printf '\\e[2J' >&2; head -c 40000000 /dev/zero | tr '\\0' x >&2; exit 1"
            shell.stub(other, words if other == name else "")
        tracemalloc.start()
        status, said = on_the_head(shell, SFTP, part)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (status, "xxx" in said, len(said) < 600, said.isprintable()) == (1, True, True, True), part
        assert most < 10_000_000, part
        assert [*shell.path("/lent").iterdir()] == [], part


def test_nothing_of_a_foreign_archive_is_restored(shell: Shell) -> None:
    restoring = "/var/lib/tailrack/restoring"
    tree = shell.path(f"{restoring}/tree")
    for kept, status, said in (
        ("cluster=lab", 0, (0, None)),
        ("cluster=lab", 1, (1, "the backup a1 is broken: Fatal: There were 3 errors")),
        ("cluster=other", 0, (1, "the backup a1 is not one of a head node of lab")),
        ("", 0, (1, "the backup a1 is not one of a head node of lab")),
    ):
        write = f"mkdir -p {tree}/var/lib/slurm/slurmctld; echo '{kept}' >{tree}/backup"
        fail = "{ echo 'Fatal: There were 3 errors' >&2; exit 1; }"
        shell.stub("restic", f"{write}; [ {status} = 0 ] || {fail}")
        assert on_the_head(shell, SFTP, lambda _: read_backup("/lent", "a1", "lab", restoring)) == said, (kept, status)
        assert tree.exists() == (said[0] == 0), (kept, status)
        assert not shell.path("/var/lib/slurm").exists(), (kept, status)


def test_a_new_machine_restores_the_archive_once_and_keeps_no_credentials(shell: Shell) -> None:
    """All of the phase, with all that its step brings besides; sftp and restic are stubs."""
    found = json.dumps([{"id": "a1b2", "hostname": "lab", "time": "2026-11-22"}])
    shell.stub(
        "sftp", f'[ -s "$2" ] && [ -s "${{2%/*}}/key" ] || exit 1; cat >/dev/null; cat <<EOF\n{THERE.format(**HERE)}EOF'
    )
    shell.stub(
        "restic",
        f"""case "$*" in
        *snapshots*) echo '{found}' ;;
        *" restore "*)
            words="$*"; tree=${{words##*--target }}; tree=${{tree%% *}}
            mkdir -p "$tree/var/lib/slurm/slurmctld" "$tree/var/lib/tailrack/ssh_authority" "$tree/dumps"
            echo cluster=lab >"$tree/backup"
            echo jobs >"$tree/var/lib/slurm/slurmctld/job_state"
            echo books >"$tree/dumps/accounting.sql"
        esac""",
    )
    for _ in range(2):
        done = assert_ok(shell.step(compose([Role("restore")], ["restore"]), values_of(SFTP)))
        assert json.loads(done.stdout)["restored_made"] == 1795305600
    assert shell.path("/var/lib/slurm/slurmctld/job_state").read_text() == "jobs\n"
    assert shell.path("/var/lib/tailrack/dumps/accounting.sql").read_text() == "books\n"
    assert shell.path("/var/lib/tailrack/ssh_authority").is_dir()
    assert shell.path("/var/lib/tailrack/restored").read_text() == "a1b2\n"
    made, age = map(int, shell.path("/var/lib/tailrack/restored-age").read_text().split())
    assert made == 1795305600
    assert age == pytest.approx(time.time() - made, abs=60)
    assert len([call for call in shell.calls if call.startswith("restic") and " restore " in call]) == 1
    assert not [path for path in shell.path("/run").rglob("*") if path.name in ("key", "password")]
    assert not shell.path("/var/lib/tailrack/restoring").exists()


def test_an_empty_target_gets_a_repository_that_is_closed_and_a_first_backup(shell: Shell) -> None:
    shell.stub("restic", 'case "$*" in *" cat config"*) echo "Is there a repository there?" >&2; exit 10 ;; esac')
    shell.stub("sftp", f"cat >>{shell.root}/batch; cat <<'EOF'\n{THERE.format(**HERE)}EOF")
    shell.write("/var/lib/tailrack/backup-state", "done=1795305600\n")
    values = {**values_of(SFTP), "backup_state": ["/var/lib/slurm/slurmctld", "/etc/exports.d/*"]}
    done = assert_ok(shell.step(compose([Role("backup", made={"services": MADE})], ["services"]), values))
    assert json.loads(done.stdout) == {"backup_made": 1795305600}
    words = [call.rpartition("tailrack-backup ")[2] for call in shell.calls if call.startswith("restic")]
    assert words == ["cat config --no-lock", "init", "snapshots --latest 1 --json"]
    assert "chmod 700 /srv/backup/lab\n" in shell.path("/batch").read_text()
    assert "systemctl start tailrack-backup.service" in shell.calls
    assert "systemctl start tailrack-backup.timer" in shell.calls
    kept = shell.path("/etc/tailrack/backup")
    assert (kept / "state").read_text() == "/var/lib/slurm/slurmctld\n/etc/exports.d/*\n"
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}
    assert (kept / "password").read_text() == f"{SFTP['password']}\n"
    assert not any(SFTP["password"] in call for call in shell.calls)
    assert not shell.path("/run/tailrack-private/backup").exists()


def test_a_first_backup_that_fails_is_an_error_with_its_reason(shell: Shell) -> None:
    shell.stub("restic")
    shell.stub("sftp", f"cat >/dev/null; cat <<'EOF'\n{THERE.format(**HERE)}EOF")
    shell.stub("systemctl", '[ "$1 $2" != "start tailrack-backup.service" ]')
    shell.write("/var/lib/tailrack/backup-state", "done=\nfailed=5\nreason=unlock: Fatal: it is full\n")
    done = shell.step(script_of("backup", "services"), {**values_of(SFTP), "backup_state": []})
    assert_fails(done, "the first backup failed: unlock: Fatal: it is full")


def test_one_half_of_an_access_key_and_a_secret_in_plain_text_are_refused() -> None:
    assert "access_key: is set without secret_key" in refused({key: S3[key] for key in ("target", "access_key")})
    assert "[secret] is plain text in the config" in refused(SFTP, frozenset())


@pytest.mark.parametrize(
    ("adopt", "now", "kept", "taken"),
    [
        (False, "", '{"_machinekey": "x"}', True),
        (False, '{"_machinekey": "y"}', '{"_machinekey": "x"}', True),
        # It is a member already, it is not to be changed, or the key is in the lost machine's TPM.
        (False, '{"profile-1": "y"}', '{"_machinekey": "x"}', False),
        (True, "", '{"_machinekey": "x"}', False),
        (False, "", '{"sealed": "x"}', False),
    ],
)
def test_a_new_machine_takes_the_tailnet_identity(shell: Shell, adopt: bool, now: str, kept: str, taken: bool) -> None:
    shell.stub("systemctl", '[ "$1" != is-active ]')
    state = "/var/lib/tailscale/tailscaled.state"
    if now:
        shell.write(state, now)
    shell.write(f"/tree{state}", kept)
    shell.call(place_files, "/tree", adopt=adopt)
    path = shell.path(state)
    assert (path.read_text() if path.exists() else "") == (f"{kept}\n" if taken else now)
    assert not taken or path.stat().st_mode & 0o777 == 0o600
