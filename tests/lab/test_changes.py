"""Changes of a running cluster: what an `up` touches, and that jobs go on. Each test goes on from the one before."""

import copy
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

pytestmark = pytest.mark.story
JOB_LIMIT_SECONDS = 8
MEASUREMENTS = {"validate-cloud-a", "validate-cross-site"}


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """The dev stack, up, with short limits for other people's jobs."""
    made = make_cluster("t2")
    made.config["tailrack:slurm"] |= {"job_limit_seconds": JOB_LIMIT_SECONDS, "ssh_needs_job": False}
    made.config["tailrack:validation"] |= {"queue_limit_seconds": 5, "floors_gb_per_s": {"cloud-a": 1e-6}}
    made.up_ok()
    return made


@pytest.fixture(scope="module")
def long_job(cluster: ClusterUnderTest) -> dict[str, str]:
    """A job on a1 that goes on through all the changes, as Slurm showed it when it had started."""
    job = cluster.submit("-w a1 --wrap 'sleep 900'")
    eventually(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, "the job on a1 runs")
    return cluster.job(job)


@contextmanager
def changed(cluster: ClusterUnderTest) -> Iterator[dict[str, Any]]:
    """The config, to be changed for a while."""
    before = copy.deepcopy(cluster.config)
    yield cluster.config
    cluster.config = before


def goes_on(cluster: ClusterUnderTest, job: dict[str, str]) -> bool:
    """Whether a job runs as it did, without having been started anew."""
    now = cluster.job(job["JobId"])
    same = ("JobState", "StartTime", "Restarts", "NodeList", "BatchHost")
    return job["JobState"] == "RUNNING" and all(now[key] == job[key] for key in same)


def nodes_by_state(cluster: ClusterUnderTest) -> dict[str, str]:
    """Node to Slurm's word for its state."""
    lines = cluster.run("head", "sinfo -h -N -p all -o '%N %T'").splitlines()
    return dict(line.split() for line in lines)


def repeated(cluster: ClusterUnderTest) -> set[str]:
    """Measurements that the CLI repeats: it drops the results that a failed run had no values for, and a1 is busy."""
    return MEASUREMENTS if cluster.found.cli else set()


def validation(cluster: ClusterUnderTest) -> dict[str, Any]:
    """The measurements among the stack's outputs, by scope."""
    found: dict[str, Any] = cluster.deployment().outputs()["validation"]
    return found


def controller_process(cluster: ClusterUnderTest) -> str:
    """What changes when systemd starts slurmctld again, and not when it reconfigures itself."""
    return cluster.run("head", "systemctl show slurmctld -p InvocationID,NRestarts,ActiveEnterTimestamp")


def key_digests(cluster: ClusterUnderTest, nodes: list[str]) -> set[str]:
    """Digests of the munge keys of some nodes."""
    return {cluster.run(node, "sha256sum /etc/munge/munge.key") for node in nodes}


def test_a_mistake_in_the_config_is_named_before_anything_is_touched(cluster: ClusterUnderTest) -> None:
    for operation in ("preview", "up"):
        with changed(cluster) as config:
            config["tailrack:sites"][0]["pools"].append({"name": "a", "count": 1})
            summary = getattr(cluster.deployment(), operation)()
        (failure,) = summary.failures
        assert "tailrack:sites[0].pools[1].name: makes node a1 a second time" in failure.message, operation
        assert cluster.touched() == set(), operation
    assert set(nodes_by_state(cluster)) == {"head", "a1", "b1"}


def test_other_sizes_are_measured_and_nothing_else_is_done(cluster: ClusterUnderTest) -> None:
    before = validation(cluster)
    cluster.config["tailrack:validation"].update(min_bytes="32K", max_bytes="128K", gate_bytes="128K")
    cluster.up_ok()
    assert cluster.touched() == MEASUREMENTS
    after = validation(cluster)
    for name, scope in after.items():
        assert [row["bytes"] for row in scope["rows"]] == [32768, 131072]
        assert scope["job_id"] > before[name]["job_id"]


