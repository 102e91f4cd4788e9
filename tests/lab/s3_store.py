"""An S3 server on the machine that runs the tests, outside the networks of all sites."""

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]

from cli.pulumi.workspace import PROJECT
from tests.lab.cluster import ClusterUnderTest, eventually
from tests.lab.sealer import Sealer

# The server has an address in the network of each site.
EVERYWHERE = "0.0.0.0"  # noqa: S104


@dataclass
class Store:
    """The server; `key` is the access key of the bucket `lab`."""

    folder: Path
    port: int
    key: list[str] = field(default_factory=list)

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"https://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id=self.key[0],
            aws_secret_access_key=self.key[1],
            verify=str(self.folder / "cert.pem"),
        )

    def sent(self, path: str = "/lab/") -> dict[str, int]:
        """Return the bytes of objects below a path that each address got."""
        total: dict[str, int] = {}
        file = self.folder / "sent"
        for line in file.read_text().splitlines() if file.exists() else ():
            address, name, size = line.split(" ")
            if name.startswith(path):
                total[address] = total.get(address, 0) + int(size)
        return total

    def put(self, name: str, size: int) -> None:
        """Write an object of the bucket."""
        self.client.put_object(Bucket="lab", Key=name, Body=contents(name, size))

    def data_set(self, sealer: Sealer, name: str = "corpus", secret: str = "", **more: Any) -> dict[str, Any]:
        """Return a data set of the config that is in the bucket."""
        return {
            "name": name,
            "source": f"s3://lab/{name}",
            "endpoint": f"https://s3.lab:{self.port}",
            "access_key": self.key[0],
            "secret_key": {"secure": sealer.seal(secret or self.key[1])},
            **more,
        }

    def make_known(self, cluster: ClusterUnderTest, *nodes: str) -> None:
        """Let nodes find the server by the gateway of their own network, and trust its certificate."""
        trust = (
            "cp /root/s3-lab.crt /usr/local/share/ca-certificates/ && update-ca-certificates >/dev/null 2>&1; "
            "echo \"$(ip route show default | awk '{print $3; exit}') s3.lab storage.lab\" >>/etc/hosts"
        )
        for node in nodes:
            place = f"{cluster.container(node)}:/root/s3-lab.crt"
            subprocess.run(["docker", "cp", "-q", str(self.folder / "cert.pem"), place], check=True)
            cluster.run(node, trust)


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Run the server, which has a bucket without objects."""
    names = "subjectAltName=DNS:s3.lab,DNS:storage.lab,IP:127.0.0.1"
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=s3.lab",
    ]
    more = ["-addext", names, "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(["openssl", *words, *more], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind((EVERYWHERE, 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(PROJECT / "tests/lab/s3.py"), str(folder), str(port), EVERYWHERE]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(folder)})
    try:
        eventually(lambda: (folder / "key.json").exists() and answers(port), 60, "S3 answers")
        yield Store(folder, port, json.loads((folder / "key.json").read_text()))
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def contents(name: str, size: int) -> bytes:
    """Return bytes that no compression shortens much, the same for the same name."""
    return random.Random(name).randbytes(size)  # noqa: S311 no secret
