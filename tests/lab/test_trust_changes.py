"""What users and daemons' accounts put in the way of `up`, and a user who is removed."""

import pytest

from tests.lab.cluster import ClusterUnderTest
from tests.lab.test_trust import again


@pytest.fixture(scope="module")
def cluster(full: ClusterUnderTest) -> ClusterUnderTest:
    """ada and bob use the head node, which computes, and a1."""
    full.up_ok()
    return full


def test_a_link_in_the_place_of_the_folder_of_keys_gives_no_folder_away(cluster: ClusterUnderTest) -> None:
    cluster.run("head", "install -d -m 0700 /root/private")
    cluster.run_as("ada", "a1", "rm -rf .ssh && ln -s /root/private .ssh")
    again(cluster)
    assert cluster.run("head", "stat -c '%U %a' /root/private; ls -A /root/private") == "root 700\n"
    cluster.run_as("ada", "a1", "rm .ssh")
    again(cluster)
    assert cluster.run_as("ada", "a1", "ssh -o BatchMode=yes head hostname") == "head\n"


def test_a_link_in_the_place_of_the_measurements_output_brings_no_file_of_root(cluster: ClusterUnderTest) -> None:
    cluster.run("head", "echo precious-to-root >/root/only && chmod 0600 /root/only")
    # As soon as the job has made its output, something else is in its place.
    cluster.run_as(
        "ada",
        "head",
        "mkdir -p .tailrack/validation/cloud-a; cd .tailrack/validation/cloud-a; "
        "(for i in $(seq 600); do ln -sf /root/only output; sleep 0.1; done) >/dev/null 2>&1 &",
    )
    cluster.config["tailrack:validation"]["rerun"] = "with a link in the way"
    cluster.up()
    cluster.attempt("head", "pkill -u ada")
    assert "precious-to-root" not in str(cluster.deployment().outputs())


# What an account of a daemon puts a link in the place of: in which folder, and what. In clusters of earlier versions
# the folder was the account's, and each upgrade of the package gives it away again.
SWAPPED = {"slurm": ("/var/lib/slurm", "slurmctld"), "munge": ("/etc/munge", "munge.key")}


@pytest.mark.parametrize("account", SWAPPED)
def test_a_daemons_account_gains_no_root_files_through_a_link(cluster: ClusterUnderTest, account: str) -> None:
    folder, name = SWAPPED[account]
    private, as_account = "/root/private", f"cd / && runuser -u {account} --"
    swap = f"mv {folder}/{name} {folder}/kept && ln -s {private} {folder}/{name}"
    cluster.run("head", f"rm -rf {private}; install -d -m 0700 {private}; echo precious >{private}/file")
    look = f"stat -c '%n %U:%G %a' /root /etc; stat -c '%n %U:%G %a %Y' {private} {private}/file; cat {private}/file"
    before = cluster.run("head", look)
    # As this version leaves it, the account cannot.
    assert cluster.attempt("head", f"{as_account} sh -c '{swap}'").returncode != 0
    # overlayfs copies a folder of the image instead of renaming it, and slurmctld must not save its state meanwhile.
    held = f"pkill -STOP -x slurmctld; {as_account} sh -c '{swap}'; was=$?; pkill -CONT -x slurmctld; exit $was"
    cluster.run("head", f"chown {account}:{account} {folder} && chmod 0700 {folder} && ({held})")
    said = " ".join(failure.message for failure in cluster.repair("head").failures)
    assert f"{folder}/{name} is" in said, said
    assert cluster.run("head", look) == before
    assert "precious" not in cluster.run("head", "cat /var/log/tailrack/*.log")
    assert cluster.run("head", f"stat -c %U {folder}") == "root\n"
    cluster.run("head", f"rm {folder}/{name} && mv {folder}/kept {folder}/{name}; rm -r {private}")
    again(cluster)
    assert cluster.attempt("head", f"{as_account} sh -c '{swap}'").returncode != 0
    assert cluster.run_as("ada", "head", "srun -w a1 hostname") == "a1\n"


def test_a_removed_user_can_log_in_nowhere_and_keeps_the_files(cluster: ClusterUnderTest) -> None:
    assert cluster.run_as("bob", "a1", "echo kept >file; ssh -o BatchMode=yes head hostname") == "head\n"
    cluster.run("head", "cp /export/shared/home/bob/.ssh/id_ed25519 /tmp/key && chown ada /tmp/key")
    bob = cluster.config["tailrack:users"].pop()
    cluster.up_ok()
    tried = cluster.attempt(
        "head", "runuser -u ada -- ssh -i /tmp/key -o IdentitiesOnly=yes -o BatchMode=yes bob@a1 hostname", limit=20
    )
    assert tried.returncode == 255
    assert cluster.run("head", "cat /export/shared/home/bob/file") == "kept\n"
    assert "is not a user of this cluster" in cluster.attempt("head", "runuser -u bob -- srun hostname", 20).stderr
    cluster.config["tailrack:users"].append(bob)
    cluster.up_ok()
    assert cluster.run_as("bob", "a1", "cat file; ssh -o BatchMode=yes head hostname") == "kept\nhead\n"