def test_another_rerun_text_measures_again(cluster: ClusterUnderTest) -> None:
    before = validation(cluster)
    cluster.config["tailrack:validation"]["rerun"] = "after a look at the cables"
    cluster.up_ok()
    assert cluster.touched() == MEASUREMENTS
    after = validation(cluster)
    assert all(after[name]["job_id"] > before[name]["job_id"] for name in before)


def test_another_floor_changes_the_verdict_and_measures_nothing(cluster: ClusterUnderTest) -> None:
    before = validation(cluster)
    with changed(cluster) as config:
        config["tailrack:validation"]["floors_gb_per_s"] = {"cloud-a": 1000, "cross-site": 1e-6}
        cluster.up_ok()
        assert cluster.touched() == set()
        strict = validation(cluster)
    assert {name: scope["verdict"] for name, scope in strict.items()} == {"cloud-a": "FAIL", "cross-site": "PASS"}
    assert "below the floor of 1000 GB/s" in strict["cloud-a"]["reason"]
    assert strict["cloud-a"]["rows"] == before["cloud-a"]["rows"]
    cluster.up_ok()
    assert cluster.touched() == set()
    assert validation(cluster) == before


def test_a_node_that_joins_touches_itself_and_its_place_on_the_head_and_jobs_go_on(
    cluster: ClusterUnderTest, long_job: dict[str, str]
) -> None:
    logs = {node: cluster.run(node, "stat -c '%n %y' /var/log/tailrack/*") for node in ("a1", "b1")}
    controller = controller_process(cluster)
    cluster.config["tailrack:sites"][1]["pools"][0]["count"] = 2
    cluster.up_ok()
    own = {"b2-container", "b2-scripts", "b2-prepare", "b2-register", "b2-node"}
    # The site now has two nodes to measure between. The head node's own steps know no node.
    assert cluster.touched() == own | {"validate-cloud-b", "validate-cross-site"}
    assert "SwitchName=cloud-b Nodes=b1,b2" in cluster.run("head", "cat /etc/slurm/topology.conf")
    switches = dict(re.findall(r"SwitchName=(\S+) .*?Nodes=(\S+)", cluster.run("head", "scontrol show topology")))
    # Slurm shows `b1,b2` or `b[1-2]`, whichever it has read last.
    assert cluster.run("head", f"scontrol show hostnames {switches['cloud-b']}").split() == ["b1", "b2"]
    assert "b[1-2]" in switches["tailnet"]
    assert {node: cluster.run(node, "stat -c '%n %y' /var/log/tailrack/*") for node in logs} == logs
    assert controller_process(cluster) == controller
    assert goes_on(cluster, long_job)
    eventually(lambda: nodes_by_state(cluster)["b2"] == "idle", 60, "b2 is idle")
    assert sorted(cluster.run_as("ada", "b2", "srun -p cloud-b -N2 hostname").split()) == ["b1", "b2"]
    assert cluster.run_as("ada", "b2", "ssh -o BatchMode=yes a1 'pwd; hostname'") == "/shared/home/ada\na1\n"


def test_a_new_node_is_measured_with_idle_peers_at_once(cluster: ClusterUnderTest, long_job: dict[str, str]) -> None:
    found = validation(cluster)
    assert (found["cloud-b"]["verdict"], sorted(found["cloud-b"]["nodes"])) == ("UNJUDGED", ["b1", "b2"])
    across = found["cross-site"]
    assert (across["verdict"], across["ranks"], across["left_out"]) == ("UNJUDGED", 3, ["a1"])
    assert sorted(across["nodes"]) == ["b1", "b2", "head"]
    # In Slurm's own order.
    told = re.search(r"between (.+) only, because other jobs were on a1", across["reason"])
    assert told, across["reason"]
    assert sorted(told[1].split(", ")) == ["b1", "b2", "head"]
    assert goes_on(cluster, long_job)


