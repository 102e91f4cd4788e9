"""What goes wrong: runs cut off, machines down or gone, a full disk, restarts. `up` names it, and repairs it.

The tests share one cluster and run in the order of this file: a lab site with the head node and a1, and a site of
kind hosts with x1. Points in time and daemons are chosen by chance, from a seed that is printed; FAULTS_SEED=... in the
environment chooses them again.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from pulumi.automation import PulumiCommand

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT, ROOT, CliError, Workspace
from cli.run_events import Summary
from lab.keys import new_key_pair
from tests.chance import dice
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually, own_machine

LOGS = "/var/log/tailrack"
LOCK = "/run/tailrack-private/tailrack.lock"
# Seconds for a run to reach a point, and for one that was interrupted to end.
REACH, END = 120, 90
# Machines and their daemons; a head node whose kernel serves NFS lacks one.
DAEMONS = [
    *(("head", daemon) for daemon in ("slurmctld", "nfs-ganesha", "tailscaled", "munge", "slurmd", "ssh")),
    *(("head", daemon) for daemon in ("slurmdbd", "tailrack-database")),
    *(
        ("a1", daemon)
        for daemon in ("tailscaled", "munge", "slurmd", "ssh", "tailrack-slurmd-watchdog", "tailrack-names-follow")
    ),
]
# Ends the step that holds the lock of steps, with everything it started: what is left is half done.
END_STEP = """started_by() { for child in $(pgrep -P "$1"); do echo "$child"; started_by "$child"; done; }
for file in $(find /proc/[0-9]*/fd -lname /run/tailrack-private/tailrack.lock 2>/dev/null); do
    pid=${file#/proc/} && pid=${pid%%/*} && kill -STOP "$pid" && kill -KILL "$pid" $(started_by "$pid") && echo ended
done"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A cluster that nothing has been done for yet, but for the machine x1, which stands there already."""
    made = make_cluster("f1")
    lab_site, _ = made.config["tailrack:sites"]
    rack = {"name": "rack", "kind": "hosts", "hosts": [own_machine(made.lab, "x1")]}
    made.config["tailrack:sites"] = [lab_site, rack]
    return made


@pytest.fixture(scope="module")
def chance() -> random.Random:
    """What chooses points in time and daemons."""
    return dice("faults")


@pytest.fixture(scope="module")
def running(cluster: ClusterUnderTest) -> ClusterUnderTest:
    """The cluster, up."""
    cluster.up_ok()
    return cluster


class Run:
    """A run of the driver in a session of its own, its output in a file."""

    def __init__(self, cluster: ClusterUnderTest, command: str) -> None:
        self._output = cluster.folder / "output"
        with self._output.open("w", encoding="utf-8") as output:
            # Tests in the background of a script ignore interrupts, and what they start would too.
            words = ["env", "--default-signal=INT", *cluster.driver(command)]
            self.process = subprocess.Popen(words, cwd=PROJECT, stdout=output, stderr=output, start_new_session=True)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(encoding="utf-8")

    def reach(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail when the run ends before."""

        def reached() -> bool:
            assert self.process.poll() is None, f"it ended before: {what}\n{self.output}"
            return condition()

        eventually(reached, REACH, f"{what}\n{self.output}")

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit status."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(END)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        processes = [*descendants(self.process.pid), self.process.pid]
        for pid in processes:
            kill(pid)
        self.process.wait(END)
        eventually(lambda: all(map(ended, processes)), END, "all processes of the run are gone")


def kill(pid: int) -> None:
    """Send SIGKILL to a process that may have ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def ended(pid: int) -> bool:
    """Whether a process is gone, or over and not yet noticed by its parent."""
    try:
        return stat_fields(Path(f"/proc/{pid}/stat"))[0] == "Z"
    except OSError:
        return True


def stat_fields(stat: Path) -> list[str]:
    """Return the fields of proc(5)'s stat file that come after the command's name: state, parent, ..."""
    return stat.read_text(encoding="utf-8").rpartition(") ")[2].split()


def descendants(ancestor: int) -> list[int]:
    """Return the processes that a process started, and theirs."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat_fields(stat)[1])
        except OSError:
            continue  # it has ended meanwhile
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(ancestor, []))
    for child in found:
        found += children.get(child, [])
    return found


def container_made(cluster: ClusterUnderTest) -> bool:
    """Whether the container of a1 is there, in whatever state."""
    listed = subprocess.run(
        ["docker", "ps", "-a", "--filter", f"name={cluster.container('a1')}", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return bool(listed.stdout.strip())


def step_begun(cluster: ClusterUnderTest, node: str, step: str) -> Callable[[], bool]:
    """Return a condition: a step has begun on a node."""
    return lambda: cluster.attempt(node, f"test -s {LOGS}/{step}.log").returncode == 0


def said(summary: Summary) -> str:
    """All that a run said of what failed."""
    return "\n".join(f"{failure.urn}\n{failure.message}" for failure in summary.failures)


def failed(cluster: ClusterUnderTest) -> set[str]:
    """Names of the steps that failed in the last operation."""
    return {event.name for event in cluster.events if event.kind == "failed"}


def states(cluster: ClusterUnderTest) -> dict[str, str]:
    """Slurm's nodes and their states; an answer that does not come is no node."""
    listed = cluster.attempt("head", "sinfo -h -p all -N -o '%N %T'").stdout
    return dict(line.split() for line in listed.splitlines())


def docker(*words: str) -> None:
    """Run a docker command."""
    subprocess.run(["docker", *words], check=True, capture_output=True)


@pytest.fixture
def started(cluster: ClusterUnderTest) -> Iterator[Callable[[], Run]]:
    """Return a function that starts `up`; what still runs at the end of the test is ended."""
    runs: list[Run] = []

    def start() -> Run:
        runs.append(Run(cluster, "up"))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.kill()


@pytest.mark.proof
def test_ctrl_c_while_containers_are_made_ends_the_run_and_says_how_to_go_on(
    cluster: ClusterUnderTest, started: Callable[[], Run]
) -> None:
    run = started()
    run.reach(lambda: container_made(cluster), "the container of a1 is made")
    assert run.interrupt() == 1
    assert "Run the same command again" in run.output
    assert "Traceback" not in run.output


@pytest.mark.parametrize("step", ["prepare", pytest.param("head", marks=pytest.mark.proof)])
def test_a_run_is_killed_while_the_head_node_is_set_up_and_the_step_there_too(
    cluster: ClusterUnderTest, started: Callable[[], Run], step: str
) -> None:
    run = started()
    run.reach(step_begun(cluster, "head", f"head-{step}"), f"step head-{step} runs")
    run.kill()
    assert "ended" in cluster.attempt("head", END_STEP).stdout


def test_ctrl_c_while_a_node_is_set_up_lets_its_step_come_to_its_end(
    cluster: ClusterUnderTest, started: Callable[[], Run]
) -> None:
    run = started()
    run.reach(step_begun(cluster, "a1", "a1-node"), "step a1-node runs")
    assert run.interrupt() == 1
    assert "Traceback" not in run.output
    assert "done in" in cluster.run("a1", f"tail -n 1 {LOGS}/a1-node.log")


def test_a_second_run_is_refused_with_one_line_and_the_first_is_killed_while_it_measures(
    cluster: ClusterUnderTest, started: Callable[[], Run]
) -> None:
    run = started()
    run.reach(step_begun(cluster, "head", "validate-cloud-a"), "cloud-a is measured")
    with pytest.raises(CliError) as refused:
        cluster.up()
    assert str(refused.value) == "another run of stack 'f1' is active; wait for it, or end it with Ctrl-C there"
    assert run.process.poll() is None
    run.kill()


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.proof)])
def test_runs_are_killed_at_points_that_chance_chooses_and_half_of_their_steps_too(
    cluster: ClusterUnderTest, started: Callable[[], Run], chance: random.Random, kills: int
) -> None:
    killed = 0
    for number in range(kills):
        # Work for every machine, however far the runs before have come.
        cluster.config["tailrack:cluster"]["repair"] = dict.fromkeys(("head", "a1", "x1"), f"{number + 1} of {kills}")
        seconds, steps_too = chance.uniform(1, 15), chance.random() < 0.5
        until = time.monotonic() + seconds
        run = started()
        eventually(lambda: run.process.poll() is not None or time.monotonic() > until, 60, "the point comes")  # noqa: B023
        assert run.process.poll() in (None, 0), run.output
        killed += run.process.poll() is None
        run.kill()
        print(f"killed after {seconds:.1f} s{', and its steps' if steps_too else ''}\n{run.output}")
        for node in ("head", "a1", "x1") if steps_too else ():
            cluster.attempt(node, END_STEP)
    assert killed > kills / 2


