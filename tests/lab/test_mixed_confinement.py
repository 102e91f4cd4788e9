"""One cluster of machines with and without cgroups: each runs jobs as it can, and people see which do not confine them.

The lab's containers have no controllers, so head and a1 get those of this machine's first version of cgroups, for
slurmd alone. The product's check sees the file of a second version that has them.
"""

import re
from collections.abc import Iterator

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually, own_machine
from tests.lab.test_slurm import TAKE_A_GIB

INCLUDE = "Include /etc/tailrack/slurm.conf"
CONFS = "cat /etc/slurm/slurm.conf /etc/slurm/cgroup.conf"
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer")
FIRST_VERSION = "/run/cgroup1"
DROP_IN = "/etc/systemd/system/slurmd.service.d/lab-cgroups.conf"
SECOND_VERSION = "/sys/fs/cgroup$(sed -n 's/^0:://;s,/init.scope$,,p' /run/own-cgroup)/cgroup.controllers"
GIVE = "\n".join(
    [
        f"set -e; mkdir -p {FIRST_VERSION}; mount -t tmpfs none {FIRST_VERSION}",
        f"mkdir {FIRST_VERSION}/systemd; mount -t cgroup -o none,name=systemd none {FIRST_VERSION}/systemd",
        *(
            f"mkdir {FIRST_VERSION}/{name}; mount -t cgroup -o {name} none {FIRST_VERSION}/{name}"
            for name in CONTROLLERS
        ),
        "mkdir -p $(dirname DROP_IN); printf '[Service]\\nBindPaths=FIRST:/sys/fs/cgroup\\n' >DROP_IN".replace(
            "DROP_IN", DROP_IN
        ).replace("FIRST", FIRST_VERSION),
        "systemctl daemon-reload",
        "grep ^0:: /proc/1/cgroup >/run/own-cgroup; echo cpuset cpu memory >/run/controllers",
        f"mount --bind /run/own-cgroup /proc/1/cgroup; mount --bind /run/controllers {SECOND_VERSION}",
    ]
)
CONFINED = ("head", "a1")
# Groups of jobs in this machine's own hierarchy outlive the container.
CLEAR = (
    f"systemctl stop slurmd; pkill -KILL slurmstepd; sleep 0.2; "
    f"find {FIRST_VERSION}/*/slurm_$(hostname) -depth -type d -exec rmdir {{}} + || true"
)


@pytest.fixture(scope="module")
def mixed(make_cluster: MakeCluster) -> Iterator[ClusterUnderTest]:
    """The dev stack, up: head and a1 confine jobs, and b1 does not."""
    made = make_cluster("mixed")
    # Logins in the cgroup of a job are in tests/machines/test_confined.py.
    made.config["tailrack:slurm"]["ssh_needs_job"] = False
    for node in CONFINED:
        own_machine(made.lab, node, site="cloud-a")
        made.run(node, GIVE)
    try:
        made.up_ok()
        yield made
    finally:
        for node in CONFINED:
            made.attempt(node, CLEAR)


def srun(cluster: ClusterUnderTest, words: str) -> str:
    return cluster.run_as("ada", "head", f"srun --mem=200 {words}")


def state(cluster: ClusterUnderTest, node: str) -> str:
    return cluster.run("head", f"sinfo -h -n {node} -o %t").strip()


def test_a_second_up_changes_nothing(mixed: ClusterUnderTest) -> None:
    mixed.up_ok()
    assert mixed.touched() == set()


def test_each_machine_has_its_own_keys(mixed: ClusterUnderTest) -> None:
    assert INCLUDE in mixed.run("head", CONFS).splitlines()
    for node, kind in (("head", "cgroup"), ("a1", "cgroup"), ("b1", "linuxproc")):
        assert f"ProctrackType=proctrack/{kind}\n" in mixed.run(node, "cat /etc/tailrack/slurm.conf")
    eventually(lambda: {state(mixed, node) for node in ("head", "a1", "b1")} == {"idle"}, 60, "all nodes are idle")


