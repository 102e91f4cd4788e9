"""Hosts that are written elsewhere than in the config: files, ranges, what a site says for all, and known_hosts."""

import os
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from stacks.config import ConfigError, StackConfig, parse
from stacks.sites.hosts.model import HostConfig, PresetName
from stacks.sites.hosts.presets import PRESETS
from tests.unit.configs import HOST_KEY, refused
from tests.unit.stacks.test_hosts_from import SECRET, raw


def config(folder: Path, *others: Any, **site: Any) -> StackConfig:
    """The config of a site, and of others."""
    sites = [{"name": "rack", "kind": "hosts", **site}, *others]
    return parse({**raw(), "sites": sites}, base_dir=folder, secret_keys=SECRET)


def hosts(folder: Path, **site: Any) -> list[HostConfig]:
    return list(config(folder, **site).sites[0].hosts)  # type: ignore[union-attr]


def problems(folder: Path, **site: Any) -> list[str]:
    return [str(problem) for problem in refused(config, folder, **site).problems]


FOR_ALL: dict[str, Any] = {"user": "ubuntu", "private_key_file": "key"}
N1 = {"name": "n1", "address": "10.0.0.1"}


def known(folder: Path, text: str, *listed: dict[str, Any]) -> dict[str, Any]:
    """The site of listed hosts whose keys are in this file known_hosts."""
    (folder / "known").write_text(text, encoding="utf-8")
    return {**FOR_ALL, "known_hosts_file": "known", "hosts": [*listed]}


def test_a_csv_file_gives_hosts_beside_those_of_the_config(folder: Path) -> None:
    (folder / "rack.csv").write_text(
        "# the rack in room 3\nname, address, host_key, gpu, features, port, take_over\n"
        f"n2, 192.0.2.2, {HOST_KEY}, h200:8, ib nvme, 2222, true\n\nn3, 192.0.2.3, {HOST_KEY}\n"
    )
    listed = [{**N1, "host_key": HOST_KEY}]
    first, second, third = hosts(folder, **FOR_ALL, hosts_file="rack.csv", hosts=listed)
    assert (first.name, second.name, third.name) == ("n1", "n2", "n3")
    assert (second.port, second.features, second.take_over, second.user) == (2222, ("ib", "nvme"), True, "ubuntu")
    assert (third.port, third.gpu, third.private_key_file) == (22, None, folder / "key")


def test_a_yaml_file_gives_hosts_as_the_config_does(folder: Path) -> None:
    (folder / "rack.yaml").write_text(f"hosts:\n- {{name: n1, address: a.example, host_key: {HOST_KEY}}}\n")
    assert [host.address for host in hosts(folder, **FOR_ALL, hosts_file="rack.yaml")] == ["a.example"]


def test_a_wrong_value_is_reported_with_its_line_in_a_file_and_once_at_the_site_for_all_hosts(folder: Path) -> None:
    (folder / "rack.csv").write_text(f"name,address,host_key\nn1,192.0.2.1,{HOST_KEY}\nN!,192.0.2.2,{HOST_KEY}\n")
    (told,) = problems(folder, **FOR_ALL, hosts_file="rack.csv")
    assert told.startswith("tailrack:sites[0].hosts_file[line 3].name: 'N!' is not a name")
    listed = [{"name": f"n{number}", "address": f"192.0.2.{number}", "host_key": HOST_KEY} for number in (1, 2)]
    (problem,) = problems(folder, user="ubuntu", private_key_file="gone", hosts=listed)
    assert problem.startswith("tailrack:sites[0].private_key_file: 'gone'")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rack.csv", "name, name\nn1, n2\n", "names a column twice"),
        ("rack.csv", "nmae, address\nn1, 192.0.2.1\nn2, 192.0.2.2\n", "column 'nmae', which is not a key"),
        ("rack.csv", "name, gpu\nn1, h200:8\nn2, h200:8\n", "line 1 has no column address"),
        ("rack.csv", "name, address\nn1, 192.0.2.1, x\n", "line 2 has more cells"),
        ("rack.csv", 'name, address\n"n1\n', "cannot be read"),
        ("rack.csv", b"\xff\xfe\xfd", "cannot be read"),
        ("rack.yaml", "[n1]", "rack.yaml is a list"),
        ("rack.yaml", "hosts: 3\n", "must contain only a list `hosts`"),
        ("rack.yaml", "hosts: [a\n", "not YAML"),
        ("gone.csv", None, "cannot be read (FileNotFoundError)"),
    ],
)
def test_an_unreadable_file_is_one_problem(folder: Path, name: str, content: str | bytes | None, said: str) -> None:
    if content is not None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (told,) = problems(folder, **FOR_ALL, hosts_file=name)
    assert told.startswith("tailrack:sites[0].hosts_file: ")
    assert said in told


