"""No daemon of the cluster stays dead: systemd starts each again however often it ends, a little later each time."""

import re
from pathlib import Path

import pytest

from components.node.systemd import keep_running
from components.roles.role import FOLDER
from tests.unit.shell import Shell

UNITS = sorted(FOLDER.glob("*/*/templates/*.service"))
DROP_IN = "/etc/systemd/system/munge.service.d/tailrack-restart.conf"


def runs_once(unit: str) -> bool:
    """Whether it ends when its work is done, and a timer, a person or a connection starts it again."""
    return ("Type=oneshot" in unit and "RemainAfterExit=yes" not in unit) or "StandardInput=socket" in unit


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_of_ours_is_started_again_without_an_end(path: Path) -> None:
    lines = path.read_text().splitlines()
    if runs_once("\n".join(lines)):
        return
    assert "StartLimitIntervalSec=0" in lines
    if "Type=oneshot" not in lines:
        assert {"Restart=always", "Restart=on-failure"} & set(lines)
        assert {"RestartSteps=6", "RestartMaxDelaySec=30"} <= set(lines)


def test_so_is_every_daemon_of_a_package_that_the_cluster_needs() -> None:
    kept = set()
    for path in FOLDER.glob("*/*/*.py"):
        text = path.read_text()
        constants = dict(re.findall(r'(?m)^([A-Z_]+) = "(.+)"$', text))
        for call in re.findall(r"\b(?:keep_running|write_restart)\((.*?)\)", text):
            words = (word.strip('"') for word in re.findall(r'[A-Z_]+\b|".+?"', call))
            kept |= {constants.get(word) or word.replace("{SERVER}", constants.get("SERVER", "")) for word in words}
    needed = {"munge", "tailscaled", "ssh", "slurmctld", "slurmd", "nfs-ganesha", "nfs-mountd", "nfsdcld"}
    assert kept == {f"{name}.service" for name in needed}


def test_a_package_daemon_has_no_start_limit_and_the_step_restarts_nothing_for_that(shell: Shell) -> None:
    for _ in range(2):
        shell.call(keep_running, "munge.service")
    lines = shell.path(DROP_IN).read_text().splitlines()
    assert {"StartLimitIntervalSec=0", "Restart=always", "RestartPreventExitStatus="} <= set(lines)
    assert [call for call in shell.calls if call.split()[1] not in ("show", "daemon-reload")] == []
