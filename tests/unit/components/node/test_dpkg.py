"""The packages of a machine, as dpkg has recorded them."""

from pathlib import Path

from components.node import packages
from tests.unit.shell import Shell

# As Debian 12 writes it.
STATUS = (Path(__file__).parents[3] / "fixtures" / "dpkg" / "status").read_text(encoding="utf-8")
NAMES = ("munge", "slurmd", "held", "cut-off", "libc6", "unknown")


def test_the_installed_packages_are_read_and_no_process_starts(shell: Shell) -> None:
    shell.write("var/lib/dpkg/status", STATUS)
    with shell.here():
        assert packages.installed(NAMES) == {"munge": "0.5.15-2", "held": "1:2.0-1", "libc6": "2.36-9"}
        assert packages.missing_of(["libc6:amd64", "slurmd", "munge", "slurmd"]) == ["slurmd"]
        assert packages.installed([]) == {}
    assert shell.calls == []


def test_a_change_is_seen(shell: Shell) -> None:
    status = shell.write("var/lib/dpkg/status", STATUS)
    with shell.here():
        assert "slurmd" not in packages.installed(NAMES)
        status.write_text(STATUS.replace("deinstall ok config-files", "install ok installed"))
        assert packages.installed(NAMES)["slurmd"] == "22.05.8-4"


def test_dpkg_query_answers_during_or_after_an_interrupted_installation(shell: Shell) -> None:
    shell.write("var/lib/dpkg/status", STATUS)
    shell.write("var/lib/dpkg/updates/0003", "Package: slurmd\n")
    shell.stub("dpkg-query", "printf 'munge installed 0.5.16-1\\nslurmd half-configured 1\\n'; exit 1")
    with shell.here():
        assert packages.installed(("munge", "slurmd")) == {"munge": "0.5.16-1"}
    assert len(shell.calls) == 1