def test_queue_limits_and_scripts_do_not_change_a_measurement(cluster: ClusterUnderTest) -> None:
    before = validation(cluster)
    with changed(cluster) as config:
        config["tailrack:validation"]["queue_limit_seconds"] = 6
        cluster.up_ok()
        # Their scripts have another header, as they would have another line: what is known is said again.
        assert cluster.touched() == {"validate-cloud-b", *MEASUREMENTS}
        assert validation(cluster) == before
    cluster.up_ok()
    assert validation(cluster) == before


def test_a_repair_text_runs_the_steps_of_a_node_again_and_jobs_go_on(
    cluster: ClusterUnderTest, long_job: dict[str, str]
) -> None:
    cluster.run("a1", "systemctl disable --now munge")
    cluster.config["tailrack:cluster"]["repair"] = {"a1": "munge was off"}
    cluster.up_ok()
    assert cluster.touched() == {"a1-scripts", "a1-prepare", "a1-register", "a1-node"}
    assert cluster.run("a1", "systemctl is-active munge; systemctl is-enabled munge").split() == ["active", "enabled"]
    assert goes_on(cluster, long_job)
    cluster.up_ok()
    assert cluster.touched() == set()


def test_a_slurm_setting_takes_effect_without_a_restart(cluster: ClusterUnderTest, long_job: dict[str, str]) -> None:
    controller = controller_process(cluster)
    cluster.config["tailrack:slurm"]["settings"] = {"KillWait": "45"}
    cluster.up_ok()
    assert cluster.touched() == {"head-head"}
    for node in ("head", "b2"):
        assert "45 sec" in cluster.run(node, "scontrol show config | grep KillWait")
    assert controller_process(cluster) == controller
    assert goes_on(cluster, long_job)


def test_a_setting_that_slurmctld_refuses_fails_the_step_and_changes_nothing(
    cluster: ClusterUnderTest, long_job: dict[str, str]
) -> None:
    # The first is refused by whoever reads the file, the second only by the plugin's loader.
    for key, value, said in (
        ("KillWait", "99999", "KillWait value (99999) is greater than 65535"),
        ("SchedulerType", "sched/none-such", "failed to initialize sched plugin"),
        ("SchedulerType", "sched/none-such", "failed to initialize sched plugin"),
    ):
        with changed(cluster) as config:
            config["tailrack:slurm"]["settings"] = {key: value}
            summary = cluster.up()
        (failure,) = summary.failures
        assert failure.urn.endswith("::head-head")
        assert "head: step head-head failed: slurmctld rejects the new configuration" in failure.message
        assert said in failure.message
        assert cluster.touched() == set()
        kept = cluster.run("head", "scontrol show config | grep -E '^(KillWait|SchedulerType) '").split()
        assert kept == ["KillWait", "=", "45", "sec", "SchedulerType", "=", "sched/backfill"]
    # Not always the same process: a slurmctld of this release asks slurmdbd anew when it goes back to its old files,
    # and may end or hang over that on a busy machine. It is started again then.
    assert goes_on(cluster, long_job)


@pytest.mark.proof
def test_a_slurmctld_that_ends_over_a_setting_is_started_again_with_the_old_ones(
    cluster: ClusterUnderTest, long_job: dict[str, str]
) -> None:
    ends = "until grep -q none-such /etc/slurm/slurm.conf; do sleep 0.02; done; systemctl kill --signal=KILL slurmctld"
    cluster.run("head", f"systemd-run --collect sh -c '{ends}'")
    with changed(cluster) as config:
        config["tailrack:slurm"]["settings"] = {"SchedulerType": "sched/none-such"}
        summary = cluster.up()
    (failure,) = summary.failures
    assert re.search(r"slurmctld (rejects the new|does not start with this) configuration", failure.message)
    assert "failed to initialize sched plugin" in failure.message
    eventually(lambda: "is UP" in cluster.run("head", "scontrol ping"), 60, "slurmctld is up")
    assert "none-such" not in cluster.run("head", "cat /etc/slurm/slurm.conf")
    assert goes_on(cluster, long_job)