def test_after_all_interruptions_up_ends_in_the_state_of_an_uninterrupted_one(running: ClusterUnderTest) -> None:
    idle = [f"{row} idle" for row in ("a1 all*", "a1 cloud-a", "head all*", "head cloud-a", "x1 all*", "x1 rack")]
    # A measurement of a run that was killed may come after the last one's.
    states = "sinfo -h -N -o '%N %P %T'"
    eventually(lambda: sorted(running.run("head", states).splitlines()) == idle, 60, "all nodes are idle")
    outputs = running.deployment().outputs()
    addresses = {node["name"]: node["tailnet_ip"] for node in outputs["cluster"]["nodes"]}
    assert list(addresses) == ["head", "a1", "x1"]
    assert set(outputs["validation"]) == {"cloud-a", "cross-site"}
    assert {result["verdict"] for result in outputs["validation"].values()} == {"UNJUDGED"}, outputs["validation"]
    # Nothing twice: exports, the tailnet, keys.
    exports = running.run("head", "cat /etc/exports.d/*").splitlines()
    assert sorted(line.split()[1].partition("/")[0] for line in exports) == sorted(
        addresses[name] for name in ("a1", "x1")
    )
    peers = running.run("head", "tailscale status --json | jq -r '.Self.HostName, .Peer[].HostName'").split()
    assert sorted(peers) == ["a1", "head", "x1"]
    assert running.run_as("ada", "a1", "grep -c '' .ssh/authorized_keys").strip() == "1"
    for node in ("a1", "x1"):
        assert running.run(node, "grep -c tailrack-leave /etc/ssh/tailrack_leave_key").strip() == "1"
        lines = [line.split()[:2] for line in running.run(node, "grep tailrack /etc/hosts").splitlines()]
        assert sorted(lines) == sorted([address, name] for name, address in addresses.items())


