"""Role mlflow's phases: where jobs find it, what is installed from where, whose passwords lie where, what stays."""

import json
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from components.node import folders
from components.node.failure import Failure
from components.node.step.step import Step
from components.node.step.values import read_values
from components.roles.jobs.mlflow import host as mlflow_host
from components.roles.jobs.mlflow import install as install_module
from components.roles.jobs.mlflow.host import MlflowValues, leave
from components.roles.order import roles
from components.roles.role import Value
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import DISTRIBUTION, Shell, script_of

URI = "/etc/tailrack/mlflow-uri"
UNIT = "/etc/systemd/system/tailrack-mlflow.service"
KEPT, PROGRAM = "/var/lib/tailrack/mlflow/users", "/usr/local/lib/tailrack/mlflow-program"
PASSWORD = "of-the-administrator"
ACCOUNT = "tailrack-mlflow:x:999:999::/var/lib/tailrack-mlflow:/usr/sbin/nologin\n"
STEP = Step("a1", "a1-services")


def header(**section: object) -> dict[str, Value]:
    """What the role gives its scripts where the config asks for it."""
    made = roles(parse({**LAB, "mlflow": section}, base_dir=Path()))
    own = next({**role.values, **role.texts} for role in made if role.name == "mlflow")
    users: dict[str, Value] = {"users_lines": [("ada", 6001, 6001), ("bob", 6002, 6002)]}
    return {**own, **users, "mlflow_admin_password": PASSWORD, "head_address": "100.64.0.1", "node_name": "head"}


@pytest.fixture
def host(shell: Shell) -> Shell:
    """A machine whose share has two homes, and on which what would run as somebody else runs as this test."""
    for folder in ("/run/tailrack-private", "/export/shared/home/ada", "/export/shared/home/bob", "/var/lib/tailrack"):
        shell.path(folder).mkdir(parents=True)
    shell.path("/usr/bin").mkdir(parents=True)
    shell.path("/usr/bin/python3").symlink_to("python3.13")
    return shell


def values(**more: Value) -> MlflowValues:
    """The phase's values."""
    given = {**DISTRIBUTION, **header(), "share_path": "/export/shared", **more}
    read: MlflowValues = read_values(MlflowValues, json.loads(json.dumps(given)))
    return read


def test_jobs_read_the_mlflow_address_from_a_file_on_the_share(shell: Shell) -> None:
    told: dict[str, Value] = {"share_mount": "/shared"}
    # What an earlier release has left, whose text was there whether the server was or not.
    shell.write(URI, "http://100.64.0.1:5055\n")
    for _ in range(2):
        assert shell.step(script_of("mlflow", "compute"), told).returncode == 0
        assert shell.path(URI).readlink() == Path("/shared/.tailrack/mlflow-uri")
        assert not shell.path(URI).exists()


SET_UP = ("refuse_taken_port", "folders.give", "install", "restore_dump", "update_accounts", "run_daemon")
PUBLISHED = "http://100.64.0.1:5055\n"


@contextmanager
def set_up_by(**bodies: Callable[..., object]) -> Iterator[None]:
    """Put other functions in the place of those that set MLflow up; by default they do nothing."""
    with ExitStack() as patches:
        for name in (*SET_UP, "publish_credentials"):
            body = bodies.get(name.replace(".", "_"), lambda *_: None)
            patches.enter_context(mock.patch(f"components.roles.jobs.mlflow.host.{name}", body))
        yield


def no_mlflow(*_: object) -> None:
    raise Failure("no MLflow", "look")


def published(
    host: Shell, *, fails: str = "", answers: bool = True, active: bool = True, enabled: bool = True
) -> str | None:
    """Run the role's part of the services step, and return what jobs are told when it has ended."""
    host.stub("systemctl", f"case $* in *is-active*) exit {0 if active else 3} ;; esac")
    host.write("/etc/passwd", ACCOUNT)
    given: dict[str, Value] = {f"mlflow_{name}": "" for name in ("unit", "login", "start", "accounts", "dump")}
    given |= {"mlflow_port": 5055, "mlflow_enabled": enabled}
    failing = {fails.replace(".", "_"): no_mlflow} if fails else {}
    with set_up_by(**failing), mock.patch.object(mlflow_host, "answers", return_value=answers):
        done = host.step(script_of("mlflow", "services"), {**header(), **given, "share_path": "/export/shared"})
    assert (done.returncode != 0) == bool(fails), done.stderr
    file = host.path("/export/shared/.tailrack/mlflow-uri")
    return file.read_text() if file.exists() else None


