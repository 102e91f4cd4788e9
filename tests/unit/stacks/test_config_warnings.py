"""Warnings about a valid config that is probably a mistake."""

import json
from pathlib import Path

import pytest

from stacks.config import ConfigError, load
from tests.unit.configs import HOST_KEY, HOSTS, PRIVATE_KEY, RawConfig

OTHER_KEYS = [f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMSVLZ6TLbACJ34qY3ZT6Smxhd48oFhjI7rw38cnmZ{at}Y" for at in "01234"]


def warnings(raw: RawConfig, folder: Path) -> list[str]:
    """Return the warnings about a config."""
    messages: list[str] = []
    values = {f"tailrack:{key}": json.dumps(value) for key, value in raw.items()}
    load(values, ["tailrack:tailnet", "tailrack:backup"], folder, messages.append)
    return messages


def with_keys(*keys: str, **more: object) -> RawConfig:
    (rack,) = HOSTS["sites"]
    hosts = [{**host, "host_key": key} for host, key in zip(rack["hosts"], keys, strict=True)]
    return {**HOSTS, "sites": [{**rack, "hosts": hosts}], **more}


def test_one_host_key_of_two_machines_gives_one_warning_with_their_names(key_folder: Path) -> None:
    a, b, c, _, _ = OTHER_KEYS
    (warning,) = warnings(with_keys(a, b, a, c), key_folder)
    assert warning.startswith("tailrack:sites[0].hosts[0].host_key: dgx2, door have the same host key")
    assert "ssh-keygen -A" in warning


def backup(host: str, port: int = 22) -> RawConfig:
    target = {"target": f"sftp:keeper@{host}:/srv/backup", "port": port}
    return with_keys(*OTHER_KEYS[:4], backup={**target, "host_key": HOST_KEY, "private_key": PRIVATE_KEY})


@pytest.mark.parametrize(
    ("host", "port", "warned"),
    [
        ("192.0.2.9", 22, False),
        ("dgx1", 22, True),
        ("192.0.2.3", 22, True),
        ("192.0.2.2", 2222, True),
        # Another machine behind the same address.
        ("192.0.2.2", 22, False),
    ],
)
def test_backups_on_a_node_of_the_cluster_get_a_warning(host: str, port: int, warned: bool, key_folder: Path) -> None:
    found = warnings(backup(host, port), key_folder)
    assert [text.split(": ")[0] for text in found] == ["tailrack:backup.target"] * warned
    assert all("is a node of this cluster" in text for text in found)


def test_backups_on_the_head_node_are_refused_by_its_address(key_folder: Path) -> None:
    with pytest.raises(ConfigError, match="is the head node itself"):
        warnings(backup("192.0.2.1"), key_folder)
