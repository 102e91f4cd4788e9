"""Role job_reports' phases: the files and folders that they make, restarts, and removal."""

import pytest

from components.node.step.step import Step
from components.roles.jobs.job_reports.host import CREDENTIALS, SPOOL, UNIT, JobReportsValues, services
from components.roles.role import template
from tests.unit.shell import Shell

STEP = Step("head", "head-services")
UNIT_FILE = f"/etc/systemd/system/{UNIT}"


def values(
    secrets: str = "mail-password pass word", settings: str = '{"x": 1}', program: str = "v1"
) -> JobReportsValues:
    return JobReportsValues(settings, secrets, program, template("job_reports", UNIT))


@pytest.fixture
def host(shell: Shell) -> Shell:
    shell.path("/run/tailrack-private").mkdir(parents=True)
    shell.write("/etc/passwd", "")
    shell.stubs("systemctl", "useradd", "userdel")
    return shell


def restarts(host: Shell) -> int:
    return sum(call == f"systemctl restart {UNIT}" for call in host.calls)


def test_the_service_starts_once_and_again_when_its_settings_change(host: Shell) -> None:
    changed = values(settings='{"x": 2}')
    for count, given in ((1, values()), (1, values()), (2, changed), (3, values(settings='{"x": 2}', program="v2"))):
        host.call(services, STEP, given)
        assert restarts(host) == count
    assert host.owners[SPOOL] == ("slurm", "tailrack-reports")
    assert host.path(SPOOL).stat().st_mode & 0o7777 == 0o2770
    host.stub("systemctl", "case $* in *is-active*) exit 3 ;; esac")
    host.hurry()
    assert f"journalctl -u {UNIT}" in host.failure_of(services, STEP, values())


def test_only_root_can_read_secrets_and_a_secret_that_the_config_no_longer_has_goes(host: Shell) -> None:
    host.call(services, STEP, values("mail-password pass word\nchannel-vision https://hooks.example/x"))
    folder = host.path(CREDENTIALS)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
        ("mail-password", "channel-vision", "settings"), 0o600
    )
    assert (folder / "mail-password").read_text() == "pass word\n"
    unit = host.path(UNIT_FILE).read_text()
    assert f"\nLoadCredential=channel-vision:{CREDENTIALS}/channel-vision\n" in unit
    assert "pass word" not in unit
    assert not any("pass word" in call or "hooks" in call for call in host.calls)
    host.call(services, STEP, values("mail-password pass word"))
    assert "channel-vision" not in host.path(UNIT_FILE).read_text()
