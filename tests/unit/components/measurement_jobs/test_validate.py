"""validate.py: which nodes it measures, what it brings back of a job's output, and what it keeps of it."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import pytest

from components.measurement_jobs import node_states
from components.measurement_jobs.plan import Node, plan
from components.measurement_jobs.scopes import Scope, measurement_of
from components.node.locks import Lock
from components.roles.program import program
from components.settings.validation import Validation
from components.steps.composition import single
from tests.unit.shell import Shell, assert_ok

TABLE = (Path(__file__).parents[3] / "fixtures/nccl_tests/mpi-cpu-2x1-tcp-eth0.txt").read_text(encoding="utf-8")
START, END = TABLE.partition("#\n")[0], TABLE.partition("#\n")[2]


MEMBERS = ["a1 rack 100.64.0.1", "a2 rack 100.64.0.2", "b1 cloud 100.64.0.3", "b2 cloud 100.64.0.4"]
RACK = MEMBERS[:2]
SETTINGS = Validation(ranks_per_node=2)
NO_FABRIC = {"interface": "tailscale0", "fabric": {}, "rdma": "auto"}


EACH_NODE = {"each_node": True, "scope": "storage_measurement"}


@dataclass
class Cluster:
    """A head node whose Slurm runs every job at once; `states` are those of its nodes, `members` those of the scope."""

    shell: Shell
    program: Path
    output: str = TABLE
    ended: str = "COMPLETED"
    refuses: bool = False  # jobs
    silent: int = 0  # so many times it does not say what its nodes do
    stale: str = ""  # a node that is listed as mixed, and is idle, until somebody asks for it alone
    settings: str = "as before"  # of the measurement
    any_of: object = ()  # the config's validation.nodes
    queue_limit: int = 0
    queue: str = "bob 12 55:00 a2|train"  # squeue's answer: user, job, time left, nodes, name of the job
    silent_nodes: tuple[str, ...] = ()  # that nobody reaches over the tailnet
    says: str = ""  # what is printed in the place of the program that measures
    after: tuple[str, ...] = ()  # answers about a2 after the measurement, the last one again and again
    states: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("a1", "a2", "b1", "b2"), "idle"))

    def run(self, members: list[str], action: str = "up") -> CompletedProcess[str]:
        shell = self.shell
        shell.write("written", self.output)
        shell.write("etc/passwd", "ada:x:6001:6001::/home:/bin/bash\n")
        shell.write("said", self.says)
        says = f'cat >/dev/null; cat "{shell.root}/said"; touch "{shell.root}/measured"'
        shell.stub("python3", says if self.says else f'exec {sys.executable} "$@"')
        # As a user the script runs only what is in /usr/bin and /bin: Slurm's commands are looked up here instead.
        exports = 'while [[ $1 == *=* || $1 == -i ]]; do [[ $1 =~ ^(-i$|PATH=) ]] || export "$1"; shift; done'
        shell.stub("env", f'{exports}; exec "$@"')
        refused = "exit 1" if self.refuses else ":"
        shell.stub("sbatch", f'{refused}\ncp "{shell.root}/written" "${{2#--output=}}"; echo 7')
        shown = {"job_id": 7, "job_state": [self.ended], "nodes": "some of them"}
        job = json.dumps({"jobs": [{**shown, "exit_code": {"return_code": {"number": 0}}}]})
        asked = f'touch "{shell.root}/asked-$3"'
        shell.stub("scontrol", f"""case "$2" in job) echo '{job}' ;; node) {asked} ;; esac""")
        told = "\n".join(f"{name} {state}" for name, state in self.states.items())
        right = f"[ $1 = -R ] || cat <<'END'\n{told}\nEND"
        late = f'[ -e "{shell.root}/asked-{self.stale}" ] || sed -i "s/^{self.stale} .*/{self.stale} mixed/"'
        now = f'"{shell.root}/now"'
        late = f"{right.replace('cat', f'cat >{now}')}\n{late} {now}\ncat {now}" if self.stale else right
        if self.after:
            shell.write("after", "".join(f"a2 {state}\n" for state in self.after))
            lines, kept = f'"{shell.root}/after"', "$(sed -n '$=' " + f'"{shell.root}/after")'
            late = (
                f"{late}\n[ $1 = -R ] || [ ! -e '{shell.root}/measured' ] || "
                f"{{ sed -n 1p {lines}; [ {kept} = 1 ] || sed -i 1d {lines}; }}"
            )
        times = f'"{shell.root}/silent"'
        shell.write("silent", "x" * self.silent)
        fails = f"if [ -s {times} ]; then sed -i s/x// {times}; exit 1; fi\n" if self.silent else ""
        shell.stub("sinfo", f"{fails}{late}")
        # A job's name may have any character.
        shell.write("queue", f"{self.queue}\n")
        queue = f'"{shell.root}/queue"'
        named = f'grep " $3 " {queue} | cut -d"|" -f2-'
        shell.stub("squeue", f'case $* in *%j*) {named} ;; *) cut -d"|" -f1 {queue} ;; esac')
        silent = {member.split()[2] for member in members if member.split()[0] in self.silent_nodes}
        header: dict[str, str | int | list[str]] = {
            "host_name": "head", "scope": "rack", "run_as": "ada",
            "queue_limit": self.queue_limit, "run_limit": 1, "members": members, "measurement_limit": 60,
            "settings": self.settings,
            "driver": f"python3 -I -S {self.program} measure", "plan": self.plan(members),
        }  # fmt: skip
        with mock.patch.object(node_states, "answers_at", lambda address: address not in silent):
            return shell.step(single("components.measurement_jobs.validate"), header, action)

    def plan(self, members: list[str]) -> str:
        """What the head node is told of the members: two ranks each, on CPUs."""
        there = {name: Node(site, address, "") for name, site, address in map(str.split, members)}
        asked = measurement_of(Scope("rack", tuple(there), len({node.site for node in there.values()})), SETTINGS)
        settings = Validation.model_validate({"ranks_per_node": 2, "nodes": self.any_of})
        told = plan("rack", there, settings, asked, (None, None), NO_FABRIC, preflight=False)
        return json.dumps({**told, "start_seconds": 1, "run_seconds": 1})

    def report(self, members: list[str], action: str = "up") -> dict[str, Any]:
        """What the step prints."""
        told = assert_ok(self.run(members, action))
        return dict(json.loads(told.stdout))

    @property
    def submitted(self) -> list[str]:
        return [call for call in self.shell.calls if call.startswith("sbatch ")]


@pytest.fixture
def cluster(shell: Shell, installed: Path) -> Cluster:
    return Cluster(shell, installed / program().digest)


def test_a_scope_of_idle_nodes_is_measured_completely(cluster: Cluster) -> None:
    report = cluster.report(MEMBERS)
    assert (report["nodes"], report["left_out"]) == (["a1", "a2", "b1", "b2"], [])
    assert "--exclusive --no-requeue --nodes=4 --nodelist=a1,a2,b1,b2 --ntasks=8 " in cluster.submitted[0]
    assert report["measured_at"] > 1_600_000_000


OUT = ("down", "down*", "drained", "draining", "idle*", "unknown", "")


@pytest.mark.parametrize("state", ["mixed", "allocated", "completing", "planned", "idle-", "mixed-", *OUT])
def test_a_node_that_is_busy_or_out_gets_no_job(cluster: Cluster, state: str) -> None:
    cluster.states["a2"] = state
    report = cluster.report(RACK)
    assert report["state"] == ("UNAVAILABLE" if state in OUT else "BUSY")
    assert (report["left_out"], cluster.submitted) == (["a2"], [])


def test_busy_nodes_get_no_job_and_keep_their_last_measurement(cluster: Cluster) -> None:
    first = cluster.report(RACK)
    cluster.states["a2"] = "allocated"
    busy = cluster.report(RACK)
    assert len(cluster.submitted) == 1  # nobody has to wait behind a job of ours
    assert (busy["state"], busy["job_id"], busy["nodes"], busy["left_out"]) == ("BUSY", None, [], ["a2"])
    assert busy["facts"] == {"a2": "job 12 of bob, 55:00 left"}
    assert busy["last"] == first
    # A second time it is still the measurement that is kept, not the other BUSY.
    assert cluster.report(RACK)["last"] == first


def test_an_idle_node_that_does_not_answer_is_named_and_the_others_are_measured(cluster: Cluster) -> None:
    cluster.silent_nodes = ("a2",)
    report = cluster.report(RACK)
    assert (report["state"], report["left_out"], cluster.submitted) == ("UNAVAILABLE", ["a2"], [])
    assert report["absent"]["a2"] == "unreachable: no answer at port 6818 over the tailnet"
    cluster.report(MEMBERS)
    assert "--nodelist=a1,b1,b2" in cluster.submitted[0]


@pytest.mark.parametrize(("states", "measured"), [({"a2": "allocated"}, ["a1"]), ({"a1": "down"}, ["a2"])])
def test_each_idle_node_is_measured_alone(cluster: Cluster, states: dict[str, str], measured: list[str]) -> None:
    cluster.states |= states
    with mock.patch.object(Cluster, "plan", lambda _, members: json.dumps({**EACH_NODE, "nodes": len(members)})):
        cluster.says = json.dumps({"state": "COMPLETED", "job_id": 7, "exit_code": 0, "nodes": measured, "output": ""})
        report = cluster.report(RACK)
    assert report["nodes"] == measured
    assert report["left_out"] == [node for node in ("a1", "a2") if node not in measured]


def test_a_node_that_is_drained_is_named_with_its_reason_and_not_waited_for(cluster: Cluster) -> None:
    why = "Prolog error: prolog.d/50-mine: timed out; next: see it"
    cluster.states |= {"a1": "idle an old reason", "a2": f"drained {why}"}
    cluster.queue_limit = 50
    report = cluster.report(RACK)
    assert (report["state"], report["absent"]) == ("UNAVAILABLE", {"a2": f"drained: {why}"})
    assert sum(call.startswith("sinfo -h -N") for call in cluster.shell.calls) == 2
    cluster.states |= {"b1": "idle", "b2": "idle"}
    assert cluster.report(MEMBERS)["absent"] == {"a2": f"drained: {why}"}


def test_a_new_node_is_measured_with_an_idle_peer_while_others_are_busy(cluster: Cluster) -> None:
    cluster.report(RACK)
    cluster.states |= {"a1": "allocated", "a3": "idle"}
    report = cluster.report([*RACK, "a3 rack 100.64.0.9"])
    assert (report["nodes"], report["left_out"]) == (["a2", "a3"], ["a1"])
    assert "--nodes=2 --nodelist=a2,a3 --ntasks=4 " in cluster.submitted[1]
    # All three have been measured by now: whoever is busy later is nobody's reason for a job.
    assert report["members"] == {"a1": "100.64.0.1", "a2": "100.64.0.2", "a3": "100.64.0.9"}
    cluster.states["a2"] = "mixed"
    assert cluster.report([*RACK, "a3 rack 100.64.0.9"])["state"] == "BUSY"


def test_between_sites_a_new_node_has_a_peer_at_its_site_and_one_across(cluster: Cluster) -> None:
    cluster.report(MEMBERS)
    cluster.states |= {"a1": "mixed", "b1": "mixed", "b3": "idle"}
    report = cluster.report([*MEMBERS, "b3 cloud 100.64.0.5"])
    assert (report["nodes"], report["left_out"]) == (["a2", "b2", "b3"], ["a1", "b1"])


def test_a_script_beside_the_job_runs_it_again_and_prints_its_table(cluster: Cluster) -> None:
    cluster.report(RACK)
    again = subprocess.run(
        ["sh", cluster.shell.root / "home/.tailrack/validation/rack/repeat"],
        env={"PATH": f"{cluster.shell.root}/stubs:/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "# Avg bus bandwidth" in again.stdout
    first, second = cluster.submitted
    assert second.split()[3:] == first.split()[3:]


def test_any_idle_nodes_are_measured_as_soon_as_they_are_enough(cluster: Cluster) -> None:
    for limit, nodes, busy, measured in (
        (600, 2, "a1", "a2 b1"), (600, "idle", "a1", "a2 b1 b2"), (0, "idle", "", "a1 a2 b1"),
        (0, 4, "a1", ""), (0, 3, "a1 b1", ""), (0, "idle", "a1 a2", ""),
    ):  # fmt: skip
        cluster.states |= {name: "allocated" if name in busy.split() else "idle" for name in cluster.states}
        cluster.queue_limit, cluster.any_of = limit, nodes
        report = cluster.report(MEMBERS)
        assert report["nodes"] == measured.split(), (nodes, busy)
        assert report["state"] == ("COMPLETED" if measured else "BUSY"), (nodes, busy)


@pytest.mark.parametrize(
    "states",
    [
        {"b3": "mixed", "a1": "mixed"},  # the new one itself
        {"b3": "idle", "a1": "mixed", "a2": "mixed"},  # nobody across
    ],
)
def test_a_new_node_without_peers_waits_for_another_time(cluster: Cluster, states: dict[str, str]) -> None:
    cluster.report(MEMBERS)
    cluster.states |= states
    assert cluster.report([*MEMBERS, "b3 cloud 100.64.0.5"])["state"] == "BUSY"


@pytest.mark.parametrize("action", ["up", "recall"])
def test_two_runs_do_not_measure_a_scope_at_the_same_time(cluster: Cluster, action: str) -> None:
    cluster.queue_limit = -500  # with the other limits: no wait for the step of a run that was killed
    with cluster.shell.here(), Lock("measure-rack"):
        ended = cluster.run(RACK, action)
    assert ended.returncode == 1
    assert "measure-rack.lock" in ended.stderr
    assert cluster.submitted == []
    assert cluster.report(RACK, action)["nodes"] == ["a1", "a2"]


@pytest.mark.parametrize("kept", ["", "{", "[]", "null", '{"state": "COMPLETED"}', '"measured_at state"'])
def test_a_damaged_file_on_the_head_node_is_measured_again_and_is_no_last_figure(cluster: Cluster, kept: str) -> None:
    cluster.shell.write("/var/lib/tailrack/validation/rack.json", kept)
    cluster.states["a1"] = "mixed"
    report = cluster.report(RACK, "recall")
    # The nodes were looked at, as where nothing is kept; idle ones would have been measured.
    assert (report["state"], report["last"]) == ("BUSY", None)


def test_a_measurement_that_breaks_off_leaves_nothing_to_be_said_again(cluster: Cluster) -> None:
    cluster.report(RACK)
    cluster.refuses = True
    failed = cluster.run(RACK)
    assert failed.returncode != 0
    assert "Slurm rejected the job of rack" in failed.stderr
    cluster.refuses = False
    cluster.report(RACK, "recall")
    assert len(cluster.submitted) == 3


def test_a_report_names_a_node_and_the_whole_reason_of_its_prolog(cluster: Cluster) -> None:
    cluster.report(RACK)
    why = "Prolog error: prolog.d/50-mine: timed out; next: see it"
    cluster.says = json.dumps({"state": "UNAVAILABLE", "job_id": None, "absent": {"a2": "what the user likes"}})
    cluster.after = ("drained Prolog error", "drained Prolog error", f"drained {why}")
    report = cluster.report(RACK)
    assert (report["state"], report["absent"], report["left_out"]) == ("UNAVAILABLE", {"a2": f"drained: {why}"}, ["a2"])
    assert report["last"]["state"] == "COMPLETED"
    assert "Prolog error" not in (cluster.shell.root / "var/lib/tailrack/validation/rack.last.json").read_text()
    # The job that the node refused is still ending at the first look.
    cluster.queue, cluster.after = "ada 12 55:00 a2|validate-rack", ("completing", f"drained {why}")
    (cluster.shell.root / "measured").unlink()
    assert cluster.report(RACK)["absent"] == {"a2": f"drained: {why}"}


HONEST = json.dumps({"state": "COMPLETED", "job_id": 7, "exit_code": 0, "measured_at": 1, "members": {"a1": "x"}})


@pytest.mark.parametrize(
    "text",
    [
        *(f"{HONEST}{between}{HONEST}" for between in ("", "\n", " ")),
        '{"state": "COMPLETED", "job_id": NaN}', '{"state": 1, "job_id": 1e999}', "[" * 99999,
    ],
)  # fmt: skip
def test_a_second_answer_and_no_json_from_a_user_interrupt_the_measurement(cluster: Cluster, text: str) -> None:
    cluster.report(RACK)
    cluster.says = text
    failed = cluster.run(RACK)
    assert failed.returncode != 0
    assert "the measurement of rack was interrupted" in failed.stderr
    cluster.says = ""
    assert cluster.report(RACK)["members"].keys() == {"a1", "a2"}


def test_half_a_character_of_a_user_is_replaced_so_that_the_answer_can_be_stored(cluster: Cluster) -> None:
    cluster.says = r'{"state": "COMPLETED", "job_id": 7, "exit_code": 0, "output": "a\ud800b\u00e9"}'
    assert cluster.report(RACK)["output"] == "a?b\u00e9"
    assert cluster.report(RACK, "recall")["output"] == "a?b\u00e9"


def test_a_controller_that_does_not_answer_is_no_busy_cluster(cluster: Cluster) -> None:
    cluster.silent = 200
    cluster.shell.hurry()
    failed = cluster.run(RACK)
    assert failed.returncode != 0
    assert "slurmctld reports no nodes" in failed.stderr


def test_a_node_that_is_down_is_left_out_and_named_while_enough_others_are_idle(cluster: Cluster) -> None:
    cluster.states["a2"] = "down*"
    report = cluster.report(MEMBERS)
    assert (report["state"], report["nodes"], report["left_out"]) == ("COMPLETED", ["a1", "b1", "b2"], ["a2"])
    assert report["absent"] == {"a2": "down*"}
    # It has not been measured: it is new when it is back.
    assert report["members"].keys() == {"a1", "b1", "b2"}


def test_a_link_in_the_place_of_the_jobs_folder_is_replaced(cluster: Cluster) -> None:
    elsewhere = cluster.shell.write("elsewhere/kept", "as it was")
    place = cluster.shell.path("home/.tailrack/validation/rack")
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere.parent)
    assert cluster.report(RACK)["state"] == "COMPLETED"
    assert elsewhere.read_text(encoding="utf-8") == "as it was"
    assert not place.is_symlink()