@pytest.mark.parametrize("fails", SET_UP)
def test_no_job_is_sent_to_an_mlflow_that_could_not_be_set_up_or_is_disabled(host: Shell, fails: str) -> None:
    assert published(host, fails=fails, answers=False) is None
    # One that answered before this step, and does not since; and another program answers in its place.
    assert published(host) == PUBLISHED
    assert published(host, fails=fails, answers=False) is None
    assert published(host) == PUBLISHED
    assert published(host, fails=fails, active=False) is None
    assert published(host) == PUBLISHED
    assert published(host, enabled=False) is None


def serve(host: Shell, **more: Value) -> str:
    """Run the part of the phase that comes after all other services."""
    host.write("/etc/passwd", ACCOUNT)
    given: dict[str, Value] = {f"mlflow_{name}": "" for name in ("login", "start", "accounts", "dump")}
    return host.failure_of(mlflow_host.serve, STEP, values(**{**given, **more}))


def test_each_user_has_a_password_of_his_own_that_stays_and_goes_with_him(host: Shell) -> None:
    assert host.failure_of(mlflow_host.create_credentials, values()) == ""
    ada, bob = (host.path(f"{KEPT}/{name}").read_text() for name in ("ada", "bob"))
    assert "mlflow_tracking_username = ada\nmlflow_tracking_password = " in ada
    assert ada.split()[-1] != bob.split()[-1]
    assert len(ada.split()[-1]) == 64
    assert host.path(f"{KEPT}/ada").stat().st_mode & 0o777 == 0o600
    ada_alone = values(users_lines=[("ada", 6001, 6001)])
    assert host.failure_of(mlflow_host.create_credentials, ada_alone) == ""
    assert host.path(f"{KEPT}/ada").read_text() == ada
    assert not host.path(f"{KEPT}/bob").exists()


def give(host: Shell) -> str:
    """Make the credentials, and write them into the homes."""
    problem = host.failure_of(mlflow_host.create_credentials, values())
    return problem or host.failure_of(mlflow_host.publish_credentials, values())


def test_a_home_gets_the_file_that_mlflows_client_reads_and_one_that_is_not_ours_stays(host: Shell) -> None:
    home = host.path("/export/shared/home/bob")
    (home / ".mlflow").mkdir()
    (home / ".mlflow" / "credentials").write_text("[mlflow]\nmlflow_tracking_password = of-my-own\n")
    assert give(host) == ""
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
    assert give(host) == ""
    assert given.read_text() == host.path(f"{KEPT}/ada").read_text() != before


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_the_step_writes_credentials_through_no_link_of_a_user(host: Shell, kind: str) -> None:
    aim = host.write("/aim", "as it was\n")
    place = host.path("/export/shared/home/ada/.mlflow/credentials")
    place.parent.mkdir()
    if kind == "link":
        place.symlink_to(aim)
    else:
        place.mkdir()
    assert give(host) == ""
    assert aim.read_text() == "as it was\n"
    assert host.path("/export/shared/home/bob/.mlflow/credentials").is_file()


def test_passwords_reach_mlflows_database_as_a_stream_alone(host: Shell) -> None:
    program = host.write(
        f"{PROGRAM}/bin/python", f'#!/bin/bash\nprintf "%s\\n" "$*" >{host.root}/words\ncat >{host.root}/got\n'
    )
    program.chmod(0o755)

    def update() -> None:
        mlflow_host.create_credentials(values())
        mlflow_host.update_accounts(STEP, values())

    assert host.failure_of(update) == ""
    got = host.path("/got").read_text().splitlines()
    assert [line.split()[0] for line in got] == ["admin", "ada", "bob"]
    assert got[0] == f"admin {PASSWORD}"
    words = host.path("/words").read_text()
    assert words.split()[-1].count(".") == 2  # the release
    assert not [line for line in got if line.split()[1] in words]
    assert not host.path("/run/tailrack-private/mlflow-accounts").exists()
    program.write_text("#!/bin/bash\necho 'sqlite3.OperationalError: database or disk is full' >&2\nexit 1\n")
    assert "MLflow's database cannot be used: sqlite3.OperationalError: database or disk is full; " in host.failure_of(
        update
    )


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


def install(host: Shell, index: str | None = None) -> str:
    """Install MLflow from an index."""
    return host.failure_of(install_module.install, STEP, values(mlflow_index=index))


