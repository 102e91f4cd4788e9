"""Backups of the head node on a second machine, and a head node that is lost and made of one while a job runs.

Machines of one's own: a head node, a node, and a machine that keeps the backups and is in no cluster. The tests run in
the order of this file.
"""

import subprocess
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.vault import open_vault

FOLDER = "/srv/backups"
LIMIT_SECONDS = 300
RESTIC = "tailrack-backup restic"


@dataclass
class Machines:
    """The stack, and what its config says of the backup."""

    cluster: ClusterUnderTest
    head: dict[str, Any]

    @property
    def backup(self) -> dict[str, Any]:
        """The section."""
        found: dict[str, Any] = self.cluster.config["tailrack:backup"]
        return found

    def failure(self) -> str:
        """What the one step says that an `up` fails by."""
        (failure,) = self.cluster.up().failures
        return " ".join(failure.message.split())


def recorded(lab: ClusterUnderTest, job: str) -> str:
    """A job's state as the accounting has it."""
    return lab.run("head", f"sacct -n -P -X -j {job} -o State").strip()


@pytest.fixture(scope="module")
def machines(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """Three bare machines; one lets the key of the backups in and is no node."""
    made = make_cluster("b1")
    head, node, vault = (own_machine(made.lab, name, bare=True) for name in ("head", "n1", "vault"))
    made.use_machines({"name": "rack", "fabric": "tailnet", "hosts": [head, node]})
    made.config["tailrack:backup"] = open_vault(made, vault, FOLDER, tmp_path_factory.mktemp("key"))
    return Machines(made, head)


def test_a_target_that_does_not_answer_is_said_before_anything_is_changed(machines: Machines) -> None:
    machines.backup["port"] = 2
    said = machines.failure()
    machines.backup["port"] = 22
    assert "does not answer at port 2" in said
    assert machines.cluster.attempt("head", "test -e /var/lib/tailscale/tailscaled.state").returncode == 1


def test_a_folder_that_others_can_open_is_refused_and_the_cluster_works(machines: Machines) -> None:
    lab = machines.cluster
    lab.run("vault", f"install -d -m 0755 -o keeper {FOLDER}/lab")
    assert "is open to other accounts there (drwxr-xr-x)" in machines.failure()
    assert lab.run("head", "sinfo -h -p rack -o '%T'").strip() == "idle"
    assert lab.run("vault", f"ls {FOLDER}/lab") == ""
    assert lab.attempt("head", "test -e /etc/tailrack/backup").returncode == 1
    lab.run("vault", f"rmdir {FOLDER}/lab")


def test_a_backup_runs_at_once_and_hourly_and_only_root_reads_its_key(machines: Machines) -> None:
    lab = machines.cluster
    lab.up_ok()
    assert "tailrack-backup.timer" in lab.run("head", "systemctl list-timers --no-pager")
    assert lab.run("head", "tailrack-backup status").startswith("backup: the last one is 0 minutes old")
    assert lab.attempt("head", "su ada -s /bin/sh -c 'ls /etc/tailrack/backup'").returncode != 0
    assert lab.run("head", "ls -d /var/lib/tailrack/backup-stage 2>/dev/null || :") == ""
    names = lab.run("head", f"{RESTIC} /etc/tailrack/backup ls latest")
    for path in (
        "/var/lib/slurm/slurmctld/job_state",
        "/var/lib/tailrack/ssh_authority",
        "/etc/munge/munge.key",
        "/dumps/accounting.sql",
    ):
        assert f"\n{path}\n" in names
    assert "/var/lib/tailrack/members/n1/address" in names
    assert lab.run("vault", f"stat -c %a {FOLDER}/lab").strip() == "700"
    # What lies there tells nothing.
    assert lab.attempt("vault", f"grep -rqE 'OPENSSH PRIVATE KEY|ClusterName' {FOLDER}/lab").returncode == 1
    assert lab.deployment().outputs()["backup_password"] == "[secret]"


def test_a_backup_that_fails_is_said_until_one_succeeds(machines: Machines) -> None:
    lab = machines.cluster
    lab.run("vault", f"mv {FOLDER}/lab {FOLDER}/away")
    assert lab.attempt("head", "systemctl start tailrack-backup").returncode != 0
    assert "backup: FAILED: " in lab.run("head", "tailrack-backup status")
    assert "backup failed: " in lab.run("head", "journalctl -p err -u tailrack-backup -o cat")
    lab.run("vault", f"mv {FOLDER}/away {FOLDER}/lab")
    lab.run("head", "systemctl start tailrack-backup")
    assert "minutes old" in lab.run("head", "tailrack-backup status")
    # One that is killed can say nothing: systemd does.
    lab.run("head", "systemctl start --no-block tailrack-backup")
    staged = "ls /var/lib/tailrack/backup-stage/dumps"
    eventually(lambda: lab.attempt("head", staged).returncode == 0, 30, "a backup is being made")
    lab.run("head", "systemctl kill -s KILL tailrack-backup")
    eventually(
        lambda: "killed before it finished (" in lab.run("head", "tailrack-backup status"), 30, "that is reported"
    )
    assert lab.attempt("head", "ls -d /var/lib/tailrack/backup-stage").returncode != 0
    lab.run("head", "systemctl start tailrack-backup")
    assert "minutes old" in lab.run("head", "tailrack-backup status")


def test_a_head_node_lost_during_a_job_is_restored_and_knows_how_the_job_ended(machines: Machines) -> None:
    lab = machines.cluster
    earlier = lab.run_as("ada", "head", "sbatch --parsable --output=/dev/null -w n1 --wait --wrap true").strip()
    eventually(lambda: recorded(lab, earlier) == "COMPLETED", 60, "the earlier job is in the books")
    script = "until test -e /tmp/end; do sleep 0.2; done"
    job = lab.submit(f"-w n1 --wrap '{script}'")

    eventually(lambda: lab.job(job)["JobState"] == "RUNNING", 60, "the job runs")
    started = lab.job(job)["StartTime"]
    address = lab.run("head", "tailscale ip -4")
    lab.run("head", "systemctl start tailrack-backup")
    # Archives that are not to be taken: one with a damaged file, one of another cluster.
    lab.run("head", "cp -a /etc/tailrack/backup /run/other && sed -i 's,/lab$,/other,' /run/other/repository")
    lab.run("head", f"{RESTIC} /run/other init && {RESTIC} /run/other backup --host other --tag tailrack /etc/hosts")
    lab.run("vault", f"chmod 700 {FOLDER}/other")
    lab.run(
        "vault", f"cp -a {FOLDER}/lab {FOLDER}/broken && find {FOLDER}/broken/data -type f -exec truncate -s 100 {{}} +"
    )
    subprocess.run(["docker", "rm", "-f", "-v", lab.container("head")], check=True, capture_output=True)
    begin = time.monotonic()
    machines.head.update(own_machine(lab.lab, "head", bare=True))
    lab.config["tailrack:sites"][0]["hosts"][0] = machines.head
    lab.config["tailrack:head"]["restore_from"] = "latest"
    lab.config["tailrack:allow"] = ["head-replaced"]
    right = machines.backup["target"]
    spent = time.monotonic()
    for place, why in (("broken", "is broken"), ("other", "only of other")):
        machines.backup["target"] = right.replace("/lab", f"/{place}")
        assert why in machines.failure()
        assert lab.attempt(
            "head", "test -e /var/lib/slurm/slurmctld || test -e /var/lib/tailrack/ssh_authority"
        ).returncode
    begin += time.monotonic() - spent
    machines.backup["target"] = right
    summary = lab.up()
    assert summary.ok, "\n\n".join(failure.message for failure in summary.failures)
    assert lab.run("head", "tailscale ip -4") == address
    eventually(lambda: lab.job(job)["JobState"] == "RUNNING", 60, "the new head node knows the job, which runs")
    assert lab.job(job)["StartTime"] == started
    lab.run("n1", "touch /tmp/end")
    eventually(lambda: lab.job(job)["JobState"] == "COMPLETED", 120, "the job has ended well")
    taken = time.monotonic() - begin
    print(f"head node lost, made anew and the job known as COMPLETED: {taken:.0f} s")
    assert taken < LIMIT_SECONDS
    # The books know what was before, and how the job ended that ran meanwhile.
    assert recorded(lab, earlier) == "COMPLETED"
    eventually(lambda: recorded(lab, job) == "COMPLETED", 120, "the job is in the books")
    eventually(lambda: lab.run("head", "sinfo -h -p rack -o '%T'").strip() == "idle", 60, "n1 is idle")
    # The share was on the lost machine; it is there, without what was on it.
    assert lab.run_as("ada", "head", "srun -w n1 pwd").strip() == "/shared/home/ada"


def test_an_up_after_it_changes_nothing_and_a_living_head_node_is_not_restored_over(machines: Machines) -> None:
    lab = machines.cluster
    lab.up_ok()
    assert lab.touched() == set()
    lab.run("head", "rm /var/lib/tailrack/restored")
    lab.config["tailrack:cluster"]["repair"] = {"head": "again"}
    assert "restore_from needs a new machine" in machines.failure()
    del lab.config["tailrack:head"]["restore_from"], lab.config["tailrack:backup"]
    lab.up_ok()
    lab.run("head", "[ ! -e /etc/tailrack/backup ] && ! systemctl -q is-active tailrack-backup.timer")