@pytest.mark.parametrize("key", ["hosts_file", "known_hosts_file"])
@pytest.mark.parametrize("name", ["pipe.csv", "pipe.yaml", "/dev/zero", "/dev/full"])
def test_the_reader_neither_waits_for_nor_endlessly_reads_a_special_file(folder: Path, key: str, name: str) -> None:
    if name.startswith("pipe"):
        os.mkfifo(folder / name)
    (told,) = problems(folder, **FOR_ALL, hosts=[N1], **{key: name})
    assert ("cannot be read: it is not a regular file" if key == "hosts_file" else "host_key: missing") in told


@pytest.mark.parametrize(
    ("target", "content"), [("netrc", "machine example.org password hunter2\n"), ("/proc/self/environ", None)]
)
def test_a_link_shows_nothing_of_a_file_without_hosts(folder: Path, target: str, content: str | None) -> None:
    if content:
        (folder / target).write_text(content)
    (folder / "rack.csv").symlink_to(target)
    (told,) = problems(folder, **FOR_ALL, hosts_file="rack.csv")
    assert "hunter2" not in told
    assert "a column" not in told


@pytest.mark.parametrize("key", ["hosts_file", "known_hosts_file"])
@pytest.mark.parametrize("name", ["a\0b.csv", "a\0b.yaml", "a\ud800.csv", "a\n  tailrack:x: fine.yaml", "\x1b[2J.yaml"])
def test_a_path_that_can_be_none_is_one_line_with_its_key(folder: Path, key: str, name: str) -> None:
    listed = [{**N1, "host_key": HOST_KEY}]
    (told,) = problems(folder, **FOR_ALL, hosts=listed, **{key: name})
    assert told.startswith(f"tailrack:sites[0].{key}: ")
    assert told.isprintable()


@pytest.mark.parametrize(
    ("name", "address", "expected"),
    [
        ("n[1-3]", "10.0.0.[1-3]", ["n1 10.0.0.1", "n2 10.0.0.2", "n3 10.0.0.3"]),
        ("n[1,08-10]", ["a", "b", "c", "d"], ["n1 a", "n08 b", "n09 c", "n10 d"]),
        ("n[1-2]", "n[1-2].example", ["n1 n1.example", "n2 n2.example"]),
    ],
)
def test_a_range_stands_for_as_many_hosts(folder: Path, name: str, address: object, expected: list[str]) -> None:
    addresses = address if isinstance(address, list) else [line.split()[1] for line in expected]
    (folder / "known").write_text("".join(f"{one} {HOST_KEY}\n" for one in addresses))
    found = hosts(folder, **FOR_ALL, known_hosts_file="known", hosts=[{"name": name, "address": address}])
    assert [f"{host.name} {host.address}" for host in found] == expected


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ({"name": "n[1-3]", "address": "10.0.0.[1-2]"}, "has 3 names but 2 addresses"),
        ({"name": "n[1-3]", "address": "10.0.0.1"}, "has 3 names but one address"),
        ({"name": "n[3-1]", "address": "10.0.0.[1-3]"}, "'n[3-1]' is not a range; write one such as box[1-3]"),
        ({"name": "n[1-999999999]", "address": "10.0.0.[1-3]"}, "is not a range"),
        ({"name": "n[1-2]", "adress": "10.0.0.[1-2]"}, "has 2 names but no address"),
        ({"name": "n[1-2]", "address": "10.0.0.[1-2]", "host_key": HOST_KEY}, "one key for many hosts"),
        ({"name": f"n[{'0' * 5000}1-2]", "address": "10.0.0.[1-2]"}, "is not a range"),
        ({"name": f"n[{'0' * 4000}-65000]", "address": "10.0.0.1"}, "is not a range"),
        ({"name": f"{'n' * 100_000}[1-65000]", "address": "10.0.0.1"}, "is not a range"),
    ],
)
def test_a_range_that_does_not_come_out_even_is_refused(folder: Path, host: dict[str, Any], said: str) -> None:
    assert any(said in text for text in problems(folder, **FOR_ALL, hosts=[host]))


