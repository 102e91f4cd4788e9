"""Role mlflow's bash: where jobs find it, what is installed from where, whose passwords lie where, what stays."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from components.roles.order import roles
from components.roles.role import Value
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell

URI = "/etc/tailrack/mlflow-uri"
UNIT = "/etc/systemd/system/tailrack-mlflow.service"
KEPT, PROGRAM = "/var/lib/tailrack/mlflow/users", "/usr/local/lib/tailrack/mlflow-program"
PASSWORD = "of-the-administrator"
SAY = 'report() { printf \'%s; %s\' "${REASON-}" "${REMEDY-}"; }; trap report EXIT; '


def header(**section: object) -> dict[str, Value]:
    """What the role gives its scripts where the config asks for it."""
    made = roles(parse({**LAB, "mlflow": section}, base_dir=Path()))
    own = next({**role.values, **role.texts} for role in made if role.name == "mlflow")
    users: dict[str, Value] = {"USERS_LINES": [("ada", 6001, 6001), ("bob", 6002, 6002)]}
    return {**own, **users, "MLFLOW_ADMIN_PASSWORD": PASSWORD, "HEAD_ADDRESS": "100.64.0.1", "NODE_NAME": "head"}


@pytest.fixture
def host(shell: Shell) -> Shell:
    """A machine whose share has two homes, and on which what would run as somebody else runs as this test."""
    for folder in ("/run/tailrack-private", "/export/shared/home/ada", "/export/shared/home/bob", "/var/lib/tailrack"):
        shell.path(folder).mkdir(parents=True)
    shell.path("/dev").mkdir()
    shell.path("/dev/urandom").symlink_to("/dev/urandom")
    shell.stub("stat", "echo 0 755")
    shell.stub("readlink", "echo /usr/bin/python3.13")
    return shell


def run(host: Shell, commands: str, *files: str, **more: Value) -> subprocess.CompletedProcess[str]:
    """Run the role's functions; on stdout what a step would give as its reason and its remedy."""
    values = {**header(), "NFS_EXPORTS_PATH": f"{host.root}/export/shared", **more}
    return host.call(SAY + commands, values, "base", *files)


def test_jobs_are_told_by_a_file_of_the_share_and_by_nothing_where_there_is_no_mlflow(shell: Shell) -> None:
    told: dict[str, Value] = {"MLFLOW_ENABLED": True, "NFS_EXPORTS_MOUNT": f"{shell.root}/shared"}
    # What an earlier release has left, whose text was there whether the server was or not.
    shell.write(URI, "http://100.64.0.1:5055\n")
    for _ in range(2):
        assert shell.call("mlflow_compute", told, "base", "mlflow/compute").returncode == 0
        assert shell.path(URI).readlink() == shell.path("/shared/.tailrack/mlflow-uri")
        assert not shell.path(URI).exists()
    assert shell.call("mlflow_compute", {**told, "MLFLOW_ENABLED": False}, "base", "mlflow/compute").returncode == 0
    assert not shell.path(URI).is_symlink()


SET_UP = ("refuse_taken_port", "own_folder", "install_mlflow", "restore_mlflow", "update_accounts", "run_daemon")
PUBLISHED = "http://100.64.0.1:5055\n"
STEP = "mkdir -p /run/tailrack-private; trap end_calls EXIT; mlflow_services; finish_calls 4>/dev/null"


def published(
    host: Shell, *, fails: str = "", answers: bool = True, active: bool = True, enabled: bool = True
) -> str | None:
    """Run the role's part of the services step, and return what jobs are told when it has ended."""
    host.stub("systemctl", f"case $* in *is-active*) exit {0 if active else 3} ;; esac")
    host.stub("id")
    host.stub("curl", f"exit {0 if answers else 7}")
    bodies = {**dict.fromkeys((*SET_UP, "publish_credentials", "remove_mlflow"), ":")}
    if fails:
        bodies[fails] = "fail 'no MLflow' 'look'"
    left_out = "; ".join(f"{name}() {{ {body}; }}" for name, body in bodies.items())
    given: dict[str, Value] = {f"MLFLOW_{name}": "" for name in ("UNIT", "LOGIN", "START", "ACCOUNTS", "DUMP")}
    given |= {"MLFLOW_PORT": 5055, "MLFLOW_ENABLED": enabled}
    done = host.call(
        f"{left_out}; {STEP}",
        {**header(), **given, "NFS_EXPORTS_PATH": f"{host.root}/export/shared"},
        "base",
        "mlflow/services",
    )
    assert (done.returncode != 0) == bool(fails), done.stderr
    file = host.path("/export/shared/.tailrack/mlflow-uri")
    return file.read_text() if file.exists() else None


