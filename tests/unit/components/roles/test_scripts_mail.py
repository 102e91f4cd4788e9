"""The program that slurmctld runs to send mail about a job: a user writes the addresses and the job's name."""

import subprocess

import pytest

from components.roles.role import template
from tests.unit.shell import Shell, assert_ok

# As slurmctld has it, around the name of the job.
SUBJECT = "Slurm Job_id=7 Name=%s Ended, Run time 00:00:01, COMPLETED, ExitCode 0"


def mail(shell: Shell, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it as slurmctld does, on a machine whose programs are the stubs."""
    text = template("slurm", "tailrack-mail").replace("export PATH=", f"export PATH={shell.root / 'stubs'}:")
    path = shell.write("/usr/local/sbin/tailrack-mail", shell.inside(text))
    return subprocess.run(
        ["bash", str(path), *words], env={"SLURM_JOB_ID": "7", "MAILRC": "/mine"}, capture_output=True, text=True,
        timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def sent(shell: Shell) -> Shell:
    """A machine with a mail program that notes its words and its environment, one a line."""
    shell.stub("logger")
    shell.stub("mail", f'printf "%s\\n" "$@" >{shell.root}/sent; env >{shell.root}/environment')
    return shell


def test_addresses_are_words_of_their_own_behind_the_end_of_the_options(sent: Shell) -> None:
    for addresses in ("ada", "ada@example.org", "a.b+c@mail.example.org,bob,_x@h"):
        assert mail(sent, "-s", SUBJECT % "train", addresses).returncode == 0, addresses
        assert sent.path("sent").read_text().splitlines() == ["-s", SUBJECT % "train", "--", *addresses.split(",")], (
            addresses
        )
        assert "MAILRC" not in sent.path("environment").read_text(), addresses


def test_an_invalid_address_reaches_no_mail_program(sent: Shell) -> None:
    addresses = [
        "--exec=id", "-f", "ada,-x", "|id", "ada;id", "$(id)", "/etc/passwd", "+folder", "ada bob", "ada@-x", "ada@x@y",
        "ada@", "ada,,bob", "ada,", ",ada", "", "ada\n--exec=id", "@x", "a!b", "a%b@c", "ädä@example.org",
    ]  # fmt: skip
    for address in addresses:
        assert mail(sent, "-s", SUBJECT % "train", address).returncode == 0
        assert not sent.path("sent").exists(), address
    told = "no mail about job 7: its --mail-user is not a comma-separated list of mail addresses"
    assert sent.calls == [f"logger -t tailrack-mail {told}"] * len(addresses)


def test_the_name_of_a_job_begins_no_other_header(sent: Shell) -> None:
    mail(sent, "-s", SUBJECT % "x\r\nBcc: eve@example.org", "ada")
    assert sent.path("sent").read_text().splitlines()[1] == SUBJECT % "x  Bcc: eve@example.org"


def test_without_a_mail_program_the_journal_says_so_and_slurmctld_sees_no_failure(shell: Shell) -> None:
    shell.stub("logger")
    shell.path("usr/local/bin").mkdir(parents=True)
    text = template("slurm", "tailrack-mail").replace("export PATH=", f"export PATH={shell.root / 'stubs'} OTHERS=")
    path = shell.write("/usr/local/sbin/tailrack-mail", text)
    assert_ok(
        subprocess.run(["/bin/bash", str(path), "-s", "x", "ada"], env={}, capture_output=True, text=True, timeout=60)
    )
    assert shell.calls == ["logger -t tailrack-mail no mail about job : this machine has no program 'mail'"]
