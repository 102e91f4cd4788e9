"""What jobs have used: switched on under running jobs, kept through outages, limits of the config, switched off again.

The tests use the head node and a1, and run in the order of this file.
"""

import time

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually
from tests.unit.fake_nvidia_smi import gpu, xml

pytestmark = pytest.mark.story
Cluster = ClusterUnderTest
DATA = "/var/lib/slurm/accounting"
UNITS = ("slurmdbd", "tailrack-database")
# So many GPUs that a minute of all of them is an hour of one.
GPUS = 60
# Seconds that the database is away at once.
OUTAGE = 65


@pytest.fixture(scope="module")
def cluster(full: Cluster) -> Cluster:
    """One site, in which no one keeps the books yet: this is the first file that uses the cluster."""
    full.config["tailrack:sites"].pop()
    full.config["tailrack:accounting"] = {"enabled": False}
    full.up_ok()
    return full


def submit(cluster: Cluster, command: str, words: str = "") -> str:
    """Submit a batch job as the user, wait until it runs or has run, and return its number."""
    number = cluster.submit(f"{words} --wrap '{command}'")
    eventually(lambda: state(cluster, number) not in ("", "PENDING"), 60, f"job {number} begins")
    return number


def state(cluster: Cluster, number: str) -> str:
    """A job's state as slurmctld has it; empty where it does not answer."""
    return cluster.attempt("head", f"squeue -h -t all -j {number} -o %T").stdout.strip()


def booked(cluster: Cluster, number: str) -> str:
    """`user account state exit` of a job in the books, without its steps; empty where it is not in them."""
    shown = cluster.attempt("head", f"sacct -n -P -X -j {number} -o User,Account,State,ExitCode").stdout
    return shown.strip().replace("|", " ")


def well_booked(cluster: Cluster, numbers: list[str], seconds: float = 90) -> None:
    """Wait until jobs are in the books as what they were: done, once each."""

    def so() -> bool:
        return all(booked(cluster, number) == "ada users COMPLETED 0:0" for number in numbers)

    try:
        eventually(so, seconds, "jobs are in the books as done")
    except AssertionError:
        raise AssertionError({number: booked(cluster, number) for number in numbers}) from None


def active(cluster: Cluster, unit: str) -> bool:
    """Whether a unit is up."""
    return cluster.attempt("head", f"systemctl -q is-active {unit}").returncode == 0


def associations(cluster: Cluster) -> list[str]:
    """What slurmdbd has of users."""
    shown = cluster.run("head", "sacctmgr -nP show assoc format=User,Account,GrpTRESMins,MaxJobs,QOS")
    return sorted(line for line in shown.splitlines() if not line.startswith(("|", "root|")))


def test_switched_on_while_a_job_runs_it_loses_none_and_slurmctld_is_never_away(cluster: Cluster) -> None:
    assert "tailrack-database" not in cluster.run("head", "systemctl list-unit-files")
    before = cluster.run("head", "cat /var/lib/slurm/slurmctld/clustername").strip()
    assert before.partition("|")[2].isdigit(), "a number that slurmctld gave itself, and slurmdbd does not know"
    number = submit(cluster, "sleep 30")
    cluster.config["tailrack:accounting"] = {"enabled": True}
    began = time.monotonic()
    cluster.up_ok()
    print(f"switched on in {time.monotonic() - began:.0f} s")
    assert cluster.touched() <= {"head-services", "head-scripts", "validate-cloud-a"}
    assert cluster.run("head", "systemctl show -p NRestarts --value slurmctld").strip() == "0"
    assert "CLUSTER ID" not in cluster.run("head", "journalctl -u slurmctld -o cat --no-pager")
    after = cluster.run("head", "cat /var/lib/slurm/slurmctld/clustername").strip()
    assert after.partition("|")[0] == "lab"
    assert after != before, "the number is slurmdbd's"
    eventually(lambda: state(cluster, number) == "COMPLETED", 60, "the job has ended well")
    later = submit(cluster, "true")
    well_booked(cluster, [later])
    # The one that began before there were books is in them too; it had no account then.
    eventually(lambda: "COMPLETED 0:0" in booked(cluster, number), 60, f"{number}: {booked(cluster, number)}")


def test_it_costs_an_unchanged_up_nothing_and_listens_on_the_tailnet_alone(cluster: Cluster) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()
    address = cluster.run("head", "tailscale ip -4").strip()
    sockets = cluster.run("head", "ss -Hltnp")
    assert [line.split()[3] for line in sockets.splitlines() if "slurmdbd" in line] == [f"{address}:6819"]
    assert "mariadbd" not in sockets
    closed = cluster.run("head", "cat /etc/tailrack/firewall.nft")
    assert "6817-6819" in closed