def test_a_job_over_both_kinds_of_machines_runs_and_only_one_of_them_confines_it(mixed: ClusterUnderTest) -> None:
    show = "bash -c 'echo $(hostname) $(grep -c /job_ /proc/self/cgroup)'"
    counts = dict(line.split() for line in srun(mixed, f"-w a1,b1 -N2 --switches=2 {show}").splitlines())
    assert counts["b1"] == "0"
    assert int(counts["a1"]) >= 3, counts


def test_cgroups_confine_a_job_to_its_own_cores(mixed: ClusterUnderTest) -> None:
    assert srun(mixed, "-w a1 -n1 nproc") == "1\n"
    assert int(srun(mixed, "-w b1 -n1 nproc")) == int(mixed.run("b1", "nproc"))


@pytest.mark.parametrize("node", ["a1", "b1"])
def test_a_job_that_takes_more_memory_than_it_was_given_ends_on_either(mixed: ClusterUnderTest, node: str) -> None:
    greedy = mixed.attempt("head", as_user("ada", f"srun -w {node} -n1 --mem=200M {TAKE_A_GIB}"), limit=60)
    assert greedy.returncode not in (0, 124), greedy.stderr
    assert re.search(r"oom|out.of.memory|memory limit", greedy.stderr, re.IGNORECASE), greedy.stderr


@pytest.mark.parametrize("node", ["a1", "b1"])
def test_a_slurmd_that_starts_again_reads_the_keys_of_its_machine(mixed: ClusterUnderTest, node: str) -> None:
    mixed.run(node, "systemctl restart slurmd")
    eventually(lambda: state(mixed, node) == "idle", 60, f"{node} is back")
    expected = 0 if node == "b1" else 3
    assert int(srun(mixed, f"-w {node} bash -c 'grep -c /job_ /proc/self/cgroup || true'")) >= expected


def test_slurm_finds_nothing_wrong_with_the_files(mixed: ClusterUnderTest) -> None:
    # slurmctld takes any earlier error of the system for one of node_reg_mem_percent: it does not clear errno before
    # strtod (validate_node_specs). So nodes also register with less memory than they have (node_lines.py).
    bad = "different slurm.conf|specified more than once|is not compatible|Unable to (?!convert node_reg_mem_percent)"
    said = "\n".join(mixed.run(node, "journalctl -u slurmctld -u slurmd --no-pager") for node in ("head", "a1", "b1"))
    assert re.findall(f".*(?:{bad}).*", said) == []
    assert mixed.attempt("head", as_user("ada", "sinfo")).stderr == ""


def test_people_see_which_nodes_do_not_confine_jobs(mixed: ClusterUnderTest) -> None:
    shown = mixed.run_as("ada", "head", "tailrack nodes")
    assert "\nb1: jobs are not confined" in shown
    assert srun(mixed, "-N1 --constraint=unconfined hostname") == "b1\n"


def test_a_node_that_joins_later_gets_its_own_keys(mixed: ClusterUnderTest) -> None:
    mixed.config["tailrack:sites"][0]["pools"][0]["count"] = 2
    mixed.up_ok()
    eventually(lambda: state(mixed, "a2") == state(mixed, "a1") == "idle", 60, "both nodes are idle")
    show = "bash -c 'echo $(hostname) $(grep -c /job_ /proc/self/cgroup)'"
    counts = dict(line.split() for line in srun(mixed, f"-w a1,a2 -N2 {show}").splitlines())
    assert (counts["a2"], int(counts["a1"]) >= 3) == ("0", True)


def test_the_machines_have_one_slurm_conf_once_all_are_alike(mixed: ClusterUnderTest) -> None:
    mixed.config["tailrack:sites"] = mixed.config["tailrack:sites"][:1]
    mixed.config["tailrack:sites"][0]["pools"][0]["count"] = 1
    mixed.up_ok()
    lines = mixed.run("head", CONFS).splitlines()
    assert not [line for line in lines if line.startswith("Include")]
    assert {"ProctrackType=proctrack/cgroup", "CgroupPlugin=autodetect"} <= {*lines}
    assert srun(mixed, "-w a1 -n1 nproc") == "1\n"
    assert "not confined" not in mixed.run("head", "tailrack nodes")
