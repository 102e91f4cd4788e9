"""Jobs on a pod: the ones that are refused, the folder that goes there and comes back, and what the pod may reach."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from components.roles.network.tailnet.policy import Pods, policy, ports
from components.roles.order import roles
from lab.identity import control_name
from stacks.config import parse
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually, own_machine

HOME = "/shared/home/ada"
POLICY = "/state/open.policy.json"
# A closed port answers nothing, or that it refuses the connection.
TRY = "timeout 6 bash -c 'exec 3<>/dev/tcp/{}/{}' 2>/dev/null && echo open || echo closed"
ANSWERS = {"open": True, "closed": False}


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node that runs jobs, and a pod in another site."""
    made = make_cluster("podjobs")
    made.use_machines(
        {"name": "rack", "hosts": [own_machine(made.lab, "head")], "fabric": "tailnet"},
        made.pods("p1"),
        computes=True,
    )
    made.up_ok()
    return made


def ada(cluster: ClusterUnderTest, command: str, limit: float = 60) -> str:
    return cluster.run_as("ada", "head", command, limit)


def refused(cluster: ClusterUnderTest, command: str) -> str:
    done = cluster.attempt("head", as_user("ada", command))
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def submit(cluster: ClusterUnderTest, folder: str, script: str, options: str = "") -> str:
    """Submit a staged job from a folder, and return its number."""
    ada(cluster, f"mkdir -p {folder}")
    words = f"cd {folder} && sbatch --parsable -p pods --comment=stage {options} --wrap '{script}'"
    return ada(cluster, words).strip()


def test_a_pod_is_in_the_partition_of_its_site_alone(cluster: ClusterUnderTest) -> None:
    assert cluster.run("head", "sinfo -h -N -p all -o %N").split() == ["head"]
    assert cluster.run("head", "sinfo -h -N -p pods -o '%N %f'").split() == ["p1", "site-pods,pod"]
    assert "MaxNodes=1 " in cluster.run("head", "scontrol show partition pods")


def test_a_batch_job_that_has_its_files_on_the_share_is_refused(cluster: ClusterUnderTest) -> None:
    assert "add --comment=stage" in refused(cluster, f"cd {HOME} && sbatch -p pods --wrap true")
    assert "a folder below your home" in refused(cluster, f"cd {HOME} && sbatch -p pods --comment=stage --wrap true")
    assert "name one of them" in refused(cluster, "sbatch -p pods,rack -D /tmp -o /tmp/o --wrap true")
    assert "use -N1" in refused(cluster, "srun -p pods -N2 true")
    assert ada(cluster, "srun -p pods -D /tmp hostname").strip()


def test_a_folder_goes_to_the_pod_and_its_results_come_back(cluster: ClusterUnderTest) -> None:
    folder = f"{HOME}/run one"
    ada(cluster, f'mkdir -p "{folder}/data" && echo 41 >"{folder}/data/in" && ln -s data/in "{folder}/link"')
    job = ada(
        cluster,
        f'cd "{folder}" && sbatch --parsable -p pods --comment=stage -o "%j.out" --wrap '
        "'echo $(($(cat link) + 1)) >data/out; hostname; id -un; ln -s /etc/passwd leads-out'",
    ).strip()
    assert cluster.end_of(job) == "COMPLETED"
    assert ada(cluster, f'cat "{folder}/data/out"').strip() == "42"
    assert ada(cluster, f'tail -1 "{folder}/{job}.out"').strip() == "ada"
    assert ada(cluster, f'stat -c %U "{folder}/data/out"').strip() == "ada"
    assert cluster.attempt("head", f'test -L "{folder}/leads-out"').returncode != 0


def test_a_large_folder_goes_and_is_not_sent_again(cluster: ClusterUnderTest) -> None:
    folder = f"{HOME}/large"
    ada(cluster, f"mkdir -p {folder} && dd if=/dev/urandom of={folder}/blob bs=1M count=300 status=none")
    times = []
    for _ in range(2):
        before = time.monotonic()
        job = submit(cluster, folder, "sha256sum blob >sum; dd if=/dev/zero of=back bs=1M count=50 status=none")
        assert cluster.end_of(job, 150) == "COMPLETED"
        times.append(time.monotonic() - before)
    print(f"300 MB there, 50 MB back: {times[0]:.1f} s; again: {times[1]:.1f} s")
    assert ada(cluster, f"cd {folder} && sha256sum -c sum").strip() == "blob: OK"
    assert times[1] < times[0]
    cluster.run("p1", f"rm -r {folder}")
    ada(cluster, f"rm -r {folder}")


def test_an_interactive_job_may_stage_too(cluster: ClusterUnderTest) -> None:
    folder = f"{HOME}/hand"
    ada(cluster, f"mkdir -p {folder} && echo 1 >{folder}/in")
    assert ada(cluster, f"cd {folder} && srun -p pods --comment=stage sh -c 'cat in; echo 2 >out'").strip() == "1"
    eventually(lambda: cluster.attempt("head", f"cat {folder}/out").stdout == "2\n", 20, "the result is back")