def test_there_is_no_password_and_users_do_not_come_to_the_database(cluster: Cluster) -> None:
    assert "StoragePass" not in cluster.run("head", "cat /etc/slurm/slurmdbd.conf")
    assert cluster.run("head", "stat -c '%a %U' /etc/slurm/slurmdbd.conf").split() == ["600", "slurm"]
    assert cluster.run("head", f"stat -c '%a %U' {DATA}").split() == ["700", "slurm"]
    ask = "mariadb --no-defaults -S /run/tailrack-database/socket -e 'select 1' -u"
    for account in ("slurm", "root", "ada", "''"):
        refused = cluster.attempt("head", f"runuser -u ada -- {ask} {account}")
        assert refused.returncode != 0, account
        assert "denied" in refused.stderr, account


def test_the_account_of_slurmdbd_has_its_own_tables_and_no_right_beyond_them(cluster: Cluster) -> None:
    ask = "mariadb --no-defaults -N -S /run/tailrack-database/socket"
    granted = cluster.run("head", f"{ask} -e 'show grants for slurm@localhost'").splitlines()
    assert sorted(line.partition(" TO ")[0] for line in granted) == [
        "GRANT ALL PRIVILEGES ON `slurm_acct_db`.*",
        "GRANT USAGE ON *.*",
    ]
    for words in ('select 1 into outfile "/var/lib/slurm/accounting/x"', "set global general_log = on"):
        refused = cluster.attempt("head", f"runuser -u slurm -- {ask} -e '{words}'")
        assert "Access denied" in refused.stderr, words
    # What its server writes stays in its own folder, whoever asks.
    refused = cluster.attempt("head", f"{ask} -e 'select 1 into outfile \"/var/lib/slurm/x\"'")
    assert "Read-only file system" in refused.stderr


def test_accounting_records_jobs_despite_restarts_and_kills(cluster: Cluster) -> None:
    numbers = [submit(cluster, "sleep 25", "-n1") for _ in range(2)]
    for how, unit in (
        ("restart", "slurmctld"),
        ("restart", "tailrack-database"),
        ("restart", "slurmdbd"),
        ("kill -s KILL", "tailrack-database"),
        ("kill -s KILL", "slurmdbd"),
    ):
        cluster.run("head", f"systemctl {how} {unit}")
        numbers.append(submit(cluster, "true", "-n1"))
    for unit in (*UNITS, "slurmctld"):
        eventually(lambda: active(cluster, unit), 60, f"{unit} is back")  # noqa: B023
    well_booked(cluster, numbers)
    assert cluster.run("head", f"sacct -n -X -j {','.join(numbers)} --duplicates | wc -l").strip() == str(len(numbers))


@pytest.mark.proof
@pytest.mark.parametrize("unit", UNITS)
def test_while_the_database_is_away_jobs_go_on_and_are_in_the_books_afterwards(cluster: Cluster, unit: str) -> None:
    long = submit(cluster, "sleep 20", "-n1")
    cluster.run("head", f"systemctl stop {unit}")
    until = time.monotonic() + OUTAGE
    numbers = [long]
    while time.monotonic() < until:
        numbers.append(submit(cluster, "true", "-n1"))
        eventually(lambda: state(cluster, numbers[-1]) == "COMPLETED", 60, "a job ends without the database")
    assert state(cluster, long) in ("COMPLETED", "")
    # What slurmctld itself has meanwhile outlives it.
    cluster.run("head", "systemctl restart slurmctld")
    cluster.run("head", f"systemctl start {unit}")
    print(f"{len(numbers)} jobs in {OUTAGE} s without {unit}")
    well_booked(cluster, numbers, 120)


@pytest.mark.proof
def test_a_full_disk_under_the_database_costs_no_job_and_no_record(cluster: Cluster) -> None:
    cluster.run(
        "head",
        f"systemctl stop tailrack-database && mv {DATA} {DATA}.kept && install -d -o slurm -g slurm -m 0700 {DATA} && "
        f"mount -t tmpfs -o size=400m,mode=0700,uid=slurm,gid=slurm tmpfs {DATA} && cp -a {DATA}.kept/. {DATA}/ && "
        "systemctl start tailrack-database",
    )
    cluster.run("head", f"! cat /dev/zero >{DATA}/filled 2>/dev/null")
    # What it writes is in rooms that it has already, until it is asked for more.
    cluster.run("head", "systemctl kill -s KILL tailrack-database")
    numbers = [submit(cluster, "true", "-n1") for _ in range(5)]
    for number in numbers:
        eventually(lambda: state(cluster, number) == "COMPLETED", 60, "a job ends while the disk is full")  # noqa: B023
    cluster.run("head", f"rm {DATA}/filled")
    well_booked(cluster, numbers, 120)
    cluster.run(
        "head",
        f"systemctl stop tailrack-database && cp -a {DATA} {DATA}.new && umount {DATA} && rmdir {DATA} && "
        f"mv {DATA}.new {DATA} && rm -rf {DATA}.kept && systemctl start tailrack-database",
    )
    well_booked(cluster, numbers, 60)


