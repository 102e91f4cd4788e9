"""A pod brings its keys and its start command, is reached at a mapped port, and RunPod's refusals are told apart."""

import json
import os
import shlex
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stacks.config import PoolConfig, StackConfig, parse
from stacks.http_client import ApiError
from stacks.rental import runpod
from stacks.rental.cloud import BOOTING, GONE, READY, NoCapacityError, Offer, Order, QuotaError
from stacks.rental.clouds import account
from stacks.rental.machine import Rental
from stacks.sites.rented.user_data import user_data
from stacks.sites.runpod.model import IMAGE, RunPodSite
from tests.played_cloud.account import Account, Machine
from tests.played_cloud.server import WRITE, PlayedCloud, serve
from tests.unit.configs import AUTH_KEY, PRIVATE_KEY, refused

LOGIN_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRlc3Q="
TAGS = {"tailrack:owner": "0123456789ab", "tailrack:node": "p1", "team": "vision & speech"}
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"
USER_DATA = user_data(LOGIN_KEY, HOST_KEY, "ecdsa-sha2-nistp256 AAAA", root=True)
DISKS = {"disk_gb": 50, "volume_gb": 100}
ORDER = Order("p1", "8x_NVIDIA_H100_80GB_HBM3", "us-ks-2", TAGS, LOGIN_KEY, USER_DATA, IMAGE, DISKS)
POD = {
    "id": "7h9k2m4n6p",
    "status": "RUNNING",
    "gpu": {"id": "NVIDIA H100 80GB HBM3", "count": 8},
    "cloud": "SECURE",
    "dataCenterId": None,
    "ssh": {"proxy": None, "direct": {"host": "195.26.233.3", "port": 34446}},
    "cost": 26.32,
}


