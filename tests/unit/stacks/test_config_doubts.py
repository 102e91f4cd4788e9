"""What holds in a config and was hardly meant: it is done, and whoever wrote it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stacks.config import ConfigError, load
from tests.unit.configs import HOST_KEY, HOSTS, PRIVATE_KEY, RawConfig

OTHER_KEYS = [f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMSVLZ6TLbACJ34qY3ZT6Smxhd48oFhjI7rw38cnmZ{at}Y" for at in "01234"]


def doubts(raw: RawConfig, folder: Path) -> list[str]:
    """What a config is told of, each of its machines with a key of its own unless it says one."""
    told: list[str] = []
    values = {f"tailrack:{key}": json.dumps(value) for key, value in raw.items()}
    load(values, ["tailrack:tailnet", "tailrack:backup"], folder, told.append)
    return told


def with_keys(*keys: str, **more: object) -> RawConfig:
    (rack,) = HOSTS["sites"]
    hosts = [{**host, "host_key": key} for host, key in zip(rack["hosts"], keys, strict=True)]
    return {**HOSTS, "sites": [{**rack, "hosts": hosts}], **more}


def test_a_config_without_doubts_is_told_of_none(key_folder: Path) -> None:
    assert doubts(with_keys(*OTHER_KEYS[:4]), key_folder) == []


def test_one_host_key_of_two_machines_is_told_once_with_their_names(key_folder: Path) -> None:
    a, b, c, _, _ = OTHER_KEYS
    (told,) = doubts(with_keys(a, b, a, c), key_folder)
    assert told.startswith("tailrack:sites[0].hosts[0].host_key: dgx2, door have one host key")
    assert "ssh-keygen -A" in told


@pytest.mark.parametrize(
    ("url", "doubted"),
    [
        ("http://headscale.example.org:8080", True),
        ("http://127.0.0.1:8080", False),
        ("http://localhost", False),
        ("https://headscale.example.org", False),
    ],
)
def test_a_control_server_without_encryption_is_told_unless_it_is_this_machine(
    url: str, doubted: bool, key_folder: Path
) -> None:
    told = doubts(with_keys(*OTHER_KEYS[:4], tailnet={"control_url": url}), key_folder)
    assert [text.split(":")[:2] for text in told] == [["tailrack", "tailnet.control_url"]] * doubted


@pytest.mark.parametrize(
    ("host", "port", "doubted"),
    [
        ("192.0.2.9", 22, False),
        ("dgx1", 22, True),
        ("192.0.2.3", 22, True),
        ("192.0.2.2", 2222, True),
        # Another machine behind the same address.
        ("192.0.2.2", 22, False),
    ],
)
def test_backups_that_a_node_of_the_cluster_would_keep_are_told(
    host: str, port: int, doubted: bool, key_folder: Path
) -> None:
    backup = {
        "target": f"sftp:keeper@{host}:/srv/backup",
        "port": port,
        "host_key": HOST_KEY,
        "private_key": PRIVATE_KEY,
    }
    told = doubts(with_keys(*OTHER_KEYS[:4], backup=backup), key_folder)
    assert [text.split(": ")[0] for text in told] == ["tailrack:backup.target"] * doubted
    assert all("is a node of this cluster" in text for text in told)


def test_backups_on_the_head_node_are_refused_by_its_address(key_folder: Path) -> None:
    backup = {"target": "sftp:keeper@192.0.2.1:/srv/backup", "host_key": HOST_KEY, "private_key": PRIVATE_KEY}
    with pytest.raises(ConfigError, match="is the head node itself"):
        doubts(with_keys(*OTHER_KEYS[:4], backup=backup), key_folder)


@pytest.mark.parametrize(("gpu", "doubted"), [("h200:8", True), (None, False)])
def test_a_size_of_the_measurement_of_cpus_is_told_where_all_nodes_have_gpus(
    gpu: str | None, doubted: bool, key_folder: Path
) -> None:
    raw = with_keys(*OTHER_KEYS[:4], validation={"max_bytes": "64M"})
    for host in raw["sites"][0]["hosts"][1:3]:
        host["gpu"] = gpu
    told = doubts(raw, key_folder)
    assert len(told) == doubted
    assert all("validation.max_bytes: " in text and "validation.nccl" in text for text in told)