def test_users_get_the_account_and_the_limits_of_the_config(cluster: Cluster) -> None:
    cluster.config["tailrack:users"] = [
        {"name": "ada", "uid": 6001, "account": "vision", "max_jobs": 1, "gpu_hours": 10, "qos": ["high"]},
        {"name": "bob", "uid": 6002},
    ]
    cluster.config["tailrack:accounting"] = {
        "accounts": [{"name": "vision", "parent": "research", "fair_share": 3}, {"name": "research", "gpu_hours": 500}],
        "qos": [{"name": "high", "priority": 100, "preempts": ["low"]}, {"name": "low"}],
    }
    cluster.run("head", "sacctmgr -i add user name=zoe account=users")
    cluster.up_ok()
    assert associations(cluster) == [
        "ada|vision|gres/gpu=600|1|high,normal",
        "bob|users|||normal",
        "zoe|users|||normal",
    ]
    shown = cluster.run("head", "sacctmgr -nP show assoc user= format=Account,ParentName,Share,GrpTRESMins")
    assert {"vision|research|3|", "research|root|1|gres/gpu=30000"} <= set(shown.splitlines())
    conf = cluster.run("head", "scontrol show config")
    assert "associations,limits,qos" in conf
    assert "priority/multifactor" in conf
    first = submit(cluster, "sleep 60", "-n1")
    try:
        line = "sbatch --parsable --output=/dev/null -n1 --wrap true"
        second = cluster.run_as("ada", "head", line).strip()
        eventually(
            lambda: cluster.run("head", f"squeue -h -j {second} -o %r").strip() == "AssocMaxJobsLimit", 60, "the limit"
        )
        refused = cluster.attempt("head", f"su - bob -c '{line} -q high'")
        assert "Invalid qos" in refused.stderr
        # Nobody who has no account of the config's is shut out.
        assert cluster.run_as("bob", "head", line).strip().isdigit()
    finally:
        cluster.run("head", f"scancel -u ada; scancel {first}")
    cluster.up_ok()
    assert cluster.touched() == set()


def waits_for(cluster: Cluster, number: str) -> str:
    """Why a job waits, in Slurm's word; empty where it does not."""
    return cluster.run("head", f"squeue -h -t pending -j {number} -o %r 2>/dev/null || :").strip()


@pytest.mark.proof
def test_a_job_of_a_qos_that_preempts_another_one_takes_its_place_and_that_one_runs_again(cluster: Cluster) -> None:
    cluster.config["tailrack:users"][1]["qos"] = ["low"]
    cluster.up_ok()
    low = cluster.submit("-w a1 --exclusive -q low --wrap 'sleep 20'", "bob")
    eventually(lambda: state(cluster, low) == "RUNNING", 60, "the job of the lower QOS runs")
    high = cluster.submit("-w a1 --exclusive -q high --wrap true")
    eventually(lambda: booked(cluster, high) == "ada vision COMPLETED 0:0", 60, "the other one has run in its place")
    eventually(lambda: state(cluster, low) == "RUNNING", 240, "the first one runs again")
    assert cluster.job(low)["Restarts"] == "1"
    cluster.run("head", f"scancel {low}")


