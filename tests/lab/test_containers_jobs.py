"""What jobs in containers find inside, and the container jobs of examples/jobs, submitted by a user as they are."""

import re
from collections.abc import Iterator

import pytest

from tests.lab.cluster import ClusterUnderTest as Cluster
from tests.lab.cluster import as_user, eventually
from tests.lab.containers import NEEDS_ARTIFACTS, NODES, SCRATCH, inside
from tests.lab.test_jobs import JOBS, examples

pytestmark = NEEDS_ARTIFACTS
SSH = "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
OF_THE_IMAGE = "An image of the lab"


@pytest.fixture(scope="module")
def jobs(contained: Cluster) -> Iterator[Cluster]:
    """The examples are in a folder of ada's home."""
    with examples(contained):
        yield contained


def ended(jobs: Cluster, script: str, data: str = "") -> str:
    """Submit a script for the lab's image and wait for its end; what it printed."""
    return jobs.ended("jobs", f"--export=ALL,IMAGE=tools,DATA={data} {script}")


def test_tasks_on_two_nodes_run_in_the_image(jobs: Cluster) -> None:
    told = re.findall(r"task (\d) in (.+)", ended(jobs, "container_cpu.sh"))
    assert sorted(told) == [("0", OF_THE_IMAGE), ("1", OF_THE_IMAGE)]


def test_a_folder_is_there_to_be_read_and_the_home_is_not(jobs: Cluster) -> None:
    told = ended(jobs, "container_mounts.sh").splitlines()
    assert {"mpi_sum.py", "/data is read-only", "no home"} <= {*told}


def test_ranks_in_containers_know_of_each_other_without_mpirun(jobs: Cluster) -> None:
    told = re.findall(r"rank (\d) of 2 on (\w+): the sum is 1", ended(jobs, "container_mpi.sh"))
    assert {rank for rank, _ in told} == {"0", "1"}
    assert len({node for _, node in told}) == 2
    assert inside(jobs, "--container-image=tools", "sh -c 'command -v mpirun || echo none'") == "none\n"


def test_a_named_container_keeps_its_files_and_ends_with_its_script(jobs: Cluster) -> None:
    assert "prepared" in ended(jobs, "container_named.sh").splitlines()
    for node in NODES:
        assert "work-" not in jobs.run_as("ada", node, "enroot list")


def test_data_are_on_the_nodes_own_disk_inside_and_go_with_the_job(jobs: Cluster) -> None:
    told = ended(jobs, "container_scratch.sh", data="mpi_sum.py")
    size = (JOBS / "mpi_sum.py").stat().st_size
    found = re.findall(rf"(\w+) reads {size} bytes in {SCRATCH}/tailrack-jobs/(\d+), and writes there", told)
    assert len({node for node, _ in found}) == 2, told
    assert len({job for _, job in found}) == 1
    left = f"ls {SCRATCH}/tailrack-jobs"
    eventually(lambda: not any(jobs.run(node, left) for node in NODES), 60, "nothing is left of it")


def test_an_image_is_built_on_a_node_from_another(jobs: Cluster) -> None:
    jobs.give("ada", JOBS.parent / "containers/nccl-tests")
    jobs.run_as("ada", "head", "echo 'cp /etc/os-release /usr/bin/all_reduce_perf; id -u' >nccl-tests/install.sh")
    told = jobs.ended("nccl-tests", "build.sh /var/lib/enroot/images/tools.sqsh")
    assert "Creating squashfs filesystem" in told, told
    image = "/shared/home/ada/nccl-tests/nccl-tests.sqsh"
    assert OF_THE_IMAGE in inside(jobs, f"-w a1 --container-image={image}", "cat /usr/bin/all_reduce_perf")


def test_a_shell_in_a_container_has_a_terminal(jobs: Cluster) -> None:
    shell = 'srun --quiet --pty --container-image=tools bash -c "tty; cat /etc/os-release"'
    told = jobs.run_as("ada", "head", f"script -qec '{shell}' /dev/null </dev/null", 90)
    assert re.search(rf"/dev/pts/\d+\s[^$]*{OF_THE_IMAGE}", told), told