def test_mlflow_is_installed_once_with_digests_from_the_index(host: Shell) -> None:
    host.stub("python3", FAKE_VENV.format(root=host.root))
    host.path("/wheels").mkdir()
    mirror, python = "https://mirror.example.org/simple", host.path("/usr/bin/python3")
    for version, (index, words) in enumerate(
        (
            (None, "--no-input -r"),
            (mirror, f"--no-input --index-url {mirror} -r"),
            ("/wheels", f"--no-input --no-index --find-links {host.root}/wheels -r"),
        ),
        14,
    ):
        # Another Python needs it again.
        python.unlink()
        python.symlink_to(f"python3.{version}")
        before = len(host.calls)
        for _ in range(2):
            assert install(host, index) == ""
        (call,) = [call for call in host.calls[before:] if call.startswith("pip ")]
        assert "--no-deps --require-hashes --only-binary :all:" in call
        assert words in call


def test_a_companys_proxy_in_the_way_of_the_index_is_named_and_not_the_last_try(host: Shell) -> None:
    host.stub("python3", FAKE_VENV.format(root=host.root))
    broken = "'SSLError(1, '[SSL: X] certificate verify failed: self-signed certificate (_ssl.c:1)'))'"
    host.write("/pip-fails", f"WARNING: Retrying (Retry(total=0)) after connection broken by {broken}\nERROR: No\n")
    said = install(host)
    assert "MLflow cannot be installed here: certificate verify failed: self-signed certificate; " in said
    assert "pip.conf" in said


def test_a_folder_of_wheels_that_others_could_change_is_refused(host: Shell) -> None:
    host.path("/wheels").mkdir()
    host.path("/wheels").chmod(0o775)
    assert "/wheels can be changed by others than root on a1 (owner 0, mode 775, or a link); " in install(
        host, "/wheels"
    )
    host.path("/link").symlink_to("wheels")
    assert "/link can be changed by others than root" in install(host, "/link")
    host.path("/wheels").chmod(0o755)
    others = [folders.Part("/wheels", stat.S_IFDIR, 0o755, 1000)]
    with mock.patch.object(folders, "parts_of", return_value=others):
        assert "(owner 1000, mode 755, or a link)" in install(host, "/wheels")
    assert "which tailrack:mlflow.index names, is not on a1" in install(host, "/none")
    assert not host.path(PROGRAM).exists()


@pytest.mark.parametrize("backups", [True, False])
def test_the_step_saves_the_mlflow_database_at_once_and_then_hourly(host: Shell, backups: bool) -> None:
    # The backup of the `up` that brings MLflow, or brings it back, is made before it is there.
    if backups:
        host.write("/etc/systemd/system/tailrack-backup.service", "")
    host.stub("systemctl")
    for _ in range(2):
        with set_up_by():
            assert serve(host, mlflow_dump="a program") == ""
    asked = [call for call in host.calls if call.startswith("systemctl")]
    assert asked == ["systemctl start tailrack-backup.service"] * backups


def test_the_next_backup_contains_a_restored_database_if_mlflow_fails(host: Shell) -> None:
    hook = host.path("/usr/local/lib/tailrack/backup.d/mlflow")
    # From the moment that the database leaves the backup's own folder.
    restored = mock.Mock(side_effect=lambda step: hook.stat().st_mode & 0o777)
    with set_up_by(restore_dump=restored, update_accounts=no_mlflow):
        assert serve(host, mlflow_dump="x") == "no MLflow; look"
    assert restored.call_count == 1
    assert hook.read_text() == "x\n"
    assert hook.stat().st_mode & 0o777 == 0o755


def test_leaving_removes_mlflow_and_gives_its_logs_to_root(host: Shell) -> None:
    for path in (f"{PROGRAM}/whole", "/etc/tailrack/mlflow/environment", URI, UNIT):
        host.write(path, "x\n")
    database = host.write("/var/lib/tailrack-mlflow/mlflow.db", "what was logged\n")
    artifacts = host.path("/export/shared/mlflow")
    artifacts.mkdir()
    host.write("/var/lib/tailrack/mlflow/artifacts", "/export/shared/mlflow\n")
    told = host.write("/export/shared/.tailrack/mlflow-uri", PUBLISHED)
    host.write("/etc/passwd", ACCOUNT)
    host.stub("userdel")
    for _ in range(2):
        assert host.failure_of(leave, STEP) == ""
    assert not told.exists()
    assert database.exists()
    assert [path.stat().st_mode & 0o777 for path in (database.parent, artifacts)] == [0o700, 0o700]
    assert "userdel tailrack-mlflow" in host.calls