@pytest.mark.proof
def test_a_connection_that_breaks_in_a_step_is_named_and_the_step_run_again_waits_for_the_one_cut_off(
    running: ClusterUnderTest, started: Callable[[], Run]
) -> None:
    def waiting_steps() -> int:
        opened = f"find /proc/[0-9]*/fd -lname {LOCK} 2>/dev/null | cut -d / -f 3 | sort -u"
        programs = running.attempt("x1", f"for process in $({opened}); do cat /proc/$process/comm; done").stdout
        return programs.count("python3")

    holder = ["docker", "exec", "-i", running.container("x1"), "flock", LOCK, "cat"]
    with subprocess.Popen(holder, stdin=subprocess.PIPE) as lock:
        eventually(lambda: running.attempt("x1", f"! flock -n {LOCK} true").returncode == 0, 10, "held")
        running.config["tailrack:cluster"]["repair"] = {"x1": "cable"}
        run = started()
        run.reach(lambda: waiting_steps() == 1, "the step is at work on x1")
        running.run("x1", "pkill -KILL -f '[s]shd.*: admin'")
        assert run.process.wait(REACH) == 1
        assert "next: the connection to x1 broke during the step" in run.output
        again = started()
        again.reach(lambda: waiting_steps() == 2, "the same step is there twice")
        assert lock.stdin
        lock.stdin.close()
    del running.config["tailrack:cluster"]["repair"]
    assert again.process.wait(REACH) == 0, again.output
    assert states(running)["x1"] == "idle"


def test_another_engine_is_refused_a_stack_that_is_not_its_own(running: ClusterUnderTest) -> None:
    others = Found(cast(PulumiCommand, object()), "") if running.found.cli is None else Found(None, "")
    workspace = Workspace(PROJECT, running.stack, running.config_file, ROOT / "tests")
    mine, its = ("cli", "inprocess") if running.found.cli else ("inprocess", "cli")
    with pytest.raises(CliError, match=f"'f1' was created by the engine '{mine}', and the engine '{its}'") as refused:
        Deployment(workspace, others, lambda event: None)
    assert f"ENGINE={mine}" in str(refused.value)