def test_a_config_put_right_repairs_the_stack(cluster: ClusterUnderTest, long_job: dict[str, str]) -> None:
    cluster.up_ok()
    assert "none-such" not in cluster.run("head", "cat /etc/slurm/slurm.conf")
    # The controller starts with the files that are there.
    cluster.run("head", "systemctl restart slurmctld")
    eventually(lambda: "is UP" in cluster.run("head", "scontrol ping"), 60, "slurmctld is up")
    assert "45 sec" in cluster.run("head", "scontrol show config | grep KillWait")
    assert goes_on(cluster, long_job)


def test_a_new_user_is_on_every_node_and_has_a_home(cluster: ClusterUnderTest, long_job: dict[str, str]) -> None:
    cluster.config["tailrack:users"].append({"name": "carol", "uid": 6003})
    cluster.up_ok()
    # Whether the uid is free, before anything is changed.
    looks = {f"{node}-prepare" for node in ("head", "a1", "b1", "b2")}
    # The head node's services give the user an account.
    changed = looks | {"head-head", "head-services", "a1-node", "b1-node", "b2-node"}
    assert cluster.touched() == changed | repeated(cluster)
    for node in ("head", "a1", "b1", "b2"):
        # The shell of a log-in starts in the home.
        assert cluster.run_as("carol", node, "id -u; id -g; pwd; touch here") == "6003\n6003\n/shared/home/carol\n"
    assert cluster.run_as("carol", "head", "srun -w b2 whoami") == "carol\n"
    assert goes_on(cluster, long_job)


def test_the_uid_of_an_unused_account_changes_on_every_node_and_that_of_a_used_one_is_refused(
    cluster: ClusterUnderTest, long_job: dict[str, str]
) -> None:
    dan: dict[str, Any] = {"name": "dan", "uid": 6007}
    cluster.config["tailrack:users"].append(dan)
    cluster.up_ok()
    dan["uid"] = 6008
    cluster.up_ok()
    for node in ("head", "a1", "b1", "b2"):
        assert cluster.run(node, "id -u dan; id -g dan").split() == ["6008", "6008"]
    cluster.run_as("dan", "head", "srun -w b1 touch kept")
    dan["uid"] = 6009
    summary = cluster.up()
    assert any("user dan has uid 6008 here and should have 6009" in failure.message for failure in summary.failures)
    assert cluster.run("head", "stat -c %u /export/shared/home/dan/kept").strip() == "6008"
    dan["uid"] = 6008
    cluster.up_ok()
    assert goes_on(cluster, long_job)


def test_a_new_munge_key_reaches_every_node_in_one_up(cluster: ClusterUnderTest, long_job: dict[str, str]) -> None:
    nodes = ["head", "a1", "b1", "b2"]
    old = key_digests(cluster, nodes)
    cluster.config["tailrack:cluster"]["munge_generation"] = "2"
    cluster.up_ok()
    changed = {"munge-key", "head-services", *(f"{node}-prepare" for node in nodes)}
    assert cluster.touched() == changed | repeated(cluster)
    new = key_digests(cluster, nodes)
    assert len(old) == len(new) == 1
    assert old != new
    assert sorted(cluster.run_as("ada", "b2", "srun -w b1,b2 hostname").split()) == ["b1", "b2"]
    assert goes_on(cluster, long_job)