class Answers:
    """An API that gives one answer, or fails, and records calls."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.calls = answer, list[tuple[str, str, Mapping[str, Any] | None]]()

    def get(self, path: str) -> Any:
        return self.once("GET", path, None)

    def once(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        self.calls.append((method, path, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    repeat = once


def cloud(answer: Any) -> tuple[runpod.RunPod, Answers]:
    api = Answers(answer)
    return runpod.RunPod(api), api  # type: ignore[arg-type]


def created(order: Order = ORDER) -> dict[str, Any]:
    pods, api = cloud({"id": "7h9k2m4n6p"})
    assert pods.rent(order) == "7h9k2m4n6p"
    ((method, path, body),) = api.calls
    assert (method, path) == ("POST", "/pods")
    assert body is not None
    return dict(body)


def test_a_pod_is_created_in_secure_cloud_with_its_gpus_disks_and_the_ssh_port() -> None:
    body = created()
    assert body["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 8}
    assert (body["cloud"], body["dataCenterIds"], body["ports"]) == ("SECURE", ["US-KS-2"], ["22/tcp"])
    assert (body["disk"], body["mounts"]) == (50, {"persistent": {"size": 100, "path": "/workspace"}})
    assert body["env"]["PUBLIC_KEY"] == LOGIN_KEY


def test_only_the_word_community_leads_to_community_cloud() -> None:
    body = created(Order("p1", "NVIDIA_L4", "community", TAGS, LOGIN_KEY, ORDER.user_data, IMAGE, ORDER.options))
    assert body["cloud"] == "COMMUNITY"
    assert "dataCenterIds" not in body
    assert body["gpu"] == {"id": "NVIDIA L4", "count": 1}


def test_a_pod_is_recognised_by_its_environment_before_it_has_a_data_center() -> None:
    pods, _ = cloud({"pods": [{**POD, "env": created()["env"]}]})
    (pod,) = pods.instances()
    assert TAGS.items() <= pod.tags.items()
    assert (pod.type, pod.region, pod.price) == (ORDER.type, ORDER.region, 26.32)
    assert (pod.address, pod.port, pod.state) == ("195.26.233.3", 34446, READY)


@pytest.mark.parametrize(("status", "state"), [("PROVISIONING", BOOTING), ("EXITED", BOOTING), ("TERMINATED", GONE)])
def test_a_stopped_pod_still_costs_money_and_a_terminated_one_does_not(status: str, state: str) -> None:
    pods, _ = cloud({"pods": [{**POD, "status": status, "ssh": {"direct": None}}]})
    (pod,) = pods.instances()
    assert (pod.state, pod.address, dict(pod.tags)) == (state, "", {})


NO_INSTANCES = "There are no longer any instances available with the requested specifications."
V1 = "create pod: There are no instances currently available"


@pytest.mark.parametrize(
    ("status", "detail", "refusal"),
    [
        (400, NO_INSTANCES, NoCapacityError),
        (400, "This machine does not have the resources to deploy your pod", NoCapacityError),
        (500, V1, NoCapacityError),
        (400, "request could not be processed", QuotaError),
        (402, "Insufficient balance", ApiError),
        (403, "access denied", ApiError),
        (422, "Request validation failed.", ApiError),
        (503, "Service Unavailable", ApiError),
    ],
)
def test_refusals_lead_to_the_next_place_or_end_the_run(status: int, detail: str, refusal: type[Exception]) -> None:
    pods, _ = cloud(ApiError(f"POST /pods: {status} {detail}", status))
    with pytest.raises(refusal):
        pods.rent(ORDER)


def test_prices_and_places_are_those_of_the_number_of_gpus() -> None:
    gpu = {
        "id": "NVIDIA H100 80GB HBM3",
        "secure": True,
        "community": True,
        "price": {"secure": 3.29, "community": 2.69},
        "maxCount": {"secure": 8, "community": 2},
        "dataCenters": [{"id": "US-KS-2", "availability": "LOW"}, {"id": "EU-RO-1", "availability": "NONE"}],
    }
    pods, api = cloud({"gpus": [gpu]})
    offers = [offer for offer in pods.offers() if offer.region]
    eight = [offer for offer in offers if offer.type == ORDER.type]
    assert eight == [Offer(ORDER.type, "us-ks-2", 26.32), Offer(ORDER.type, "eu-ro-1", 26.32, available=False)]
    assert [offer.type[:2] for offer in offers if offer.region == "community"] == ["NV", "2x"]
    assert [path.rpartition("=")[2] for _, path, _ in api.calls] == ["1", "2", "4", "8"]


def test_the_start_command_installs_the_host_keys_and_starts_the_boot_program_without_the_first(tmp_path: Path) -> None:
    for folder in ("etc/ssh", "workspace/.tailrack"):
        (tmp_path / folder).mkdir(parents=True)
    for program in ("start.sh", "workspace/.tailrack/boot"):
        path = tmp_path / program
        path.write_text(f"#!/bin/bash\nenv >{path}.env\n")
        path.chmod(0o755)
    (tmp_path / "workspace/.tailrack/ssh_host_ed25519_key").write_text("its own\n")
    command = runpod.START
    for absolute in ("/etc/ssh", "/workspace", "/start.sh"):
        command = command.replace(f" {absolute}", f" {tmp_path}{absolute}")
    environment = {"PATH": os.environ["PATH"], runpod.HOST_KEY: created()["env"][runpod.HOST_KEY]}
    subprocess.run(shlex.split(command), env=environment, check=True, timeout=30)
    installed = tmp_path / "etc/ssh/ssh_host_ecdsa_key"
    assert installed.read_text() == HOST_KEY
    assert stat.S_IMODE(installed.stat().st_mode) == 0o600
    assert (tmp_path / "etc/ssh/ssh_host_ed25519_key").read_text() == "its own\n"
    for program in ("start.sh", "workspace/.tailrack/boot"):
        seen = tmp_path / f"{program}.env"
        while not seen.exists() or not seen.stat().st_size:  # the boot program runs beside start.sh
            os.sched_yield()
        assert runpod.HOST_KEY not in seen.read_text()


class MappedDoors:
    """Machines that greet at a port of this machine that is not 22."""

    def start(self, _machine: Machine, *, own_host_key: bool) -> str:
        """Open a door and return its address."""
        door = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._greet, args=[door], daemon=True).start()
        return f"127.0.0.1:{door.getsockname()[1]}"

    @staticmethod
    def _greet(door: socket.socket) -> None:
        with door, door.accept()[0] as visitor:
            visitor.sendall(b"SSH-2.0-door\r\n")

    def restart(self, _machine: Machine) -> None:
        """Do nothing: a door is not a machine."""

    remove = restart


@pytest.fixture
def played() -> Iterator[PlayedCloud]:
    """A played cloud whose ports are mapped."""
    rented = Account(MappedDoors(), {"NVIDIA_L4": 44})
    rented.capacity = {("NVIDIA_L4", "us-ks-2"): 1}
    with serve(PlayedCloud(rented, {"key": WRITE})) as server:
        yield server


def test_the_mapped_port_of_a_pod_is_among_its_facts(played: PlayedCloud) -> None:
    owner = {"owner": "0123456789ab", "stack": "burst", "site": "burst", "node": "p1", "name": "p1", "tags": {}}
    machine = {"key": LOGIN_KEY, "user_data": USER_DATA, "image": IMAGE, "options": DISKS, "boot_seconds": 10}
    request = {**owner, **machine, "offers": [{"type": "NVIDIA_L4", "region": "us-ks-2"}]}
    facts = Rental(account("runpod", played.url_of("runpod"), "key"), request).up()
    (rented,) = played.account.bill()
    assert f"{facts['address']}:{facts['port']}" == rented.address
    assert facts["price_per_hour"] == 0.44
    assert json.loads(rented.user_data)["args"] == runpod.START


def site(**more: Any) -> dict[str, Any]:
    pool = {"name": "p", "count": 2, "type": "8x_NVIDIA_H100_80GB_HBM3", "gpu": "h100:8"}
    keys = {"name": "pods", "kind": "runpod", "region": "us-ks-2", "accept_pod_risk": True}
    return {**keys, "private_key_file": "key", "pools": [pool], **more}


def parsed(folder: Path, model: type[Any], config: Mapping[str, Any]) -> Any:
    (folder / "key").write_text(PRIVATE_KEY)
    common = {"api_keys": {"runpod": "rpa_key"}, "tailnet": {"auth_key": AUTH_KEY}}
    secret = frozenset({"api_keys", "tailnet"})
    return parse({**common, **config}, model, base_dir=folder, secret_keys=secret)


def test_a_pool_of_pods_needs_a_region_and_a_type_alone(tmp_path: Path) -> None:
    pool = parsed(tmp_path, PoolConfig, {"kind": "pool", "cluster": "prod", "sites": [site()]})
    (pods,) = pool.sites
    assert isinstance(pods, RunPodSite)
    assert (pods.user, pods.image, pods.options) == ("root", IMAGE, {"disk_gb": 50, "volume_gb": 100})
    assert [node.offers for node in pool.nodes()] == [(("8x_NVIDIA_H100_80GB_HBM3", "us-ks-2"),)] * 2
    assert {(node.pod, node.in_all) for node in pool.nodes()} == {(True, False)}


def with_try(name: str) -> list[dict[str, Any]]:
    return [{"name": "p", "type": "NVIDIA_H200", "try": [{"region": "us-ks-2"}, {"type": name}]}]


@pytest.mark.parametrize(
    ("key", "value", "path", "words"),
    [
        ("image", "runpod/pytorch latest", "", "is not the name of an image"),
        ("disk_gb", 1, "", "is not a whole number from 10 to 2000"),
        ("volume_gb", "100 GB", "", "is not a whole number from 10 to 10000"),
        ("accept_pod_risk", False, "", "is not true; root of the pods' hosts can read the cluster's munge key"),
        ("in_all", True, "", "is true for a site of pods"),
        ("fabric", "ens1", "", "they share no network, so no pod could join; delete it; rent an Instant Cluster"),
        ("pools", with_try("6x_NVIDIA_H200"), "[0].try[1].type", "write 2x_, 4x_ or 8x_ before the GPU's id"),
        ("pools", with_try("1x_NVIDIA_H200"), "[0].try[1].type", "write 2x_, 4x_ or 8x_ before the GPU's id"),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, key: str, value: object, path: str, words: str) -> None:
    pool = {"kind": "pool", "cluster": "prod", "sites": [site(**{key: value})]}
    error = str(refused(parsed, tmp_path, PoolConfig, pool))
    assert f"tailrack:sites[0].{key}{path}: " in error
    assert words in error


def test_a_pod_cannot_be_the_head_node(tmp_path: Path) -> None:
    users = [{"name": "ada", "uid": 6001}]
    head = {"cluster": {"name": "prod"}, "head": {"name": "head", "site": "pods"}, "users": users}
    error = str(refused(parsed, tmp_path, StackConfig, {**head, "sites": [site()]}))
    assert "tailrack:head.site: " in error
    assert "is a site of pods" in error
    assert "sites[0].head" not in error