def test_a_host_that_is_down_or_shows_another_key_is_named_and_the_others_finish(running: ClusterUnderTest) -> None:
    rack = running.config["tailrack:sites"][1]["hosts"]
    stranger = own_machine(running.lab, "y1") | {"host_key": new_key_pair().public}
    rack.append(stranger)
    running.config["tailrack:users"].append({"name": "grace", "uid": 6002})
    running.config["tailrack:validation"]["rerun"] = "hosts are down"
    docker("stop", running.container("x1"))
    summary = running.up()
    rack.remove(stranger)
    assert {step.partition("-")[0] for step in failed(running)} == {"x1", "y1"}
    assert running.run("a1", "id -u grace").strip() == "6002"
    assert "validate-cloud-a" in running.touched()
    told = {failure.urn.rsplit("::", 1)[-1].partition("-")[0]: failure.message for failure in summary.failures}
    assert "next: check that x1 is on" in told["x1"]
    assert "next: the host key at the address of y1 differs from the config" in told["y1"]
    outputs = running.deployment().outputs()
    assert all(isinstance(value, dict | float) for name, value in outputs.items() if name != "release")
    # The stranger was not even asked.
    assert running.attempt("y1", f"ls {LOGS}").returncode == 2


def test_a_node_that_restarts_comes_back_by_itself(running: ClusterUnderTest) -> None:
    docker("start", running.container("x1"))
    known = running.run("head", "cat /etc/exports.d/tailrack-x1.exports").split()[1].partition("/")[0]
    eventually(lambda: running.attempt("x1", as_user("ada", "ls -d .ssh")).returncode == 0, 60, "x1 has the share")
    eventually(lambda: states(running).get("x1") == "idle", 60, "x1 is idle")
    assert running.run("x1", "tailscale ip -4").strip() == known
    assert running.run("head", as_user("ada", "srun -w x1 hostname")).strip() == "x1"


def test_a_full_disk_is_named_and_up_repairs_it_when_there_is_room(running: ClusterUnderTest) -> None:
    running.config["tailrack:users"].append({"name": "alan", "uid": 6003})
    running.run("a1", f"mount -t tmpfs -o size=64k,mode=755 tmpfs {LOGS} && ! cat /dev/zero >{LOGS}/filled")
    summary = running.up()
    assert failed(running) == {"a1-node"} or "a1-prepare" in failed(running)
    assert "tailrack: a1:" in said(summary)
    assert f"{LOGS}: No space left on device" in said(summary)
    assert f"next: make room in {LOGS} on a1" in said(summary)
    # x1, which had been down, has got both users.
    assert running.run("x1", "id -u grace alan").split() == ["6002", "6003"]
    running.run("a1", f"umount {LOGS}")
    running.up_ok()
    assert running.run("a1", "id -u alan").strip() == "6003"


def all_work(cluster: ClusterUnderTest) -> None:
    """Wait until a job on all nodes reads the share.

    A controller that was killed may take one that has ended for running, and a slurmd that was killed may leave one
    ending until slurmctld asks again (docs/failures.md).
    """
    eventually(lambda: cluster.attempt("head", "scancel -u ada").returncode == 0, 60, "slurmctld answers")
    job = as_user("ada", "srun -N3 --switches=2 cat /shared/home/ada/.ssh/authorized_keys")

    def jobs_run() -> bool:
        return set(states(cluster).values()) == {"idle"} and cluster.attempt("head", job, 30).returncode == 0

    eventually(jobs_run, 180, "a job on all nodes reads the share")


def test_slurm_the_share_and_jobs_are_back_after_a_restart_of_the_head_node(running: ClusterUnderTest) -> None:
    docker("restart", running.container("head"))
    all_work(running)


def main_process(cluster: ClusterUnderTest, node: str, daemon: str) -> str:
    """The number of a daemon's main process once it is ready, before that 0."""
    ready = f"systemctl -q is-active {daemon} && systemctl show -p MainPID --value {daemon} || echo 0"
    return cluster.run(node, ready).strip()


