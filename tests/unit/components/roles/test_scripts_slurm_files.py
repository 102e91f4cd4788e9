"""slurmctld is offered new files: what it refuses is taken back, whoever it is that finds the fault."""

import pytest

from components.roles.slurm.slurm.controller import errors, offer
from tests.unit.shell import Shell

OLD, NEW = "KillWait=45\n", "KillWait=99999\n"
# As scontrol ends where no slurmctld answers (_print_ping of src/scontrol/scontrol.c).
SAYS_DOWN = "echo 'Slurmctld(primary) at head is DOWN'; exit 1"
SAYS_UP = "echo 'Slurmctld(primary) at head is UP'"


@pytest.fixture
def controller(shell: Shell) -> Shell:
    """A machine whose slurmctld has taken OLD and is offered NEW."""
    shell.write("/var/lib/tailrack/slurm/taken/slurm.conf", OLD)
    shell.write("/etc/slurm/slurm.conf", OLD)
    shell.write("/new/slurm.conf", NEW)
    shell.stubs("systemctl", "journalctl", "chown")
    shell.hurry()
    return shell


def offered(controller: Shell, reconfigure: str, ping: str) -> str:
    """Offer NEW to a slurmctld that scontrol says this of. Return why it was refused."""
    conf = controller.path("/etc/slurm/slurm.conf")
    # scontrol reads the file itself before it asks anybody.
    fatal = f"grep 99999 {conf} >/dev/null && [ -e {controller.root}/unreadable ] && {{ echo fatal >&2; exit 1; }}"
    controller.stub("scontrol", f'{fatal}\ncase "$1" in\nreconfigure) {reconfigure} ;;\nping) {ping} ;;\nesac')
    return controller.call(offer, "/new")


def test_files_that_scontrol_cannot_read_or_slurmctld_refuses_are_taken_back(controller: Shell) -> None:
    keeps = "slurmctld rejects the new configuration and keeps the old one"
    for reconfigure in ("exit 1", ":"):
        assert offered(controller, reconfigure, SAYS_UP) == keeps
        assert controller.path("/etc/slurm/slurm.conf").read_text(encoding="utf-8") == OLD, reconfigure
        controller.write("unreadable", "")


def test_files_stay_for_a_slurmctld_that_hangs_until_its_watchdog_has_started_it_again(controller: Shell) -> None:
    again = f"if [ -e {controller.root}/asked ]; then {SAYS_UP}; else : >{controller.root}/asked; {SAYS_DOWN}; fi"
    assert offered(controller, "exit 1", again) == ""
    assert controller.path("/etc/slurm/slurm.conf").read_text(encoding="utf-8") == NEW
    assert controller.path("/var/lib/tailrack/slurm/taken/slurm.conf").read_text(encoding="utf-8") == NEW


def test_files_stay_if_the_watchdog_restarts_slurmctld_during_the_check(controller: Shell) -> None:
    again = f"{controller.root}/again"
    controller.stub("systemctl", f"[ $1 != show ] || {{ [ -e {again} ] && echo 2 || echo 1; }}")
    # Who asks waits until the new one answers.
    assert offered(controller, "exit 1", f": >{again}; {SAYS_UP}") == ""
    assert controller.path("/etc/slurm/slurm.conf").read_text(encoding="utf-8") == NEW


def test_files_with_which_slurmctld_does_not_stay_are_taken_back(controller: Shell) -> None:
    # Another process each time that one asks: it ends, is started again with these files, and ends.
    controller.stub(
        "systemctl", f'[ "$1" != show ] || {{ echo x >>{controller.root}/starts; wc -l <{controller.root}/starts; }}'
    )
    refused = offered(controller, "exit 1", SAYS_UP)
    assert refused == "slurmctld rejects the new configuration; it restarts with the old one"
    assert controller.path("/etc/slurm/slurm.conf").read_text(encoding="utf-8") == OLD


def test_the_error_contains_the_reason_of_slurmctld_and_no_systemd_lines(controller: Shell) -> None:
    after = "\n".join(f"slurmctld.service: Consumed {second}s CPU time." for second in range(20))
    controller.write("said", f"slurmctld: fatal: failed to initialize sched plugin\n{after}\n")
    controller.stub("journalctl", f'[ "$1" = --sync ] || cat {controller.root}/said')
    assert controller.call(errors, 0) == ["slurmctld: fatal: failed to initialize sched plugin"]