def test_a_host_without_a_key_has_the_one_of_known_hosts_for_its_port(folder: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    rsa = asyncssh.generate_private_key("ssh-rsa", key_size=2048).export_public_key().decode().strip()
    text = f"10.0.0.1 {rsa}\n10.0.0.1 {HOST_KEY}\n[10.0.0.1]:2222 {other}\n"
    for port in (2222, "2222"):
        first, second = hosts(folder, **known(folder, text, N1, {**N1, "name": "n2", "port": port}))
        assert (first.host_key, second.host_key) == (HOST_KEY, other)


def test_no_host_trusts_a_port_without_its_own_line_or_a_revoked_key(folder: Path) -> None:
    text = f"10.0.0.1 {HOST_KEY}\n10.0.0.2 {HOST_KEY}\n@revoked 10.0.0.2 {HOST_KEY}\n"
    site = known(folder, text, {**N1, "port": 2222}, {"name": "n2", "address": "10.0.0.2"})
    hosts = "'n1' ('10.0.0.1', port 2222)", "'n2' ('10.0.0.2', port 22)"
    for number, (told, host) in enumerate(zip(problems(folder, **site), hosts, strict=True)):
        missing = f"tailrack:sites[0].hosts[{number}].host_key: missing: 'known' has no usable key of {host};"
        assert told.startswith(missing)
        assert "make trust" in told
        assert "keyscan" not in told
    for wrong in ({"port": 70000}, {"address": "ops@10.0.0.1"}, {"name": "N1"}):
        (only_cause,) = problems(folder, **known(folder, text, {**N1, "port": 2222, **wrong}))
        assert only_cause.startswith(f"tailrack:sites[0].hosts[0].{next(iter(wrong))}: ")
    listed = {"name": "n[1-9]", "address": "10.0.0.[1-9]"}
    (told_once,) = problems(folder, **{**known(folder, "", listed), "known_hosts_file": "knwn"})
    assert "known_hosts_file 'knwn' does not exist" in told_once


def test_every_preset_can_be_written() -> None:
    assert set(PRESETS) == set(PresetName.__args__)  # type: ignore[attr-defined]


def test_the_same_address_behind_another_bastion_is_another_machine(folder: Path) -> None:
    def behind(bastion: str, host: str) -> dict[str, Any]:
        through = {"address": bastion, "user": "ops", "private_key_file": "key", "host_key": HOST_KEY}
        return {**FOR_ALL, "bastion": through, "hosts": [{**N1, "name": host, "host_key": HOST_KEY}]}

    west = {"name": "west", "kind": "hosts", **behind("192.0.2.2", "n2")}
    assert len(config(folder, west, **behind("192.0.2.1", "n1")).sites) == 2
    with pytest.raises(ConfigError, match="is also sites"):
        config(folder, west, **behind("192.0.2.2", "n1"))


@pytest.mark.parametrize(
    "line",
    [
        f"Box.Example.ORG {HOST_KEY}",
        f"box.example.org {HOST_KEY} Zo\u00eb's box",
        f"\ufeffbox.example.org {HOST_KEY}",
        f"# Zo\u00eb\r\n\tbox.example.org\t{HOST_KEY}\r",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_line_of_known_hosts_that_openssh_reads_is_read(folder: Path, line: str, encoding: str) -> None:
    site = known(folder, "", {"name": "n1", "address": "box.example.org"})
    (folder / "known").write_bytes(line.encode(encoding if "\ufeff" not in line else "utf-8") + b"\n")
    assert hosts(folder, **site)[0].host_key == HOST_KEY


@pytest.mark.parametrize(
    ("line", "trusted"),
    [
        ("=======", True),
        ("box.example.net", True),
        ("@revokd box.example.net x y", False),
        (f"@revoked Box.example.org {HOST_KEY}", False),
        (f"\ufeff@revoked * {HOST_KEY}", False),
        (f"@revoked box.example.org {HOST_KEY} Zo\u00eb", False),
    ],
)
def test_an_invalid_line_of_known_hosts_counts_only_if_it_may_revoke(folder: Path, line: str, trusted: bool) -> None:
    text = f"{line}\nbox.example.org {HOST_KEY}\n{line}\n"
    site = known(folder, text, {"name": "n1", "address": "box.example.org"})
    if trusted:
        assert hosts(folder, **site)[0].host_key == HOST_KEY
    else:
        assert ".host_key: missing" in problems(folder, **site)[0]