def test_a_node_that_leaves_is_forgotten_but_not_its_jobs(cluster: ClusterUnderTest, long_job: dict[str, str]) -> None:
    blocker = cluster.submit("-w b1 --exclusive --wrap 'sleep 900'")
    leaving = cluster.submit("-p cloud-b --wrap 'sleep 900'")
    eventually(lambda: cluster.job(leaving)["JobState"] == "RUNNING", 60, "the job on b2 runs")
    assert cluster.job(leaving)["NodeList"] == "b2"
    address = cluster.run("b2", "tailscale ip -4").strip()
    container = cluster.container("b2")
    controller = controller_process(cluster)

    cluster.config["tailrack:sites"][1]["pools"][0]["count"] = 1
    summary = cluster.up_ok()
    own = {"b2-container", "b2-scripts", "b2-prepare", "b2-register", "b2-node"}
    assert cluster.touched() == own | {"validate-cloud-b", "validate-cross-site"} | repeated(cluster)
    assert set(nodes_by_state(cluster)) == {"head", "a1", "b1"}
    assert "b2" not in cluster.run("head", "cat /etc/slurm/topology.conf")
    assert cluster.attempt("head", f"grep -rF {address} /etc/exports.d /etc/ganesha/ganesha.conf").returncode == 1
    assert not cluster.node("head").file("/etc/exports.d/tailrack-b2.exports").exists
    listed = subprocess.run(
        ["docker", "ps", "-a", "--format", "{{.Names}}"], capture_output=True, check=True, text=True
    )
    assert container not in listed.stdout.split()
    assert controller_process(cluster) == controller
    assert goes_on(cluster, long_job)

    # It had its time, went back to the queue under its number, and runs where there is room.
    assert summary.seconds > JOB_LIMIT_SECONDS
    requeued = cluster.job(leaving)
    assert (requeued["JobState"], requeued["Restarts"]) == ("PENDING", "1")
    cluster.run("head", f"scancel {blocker} && scontrol update jobid={leaving} starttime=now")
    eventually(lambda: cluster.job(leaving)["JobState"] == "RUNNING", 60, "the job runs again")
    assert cluster.job(leaving)["NodeList"] == "b1"


@pytest.mark.proof
def test_a_busy_cluster_keeps_its_last_figure_and_is_measured_when_it_is_free(
    cluster: ClusterUnderTest, long_job: dict[str, str]
) -> None:
    busy = validation(cluster)["cross-site"]
    assert (busy["verdict"], busy["busbw_gb_per_s"], busy["rows"]) == ("BUSY", None, [])
    assert f"a1: job {long_job['JobId']} of ada" in busy["reason"]
    assert "a1" in busy["left_out"]
    last = busy["last"]
    assert sorted(last["nodes"]) == ["b1", "b2", "head"]
    assert last["busbw_gb_per_s"] > 0
    assert 0 < last["age_seconds"] < 3600
    # Nobody waits behind a job of ours.
    assert "validate" not in cluster.run("head", "squeue -h -o %j")

    # It does not fail, it is tried again, and it has the same last figure.
    cluster.up_ok()
    assert cluster.touched() == {"validate-cross-site"} | repeated(cluster)
    again = validation(cluster)["cross-site"]
    assert (again["verdict"], again["retries"]) == ("BUSY", busy["retries"] + 1)
    assert again["last"]["measured_at"] == last["measured_at"]
    assert goes_on(cluster, long_job)

    cluster.run("head", "scancel -u ada")
    eventually(lambda: set(nodes_by_state(cluster).values()) == {"idle"}, 60, "all nodes are idle")
    cluster.up_ok()
    assert cluster.touched() == {"validate-cross-site"} | repeated(cluster)
    measured = validation(cluster)["cross-site"]
    assert (measured["verdict"], sorted(measured["nodes"]), measured["left_out"]) == (
        "UNJUDGED", ["a1", "b1", "head"], [],
    )  # fmt: skip
    assert measured["last"] is None
    cluster.up_ok()
    assert cluster.touched() == set()


def test_idle_nodes_are_measured_while_another_node_has_a_job(cluster: ClusterUnderTest) -> None:
    cluster.run("head", "scancel -u ada")
    eventually(lambda: set(nodes_by_state(cluster).values()) == {"idle"}, 60, "all nodes are idle")
    job = cluster.submit("-w a1 --wrap 'sleep 900'")
    eventually(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, "the job on a1 runs")
    for nodes in (2, "idle"):
        cluster.config["tailrack:validation"]["nodes"] = nodes
        cluster.up_ok()
        measured = validation(cluster)["cross-site"]
        assert (sorted(measured["nodes"]), measured["left_out"]) == (["b1", "head"], ["a1"])
    assert cluster.job(job)["JobState"] == "RUNNING"