def test_a_pod_without_room_ends_the_job_with_a_word(cluster: ClusterUnderTest) -> None:
    folder = f"{HOME}/full"
    ada(cluster, f"mkdir -p {folder} && dd if=/dev/zero of={folder}/blob bs=1M count=70 status=none")
    # A file system of 64 MB.
    cluster.run("p1", f"install -d -o ada /dev/shm/full && ln -sfn /dev/shm/full {folder}")
    job = submit(cluster, folder, "true")
    assert cluster.end_of(job, 90) == "CANCELLED"
    assert "could not be brought to p1: the pod has no room for it" in cluster.why(job)
    cluster.run("p1", f"rm -r {folder} /dev/shm/full")


def test_results_that_cannot_come_back_stay_on_the_pod_until_they_can(cluster: ClusterUnderTest) -> None:
    folder = f"{HOME}/kept"
    job = submit(cluster, folder, "echo result >result; sleep 8", "-o /dev/null")
    eventually(lambda: f"{job} R" in cluster.run("head", "squeue -h -o '%i %t'"), 30, "the job runs")
    cluster.run("head", "mv /var/lib/tailrack/members/p1/address /root/address")
    try:
        assert cluster.end_of(job) == "COMPLETED"
        answer = cluster.why(job)
    finally:
        cluster.run("head", "mv /root/address /var/lib/tailrack/members/p1/address")
    assert f"Its results are still in {folder} on p1" in answer
    command = answer.split("next: ")[1].strip()
    ada(cluster, command)
    eventually(lambda: cluster.attempt("head", f"cat {folder}/result").stdout == "result\n", 20, "the result is back")
    eventually(lambda: "still" not in cluster.why(job), 10, "the record is gone")


def test_an_srun_with_a_lost_connection_fails_with_a_message(cluster: ClusterUnderTest) -> None:
    loop = "for number in $(seq 90); do echo $number; sleep 1; done"
    command = f"srun -p pods -D /tmp sh -c '{loop}' >~/live.out 2>~/live.err; echo $? >~/live.status"
    cluster.run("head", f"rm -f {HOME}/live.*; setsid {as_user('ada', command)} >/dev/null 2>&1 &")
    batch = ada(cluster, "sbatch --parsable -p pods -D /tmp -o /tmp/%j.out --mem=50 --wrap 'srun sleep 20'").strip()
    eventually(lambda: "3" in cluster.attempt("head", f"cat {HOME}/live.out").stdout, 30, "srun prints")
    cluster.run("p1", "kill -9 $(pgrep -o -x tailscaled)")
    eventually(lambda: cluster.attempt("head", f"cat {HOME}/live.status").stdout != "", 100, "srun has ended")
    assert cluster.run("head", f"cat {HOME}/live.status").strip() != "0"
    assert "connection to the tailnet was restarted" in cluster.run("head", f"cat {HOME}/live.err")
    assert cluster.end_of(batch) == "COMPLETED"


def reaches(cluster: ClusterUnderTest, address: str, port: int) -> bool:
    """Return whether a job on a pod reaches a port in the tailnet."""
    return ANSWERS[ada(cluster, f'srun -p pods -D /tmp bash -c "{TRY.format(address, port)}"').strip()]


def write_policy(cluster: ClusterUnderTest, pods: Pods, folder: Path) -> None:
    """Let the tailnet have the policy that such pods need."""
    settings = parse({key.removeprefix("tailrack:"): value for key, value in cluster.config.items()}, base_dir=Path())
    path = folder / "policy.json"
    path.write_text(json.dumps(policy("tag:cluster", ports(roles(settings)), pods=pods)))
    subprocess.run(["docker", "cp", "-q", path, f"{control_name(cluster.lab)}:{POLICY}"], check=True)


def test_a_pod_reaches_slurmctld_and_nothing_else_with_the_policy(cluster: ClusterUnderTest, tmp_path: Path) -> None:
    head, pod = (
        cluster.run("head", f"cat /var/lib/tailrack/members/{name}/address").strip() for name in ("head", "p1")
    )
    assert [reaches(cluster, head, port) for port in (22, 2049, 6818)] == [True] * 3, "nothing is closed yet"
    write_policy(cluster, Pods.ALONE, tmp_path)
    eventually(lambda: not reaches(cluster, head, 22), 40, "the policy is in force")
    assert [reaches(cluster, head, port) for port in (2049, 6818, 6819, 6817)] == [False] * 3 + [True]
    # Jobs and staging go on, and the head node reaches the pod only where it must.
    assert ada(cluster, "srun -p pods -D /tmp hostname").strip()
    job = submit(cluster, f"{HOME}/policy", "echo 1 >out")
    assert cluster.end_of(job) == "COMPLETED"
    assert ada(cluster, f"cat {HOME}/policy/out").strip() == "1"
    assert [cluster.run("head", TRY.format(pod, port)).strip() for port in (6818, 22)] == ["open", "closed"]