@pytest.mark.proof
def test_a_user_without_gpu_hours_waits_and_sees_the_reason(cluster: Cluster) -> None:
    """The GPUs are device files and a fake nvidia-smi. What counts them, ends jobs and holds them is Slurm."""
    fake = "#!/bin/bash\n# A fake.\n[ $1 != -q ] || cat /usr/local/share/fake.xml\n"
    ada = {"name": "ada", "uid": 6001, "account": "vision", "gpu_hours": 1}
    cluster.config["tailrack:users"][0] = ada
    # How often Slurm adds up what jobs that run have used; of itself, every five minutes.
    cluster.config["tailrack:slurm"]["settings"] = {"PriorityCalcPeriod": "1"}
    cluster.give_gpus("a1", range(GPUS), fake, xml([gpu(n) for n in range(GPUS)]))
    asks = f"-w a1 -n1 --gpus={GPUS}"
    first = submit(cluster, "sleep 900", asks)
    began = time.monotonic()
    eventually(lambda: "ada vision TIMEOUT" in booked(cluster, first), 300, "the job is ended at the limit")
    print(f"1 GPU hour on {GPUS} GPUs: ended after {time.monotonic() - began:.0f} s")
    second = cluster.submit(f"{asks} --wrap true")
    eventually(lambda: waits_for(cluster, second) == "AssocGrpGRESMinutes", 60, "the next one waits")
    said = cluster.run_as("ada", "head", f"tailrack why {second}")
    assert "A limit holds it (AssocGrpGRESMinutes): the GPU hours of account 'vision' are used up" in said
    # Others have their own hours, and what needs no GPU needs none of them.
    other = cluster.submit(f"{asks} --wrap true", "bob")
    eventually(lambda: booked(cluster, other) == "bob users COMPLETED 0:0", 60, "another user's job has run")
    without = submit(cluster, "true", "-n1")
    eventually(lambda: booked(cluster, without) == "ada vision COMPLETED 0:0", 60, "one without a GPU has run")
    ada["gpu_hours"] = 10
    cluster.up_ok()
    eventually(lambda: booked(cluster, second) == "ada vision COMPLETED 0:0", 120, "with more hours it has run")
    cluster.run("a1", "rm /usr/local/bin/nvidia-smi /dev/nvidia*")
    cluster.config["tailrack:cluster"]["repair"] = {"a1": "it has none"}
    cluster.up_ok()


@pytest.mark.proof
@pytest.mark.parametrize("unit", UNITS)
def test_a_controller_that_keeps_limits_starts_without_a_database(cluster: Cluster, unit: str) -> None:
    cluster.run("head", f"systemctl stop {unit}; systemctl restart slurmctld")
    number = submit(cluster, "true", "-n1")
    eventually(lambda: state(cluster, number) == "COMPLETED", 60, "a job ends without the database")
    cluster.run("head", f"systemctl start {unit}")
    eventually(lambda: "ada vision COMPLETED" in booked(cluster, number), 90, "it is in the books")
    assert cluster.run("head", "systemctl show -p NRestarts --value slurmctld").strip() == "0"


def test_a_removed_user_leaves_all_accounts_and_keeps_the_past_records(cluster: Cluster) -> None:
    number = submit(cluster, "true", "-n1")
    eventually(lambda: "ada vision COMPLETED" in booked(cluster, number), 60, "it is in the books")
    cluster.config["tailrack:users"] = [{"name": "bob", "uid": 6002}]
    cluster.config["tailrack:accounting"] = {}
    cluster.up_ok()
    assert associations(cluster) == ["bob|users|||normal", "zoe|users|||normal"]
    assert cluster.run("head", "sacctmgr -nP show account format=Account").split() == ["root", "users"]
    assert cluster.run("head", "sacctmgr -nP show qos format=Name").split() == ["normal"]
    assert "ada vision COMPLETED" in booked(cluster, number)
    assert "AccountingStorageEnforce" not in cluster.run("head", "cat /etc/slurm/slurm.conf")


@pytest.mark.proof
def test_the_job_records_return_when_accounting_is_switched_on_again(cluster: Cluster) -> None:
    cluster.config["tailrack:users"] = [{"name": "ada", "uid": 6001}, {"name": "bob", "uid": 6002}]
    cluster.config["tailrack:accounting"] = {}
    cluster.up_ok()
    first = submit(cluster, "true", "-n1")
    well_booked(cluster, [first])
    running = submit(cluster, "sleep 20", "-n1")
    cluster.config["tailrack:accounting"] = {"enabled": False}
    cluster.up_ok()
    for unit in UNITS:
        assert cluster.attempt("head", f"systemctl is-active {unit}").stdout.strip() == "inactive"
    for path in ("/etc/slurm/slurmdbd.conf", "/etc/systemd/system/tailrack-database.service"):
        assert not cluster.node("head").file(path).exists
    assert "AccountingStorage" not in cluster.run("head", "cat /etc/slurm/slurm.conf")
    eventually(lambda: state(cluster, running) == "COMPLETED", 60, "the job has ended well")
    assert cluster.node("head").file(DATA).is_directory
    cluster.config["tailrack:accounting"] = {}
    cluster.up_ok()
    well_booked(cluster, [first, submit(cluster, "true", "-n1")])