@pytest.mark.parametrize("fails", SET_UP)
def test_no_job_is_sent_to_an_mlflow_that_could_not_be_set_up(host: Shell, fails: str) -> None:
    assert published(host, fails=fails, answers=False) is None
    # One that answered before this step, and does not since.
    assert published(host) == PUBLISHED
    assert published(host, fails=fails, answers=False) is None
    # Another program answers in its place.
    assert published(host) == PUBLISHED
    assert published(host, fails=fails, active=False) is None


def test_jobs_are_told_of_an_mlflow_that_goes_on_though_its_step_failed(host: Shell) -> None:
    assert published(host) == PUBLISHED
    assert published(host, fails="own_folder") == PUBLISHED


def test_an_mlflow_that_nobody_asks_for_any_more_is_told_to_no_job(host: Shell) -> None:
    assert published(host) == PUBLISHED
    assert published(host, enabled=False) is None


def test_the_unit_names_the_python_that_may_run_and_the_folders_of_its_libraries(host: Shell) -> None:
    host.stub("id")
    left_out = "; ".join(f"{name}() {{ :; }}" for name in (*SET_UP, "publish_credentials"))
    given: dict[str, Value] = {f"MLFLOW_{name}": "" for name in ("LOGIN", "START", "ACCOUNTS", "DUMP")}
    done = run(host, f"{left_out}; serve_mlflow", "mlflow/services", **given)
    assert done.returncode == 0, done.stderr
    unit = host.path(UNIT).read_text()
    assert f"ExecPaths=/usr/bin/python3.13 {host.root}{PROGRAM}/lib /usr/lib/python3.13 " in unit
    assert not re.search("@[A-Z]", unit)


def test_each_user_has_a_password_of_his_own_that_stays_and_goes_with_him(host: Shell) -> None:
    assert run(host, "create_credentials", "mlflow/users").returncode == 0
    ada, bob = (host.path(f"{KEPT}/{name}").read_text() for name in ("ada", "bob"))
    assert "mlflow_tracking_username = ada\nmlflow_tracking_password = " in ada
    assert ada.split()[-1] != bob.split()[-1]
    assert len(ada.split()[-1]) == 64
    assert host.path(f"{KEPT}/ada").stat().st_mode & 0o777 == 0o600
    assert run(host, "create_credentials", "mlflow/users", USERS_LINES=[("ada", 6001, 6001)]).returncode == 0
    assert host.path(f"{KEPT}/ada").read_text() == ada
    assert not host.path(f"{KEPT}/bob").exists()


GIVE = "create_credentials; publish_credentials"


def test_a_home_gets_the_file_that_mlflows_client_reads_and_one_that_is_not_ours_stays(host: Shell) -> None:
    home = host.path("/export/shared/home/bob")
    (home / ".mlflow").mkdir()
    (home / ".mlflow" / "credentials").write_text("[mlflow]\nmlflow_tracking_password = of-my-own\n")
    assert run(host, GIVE, "mlflow/users").returncode == 0
    given = host.path("/export/shared/home/ada/.mlflow/credentials")
    assert given.read_text() == host.path(f"{KEPT}/ada").read_text()
    assert given.stat().st_mode & 0o777 == 0o600
    assert "of-my-own" in (home / ".mlflow" / "credentials").read_text()
    # As the user, and the password in no word of a command.
    assert [call for call in host.calls if call.startswith("runuser -u ada --")]
    assert not [call for call in host.calls if given.read_text().split()[-1] in call]
    # A new password takes the place of ours.
    host.path(f"{KEPT}/ada").unlink()
    before = given.read_text()
    assert run(host, GIVE, "mlflow/users").returncode == 0
    assert given.read_text() == host.path(f"{KEPT}/ada").read_text() != before


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_a_user_puts_in_the_way_is_not_written_through(host: Shell, kind: str) -> None:
    aim = host.write("/aim", "as it was\n")
    place = host.path("/export/shared/home/ada/.mlflow/credentials")
    place.parent.mkdir()
    if kind == "link":
        place.symlink_to(aim)
    else:
        place.mkdir()
    assert run(host, GIVE, "mlflow/users").returncode == 0
    assert aim.read_text() == "as it was\n"
    assert host.path("/export/shared/home/bob/.mlflow/credentials").is_file()


