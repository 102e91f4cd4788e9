"""A stack built against mocks that record what it registers, and answer as the scripts on the machines would."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pulumi
from pulumi.runtime import mocks, rpc

from components.steps.command_line import read_request
from stacks.cluster import cluster_stack
from stacks.config import StackConfig
from stacks.read_outputs import FUNCTION as READ_OUTPUTS
from tests.unit.configs import FIRST_KEY, HOST_KEY, LAB_PRIVATE_KEY, MUNGE_KEY, RawConfig
from tests.unit.phases import called, inner_calls

_TABLE = (Path(__file__).parents[1] / "fixtures/nccl_tests/mpi-cpu-2x1-tcp-eth0.txt").read_text(encoding="utf-8")

COPY = "command:remote:CopyToRemote"
OWN_OUTPUTS = "organization/tailrack/dev"


def tailnet_address(node: str) -> str:
    """The address that the mocks give a node: always the same one, whoever else is there."""
    number = zlib.crc32(node.encode())
    return f"100.64.{number // 256 % 256}.{number % 256}"


def public_key(name: str) -> str:
    """A key of the length and form of an ed25519 key, with a name inside."""
    parts = b"ssh-ed25519", name.encode().ljust(32)
    return "ssh-ed25519 " + base64.b64encode(b"".join(len(part).to_bytes(4) + part for part in parts)).decode()


def certificate_of(node: str) -> str:
    """What the mocks' head node answers in the place of a certificate of a node."""
    kind = "ssh-ed25519-cert-v01@openssh.com"
    return f"{kind} {base64.b64encode(len(kind).to_bytes(4) + f'{kind} of {node}'.encode()).decode()}"


AUTHORITY, LEAVE_KEY = public_key("authority"), public_key("leave")
AUTHORITIES = f"# 1790000000\n{AUTHORITY}\n# leave {LEAVE_KEY}"


def promised_gpus(stdin: object) -> dict[str, Any]:
    """What a check answers of a machine that has the GPUs that its values promise."""
    values = read_request(rpc.unwrap_rpc_secret(stdin) if rpc.is_rpc_secret(stdin) else stdin) or {}
    kind, number = values.get("node_gpu_kind", ""), int(values.get("node_gpu_count") or 0)
    return {
        "gpus": number, "gpu_kind": kind, "gpu_devices": list(range(number)),
        "gpu_memory_mb": 81559 if number else 0, "gpu_driver": "580.159.04" if number else "", "gpu_nvlinks": 0,
    }  # fmt: skip


