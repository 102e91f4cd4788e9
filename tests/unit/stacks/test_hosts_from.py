"""Hosts that are an output of another stack: they are hosts like any other, or one error says what to change."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cli import open_stack, show_commands
from cli.stack_config.written_config import WrittenConfig
from components.settings.problems import Report
from stacks import read_outputs as reader
from stacks.config import OtherStack, StackConfig, load, other_stacks_of, parse
from stacks.sites.hosts.model import HostConfig
from stacks.sites.hosts.other_stacks import hosts_of, with_other_stacks
from stacks.sites.hosts.unknown_host_keys import unverified_hosts
from stacks.yaml_file import FileError
from tests.unit.configs import AUTH_KEY, HOST_KEY, refused

VMS = "org/vms/prod"
N1: dict[str, Any] = {"name": "n1", "address": "192.0.2.1", "host_key": HOST_KEY}
N2: dict[str, Any] = {"name": "n2", "address": "192.0.2.2", "host_key": HOST_KEY}
SITE: dict[str, Any] = {"name": "rack", "kind": "hosts", "user": "ubuntu", "private_key_file": "key"}
SECRET = frozenset({"tailnet"})
FROM = {"stack": VMS, "output": "hosts"}


def raw(**site: Any) -> dict[str, Any]:
    return {
        "cluster": {"name": "prod"},
        "head": {"name": "n1", "site": "rack", "compute": True, "accept_root_risk": True},
        "sites": [{**SITE, "hosts_from": FROM, **site}],
        "users": [{"name": "ada", "uid": 6001}],
        "tailnet": {"auth_key": AUTH_KEY},
    }


def config(
    folder: Path, listed: object, stack: OtherStack | None = None, hidden: bool = False, **site: Any
) -> StackConfig:
    """A checked config; `hidden` is one with a secret among its sites."""
    stacks = {VMS: stack or OtherStack({"hosts": listed})}
    secrets = SECRET | {"sites"} if hidden else SECRET
    return parse(with_other_stacks(raw(**site), stacks), base_dir=folder, secret_keys=secrets)


def problems(folder: Path, listed: object, stack: OtherStack | None = None, hidden: bool = False, **site: Any) -> str:
    return "\n".join(map(str, refused(config, folder, listed, stack, hidden, **site).problems))


def test_the_hosts_of_an_output_are_hosts_of_the_site_with_its_common_keys(folder: Path) -> None:
    # Pulumi gives a program all numbers of an output as floats.
    listed = [N1, {**N2, "port": 2222.0, "gpu": "h100:8", "user": "root", "features": ["ib"], "adopt": None}]
    first, second = config(folder, listed).nodes()
    hosts: list[HostConfig] = [first.host, second.host]  # type: ignore[attr-defined]
    assert (first.name, first.is_head, second.name) == ("n1", True, "n2")
    ways = [(host.address, host.port, host.user) for host in hosts]
    assert ways == [("192.0.2.1", 22, "ubuntu"), ("192.0.2.2", 2222, "root")]
    assert hosts[1].private_key_file == folder / "key"
    assert (hosts[1].features, hosts[1].adopt) == (("ib",), False)
    assert second.gpu is not None


@pytest.mark.parametrize(
    ("hosts", "path", "parts"),
    [
        ("n1", "hosts_from.output", ["'hosts' of stack 'org/vms/prod' is a text, not a list", "export a list"]),
        ({"n1": "192.0.2.1"}, "hosts_from.output", ["is a mapping, not a list"]),
        (None, "hosts_from.output", ["is nothing, not a list"]),
        ([], "hosts_from.output", ["is an empty list", "the site would have no machines", "delete the site"]),
        ([N1, "n2"], "hosts_from.output[1]", ["'n2' is not a mapping", "with at least name and address"]),
        ([N1, {**N2, "adress": "x"}], "hosts_from.output[1].adress", ["unknown key", "did you mean 'address'?"]),
        ([N1, {**N2, "port": 22.5}], "hosts_from.output[1].port", ["22.5 is not a whole number", "such as 22"]),
        ([N1, {**N2, "address": "-x"}], "hosts_from.output[1].address", ["is neither an IP address nor"]),
        ([N1, {**N2, "name": "n1"}], "hosts_from.output[1].name", ["makes node n1 a second time", "output[0]"]),
        ([N1, {**N2, "address": "192.0.2.1"}], "hosts_from.output[1].address", ["'192.0.2.1' with port 22 is also"]),
        ([{**N1, "host_key": None}], "hosts_from.output[0].host_key", ["missing", "make trust"]),
        ([N2], "", ["tailrack:head.name: 'n1' is not a host of site rack (its hosts are n2)"]),
    ],
)
def test_a_wrong_output_is_one_error_with_its_key(folder: Path, hosts: object, path: str, parts: list[str]) -> None:
    text = problems(folder, hosts)
    assert "\n" not in text
    assert text.startswith(f"tailrack:sites[0].{path}: " if path else "tailrack:head.name: ")
    for part in parts:
        assert part in text


def test_a_missing_output_is_named_with_those_that_the_stack_has(folder: Path) -> None:
    text = problems(folder, None, OtherStack({"ips": ["192.0.2.1"], "vpc": "x"}))
    assert text.startswith("tailrack:sites[0].hosts_from.output: 'hosts' is not an output of stack 'org/vms/prod'")
    assert "its outputs: ips, vpc" in text
    assert "its outputs: none" in problems(folder, None, OtherStack())


def test_secrets_of_another_program_are_refused_and_not_shown(folder: Path) -> None:
    text = problems(folder, None, OtherStack({"hosts": [{**N1, "name": "hush-hush"}]}, frozenset({"hosts"})))
    assert text.startswith("tailrack:sites[0].hosts_from.output: 'hosts' is a secret of stack 'org/vms/prod'")
    assert "hush" not in text
    for hidden in (False, True):
        text = problems(folder, [{**N1, "private_key_passphrase": "hush-hush"}], hidden=hidden)
        assert "[secret] is plain text in another program's outputs" in text
        assert "hush" not in text


@pytest.mark.parametrize(("key", "value"), [("hosts", [N2]), ("hosts_file", "hosts.csv")])
def test_a_list_of_hosts_beside_another_stacks_is_refused(folder: Path, key: str, value: object) -> None:
    site: dict[str, Any] = {key: value}
    text = problems(folder, [N1], **site)
    assert text.startswith(f"tailrack:sites[0].hosts_from: is set, but {key} is also set; ")
    assert text.endswith("; delete one of them, or write a second site")


@pytest.mark.parametrize(
    ("hosts_from", "problem"),
    [
        ("org/vms/prod", "hosts_from: 'org/vms/prod' is not a mapping; "),
        ({"output": "hosts"}, "hosts_from: has neither `stack` nor `terraform`; "),
        ({"stack": VMS, "terraform": "vms.tfstate"}, "hosts_from: has both `stack` and `terraform`; "),
        ({"stack": "a/b/c/d"}, "hosts_from.stack: 'a/b/c/d' is not the name of a stack; "),
        ({"stack": {"name": "prod"}}, "hosts_from.stack: a mapping is not the name of a stack; "),
        ({"stack": VMS, "output": 3}, "hosts_from.output: 3 is not the name of an output; "),
        ({"stack": VMS, "output": ""}, "hosts_from.output: '' is not the name of an output; "),
        ({"terraform": {}}, "hosts_from.terraform: a mapping is not a path of a file; "),
        ({"stack": VMS, "cdk": {}}, "hosts_from.cdk: unknown key; "),
    ],
)
def test_a_hosts_from_that_names_no_output_is_one_error(folder: Path, hosts_from: object, problem: str) -> None:
    text = problems(folder, [N1], hosts_from=hosts_from)
    assert text.startswith(f"tailrack:sites[0].{problem}")
    assert "\n" not in text


def test_the_program_reads_other_stacks_or_keeps_the_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def invoke(_token: str, arguments: dict[str, str]) -> dict[str, Any]:
        if arguments["name"] != VMS:
            raise RuntimeError("invoke returned an error: unknown stack")
        return {"outputs": {"hosts": [N1], "token": "hush"}, "secretOutputNames": ["token"]}

    monkeypatch.setattr("pulumi.runtime.get_root_resource", lambda: None)
    monkeypatch.setattr("pulumi.runtime.invoke_async", invoke)
    stacks = asyncio.run(reader.read_other_stacks([VMS, "gone"]))
    assert (stacks[VMS].outputs, stacks[VMS].secrets) == ({"hosts": [N1], "token": "hush"}, {"token"})
    assert stacks["gone"].error == "unknown stack"
    values = {f"tailrack:{key}": json.dumps(value) for key, value in raw().items()}
    assert other_stacks_of(values) == [VMS]
    assert [node.name for node in load(values, ["tailrack:tailnet"], folder, other_stacks=stacks).nodes()] == ["n1"]


def test_commands_find_a_host_of_another_stack_and_read_it_only_if_they_need_it() -> None:
    stacks: list[str] = []

    def other_stack(name: str) -> OtherStack:
        stacks.append(name)
        return OtherStack({"hosts": [N1, N2]})

    rented = {"name": "gpu", "preset": "lambda", "kind": "hosts", "hosts_from": FROM, "private_key_file": "key"}
    head = {"name": "rack", "kind": "hosts", "hosts": [{"name": "door", "address": "a", "user": "root"}]}
    head_key = {"name": "door", "site": "rack"}
    written = WrittenConfig({"tailrack:sites": [rented, head], "tailrack:head": head_key}, other_stack)
    assert written.head_login == "root"
    assert stacks == []
    assert written.host("n2") == {"user": "ubuntu", "private_key_file": "key", **N2}
    assert written.host_names == ["door", "n1", "n2"]


def test_trust_asks_for_the_keys_of_another_stacks_hosts(folder: Path) -> None:
    stacks = {VMS: OtherStack({"hosts": [N1, {"name": "n2", "address": "192.0.2.2"}]})}
    (host,) = unverified_hosts(with_other_stacks(raw(known_hosts_file="known"), stacks), folder)
    assert (host.name, host.address, host.file) == ("n2", "192.0.2.2", folder / "known")
    with pytest.raises(FileError, match=r"hosts_from\.stack: 'org/vms/prod' cannot be read: no backend"):
        unverified_hosts(with_other_stacks(raw(), {VMS: OtherStack(error="no backend")}), folder)


def test_make_trust_opens_the_stack_only_for_anothers_hosts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "Pulumi.prod.yaml"
    arguments: Any = SimpleNamespace(stack="prod", config_file=file, state_dir=folder, engine="")
    opened: list[str] = []

    def open_quietly(*_: object) -> Any:
        opened.append("prod")
        return SimpleNamespace(other_stack=lambda name: OtherStack({"hosts": [N1]}))

    monkeypatch.setattr(open_stack, "open_quietly", open_quietly)
    file.write_text("config: {tailrack:sites: []}\n")
    assert show_commands.trust(arguments, Console()) == 0
    assert opened == []
    file.write_text(f"config: {{tailrack:sites: [{{name: gpu, kind: hosts, hosts_from: {{stack: {VMS}}}}}]}}\n")
    assert show_commands.trust(arguments, Console()) == 0
    assert opened == ["prod"]


def test_an_unread_hosts_stack_is_an_error_and_not_an_empty_site(folder: Path) -> None:
    report = Report(frozenset())
    assert hosts_of(FROM, "tailrack:sites[0].hosts_from", folder, report) is None
    assert "its outputs were not read" in str(next(iter(report.problems)))