def test_passwords_reach_mlflows_database_as_a_stream_alone(host: Shell) -> None:
    program = host.write(
        f"{PROGRAM}/bin/python", f'#!/bin/bash\nprintf "%s\\n" "$*" >{host.root}/words\ncat >{host.root}/got\n'
    )
    program.chmod(0o755)
    done = run(host, "create_credentials; update_accounts", "mlflow/users")
    assert done.returncode == 0, done.stderr
    got = host.path("/got").read_text().splitlines()
    assert [line.split()[0] for line in got] == ["admin", "ada", "bob"]
    assert got[0] == f"admin {PASSWORD}"
    words = host.path("/words").read_text()
    assert words.split()[-1].count(".") == 2  # the release
    assert not [line for line in got if line.split()[1] in words]
    assert not host.path("/run/tailrack-private/mlflow-accounts").exists()
    program.write_text("#!/bin/bash\necho 'sqlite3.OperationalError: database or disk is full' >&2\nexit 1\n")
    done = run(host, "create_credentials; update_accounts", "mlflow/users")
    assert done.returncode != 0
    assert "MLflow's database cannot be used: sqlite3.OperationalError: database or disk is full" in done.stdout


# A fake of `python3 -m venv` and of the pip in what it makes: it fails where the file `pip-fails` is there.
FAKE_VENV = """
mkdir -p "$4/bin"
cat >"$4/bin/python" <<'END'
#!/bin/bash
printf '%s\\n' "pip $*" >>"{root}/calls"
[ ! -e "{root}/pip-fails" ] || {{ cat "{root}/pip-fails"; exit 1; }}
END
chmod 755 "$4/bin/python"
"""


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (None, "--no-input -r"),
        ("https://mirror.example.org/simple", "--no-input --index-url https://mirror.example.org/simple -r"),
        ("{root}/wheels", "--no-input --no-index --find-links {root}/wheels -r"),
    ],
)
def test_it_is_installed_once_by_digests_and_from_where_the_config_says(
    host: Shell, index: str | None, words: str
) -> None:
    host.stub("python3", FAKE_VENV.format(root=host.root))
    host.path("/wheels").mkdir()
    where = index.format(root=host.root) if index else None
    for _ in range(2):
        done = run(host, "install_mlflow", "mlflow/install", MLFLOW_INDEX=where)
        assert done.returncode == 0, done.stdout + done.stderr
    (call,) = [call for call in host.calls if call.startswith("pip ")]
    assert "--no-deps --require-hashes --only-binary :all:" in call
    assert words.format(root=host.root) in call
    host.stub("readlink", "echo /usr/bin/python3.14")
    assert run(host, "install_mlflow", "mlflow/install", MLFLOW_INDEX=where).returncode == 0
    assert len([call for call in host.calls if call.startswith("pip ")]) == 2


def test_where_it_cannot_be_had_the_reason_is_one_line_and_nothing_half_made_stays(host: Shell) -> None:
    host.stub("python3", FAKE_VENV.format(root=host.root))
    host.write("/pip-fails", "WARNING: Retrying\nERROR: No matching distribution found\n")
    done = run(host, "install_mlflow", "mlflow/install")
    assert done.returncode != 0
    assert "MLflow cannot be installed here: ERROR: No matching distribution found; " in done.stdout
    assert "tailrack:mlflow.index" in done.stdout
    assert not host.path(PROGRAM).exists()


def test_a_companys_proxy_in_the_way_of_the_index_is_named_and_not_the_last_try(host: Shell) -> None:
    host.stub("python3", FAKE_VENV.format(root=host.root))
    broken = "'SSLError(1, '[SSL: X] certificate verify failed: self-signed certificate (_ssl.c:1)'))'"
    host.write("/pip-fails", f"WARNING: Retrying (Retry(total=0)) after connection broken by {broken}\nERROR: No\n")
    done = run(host, "install_mlflow", "mlflow/install")
    assert "MLflow cannot be installed here: certificate verify failed: self-signed certificate; " in done.stdout
    assert "pip.conf" in done.stdout


