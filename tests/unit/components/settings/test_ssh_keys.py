"""Where the key of a log-in is: a file, a file with a passphrase, or an agent."""

import subprocess
from pathlib import Path
from typing import Any

import pulumi
import pytest

from stacks.config import parse
from stacks.sites.hosts.bastions import FORWARDED, LOCAL_PORT, local_address
from stacks.sites.hosts.model import HostNode
from tests.unit.configs import HOST_KEY, HOSTS, RawConfig, refused
from tests.unit.recorded import Build

PASSPHRASE = "nobody-may-see-this"
BASTION = {"address": "192.0.2.9", "user": "ops", "host_key": HOST_KEY}


@pytest.fixture(autouse=True)
def locked(key_folder: Path) -> Path:
    """A key with a passphrase, as ssh-keygen writes it."""
    file = key_folder / "locked"
    if not file.exists():
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-a", "1", "-N", PASSPHRASE, "-f", str(file)]
        subprocess.run(words, check=True)
    return file


def stack(site: dict[str, Any], *hosts: dict[str, Any]) -> RawConfig:
    """Hosts without a key of their own, `door` the head node; what is given is laid over them and over their site."""
    (rack,) = HOSTS["sites"]
    own = [{key: value for key, value in host.items() if key != "private_key_file"} for host in rack["hosts"]]
    own = [host | (hosts[number] if number < len(hosts) else {}) for number, host in enumerate(own)]
    return {**HOSTS, "sites": [{**rack, "hosts": own, **site}]}


def logins(folder: Path, raw: RawConfig, *secret: str) -> list[HostNode]:
    config = parse(raw, base_dir=folder, secret_keys=frozenset({"tailnet", *secret}))
    return [node for node in config.nodes() if isinstance(node, HostNode)]


def problems(folder: Path, raw: RawConfig, *secret: str) -> dict[str, str]:
    error = refused(logins, folder, raw, *secret)
    assert PASSPHRASE not in str(error)
    return {problem.path: problem.text for problem in error.problems}


def test_a_password_for_sudo_is_the_first_line_of_secret_stdin_alone(build: Build) -> None:
    recorded = build(stack({"private_key_file": "key", "sudo_password": PASSPHRASE}), secret=("sites",))
    step, of_root = recorded["dgx1-prepare"], recorded["door-prepare"]
    assert step.inputs["create"].endswith(" password'")
    assert step.inputs["stdin"].startswith(f"{PASSPHRASE}\n{{")
    assert not [one.name for one in recorded.resources if PASSPHRASE in one.in_plain_state]
    assert " password'" not in of_root.inputs["create"]
    assert of_root.inputs["stdin"].startswith("{")


def test_a_locked_key_goes_with_its_passphrase_and_both_are_secret(build: Build, key_folder: Path) -> None:
    site = {"private_key_file": "locked", "private_key_passphrase": PASSPHRASE}
    raw = stack(site, {}, {"private_key_file": "key"})
    assert logins(key_folder, raw, "sites[0].private_key_passphrase")[0].host.private_key_file == key_folder / "locked"
    recorded = build(raw, secret=("sites",))
    connection = recorded["door-prepare"].inputs["connection"]
    assert connection["privateKeyPassword"] == PASSPHRASE
    assert connection["privateKey"] == (key_folder / "locked").read_text()
    assert PASSPHRASE not in "".join(resource.in_plain_state for resource in recorded.resources)
    # The provider refuses the passphrase of a key that has none.
    assert "privateKeyPassword" not in recorded["dgx1-prepare"].inputs["connection"]


def test_a_locked_key_without_a_passphrase_is_one_clear_problem_for_each_login(key_folder: Path) -> None:
    raw = stack({"private_key_file": "key"}, {"private_key_file": "locked"})
    found = problems(key_folder, raw)
    assert list(found) == ["tailrack:sites[0].hosts[0].private_key_file"]
    (text,) = found.values()
    assert "pulumi config set --path --secret 'tailrack:sites[0].hosts[0].private_key_passphrase'" in text
    assert "agent: true" in text


def test_a_wrong_passphrase_is_reported_before_any_host_is_touched(key_folder: Path) -> None:
    for other in ("another", ""):
        raw = stack({"private_key_file": "key"}, {"private_key_file": "locked", "private_key_passphrase": other})
        assert list(problems(key_folder, raw, "sites")) == ["tailrack:sites[0].hosts[0].private_key_passphrase"], other


def test_a_passphrase_in_plain_text_is_refused_wherever_it_stands(key_folder: Path) -> None:
    key, locked = {"private_key_file": "key"}, {"private_key_file": "locked", "private_key_passphrase": PASSPHRASE}
    for raw, place in (
        (stack(locked), "sites[0]"),
        (stack(key, locked), "sites[0].hosts[0]"),
        (stack({**key, "bastion": {**BASTION, **locked}}), "sites[0].bastion"),
        (stack({**key, "bastion": {**BASTION, **key, "bastion": {**BASTION, **locked}}}), "sites[0].bastion.bastion"),
    ):
        ((path, text),) = problems(key_folder, raw).items()
        assert path == f"tailrack:{place}.private_key_passphrase"
        assert "plain text" in text


def test_a_file_of_hosts_holds_no_passphrase(key_folder: Path) -> None:
    (key_folder / "more.csv").write_text(
        f"name,address,host_key,private_key_file,private_key_passphrase\nn1,192.0.2.77,{HOST_KEY},locked,{PASSPHRASE}\n"
    )
    raw = stack({"private_key_file": "key", "user": "ops", "hosts_file": "more.csv"})
    found = problems(key_folder, raw, "sites")
    assert [path.rpartition(".")[2] for path in found] == ["private_key_passphrase"]


def test_with_an_agent_there_is_no_key_and_no_socket_in_a_connection(build: Build, key_folder: Path) -> None:
    raw = stack({"agent": True, "bastion": {**BASTION, "agent": True}}, {}, {"private_key_file": "key"})
    door, box = (build(raw)[f"{name}-prepare"].inputs["connection"] for name in ("door", "dgx1"))
    assert not {"privateKey", "privateKeyPassword", "agentSocketPath"} & (door.keys() | door["proxy"].keys())
    assert box["privateKey"] == (key_folder / "key").read_text()


def test_behind_two_bastions_make_forwards_to_the_second(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = stack({"agent": True, "bastion": {**BASTION, "agent": True, "bastion": {**BASTION, "agent": True}}})
    with pytest.raises(pulumi.RunError, match="run make up STACK="):
        build(raw)
    monkeypatch.setenv(FORWARDED, "1")
    proxy = build(raw)["door-prepare"].inputs["connection"]["proxy"]
    assert (proxy["host"], proxy["port"]) == (local_address(pulumi.get_stack(), "rack"), LOCAL_PORT)
