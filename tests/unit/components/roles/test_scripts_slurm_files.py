"""slurmctld is offered new files: what it refuses is taken back, whoever it is that finds the fault."""

from __future__ import annotations

import pytest

from tests.unit.shell import Shell, role_header

OLD, NEW = "KillWait=45\n", "KillWait=99999\n"
SAYS_DOWN = "echo 'Slurmctld(primary) at head is DOWN'"
SAYS_UP = "echo 'Slurmctld(primary) at head is UP'"


@pytest.fixture
def controller(shell: Shell) -> Shell:
    """A machine whose slurmctld has taken OLD and is offered NEW."""
    shell.write("/var/lib/tailrack/slurm/taken/slurm.conf", OLD)
    shell.write("/etc/slurm/slurm.conf", OLD)
    shell.write("new/slurm.conf", NEW)
    shell.stub("systemctl")
    shell.stub("journalctl")
    shell.stub("chown")
    shell.hurry()
    return shell


def offered(controller: Shell, reconfigure: str, ping: str) -> tuple[int, str]:
    """Offer NEW to a slurmctld that scontrol says this of. The exit status, and why it was refused."""
    conf = controller.path("/etc/slurm/slurm.conf")
    # scontrol reads the file itself before it asks anybody.
    fatal = f"grep 99999 {conf} >/dev/null && [ -e {controller.root}/unreadable ] && {{ echo fatal >&2; exit 1; }}"
    controller.stub("scontrol", f'{fatal}\ncase "$1" in\nreconfigure) {reconfigure} ;;\nping) {ping} ;;\nesac')
    # A step's own, about the machine's packages and its owner.
    own = 'ensure_file() { mkdir -p "${1%/*}"; printf \'%s\\n\' "$4" >"$1"; }'
    done = controller.call(
        f'{own}; offer_slurm_files "{controller.root}/new" && rc=0 || rc=$?; echo "$rc $REFUSED"',
        {**role_header("slurm"), "HOST_NAME": "head"},
        "slurm/files",
    )
    status, _, refused = done.stdout.splitlines()[-1].partition(" ") if done.stdout else ("1", "", done.stderr)
    return int(status), refused


def test_files_that_scontrol_itself_cannot_read_are_taken_back(controller: Shell) -> None:
    controller.write("unreadable", "")
    status, refused = offered(controller, ":", SAYS_UP)
    assert (status, refused) == (1, "slurmctld refuses the new configuration and goes on with the old one")
    assert controller.path("/etc/slurm/slurm.conf").read_text(encoding="utf-8") == OLD


def test_files_that_slurmctld_refuses_are_taken_back(controller: Shell) -> None:
    status, refused = offered(controller, "exit 1", SAYS_UP)
    assert (status, refused) == (1, "slurmctld refuses the new configuration and goes on with the old one")
    assert controller.path("/etc/slurm/slurm.conf").read_text(encoding="utf-8") == OLD


def test_files_stay_for_a_slurmctld_that_hangs_until_its_watchdog_has_started_it_again(controller: Shell) -> None:
    again = f"if [ -e {controller.root}/asked ]; then {SAYS_UP}; else : >{controller.root}/asked; {SAYS_DOWN}; fi"
    assert offered(controller, "exit 1", again) == (0, "")
    assert controller.path("/etc/slurm/slurm.conf").read_text(encoding="utf-8") == NEW
    assert controller.path("/var/lib/tailrack/slurm/taken/slurm.conf").read_text(encoding="utf-8") == NEW
