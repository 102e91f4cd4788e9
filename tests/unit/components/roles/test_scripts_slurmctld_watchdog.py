"""The program that starts a slurmctld again that hangs."""

from components.roles.role import template
from tests.unit.shell import Shell

STAT = "1833 (slurmctld) {state} 1 1833 1833 0 -1 4194560 9 9 9 9 {user} {system} 0 0 20 0 66 0 3\n"


def looked(shell: Shell, looks: int, ping: str, *, state: str = "S", work: str = "") -> list[str]:
    """What is done to slurmctld in so many looks of which each begins with `work`. `ping`: what scontrol says."""
    shell.write("/proc/1833/stat", STAT.format(state=state, user=40, system=2))
    shell.path("naps").unlink(missing_ok=True)
    shell.stub("sleep", f'echo >>"{shell.root}/naps"; {work or ":"}; [ "$(wc -l <"{shell.root}/naps")" -le {looks} ]')
    shell.stub("scontrol", f"echo 'Slurmctld(primary) at head is {ping}'")
    shell.stub("systemctl", "[ $1 != show ] || echo 1833")
    shell.run(template("slurm", "tailrack-slurmctld-watchdog"))
    return [call for call in shell.calls if call.startswith(("systemctl kill", "systemctl restart"))]


def test_a_controller_that_is_busy_stopped_or_waits_for_a_disk_is_left_alone(shell: Shell) -> None:
    # A second of CPU between two looks.
    works = f'sed -i "s/ 9 9 9 9 / 9 9 9 9 1/" {shell.root}/proc/1833/stat'
    assert looked(shell, 6, "DOWN", work=works) == []
    for state in ("T", "t", "D", "Z"):
        assert looked(shell, 6, "DOWN", state=state) == [], state


AGAIN = ["systemctl kill --signal=KILL slurmctld", "systemctl restart slurmctld"]


def test_a_controller_that_neither_answers_nor_works_is_started_again_at_the_third_look(shell: Shell) -> None:
    assert looked(shell, 2, "DOWN") == []
    assert looked(shell, 3, "DOWN") == AGAIN
