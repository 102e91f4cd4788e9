"""Fixtures of the lab tier: real daemons in containers, run by the engine that this machine has."""

import copy
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from cli import lab_commands
from cli.pulumi.find_engine import Found, find_engine
from cli.pulumi.workspace import PROJECT
from lab import docker_daemon as lab_engine
from lab import images as lab_images
from lab.errors import LabError
from lab.identity import LABEL, lab_id
from tests.lab import leaks
from tests.lab.cluster import JOB_LIMIT_SECONDS, ClusterUnderTest, MakeCluster, dev_config, eventually, own_machine
from tests.lab.containers import bring_up
from tests.lab.leaks import Story
from tests.lab.pool_under_test import bring_up_head_alone


@pytest.fixture(scope="session")
def found() -> Found:
    """The engine: the CLI where there is one, the in-process engine elsewhere; ENGINE= decides as for make."""
    engine = find_engine(os.environ.get("ENGINE", ""))
    print(engine.why)
    return engine


@pytest.fixture(scope="session")
def images() -> Iterator[None]:
    """Docker and the lab's images; Docker stays while tests run, also when a `down` leaves no other container in it."""
    lab_commands.prepare()
    client = lab_engine.connect()
    held = client.containers.create(lab_images.tags().node, labels={LABEL: lab_id(PROJECT, "held")})  # never started
    yield
    held.remove()
    client.close()


class ByCluster(LoadFileScheduling):
    """One process runs a file's tests, and one all files that share the fixture `cluster`, so that it is made once."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if _shares_the_cluster(path):
            return "the cluster"
        shared = ("contained", "full", "lone_head", "pod_cluster", "story", "two_machines")
        return next((name for name in shared if f"{name}: " in _text(path)), path)


@cache
def _text(path: str) -> str:
    return (PROJECT / path).read_text(encoding="utf-8")


def _shares_the_cluster(path: str) -> bool:
    text = _text(path)
    # A file may make its own.
    return "cluster: " in text and "make_cluster" not in text and "\ndef cluster(" not in text


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCluster | None:
    """Give tests out by cluster where they are given out by file."""
    return ByCluster(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure, what its cluster says: on another machine nobody can look afterwards."""
    report = yield
    if report.failed:
        found = getattr(item, "funcargs", {}).values()
        for cluster in {value for value in found if isinstance(value, ClusterUnderTest)}:
            report.sections.append((f"what Slurm says of {cluster.stack}", cluster.what_slurm_says()))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop a Docker engine that was started for this, when the last of the processes that run tests has ended."""
    if hasattr(session.config, "workerinput"):
        return
    try:
        lab_commands.stop_docker()
    except LabError as error:
        print(error)


@pytest.fixture(scope="module")
def make_cluster(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeCluster]:
    """Return a function that makes a cluster of two sites, or one; what it made is removed when the module ends."""
    made: list[ClusterUnderTest] = []

    def make(stack: str, *, one_site: bool = False) -> ClusterUnderTest:
        folder: Path = tmp_path_factory.mktemp(stack)
        cluster = ClusterUnderTest(stack, folder, found, dev_config())
        if one_site:
            del cluster.config["tailrack:sites"][1:]
        cluster.forget_an_earlier_run()
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.remove()


@pytest.fixture(scope="session")
def cluster(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """One cluster, up, for every test that leaves it as it was: the dev stack with a second user and other floors."""
    config = dev_config()
    config["tailrack:sites"][1]["pools"][0]["like"] = "cloud"
    config["tailrack:users"].append({"name": "bob", "uid": 6002})
    # Tests ask for jobs that ended long ago, where the machine is slow.
    config["tailrack:slurm"]["settings"] = {"MinJobAge": 7200}
    # One scope far below what any machine does, one without a floor.
    config["tailrack:validation"]["floors_gb_per_s"] = {"cloud-a": 1e-6}
    # Users go from node to node here. What holds them back where jobs are confined is in test_trust.py.
    config["tailrack:slurm"]["ssh_needs_job"] = False
    # Containers cannot limit users (test_head_load.py).
    config["tailrack:head"]["user_limits"] = {"enabled": False}
    stack = f"t1{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    made = ClusterUnderTest(stack, tmp_path_factory.mktemp("t1"), found, config)
    made.forget_an_earlier_run()
    with made.while_up() as up:
        yield up


@contextmanager
def new_cluster(stack: str, found: Found, folders: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """Give a cluster for several files, which is not up before a test wants it. It goes at the end."""
    made = ClusterUnderTest(stack, folders.mktemp(stack), found, dev_config())
    made.forget_an_earlier_run()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def full_cluster(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """Give the cluster of `full`, which is not up before a test wants it."""
    with new_cluster(f"full{os.environ.get('PYTEST_XDIST_WORKER', '')}", found, tmp_path_factory) as made:
        made.config["tailrack:users"].append({"name": "bob", "uid": 6002})
        limits = {"job_limit_seconds": JOB_LIMIT_SECONDS, "settings": {"PrologFlags": "Contain"}}
        made.config["tailrack:slurm"] |= limits
        made.config["tailrack:validation"]["floors_gb_per_s"] = {"cloud-a": 1e-6, "cross-site": 1e-6}
        yield made


@pytest.fixture(scope="session")
def lone_head(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """A head node that computes, without other nodes, for files whose pools come and go."""
    with new_cluster("te", found, tmp_path_factory) as made:
        yield bring_up_head_alone(made)


@pytest.fixture(scope="session")
def pod_cluster(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """Give a head node that computes, a machine at its site and a pod, which are not up before a test wants them."""
    with new_cluster("pods", found, tmp_path_factory) as made:
        made.use_machines(
            {"name": "rack", "hosts": [own_machine(made.lab, name) for name in ("head", "n1")], "fabric": "tailnet"},
            made.pods("p1"),
            computes=True,
        )
        yield made


@pytest.fixture(scope="session")
def two_machines(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """Give a head node that computes and node n1, which are not up before a test wants them."""
    with new_cluster("h2", found, tmp_path_factory) as made:
        made.use_machines({"name": "rack", "hosts": [own_machine(made.lab, n) for n in ("head", "n1")]}, computes=True)
        yield made


@pytest.fixture(scope="module")
def full(full_cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """One cluster for files that change its config: each begins with the same config and runs `up` for its own."""
    before = copy.deepcopy(full_cluster.config)
    yield full_cluster
    full_cluster.config = before


@pytest.fixture(scope="session")
def story(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One cluster of two nodes for test_secrets.py and then test_trust.py; its `down` prints no secret either."""
    made = ClusterUnderTest("s1", tmp_path_factory.mktemp("s1"), found, dev_config())
    made.forget_an_earlier_run()
    try:
        told = leaks.bring_up(made)
        yield told
        told.found |= leaks.driver(made, "down")
        assert told.leaks() == []
    finally:
        # What could open the sealed key is gone with the stack.
        made.config["tailrack:tailnet"].pop("auth_key", None)
        made.remove()


@pytest.fixture
def no_jobs(cluster: ClusterUnderTest) -> Iterator[None]:
    """Whatever a test submitted is gone after it."""
    yield
    cluster.run("head", "scancel -u ada")
    eventually(lambda: not cluster.run("head", "squeue -h").strip(), 60, "no jobs are left")


@pytest.fixture(scope="session")
def contained(found: Found, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """One cluster with containers, for every test that is about them."""
    stack = f"containers{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    made = ClusterUnderTest(stack, tmp_path_factory.mktemp("containers"), found, dev_config())
    made.forget_an_earlier_run()
    try:
        bring_up(made)
        yield made
    finally:
        made.remove()
