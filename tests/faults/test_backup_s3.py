"""Backups of the head node in S3: a server that checks keys, on its loopback. What is wrong with it is one error.

The tests run in the order of this file.
"""

import json
from typing import Any

import pytest

from tests.faults.test_backup import RESTIC
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.lab.inside import PLACE, PROGRAM, bring_program
from tests.lab.sealer import Sealer, sealer_of

FOLDER, PORT = "/root/s3", 8443
TARGET = f"s3:https://s3.lab:{PORT}/lab"
# A name, and a certificate that the machine trusts, as those of an S3 of one's own.
NAMED = f"""set -e; mkdir -p {FOLDER}; cd {FOLDER}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=s3.lab \
    -addext subjectAltName=DNS:s3.lab -keyout key.pem -out cert.pem 2>/dev/null
cp cert.pem /usr/local/share/ca-certificates/s3-lab.crt
update-ca-certificates >/dev/null 2>&1
grep -q s3.lab /etc/hosts || echo '127.0.0.1 s3.lab' >>/etc/hosts"""
SERVE = f"systemd-run -q --unit lab-s3 --setenv=TMPDIR={FOLDER} {PROGRAM} {PLACE}/tests/lab/s3.py {FOLDER} {PORT}"


class InS3:
    """A cluster whose backups go to S3, and what its config says of them."""

    def __init__(self, lab: ClusterUnderTest, sealer: Sealer, key: list[str]) -> None:
        self.lab, self._sealer, self.key = lab, sealer, key
        self.says(TARGET, key[1])

    def says(self, target: str, secret: str) -> None:
        """Have the config name this target, with the key's id and this secret."""
        sealed = {"secure": self._sealer.seal(secret)}
        self.lab.config["tailrack:backup"] = {"target": target, "access_key": self.key[0], "secret_key": sealed}

    def refused(self) -> str:
        """What the one step says that an `up` fails by, after which nothing makes backups."""
        (failure,) = self.lab.up().failures
        assert self.key[1] not in failure.message
        there = "ls -d /etc/tailrack/backup 2>/dev/null; systemctl is-active tailrack-backup.timer"
        assert self.lab.attempt("head", there).stdout == "inactive\n"
        return " ".join(failure.message.split())


@pytest.fixture(scope="module")
def s3(make_cluster: MakeCluster) -> InS3:
    """The head node and a1, without backups at first; the server runs."""
    made = make_cluster("s3", one_site=True)
    made.config["tailrack:accounting"] = {"enabled": False}
    _, sealer = sealer_of(made)
    made.up_ok()
    bring_program(made.container("head"), "root")
    made.run("head", f"{NAMED}; {SERVE}")
    answers = f"test -s {FOLDER}/key.json && : <>/dev/tcp/s3.lab/{PORT}"
    try:
        eventually(lambda: made.attempt("head", answers).returncode == 0, 60, "S3 answers")
    except AssertionError:
        raise AssertionError(made.run("head", "journalctl -u lab-s3 -o cat --no-pager | tail -n 20")) from None
    key: list[str] = json.loads(made.run("head", f"cat {FOLDER}/key.json"))
    return InS3(made, sealer, key)


def test_a_bucket_that_does_not_answer_is_not_there_or_does_not_know_the_key_is_one_error_and_nothing_is_changed(
    s3: InS3,
) -> None:
    s3.says(TARGET.replace(str(PORT), "8444"), s3.key[1])
    assert "the backup's target s3.lab does not answer at port 8444" in s3.refused()
    s3.says(f"{TARGET}b", s3.key[1])
    assert "there is no bucket labb at s3.lab" in s3.refused()
    assert "labb" not in s3.lab.run("head", "journalctl -u lab-s3 -o cat | grep PUT || :")
    s3.says(TARGET, "another-secret")
    said = s3.refused()
    assert "the bucket lab at s3.lab refuses access: " in said
    assert "another-secret" not in said


def test_a_bucket_that_is_full_is_one_error_and_nothing_is_changed(s3: InS3) -> None:
    s3.says(TARGET, s3.key[1])
    s3.lab.run("head", f"touch {FOLDER}/full")
    assert "cannot create a backup repository at the target: " in (said := s3.refused())
    assert "minimum free drive threshold" in said
    s3.lab.run("head", f"rm {FOLDER}/full")


def test_a_backup_is_made_at_once_in_the_bucket_and_reads_back_whole(s3: InS3) -> None:
    lab = s3.lab
    lab.up_ok()
    assert lab.run("head", "tailrack-backup status").startswith("backup: the last one is 0 minutes old")
    lab.run("head", f"{RESTIC} /etc/tailrack/backup restore latest --target /root/read --verify")
    kept = "/var/lib/tailrack/ssh_authority /etc/munge/munge.key"
    lab.run("head", f"for path in {kept}; do cmp $path /root/read$path || exit 1; done")
    assert "cluster=lab" in lab.run("head", "cat /root/read/backup")
    # The secret is root's alone, and in no arguments while a backup is made.
    assert lab.run("head", "stat -c '%a %U' /etc/tailrack/backup/secret_key").split() == ["600", "root"]
    watched = (
        "systemctl start --no-block tailrack-backup; for i in {1..200}; do "
        "pgrep -x restic >/dev/null && break; sleep 0.1; done; "
        "for pid in $(pgrep -x restic); do tr '\\0' '\\n' </proc/$pid/cmdline; done"
    )
    words = lab.run("head", watched)
    assert "restic" in words
    assert s3.key[1] not in words
    for path in lab.state_files():
        assert s3.key[1].encode() not in path.read_bytes(), path
    lab.up_ok()
    assert lab.touched() == set()


def test_a_bucket_that_is_full_later_is_said_by_the_backup_and_by_the_next_change(s3: InS3) -> None:
    lab: Any = s3.lab
    eventually(lambda: "0 minutes" in lab.run("head", "tailrack-backup status"), 60, "the last backup has ended")
    lab.run("head", f"touch {FOLDER}/full")
    lab.config["tailrack:cluster"]["repair"] = {"head": "while it is full"}
    (failure,) = lab.up().failures
    assert "cannot write to the backup's target: " in (said := " ".join(failure.message.split()))
    assert "minimum free drive threshold" in said
    lab.run("head", f"rm {FOLDER}/full")
    lab.up_ok()