def test_sshd_inside_a_container_accepts_only_its_user(jobs: Cluster) -> None:
    job = jobs.run_as("ada", "head", "cd jobs && IMAGE=tools sbatch --parsable --output=sshd container_sshd.sh").strip()

    def door() -> str:
        found = re.search(r"^ssh (-p \d+ \w+)$", jobs.attempt("head", "cat /shared/home/ada/jobs/sshd").stdout, re.M)
        return found[1] if found else ""

    try:
        eventually(lambda: bool(door()), 60, "the job says how to log in")
        enter = f"{SSH} {door()} cat /etc/os-release"
        eventually(lambda: jobs.attempt("head", as_user("ada", enter), 10).returncode == 0, 60, "sshd lets ada in")
        assert OF_THE_IMAGE in jobs.run_as("ada", "head", enter)
        refused = jobs.attempt("head", as_user("bob", enter.replace("ssh ", "ssh -l ada ", 1)))
        assert "Permission denied" in refused.stderr
    finally:
        jobs.run("head", f"scancel {job}")
    eventually(lambda: not jobs.run("head", "squeue -h").strip(), 60, "no jobs are left")


def test_ranks_and_the_masters_address_are_right_for_two_nodes_with_two_tasks(contained: Cluster) -> None:
    shown = inside(
        contained,
        "-N2 --ntasks-per-node=2 -w head,a1 --container-image=tools",
        "sh -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $SLURM_PROCID'",
    )
    rows = sorted(line.split() for line in shown.splitlines())
    masters = {(row[3], row[4]) for row in rows}
    assert [(*row[:3], row[5]) for row in rows] == [(str(n), str(n % 2), "4", str(n)) for n in range(4)]
    ((address, port),) = masters
    assert (
        address
        == inside(contained, "-N2 -w head,a1", "sh -c 'echo $SLURMD_NODENAME $SLURM_PROCID'").split(" 0")[0].split()[-1]
    )
    assert 61000 <= int(port) < 65536


def test_a_variable_that_the_job_sets_stays(contained: Cluster) -> None:
    shown = contained.run_as(
        "ada",
        "head",
        "MASTER_PORT=1234 srun --quiet -w a1 --container-image=tools --container-env=MASTER_PORT "
        "sh -c 'echo $MASTER_PORT'",
    )
    assert shown == "1234\n"


def test_a_named_container_stays_for_its_user_on_its_node(contained: Cluster) -> None:
    inside(contained, "-w a1 --container-image=tools --container-name=work", "sh -c 'echo kept >/kept'")
    assert inside(contained, "-w a1 --container-name=work", "cat /kept") == "kept\n"
    for words, user in (("-w head", "ada"), ("-w a1", "bob")):
        tried = contained.attempt("head", as_user(user, f"srun {words} --container-name=work cat /kept"), limit=60)
        assert tried.returncode != 0
        assert 'name "pyxis_work" does not exist' in tried.stderr
    inside(contained, "-w a1", "enroot remove -f pyxis_work")


def test_homes_mounts_and_root_inside_are_as_documented(contained: Cluster) -> None:
    image = "-w b1 --container-image=tools"
    home = inside(
        contained,
        f"{image} --container-mount-home --no-container-remap-root",
        "sh -c 'id -un; cd; pwd; touch from-inside'",
    )
    assert home == "ada\n/shared/home/ada\n"
    assert contained.run_as("ada", "head", "stat -c %U from-inside; rm from-inside") == "ada\n"
    assert inside(contained, f"{image} --container-remap-root", "id -u") == "0\n"
    mounted = f"{image} --container-mounts=/shared/scratch:/data:ro"
    assert inside(contained, mounted, "sh -c 'touch /data/x 2>/dev/null || echo read-only'") == "read-only\n"


def test_a_batch_script_asks_for_containers_in_its_steps_or_for_itself(contained: Cluster) -> None:
    show = "cat /etc/os-release"
    script = f"cd; printf '#!/bin/bash\\n{show}; srun --quiet --container-image=tools {show}\\n' >job.sh"
    contained.run_as("ada", "head", f"{script}; sbatch -W --quiet -w b1 -o job.out job.sh", limit=90)
    bare, in_image = contained.run_as("ada", "head", "cat job.out").split("pyxis: importing")
    assert "Debian" in bare
    assert "An image of the lab" in in_image
    contained.run_as(
        "ada", "head", f"sbatch -W --quiet -w b1 -o job.out --container-image=tools --wrap '{show}'", limit=90
    )
    assert "An image of the lab" in contained.run_as("ada", "head", "tail -n 1 job.out; rm job.out job.sh")
