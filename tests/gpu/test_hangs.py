"""A job on two GPUs whose rank 1 stops: real utilization, real power and NCCL's real RAS lead to that rank."""

import base64
import re
import time
from collections.abc import Iterator

import pytest

from tests.gpu.cluster import GpuCluster
from tests.gpu.machines import PYTORCH
from tests.lab.cluster import eventually

pytestmark = pytest.mark.usefixtures("real")
MINUTES = 5
RANKS = """
import os, time, torch, torch.distributed as dist
rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]) % torch.cuda.device_count())
dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=ranks)
data = torch.ones(1 << 20, device="cuda")
for _ in range(20):
    dist.all_reduce(data)
torch.cuda.synchronize()
print("rank", rank, "on", os.environ["SLURMD_NODENAME"], "works as", os.getpid(), flush=True)
if rank == 1:
    time.sleep(3600)
dist.all_reduce(data)
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module", autouse=True)
def python(cluster: GpuCluster) -> Iterator[str]:
    """The Python that has PyTorch; the cluster searches for jobs that hang."""
    found = PYTORCH.read_text().splitlines()
    if not found:
        pytest.skip("HANGS ARE NOT TESTED: this machine's python3 has no PyTorch in an environment of its own")
    cluster.config["tailrack:job_hangs"] = {"minutes": MINUTES}
    cluster.measured()
    text = base64.b64encode(RANKS.encode()).decode()
    cluster.run_as("ada", "head", f"cd; base64 -d >ranks.py <<<{text}")
    yield found[0]
    del cluster.config["tailrack:job_hangs"]
    cluster.measured()


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("a,b", "-w a,b -N2 --ntasks-per-node=1 --gpus-per-node=1"),
        ("c", "-w c -N1 --ntasks-per-node=2 --gpus-per-node=2"),
    ],
)
def test_the_rank_that_stopped_is_named_with_its_node(cluster: GpuCluster, python: str, nodes: str, words: str) -> None:
    cluster.need(2 if nodes == "c" else 1)
    names = nodes.split(",")
    # Slurm orders nodes by the time they joined, so rank 0 is not always on the first by name.
    first = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1) MASTER_PORT=29517"
    line = f"cd; sbatch --parsable --output=ranks-%j.out {words} --wrap '{first}; srun {python} ranks.py'"
    job = cluster.run_as("ada", "head", line).strip()

    def output() -> str:
        return cluster.attempt("head", f"runuser -u ada -- cat ~ada/ranks-{job}.out").stdout

    def shown() -> str:
        look = "journalctl -u tailrack-job-hangs -u tailrack-gpu-use -n 20 --no-pager -o cat; scontrol -o show jobs"
        return "\n".join([output(), *(cluster.attempt(name, look).stdout for name in ("head", *names))])

    try:
        try:
            eventually(lambda: output().count("works as") == 2, 180, "both ranks work")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{shown()}") from None
        late, process = re.findall(r"rank 1 on (\S+) works as (\d+)", output())[0]
        for _ in range(MINUTES + 3):
            # nvidia-smi shows the utilization of the last second.
            time.sleep(1.5)
            for name in names:
                cluster.run(name, "/usr/local/lib/tailrack/gpu-use", 90)
        cluster.run("head", "tailrack-minute job-hangs")
        why = cluster.run_as("ada", "head", f"tailrack why {job}")
        signs = "".join(cluster.run(name, f"cat /run/tailrack-private/job-hangs/{job}") for name in names)
        assert re.search(rf"rank 1 \(node {late}, GPU \d\) is behind: 20 of 21 AllReduce", why), why + signs + shown()
        assert f"-w {late} py-spy dump --pid {process}" in why, why
    finally:
        cluster.run("head", f"scancel {job}")
        eventually(
            lambda: not cluster.run("head", f"squeue -h -j {job} -t all -o %T | grep -v CANC || :"), 60, "it ends"
        )