def test_a_folder_of_wheels_that_others_could_change_is_refused(host: Shell) -> None:
    host.path("/wheels").mkdir()
    host.stub("stat", "echo 1000 755")
    done = run(host, "install_mlflow", "mlflow/install", MLFLOW_INDEX=f"{host.root}/wheels")
    assert done.returncode != 0
    assert "can be changed by others than root" in done.stdout
    done = run(host, "install_mlflow", "mlflow/install", MLFLOW_INDEX=f"{host.root}/none")
    assert "which tailrack:mlflow.index names, is not on a1" in done.stdout


@pytest.mark.parametrize("backups", [True, False])
def test_what_mlflow_knows_is_saved_as_soon_as_it_can_be_and_then_by_the_hour(host: Shell, backups: bool) -> None:
    # The backup of the `up` that brings MLflow, or brings it back, is made before it is there.
    if backups:
        host.write("/etc/systemd/system/tailrack-backup.service", "")
    host.stub("systemctl")
    host.stub("id")
    others = "refuse_taken_port own_folder install_mlflow restore_mlflow update_accounts run_daemon publish_credentials"
    left_out = "; ".join(f"{name}() {{ :; }}" for name in others.split())
    given: dict[str, Value] = {f"MLFLOW_{name}": "" for name in ("UNIT", "LOGIN", "START", "ACCOUNTS")}
    for _ in range(2):
        done = run(host, f"{left_out}; serve_mlflow", "mlflow/services", MLFLOW_DUMP="a program", **given)
        assert done.returncode == 0, done.stderr
    asked = [call for call in host.calls if call.startswith("systemctl")]
    assert asked == ["systemctl start tailrack-backup.service"] * backups


def test_what_was_restored_is_in_the_next_backup_too_where_mlflow_does_not_come_up(host: Shell) -> None:
    host.stub("systemctl")
    host.stub("id")
    hook = "/usr/local/lib/tailrack/backup.d/mlflow"
    # From the moment that the database leaves the backup's own folder.
    restored = f"restore_mlflow() {{ [ -x {host.root}{hook} ]; echo restored; }}"
    left_out = "; ".join(f"{name}() {{ :; }}" for name in ("refuse_taken_port", "own_folder", "install_mlflow"))
    fails = "update_accounts() { fail 'no MLflow' 'look'; }"
    given: dict[str, Value] = {f"MLFLOW_{name}": "" for name in ("UNIT", "LOGIN", "START", "ACCOUNTS")}
    done = run(host, f"{left_out}; {restored}; {fails}; serve_mlflow", "mlflow/services", MLFLOW_DUMP="x", **given)
    assert done.returncode != 0
    assert "restored" in done.stdout
    assert host.path(hook).read_text() == "x\n"


def test_leaving_takes_the_program_and_the_account_and_what_was_logged_is_roots(host: Shell) -> None:
    for path in (
        f"{PROGRAM}/whole",
        "/etc/tailrack/mlflow/environment",
        URI,
        UNIT,
    ):
        host.write(path, "x\n")
    database = host.write("/var/lib/tailrack-mlflow/mlflow.db", "what was logged\n")
    artifacts = host.path("/export/shared/mlflow")
    artifacts.mkdir()
    host.write("/var/lib/tailrack/mlflow/artifacts", f"{artifacts}\n")
    told = host.write("/export/shared/.tailrack/mlflow-uri", PUBLISHED)
    host.write("/etc/passwd", "tailrack-mlflow:x:999:999::/var/lib/tailrack-mlflow:/usr/sbin/nologin\n")
    host.stub("userdel")
    for _ in range(2):
        assert host.call("mlflow_leave", {}, "base", "mlflow/leave").returncode == 0
    assert not [path for path in (PROGRAM, "/etc/tailrack/mlflow", URI) if host.path(path).exists()]
    assert not told.exists()
    assert database.exists()
    assert [path.stat().st_mode & 0o777 for path in (database.parent, artifacts)] == [0o700, 0o700]
    assert "userdel tailrack-mlflow" in host.calls
