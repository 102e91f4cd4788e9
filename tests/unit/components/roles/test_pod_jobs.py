"""The check of jobs for pods, run by Lua as slurmctld runs it, and the place of pods in Slurm's files."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from components.cluster.cluster import NO_POOL
from components.cluster.compute_node import node_header
from components.host import Connection, Host
from components.node.step.values import read_values
from components.roles.order import roles
from components.roles.pods.pod_staging.role import pod_jobs
from components.roles.slurm.slurm.controller import merged
from components.roles.slurm.slurm.machine_keys import machine_keys
from components.roles.slurm.slurm.node_lines import memory_values, node_values
from components.roles.slurm.slurm.nodes import NodeFiles, write_node
from components.roles.slurm.slurm.slurm_conf import controller_files
from components.settings.types import Gpu
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell

SETTINGS = parse(LAB, base_dir=Path())
HOME = "/shared/home/ada"
# The parts of slurmctld that the script uses.
SLURMCTLD = """
function member() end
slurm = {NO_VAL = 4294967294, SUCCESS = 0, ERROR = -1}
function slurm.log_user(form, ...) print(string.format(form, ...)) end
function slurm_job_submit(job) print("passed on " .. (job.comment or "")) return 0 end
function slurm_job_modify() print("passed on") return 0 end
"""


SITES = 'pods("pods"); pods("staged", true); pods("fabric", false, true)'
NODES = 'member("p1", "pods", "", 0); member("a1", "rack", "", 0)'


def lua(ending: str, nodes: str = NODES, sites: str = SITES) -> str:
    """Run the script with one partition of pods, one that stages by itself, nodes and an ending."""
    text = "\n".join([SLURMCTLD, pod_jobs(SETTINGS), sites, nodes, ending])
    return subprocess.run(["lua5.4", "-"], input=text, capture_output=True, text=True, check=True).stdout


def submit(**fields: object) -> str:
    job = {"user_name": "ada", "work_dir": HOME, "partition": "pods", "script": "#!/bin/sh", **fields}
    table = ", ".join(f"{name} = {json.dumps(value)}" for name, value in job.items() if value is not None)
    return lua(f"print(slurm_job_submit({{min_nodes = slurm.NO_VAL, {table}}}, {{}}, 6001))").removesuffix("\n")


REFUSED: list[tuple[dict[str, object], str, str]] = [
    ({}, "add --comment=stage", "-D /tmp"),
    ({"work_dir": f"{HOME}/run"}, f"do not have {HOME}/run", "--comment=stage"),
    ({"work_dir": "/shared"}, "do not have /shared", "--comment=stage"),
    ({"work_dir": "/workspace", "std_out": f"{HOME}/out"}, f"do not have {HOME}/out", "--output=/tmp/%j.out"),
    ({"work_dir": "/workspace", "std_err": "/shared//x"}, "do not have /shared//x", "--error=/tmp/%j.out"),
    ({"comment": "stage"}, "a folder below your home", f"{HOME}/run1"),
    ({"comment": "stage", "work_dir": f"{HOME}/"}, "a folder below your home", f"{HOME}/run1"),
    ({"comment": "stage", "work_dir": f"{HOME}/../bob/x"}, "a folder below your home", f"{HOME}/run1"),
    ({"comment": "stage", "work_dir": "/shared/home/adam/run"}, "a folder below your home", f"{HOME}/run1"),
    ({"comment": "stage", "work_dir": "/workspace"}, "a folder below your home", f"{HOME}/run1"),
    ({"comment": "stage", "work_dir": f"{HOME}/run", "std_out": f"{HOME}/out"}, "is elsewhere", "--output=%j.out"),
    ({"comment": "stage", "work_dir": f"{HOME}/run", "std_err": "../err"}, "is elsewhere", "--error=%j.out"),
    ({"partition": "pods,rack"}, "pods has pods and rack has not", "name one of them"),
    ({"partition": "rack,pods"}, "pods has pods and rack has not", "name one of them"),
    ({"min_nodes": 2, "script": None}, "asks for 2", "use -N1"),
    ({"het_job_offset": 0, "script": None}, "a heterogeneous job", "submit one job with -p pods"),
]


def test_the_submit_script_rejects_a_job_unfit_for_pods_with_a_remedy() -> None:
    for job, *parts in REFUSED:
        answer = submit(**job)
        assert answer.endswith("\n-1"), job
        assert all(part in answer for part in parts), answer


PASSED: list[dict[str, object]] = [
    {"partition": None},
    {"partition": "rack"},
    {"script": None},
    {"script": ""},
    {"work_dir": "/workspace"},
    {"work_dir": "/workspace/run", "std_out": "/workspace/%j.out"},
    {"work_dir": "/shared2/run"},
    {"comment": "stage", "work_dir": f"{HOME}/run"},
    {"comment": "stage", "work_dir": f"{HOME}/./run//", "std_out": "logs/%j.out", "std_in": "/dev/null"},
    {"comment": "stage", "work_dir": f"{HOME}/run", "std_out": f"{HOME}/run/%j.out", "min_nodes": 1},
    {"comment": "stage", "work_dir": f"{HOME}/run", "script": None},
    {"partition": "fabric", "min_nodes": 2, "script": None},
    {"partition": "fabric", "min_nodes": 2, "comment": "stage", "work_dir": f"{HOME}/run"},
    {"het_job_offset": 4294967294, "script": None},
]


def test_other_jobs_are_passed_on_as_they_are() -> None:
    for job in PASSED:
        assert submit(**job) == f"passed on {job.get('comment', '')}\n0", job


def test_a_partition_may_stage_by_itself_and_a_job_may_say_no() -> None:
    assert submit(partition="staged", work_dir=f"{HOME}/run") == "passed on stage\n0"
    assert submit(partition="staged", work_dir="/workspace") == "passed on \n0"
    assert submit(partition="staged", work_dir=f"{HOME}/run", script=None) == "passed on stage\n0"
    assert "add --comment=stage" in submit(partition="staged", work_dir=HOME)
    assert "-D /tmp" in submit(partition="staged", work_dir=f"{HOME}/run", comment="nostage")


def test_a_job_on_pods_without_a_partition_gets_the_only_one_or_an_error_with_all() -> None:
    pods = 'member("p1", "pods", "", 0)'
    both = f'{pods}; member("a1", "rack", "", 0)'
    for partition in ("nil", '""'):
        job = (
            f"job = {{min_nodes = 1, partition = {partition}}} print(slurm_job_submit(job, {{}}, 6001), job.partition)"
        )
        assert lua(job, pods, 'pods("pods")').endswith("0\tpods\n"), partition
        assert lua(job, both, 'pods("pods")') == f"passed on \n0\t{partition.strip(chr(34))}\n"
    for partition in ("nil", '"all"'):
        job = f"print(slurm_job_submit({{min_nodes = 1, partition = {partition}}}, {{}}, 6001))"
        told = lua(job, pods)
        assert told.startswith("all nodes of this cluster are pods"), partition
        assert re.search(r"-p (pods|staged|fabric)\n-1\n$", told), partition
        assert lua(job) == "passed on \n0\n", partition


def test_a_waiting_job_is_not_moved_to_pods() -> None:
    moved = 'print(slurm_job_modify({partition = "pods"}, {partition = "rack"}, {}, 6001))'
    assert lua(moved) == "pods has pods, which do not have this job's files; submit the job again with -p pods\n-1\n"
    for now, before in (("nil", '"pods"'), ('"rack"', '"pods"'), ('"pods"', '"pods"')):
        assert lua(f"slurm_job_modify({{partition = {now}}}, {{partition = {before}}}, {{}}, 1)") == "passed on\n"


POD = Host(
    name="p1", site="pods", connection=Connection("", 22, "", "", ""), gpu=Gpu("h100", 8), in_all=False, pod=True
)


def test_a_job_may_use_several_pods_only_with_a_site_network(shell: Shell) -> None:
    shared = replace(POD, fabric="ens1")
    assert 'pods("pods", false, true)' in node_values(shared)["node_job_submit_lua"]
    for pod, limited in ((shared, False), (replace(POD, fabric="tailnet"), True)):
        shell.write("/var/lib/tailrack/slurm/base/slurm.conf", "PartitionName=all Nodes=ALL MaxTime=INFINITE State=UP")
        with shell.here():
            found = {**memory_values(pod, 8, 16000), **machine_keys({"cgroups": False}, SETTINGS, False, pod=True)}
            write_node(read_values(NodeFiles, {**node_header(pod), **found, **NO_POOL}))
            text = merged("/var/lib/tailrack/slurm/base")["slurm.conf"]
        assert ("MaxNodes=1" in text) is limited
        assert "EpilogSlurmctld=" in text


def test_slurmctld_gets_the_limits_and_programs_of_pods_only_while_it_has_pods(shell: Shell) -> None:
    files = controller_files(SETTINGS, roles(SETTINGS), ["cloud-a"], "100.64.0.1", False)
    names = {"slurm_slurm_conf": "slurm.conf", "slurm_job_submit_lua": "job_submit.lua"}
    for key, name in names.items():
        shell.write(f"/var/lib/tailrack/slurm/base/{name}", files[key])
    with shell.here():
        before = merged("/var/lib/tailrack/slurm/base")
        found = {**memory_values(POD, 8, 16000), **machine_keys({"cgroups": False}, SETTINGS, False, pod=True)}
        write_node(read_values(NodeFiles, {**node_header(POD), **found, **NO_POOL}))
        text = merged("/var/lib/tailrack/slurm/base")
    assert "PrologSlurmctld" not in before["slurm.conf"]
    (partition,) = [line for line in text["slurm.conf"].splitlines() if line.startswith("PartitionName=pods ")]
    assert " MaxNodes=1" in partition
    assert "PrologSlurmctld=/usr/local/lib/tailrack/pod-stage-in" in text["slurm.conf"].splitlines()
    assert sum("MaxNodes" in line for line in text["slurm.conf"].splitlines()) == 1
    assert "PartitionName=all Nodes=site-cloud-a " in text["slurm.conf"]
    added = text["job_submit.lua"].splitlines()[-3:]
    assert added[0].endswith(' if pods then pods("pods") end'), "the script sees the nodes that follow"
    assert added[1:] == ['member("p1", "pods", "h100", 8)', 'outside_all("pods")']
