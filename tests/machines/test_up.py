"""The first `up` on machines that are just there, and the second."""

import pytest

from tests.machines.cluster import MachineCluster
from tests.machines.machines import BOOT_ID, Machine, boot

pytestmark = pytest.mark.short


def test_machines_boot_stock_kernels_of_their_own(cluster: MachineCluster, machines: dict[str, Machine]) -> None:
    boot([machines["head"], machines["n1"]])
    for name in ("head", "n1"):
        assert machines[name].boot_id() not in ("", BOOT_ID.read_text().strip())
        cluster.note_state(name)


def test_the_first_up_makes_a_cluster_that_runs_jobs(cluster: MachineCluster) -> None:
    cluster.have("n1")
    cluster.up_ok()
    assert cluster.run("head", "sinfo -h -p all -N -o '%N %T'") == "n1 idle\n"
    assert cluster.run_as("ada", "head", "srun hostname") == "n1\n"


def test_the_second_up_changes_nothing(cluster: MachineCluster) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()