@pytest.mark.parametrize("daemons", [1, pytest.param(len(DAEMONS), marks=pytest.mark.proof)])
@pytest.mark.parametrize("how", [pytest.param("restart", marks=pytest.mark.proof), "kill -s KILL"])
def test_a_daemon_that_is_restarted_or_killed_is_back_by_itself(
    running: ClusterUnderTest, chance: random.Random, how: str, daemons: int
) -> None:
    there = [one for one in DAEMONS if running.attempt(one[0], f"systemctl is-enabled {one[1]}").returncode == 0]
    for node, daemon in chance.sample(there, min(daemons, len(there))):
        began, before = time.monotonic(), main_process(running, node, daemon)
        running.run(node, f"systemctl {how} {daemon}")
        eventually(lambda: main_process(running, node, daemon) not in ("0", before), 60, f"{daemon} is another")  # noqa: B023
        all_work(running)
        print(f"{how} {daemon} on {node}: all work again after {time.monotonic() - began:.0f} s")


def test_a_controller_that_hangs_is_started_again_and_jobs_go_on(running: ClusterUnderTest) -> None:
    job = running.run_as("ada", "head", "cd; sbatch --parsable -w a1 --output=/dev/null --wrap 'sleep 600'").strip()
    eventually(lambda: "RUNNING" in running.run("head", f"squeue -h -j {job} -o %T"), 60, "the job runs")
    before = main_process(running, "head", "slurmctld")
    # In the place of a deadlock: what it reads anew never comes. Who reads it has opened it once it does not answer.
    running.run(
        "head",
        """cd /etc/slurm && cp -p slurm.conf slurm.conf.whole
        mkfifo hang.conf && echo 'Include hang.conf' >>slurm.conf
        (scontrol reconfigure &>/dev/null &) ; until ! timeout 5 scontrol ping | grep 'is UP'; do sleep 1; done
        mv slurm.conf.whole slurm.conf && rm hang.conf""",
    )
    up = "timeout 10 scontrol ping | grep 'is UP'"
    eventually(lambda: running.attempt("head", up).returncode == 0, 150, "slurmctld answers")
    assert main_process(running, "head", "slurmctld") != before
    assert "slurmctld does not answer and uses no CPU time" in running.run(
        "head", "journalctl -u tailrack-slurmctld-watchdog -o cat"
    )
    assert running.run("head", f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    running.run("head", f"scancel {job}")
    all_work(running)


@pytest.mark.proof
def test_a_job_without_a_process_does_not_run_forever(running: ClusterUnderTest) -> None:
    batch = "sbatch --parsable --no-requeue -w x1 -n1 --mem=50 --output=/dev/null --wrap 'sleep 3600'"
    job = running.run("head", as_user("ada", batch)).strip()
    stepd = f"pgrep -f '^slurmstepd: .{job}[.]batch'"
    eventually(lambda: running.attempt("x1", stepd).returncode == 0, 60, "the job runs")
    running.run("x1", f"pkill -KILL -f '^slurmstepd: .{job}[.]'")
    told = f"scontrol show job {job} | grep -q JobState=RUNNING"
    eventually(lambda: running.attempt("head", told).returncode != 0, 420, "Slurm knows that the job has ended")
    all_work(running)


@pytest.mark.proof
def test_all_is_back_after_a_power_cut_of_every_machine(running: ClusterUnderTest) -> None:
    machines = [running.container(node) for node in ("head", "a1", "x1")]
    docker("kill", *machines)
    docker("start", *machines)
    all_work(running)


@pytest.mark.proof
def test_a_host_that_is_gone_for_good_can_be_removed_from_the_config(running: ClusterUnderTest) -> None:
    docker("rm", "-f", running.container("x1"))
    running.config["tailrack:sites"].pop()
    running.up_ok()
    assert set(states(running)) == {"head", "a1"}
    assert running.run("head", "ls /etc/exports.d").split() == ["tailrack-a1.exports"]


def test_destroy_succeeds_when_a_container_is_gone_already(running: ClusterUnderTest) -> None:
    docker("rm", "-f", running.container("a1"))
    summary = running.deployment().destroy()
    assert summary.ok, said(summary)
