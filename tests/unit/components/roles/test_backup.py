"""Role backup: what its section refuses, who gets its secrets, and what is saved."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from components.roles.order import roles
from stacks.config import ConfigError, parse
from tests.unit.configs import HOST_KEY, KEY_PAIR, LAB, RawConfig
from tests.unit.recorded import Build

KEY = KEY_PAIR.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
SFTP: RawConfig = {
    "target": "sftp:keeper@192.0.2.9:/srv/backup/lab",
    "host_key": HOST_KEY,
    "private_key": KEY,
    "password": "password-nobody-may-see",
}
S3: RawConfig = {"target": "s3:https://s3.example.org/lab", "access_key": "AKIAEXAMPLE", "secret_key": "nobody-may-see"}


def refused(backup: RawConfig, secret: frozenset[str] = frozenset({"backup"}), **others: Any) -> str:
    """What is said of a config with this section."""
    with pytest.raises(ConfigError) as problem:
        parse({**copy.deepcopy(LAB), "backup": backup, **others}, base_dir=Path(), secret_keys=secret)
    return str(problem.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"target": "/mnt/usb"}, "tailrack:backup.target: [secret] is not sftp:USER@HOST:/FOLDER"),
        (
            {"target": "sftp:keeper@192.0.2.9:/srv/x;reboot"},
            "tailrack:backup.target: [secret] is not sftp:USER@HOST:/FOLDER",
        ),
        (
            {"target": "sftp:-oProxyCommand=x@h:/srv/x"},
            "tailrack:backup.target: [secret] is not sftp:USER@HOST:/FOLDER",
        ),
        ({"target": "s3:http://s3.example.org/lab"}, "tailrack:backup.target: [secret] is not sftp:USER@HOST:/FOLDER"),
        ({"target": "sftp:keeper@head:/srv/backup"}, "is the head node itself"),
        ({"target": "sftp:keeper@192.0.2.9:/shared/backup"}, "is on the share (storage.mount is /shared)"),
        ({"target": "sftp:keeper@192.0.2.9:/export/shared"}, "is on the share (storage.path is /export/shared)"),
        ({"host_key": None}, "host_key"),
        ({"private_key": None}, "private_key"),
        ({"host_key": "ssh-ed25519 AAAA\nssh-ed25519 AAAA"}, "host_key"),
        ({"private_key": "no key"}, "is no private key of OpenSSH"),
        ({"password": "two words"}, "has blanks"),
        ({"port": 0}, "a whole number from 1"),
    ],
)
def test_a_target_that_would_save_nothing_is_refused_by_name(change: RawConfig, what: str) -> None:
    section = {key: value for key, value in {**SFTP, **change}.items() if value is not None}
    said = refused(section)
    assert what in said
    assert "tailrack:backup" in said
    assert "nobody-may-see" not in said


def test_one_half_of_an_access_key_and_a_secret_in_plain_text_are_refused() -> None:
    assert "one of access_key and secret_key" in refused({key: S3[key] for key in ("target", "access_key")})
    assert "[secret] is plain text in the config" in refused(SFTP, frozenset())


def test_a_head_node_is_not_made_of_a_backup_that_nobody_names() -> None:
    with pytest.raises(ConfigError, match="restore_from: is there without a section backup"):
        parse({**LAB, "head": {**LAB["head"], "restore_from": "latest"}}, base_dir=Path())
    assert "restore_from" in refused(SFTP, head={**LAB["head"], "restore_from": "yesterday"})


def test_all_roles_state_is_saved_and_the_names_of_their_files_are_the_roles_own() -> None:
    made = roles(parse({**LAB, "backup": SFTP}, base_dir=Path(), secret_keys=frozenset({"backup"})))
    backup = next(role for role in made if role.name == "backup")
    assert backup.values["state"] == list(dict.fromkeys(path for role in made for path in role.state))
    assert {"/var/lib/slurm/slurmctld", "/var/lib/tailrack/slurm"} <= {*backup.values["state"]}


def test_only_the_head_node_has_the_secrets_and_no_plain_state_has_them(build: Build) -> None:
    raw = {**LAB, "backup": SFTP, "head": {**LAB["head"], "restore_from": "latest"}}
    stack = build(raw, secret=["backup"])
    commands = [*stack.remote, *stack.local]
    steps = {one.name for one in commands if SFTP["password"] in str(one.inputs.get("stdin"))}
    assert steps == {"head-join", "head-services"}
    for name in steps:
        assert "stdin" in stack[name].secret_paths
    assert not [one.name for one in stack.resources if "password-nobody-may-see" in one.in_plain_state]


def test_without_a_password_of_the_configs_the_stack_makes_one_and_gives_it_out_as_a_secret(build: Build) -> None:
    raw = {**LAB, "backup": {key: SFTP[key] for key in SFTP if key != "password"}}
    stack = build(raw, secret=["backup"], answers={"backup-password": "made-and-nobody-may-see"})
    assert stack.header("head-services")["BACKUP_PASSWORD"] == "made-and-nobody-may-see"
    assert not [one.name for one in stack.resources if "made-and-nobody-may-see" in one.in_plain_state]
    assert "backup-password" not in build(LAB).names
