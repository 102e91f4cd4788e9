"""nccl-tests as a person runs it: mpirun over SSH, no Slurm, no word of the product's."""

import re
import shlex
from collections.abc import Sequence

from components.validation.model import COLLECTIVES
from tests.gpu.machines import Machine
from tests.lab.cluster import as_user


def bandwidth(
    machines: Sequence[Machine], gpus: int, interface: str, collective: str, size: int, iterations: int, warmup: int
) -> float:
    """Measure one size (bytes) over some GPUs of each machine; return the out-of-place bus bandwidth in GB/s.

    interface   the network interface of MPI, and of NCCL between machines
    """
    settings = {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,vader,tcp",
        "OMPI_MCA_btl_tcp_if_include": interface,
        "PMIX_MCA_gds": "hash",
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "NCCL_IB_DISABLE": "1",
    }
    ranks = gpus * len(machines)
    hosts = ",".join(f"{machine.name}:{gpus}" for machine in machines)
    words = ["mpirun", "-np", str(ranks), "--host", hosts, "--bind-to", "none"]
    for name in settings:
        words += ["-x", name]
    words += f"{collective}_perf -b {size} -e {size} -g 1 -n {iterations} -w {warmup} -c 1".split()
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    done = machines[0].attempt(as_user("admin", f"{exports} {shlex.join(words)}"), limit=120)
    assert done.returncode == 0, f"{shlex.join(words)}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return bus_bandwidth(done.stdout, size, COLLECTIVES[collective].factor(ranks))


def bus_bandwidth(table: str, size: int, factor: float) -> float:
    """Return the out-of-place bus bandwidth at a size (bytes), in GB/s, from bytes and microseconds.

    Raises ValueError where the table has no such row, or one with wrong elements.
    """
    rows = re.findall(rf"^ *{size} +\d+ +float +\w+ +(?:-1 +)?([\d.]+) +[\d.]+ +[\d.]+ +(\d+) ", table, re.MULTILINE)
    if len(rows) != 1 or rows[0][1] != "0":
        raise ValueError(f"no row of {size} bytes without an error in\n{table}")
    return size / float(rows[0][0]) / 1e3 * factor