def open_secrets(value: Any, path: str = "") -> tuple[Any, set[str]]:
    """The value with every secret opened, and the paths at which one was. A folder is the names of its files."""
    if isinstance(value, pulumi.FileArchive):
        return sorted(path.name for path in Path(value.path).iterdir()), set()
    if rpc.is_rpc_secret(value):
        inner, paths = open_secrets(rpc.unwrap_rpc_secret(value), path)
        return inner, paths | {path}
    if isinstance(value, Mapping):
        pairs = {key: open_secrets(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
        return {key: pair[0] for key, pair in pairs.items()}, set().union(*(pair[1] for pair in pairs.values()))
    if isinstance(value, list):
        items = [open_secrets(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [item[0] for item in items], set().union(*(item[1] for item in items))
    return value, set()


def without_secrets(value: Any) -> Any:
    """The value as it would rest in plain state: every secret replaced by a dash."""
    if rpc.is_rpc_secret(value):
        return "-"
    if isinstance(value, Mapping):
        return {key: without_secrets(item) for key, item in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


class Parent(pulumi.ComponentResource):
    """Something to belong to."""

    def __init__(self) -> None:
        super().__init__("tailrack:test:Parent", "parent")


@dataclass(frozen=True)
class Registered:
    """One resource as the engine would have seen it."""

    type: str
    name: str
    inputs: Mapping[str, Any]  # secrets opened
    secret_paths: frozenset[str]  # where one was: `stdin`, `connection`
    in_plain_state: str  # JSON of what is not secret
    folders: tuple[Path, ...] = ()  # that it copies


@dataclass
class Recorded:
    """A stack that was built against mocks."""

    resources: list[Registered] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)
    stacks_read: dict[str, list[str]] = field(default_factory=dict)  # by name: what was registered before

    def __getitem__(self, name: str) -> Registered:
        (found,) = (resource for resource in [*self.remote, *self.local, *self.copies] if resource.name == name)
        return found

    @property
    def names(self) -> list[str]:
        return sorted(resource.name for resource in self.resources)

    @property
    def remote(self) -> list[Registered]:
        return [resource for resource in self.resources if resource.type == "command:remote:Command"]

    @property
    def local(self) -> list[Registered]:
        return [resource for resource in self.resources if resource.type == "command:local:Command"]

    @property
    def validations(self) -> set[str]:
        return {name for name in self.names if name.startswith("validate-")}

    @property
    def copies(self) -> list[Registered]:
        return [resource for resource in self.resources if resource.type == COPY]

    def whole(self, name: str) -> str:
        """All that a machine gets of a step: its plan, wherever that comes from, and its request."""
        return f"{self.plan_text(name)}\n{self[name].inputs['stdin']}"

    def plan_text(self, name: str) -> str:
        """The plan of a step, one line of JSON."""
        step = self[name]
        there = re.search(r"start-[0-9a-f]{8}\.sh up [0-9a-f]{64} ([0-9a-f]{64})", step.inputs["create"])
        return self._copied(step, there[1]) if there else str(step.inputs["stdin"]).split("\n")[1]

    def plan(self, name: str) -> Mapping[str, Any]:
        """The plan of a step."""
        plan: Mapping[str, Any] = json.loads(self.plan_text(name))
        return plan

    def called(self, name: str, action: str = "up") -> list[str]:
        """The phases that a step calls."""
        return called(json.loads(self.plan_text(name))["calls"], action)

    def packages(self, name: str, word: str = "packages") -> list[list[str]]:
        """The packages that a step installs, by call."""
        return [call[1:] for call in inner_calls({"up": self.plan(name)["calls"]["up"]}) if call[0] == word]

    def request(self, name: str) -> Mapping[str, Any]:
        """The request of a step."""
        text = str(self[name].inputs["stdin"])
        request: Mapping[str, Any] = json.loads(text if text.startswith("{") else text.split("\n", 2)[2])
        return request

    def _copied(self, step: Registered, digest: str) -> str:
        """A script that a copy puts on the machine of a step."""
        folders = {
            folder
            for copy in self.copies
            for folder in copy.folders
            if copy.inputs["connection"] == step.inputs["connection"]
        }
        lines = [
            line for folder in folders for file in folder.glob("plans-*") for line in file.read_text().splitlines()
        ]
        (script,) = {line.partition(" ")[2] for line in lines if line.startswith(digest)}
        assert hashlib.sha256(script.encode()).hexdigest() == digest
        return script

    def values(self, name: str) -> Mapping[str, str]:
        """All values that a step's phases can read, as texts."""
        return {**json.loads(self.plan_text(name))["texts"], **self.header(name)}

    def header(self, name: str) -> Mapping[str, str]:
        """The values that a step is given, as texts."""
        return read_request(self[name].inputs["stdin"]) or {}

    def differences(self, other: Recorded) -> set[str]:
        """Names of the resources that only one of the two has, or whose inputs are not the same in both.

        The inputs of components do nothing on any machine and are left out.
        """
        mine, theirs = (
            {
                (resource.type, resource.name): {} if resource.type.startswith("tailrack:") else resource.inputs
                for resource in stack.resources
            }
            for stack in (self, other)
        )
        return {key[1] for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)}


class _Recorder(mocks.Mocks):
    """Records every resource and answers as the scripts on the machines would."""

    def __init__(self, answers: Mapping[str, Any], *, unknown: bool, munge_key: str) -> None:
        self.answers, self.unknown, self.munge_key = answers, unknown, munge_key
        self.recorded = Recorded()

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        if args.token == READ_OUTPUTS:
            self.recorded.stacks_read[args.args["name"]] = self.recorded.names
            answer = self.answers.get(args.args["name"], {"outputs": {}, "secretOutputNames": []})
            return ({}, [("name", answer)]) if isinstance(answer, str) else (answer, [])
        if args.token in self.answers:
            return self.answers[args.token], []
        raise AssertionError(f"the program asked a provider: {args.token}")

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        inputs, paths = open_secrets(args.inputs)
        plain = json.dumps(without_secrets(args.inputs), sort_keys=True, default=str)  # str: not known in a preview
        folders = tuple(Path(value.path) for value in args.inputs.values() if isinstance(value, pulumi.FileArchive))
        self.recorded.resources.append(Registered(args.typ, args.name, inputs, frozenset(paths), plain, folders))
        if args.typ == COPY:
            return f"{args.name}-id", dict(args.inputs)
        if not args.typ.startswith("command:"):
            of_provider = args.typ.startswith(("aws:", "tailscale:"))
            return f"{args.name}-id", {**inputs, **self.answers.get(args.name, {})} if of_provider else {}
        stdout = rpc.UNKNOWN if self.unknown else self._stdout(args.name, inputs)
        # As additional_secret_outputs has it for these: mocks do not see the options of a resource.
        secret = "stdin" in paths or args.name in ("munge-key", "lab-networks") or args.name.endswith("-first-key")
        return f"{args.name}-id", {"stdout": rpc.wrap_rpc_secret(stdout) if secret else stdout, "stderr": ""}

    def _stdout(self, name: str, inputs: Mapping[str, Any]) -> str:
        if name == "munge-key":
            return self.munge_key
        if name.endswith("-first-key"):
            return json.dumps({"private": FIRST_KEY, "public": "ecdsa-sha2-nistp256 first-public"})
        said = self.answers.get(name, {})
        if isinstance(said, str):
            return said
        node, _, step = name.rpartition("-")
        if step == "password":
            return f"made for {node}"
        if name.startswith("validate-"):
            step = "validate"
        answer: dict[str, dict[str, Any]] = {
            "networks": {"private_key": LAB_PRIVATE_KEY, "control_url": "http://control.lab:8080"},
            "container": {"address": f"10.99.0.{len(node)}", "port": 22, "user": "admin", "host_key": HOST_KEY},
            "prepare": {
                "cpus": 4, "memory_mb": 8000, "kernel_nfs_server": False, "open_ports": [], "cgroups": False,
                "slurm_version": "24.11.5-4", "mpi": "5-pmix5", **promised_gpus(inputs.get("stdin")),
                "tailnet_ip": tailnet_address(node), "firewall": "", "tailscale_version": "1.102.5", "sshd_port": 22,
                "restored_made": 1795496700, "restored_age": 93660,
                "host_key": HOST_KEY, "fabric": {"interfaces": [], "rdma": []},
            },
            "register": {
                "certificate": certificate_of(node), "authorities": AUTHORITIES, "munge_digest": "0" * 64,
                "path": "direct",
            },
            "storage": {"own_file_system": True, "share_name": "ab" * 16},
            "node": {"slurm_version": "24.11.5"},
            "head": {
                "slurm_version": "24.11.5", "own_file_system": True, "user_limits": "none", "left_groups": [],
            },
            "services": {}, "pool": {}, "device": {},
            "key": {"host_key": HOST_KEY},
            "validate": {
                "job_id": 1, "state": "COMPLETED", "exit_code": 0, "seconds": 3, "output": _TABLE,
                "nodes": [], "node_states": "", "facts": {},
            },
        }  # fmt: skip
        return json.dumps({**answer[step], **said})


class Build(Protocol):
    """Build the stack of a raw config, once for all tests that ask for the same; `again` builds it anew."""

    def __call__(self, raw: RawConfig, *, again: bool = False, **how: Any) -> Recorded: ...


def record(
    program: Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]],
    answers: Mapping[str, Any] | None = None,
    unknown: bool = False,
    munge_key: str = MUNGE_KEY,
) -> Recorded:
    """Run a Pulumi program against mocks and return what it registered; what it returns is the recorded `outputs`.

    `answers` maps a resource's name to values that replace those of its plausible answer, or to the whole of it as
    text; and a stack's name to what the engine returns for it, or to its error as text. `unknown`: no step has an
    answer yet, as in a preview.
    """
    recorder = _Recorder(answers or {}, unknown=unknown, munge_key=munge_key)
    mocks.set_mocks(recorder, project="tailrack", stack="dev", preview=unknown, organization="organization")
    recorded = recorder.recorded

    async def keep(name: str, output: pulumi.Output[Any]) -> None:
        if await output.is_known():
            recorded.outputs[name] = await output.future()
        if await output.is_secret():
            recorded.secret_outputs.add(name)

    async def run() -> None:
        made = program()
        outputs = await made if isinstance(made, Awaitable) else made
        for name, value in outputs.items():
            await keep(name, pulumi.Output.from_input(value))

    @pulumi.runtime.test
    def as_stack() -> Any:
        return run()

    as_stack()
    return recorded


def record_cluster(config: StackConfig, **how: Any) -> Recorded:
    """The cluster of a config against mocks, as `record` has it."""

    async def program() -> Mapping[str, Any]:
        return (await cluster_stack(config, "dev")).outputs

    return record(program, **how)
