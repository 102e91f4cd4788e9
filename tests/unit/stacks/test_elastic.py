"""An elastic pool: its config, its placeholders, and the machines that a run keeps."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.roles.slurm.slurm.node_lines import elastic_site_lines
from components.roles.slurm.slurm.settings import Elastic
from stacks.config import PoolConfig, parse
from stacks.rental_requests import RENTED
from tests.unit.configs import RawConfig, refused
from tests.unit.recorded import Build, Recorded
from tests.unit.stacks.test_pool import build_pool

ELASTIC: RawConfig = {"max": 2, "idle_minutes": 3, "boot_minutes": 10, "cpus": 8, "memory_gb": 32}


def pool_of(elastic: RawConfig, pool: RawConfig | None = None, **keys: Any) -> RawConfig:
    """Return the config of a pool of three machines."""
    pools = [{"name": "c", "count": 3, **(pool or {})}]
    return {
        "kind": "pool", "cluster": "dev", "elastic": {**ELASTIC, **elastic},
        "sites": [{"name": "cloud-c", "kind": "lab", "pools": pools}], **keys,
    }  # fmt: skip


def names(raw: RawConfig) -> list[str]:
    return [node.name for node in parse(raw, PoolConfig, base_dir=Path()).nodes()]


def values(pool: Recorded, step: str) -> dict[str, Any]:
    """Return the values that a step gets."""
    found: dict[str, Any] = json.loads(pool[step].inputs["stdin"])["values"]
    return found


@pytest.fixture
def cluster(build: Build, lab_config: RawConfig) -> Recorded:
    return build(lab_config)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (pool_of({"max": 4}), "elastic.max: 4 is more than the 3 nodes of the sites; the others could not"),
        (pool_of({"min": 3}), "elastic.min: 3 is more than the 2 machine(s) that may be rented"),
        (pool_of({"max_price_per_hour": 2}), "elastic.max_price_per_hour: is set, and node c1 has no price"),
        (
            pool_of({"max_price_per_hour": 2}, {"price_per_hour": 3}),
            "elastic.max_price_per_hour: 2 is less than the price of one machine (3 USD); jobs could rent nothing",
        ),
        (pool_of({"max_price_per_hour": 0}), "elastic.max_price_per_hour: 0 is not a number above 0"),
        (pool_of({"cpus": 9, "threads_per_core": 2}), "elastic.cpus: 9 is not a multiple of threads_per_core (2)"),
        (pool_of({"cpus": None}), "elastic.cpus: missing; write the output of nproc"),
        (pool_of({"memory_gb": "32G"}), "elastic.memory_gb: '32G' is not a number from 1 to 65536"),
        (pool_of({"replace_sick": "often"}), "elastic.replace_sick: 'often' is not true or false"),
        (pool_of({"idle_minutes": 0}), "elastic.idle_minutes: 0 is not a whole number from 1 to 1080"),
        (pool_of({}, idle_limit_minutes=30), "idle_limit_minutes: is set for an elastic pool"),
    ],
)
def test_the_config_rejects_a_bad_section_with_the_key_and_a_remedy(raw: RawConfig, problem: str) -> None:
    assert f"tailrack:{problem}" in str(refused(parse, raw, PoolConfig, base_dir=Path()))


def test_a_pool_without_machines_is_its_placeholders(cluster: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RENTED, raising=False)
    pool = build_pool(cluster, pool_of({"min": 1}))
    assert [name for name in pool.names if name.startswith(("c1", "c2", "validat"))] == []
    header = values(pool, "burst-pool")
    assert header["pool_nodes"] == ["c1", "c2"]
    assert header["pool_kept"] == ["c1"]
    name, site, line, lua, memory, gpu_cpus = header["pool_placeholders"][0]
    assert (name, site, gpu_cpus) == ("c1", "cloud-c", "")
    cpus = "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1"
    assert line == f"NodeName=c1 State=CLOUD {cpus} RealMemory=32256 MemSpecLimit=2048 Feature=site-cloud-c"
    assert lua == 'member("c1", "cloud-c", "", 0)'
    assert memory == "ALL 3776\nsite-cloud-c 3776"
    assert pool.outputs["cluster"]["nodes"] == []
    assert pool.outputs["validation"] == {}
    elastic = pool.outputs["elastic"]
    assert (elastic["pool"], elastic["kept"]) == ("organization.tailrack.burst", ["c1"])
    assert elastic["places"] == {"c1": "lab site cloud-c", "c2": "lab site cloud-c"}
    assert elastic["limit"] == "at most 2 machines at once (tailrack:elastic.max)"


def test_a_run_has_the_machines_that_the_controller_names(cluster: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RENTED, "c2,c3")
    pool = build_pool(cluster, pool_of({}))
    assert {name.partition("-")[0] for name in pool.names if name.startswith("c")} == {"c2"}
    assert values(pool, "c2-node")["node_promised_cpus"] == 8
    assert values(pool, "c2-prepare")["node_promised_mb"] == 32768


def test_the_sites_partition_has_slurms_time_limits_and_other_pools_have_none() -> None:
    elastic = Elastic(idle_minutes=3, boot_minutes=10, cpus=8, memory_gb=32)
    assert elastic_site_lines("far", elastic) == [
        "NodeSet=site-far Feature=site-far",
        "PartitionName=far Nodes=site-far MaxTime=INFINITE State=UP SuspendTime=180 ResumeTimeout=600 "
        "SuspendTimeout=65000",
    ]
