"""Many hosts on loopback, in a process of their own: SSH servers that answer a step as its script would, at once.

`python -m tests.engine.played_hosts COUNT` prints one line of JSON, serves until its stdin ends, and prints another.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
import yaml

from components.steps.label import StepLabel
from tests.unit.recorded import AUTHORITIES, AUTHORITY, LEAVE_KEY, certificate_of, promised_gpus, tailnet_address

PROJECT = Path(__file__).parents[2]
HEAD = "alpha0"
SITES = ("alpha", "beta", "gamma")


@dataclass
class Played:
    """`ports` of the hosts, the key that opens them and the one they show; `asked`, once they are gone, what they did.

    asked   [step, when it arrived, when it was answered], seconds of time.time()
    """

    ports: list[int]
    private_key: str
    host_key: str
    asked: list[tuple[str, float, float]] = field(default_factory=list)

    @property
    def busy_seconds(self) -> float:
        """How long at least one of the hosts was at work."""
        total = end = 0.0
        for _, begun, ended in sorted(self.asked, key=lambda one: one[1]):
            total += max(0.0, ended - max(begun, end))
            end = max(end, ended)
        return total


@contextmanager
def play(count: int) -> Iterator[Played]:
    """Play so many hosts."""
    words = [sys.executable, "-m", "tests.engine.played_hosts", str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin
        assert process.stdout
        played = Played(**json.loads(process.stdout.readline()))
        try:
            yield played
        finally:
            process.stdin.close()
            played.asked = [tuple(one) for one in json.loads(process.stdout.readline() or "[]")]


def write_config(folder: Path, addresses: Sequence[tuple[str, int]], private_key: str, host_key: str) -> Path:
    """Write the config of a cluster of three sites, each with a hosts_file; returns its path.

    addresses   of the hosts, (address, port): the first is the head node's; the rest are divided among the sites
    """
    (folder / "key").write_text(private_key, encoding="utf-8")
    sites = []
    for place, site in enumerate(SITES):
        own = addresses[place :: len(SITES)]
        rows = [f"{site}{number},{address},{port},{host_key}" for number, (address, port) in enumerate(own)]
        file = folder / f"{site}.csv"
        file.write_text("\n".join(["name,address,port,host_key", *rows]) + "\n", encoding="utf-8")
        key = {"user": "root", "private_key_file": str(folder / "key")}
        sites.append({"name": site, "kind": "hosts", **key, "hosts_file": str(file)})
    sections = {
        "cluster": {"name": "large"},
        "head": {"name": HEAD, "site": SITES[0]},
        "sites": sites,
        "users": [{"name": "ada", "uid": 6001}],
        "tailnet": {"control_url": "http://127.0.0.1:1"},
    }
    config = folder / "Pulumi.large.yaml"
    text = yaml.safe_dump({"config": {f"tailrack:{key}": value for key, value in sections.items()}})
    config.write_text(text, encoding="utf-8")
    return config


def _answer(name: str, stdin: str, host_key: str) -> dict[str, Any]:
    """What the step of that name would print."""
    if name.startswith("validate-"):
        nodes = re.findall(r"--nodelist=(\S+)", stdin)
        told: dict[str, Any] = {"job_id": 1, "state": "COMPLETED", "exit_code": 0, "seconds": 3, "output": ""}
        return {**told, "nodes": nodes[0].split(",") if nodes else [], "node_states": "", "facts": {}}
    node = name.rpartition("-")[0]
    answers: dict[str, dict[str, Any]] = {
        "prepare": {
            **{"cpus": 4, "memory_mb": 8000, "kernel_nfs_server": False, "open_ports": [], "cgroups": True},
            **{"slurm_version": "24.11.5-4", "mpi": "5-pmix5", **promised_gpus(stdin)},
            **{"tailnet_ip": tailnet_address(node), "tailscale_version": "1.102.5", "sshd_port": 22},
            **{"firewall": "", "host_key": host_key, "path": "direct", "fabric": {"interfaces": [], "rdma": []}},
        },
        "head": {
            **{"slurm_version": "24.11.5", "own_file_system": True, "user_limits": "none", "left_groups": []},
            **{"authority": AUTHORITY, "leave_key": LEAVE_KEY},
        },
        "register": {"certificate": certificate_of(node), "authorities": AUTHORITIES, "munge_digest": "0" * 64},
        "node": {"slurm_version": "24.11.5"},
        **{"services": {}, "pool": {}},
    }
    return answers[name.rpartition("-")[2]]


async def _serve(count: int) -> None:
    client, own = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    host_key = " ".join(own.export_public_key().decode().split()[:2])
    asked: list[tuple[str, float, float]] = []

    async def handle(process: asyncssh.SSHServerProcess[bytes]) -> None:
        begun, stdin = time.time(), (await process.stdin.read()).decode(errors="replace")
        label = StepLabel.of(process.command or "")
        if label:
            process.stdout.write(json.dumps(_answer(label.name, stdin, host_key)).encode() + b"\n")
            asked.append((label.name, begun, time.time()))
        # The engine copies folders by a command without a label.
        process.exit(0)

    homes = tempfile.mkdtemp(prefix="tailrack-played-")

    def acceptor() -> Any:
        home = tempfile.mkdtemp(dir=homes)
        authorized = asyncssh.import_authorized_keys(client.export_public_key().decode())
        return asyncssh.listen(
            *("127.0.0.1", 0),
            **{"server_host_keys": [own], "authorized_client_keys": authorized},
            **{
                "process_factory": handle,
                "encoding": None,
                "sftp_factory": partial(asyncssh.SFTPServer, chroot=home.encode()),
            },
        )

    acceptors = [await acceptor() for _ in range(count)]
    ports = [one.get_port() for one in acceptors]
    print(json.dumps({"ports": ports, "private_key": client.export_private_key().decode(), "host_key": host_key}))
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(asked), flush=True)
    shutil.rmtree(homes)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
