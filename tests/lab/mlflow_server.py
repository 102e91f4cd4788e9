"""MLflow's real server, as the unit starts it, on a loopback address of this machine and without a container.

It is installed once, from the list that the role pins, with the Python of the tests.
"""

import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.file_lock import locked
from cli.pulumi.workspace import ROOT
from components.node.install import FOLDER, install
from components.roles.jobs.mlflow.role import role
from components.roles.program import program
from components.roles.role import template
from stacks.config import parse
from tests.lab.cluster import eventually
from tests.lab.wheels import LIST
from tests.unit.configs import LAB

# The administrator's first: what accounts.py wants.
PASSWORDS = {"admin": "a" * 24, "ada": "b" * 24, "bob": "c" * 24}
ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The answer's JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A running server, its folders, and the Python that has MLflow."""

    python: Path
    data: Path
    artifacts: Path
    port: int

    @property
    def url(self) -> str:
        """Its address for MLflow's client."""
        return f"http://{ADDRESS}:{self.port}"

    def ask(self, method: str, target: str, body: object = None, *, user: str | None = "ada", **headers: str) -> Answer:
        """Send one request, whose target goes onto the line as it is, and read the answer."""
        if user is not None:
            login = b64encode(f"{user}:{PASSWORDS[user]}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        if content is not None:
            headers.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=60)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in {**headers, "Content-Length": str(len(content or b""))}.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
        finally:
            connection.close()

    def client(self, script: str, user: str = "ada") -> Any:
        """Run a script with MLflow's own client as a user, and read the JSON that it prints last."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.data.parent),
            "MLFLOW_TRACKING_URI": self.url,
            "MLFLOW_TRACKING_USERNAME": user,
            "MLFLOW_TRACKING_PASSWORD": PASSWORDS[user],
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        }
        words = [str(self.python), "-W", "ignore", "-c", script]
        done = subprocess.run(
            words, env=environment, cwd=self.data.parent, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def mlflow_python() -> Path:
    """Return the Python of an environment that has MLflow; it is made once for each list and each Python."""
    digest = hashlib.sha256(LIST.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = ROOT / "cache" / f"mlflow-{digest}"
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = ["-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
            subprocess.run([python, "-I", *pip, "-r", LIST], check=True)
            (folder / "whole").touch()
    return python


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Start the server in a folder, with the environment that its unit gives it, and end it."""
    made = role(parse({**LAB, "mlflow": {}}, base_dir=Path()))
    data, artifacts = folder / "data", folder / "artifacts"
    for place in (data, artifacts):
        place.mkdir()
    start, accounts, login = (folder / name for name in ("mlflow-start", "mlflow-accounts", "basic_auth.ini"))
    install(program().archive, program().digest, str(folder / "program"))
    start.write_text(made.texts["mlflow_start"].replace(FOLDER, str(folder / "program")))
    accounts.write_text(made.texts["mlflow_accounts"].replace(FOLDER, str(folder / "program")))
    login.write_text(made.texts["mlflow_login"].replace("/var/lib/tailrack-mlflow", str(data)))
    with socket.socket() as free:
        free.bind((ADDRESS, 0))
        port = free.getsockname()[1]
    server = Server(mlflow_python(), data, artifacts, port)
    environment = {"PATH": "/usr/bin:/bin", "ADDRESS": ADDRESS, "PORT": str(port), "NAME": "head", **_of_the_unit()}
    environment |= {"MLFLOW_AUTH_CONFIG_PATH": str(login), "TMPDIR": str(artifacts / "uploads")}
    lines = "".join(f"{name} {password}\n" for name, password in PASSWORDS.items())
    words = [str(each) for each in (server.python, "-I", accounts, data, "0")]
    subprocess.run(words, input=lines, text=True, env=environment, cwd=folder, check=True, capture_output=True)
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [server.python, "-I", start, data / "mlflow.db", artifacts],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            eventually(lambda: _answers(server), 240, "MLflow answers")
            yield server
        finally:
            process.terminate()


def _of_the_unit() -> dict[str, str]:
    lines = template("mlflow", "tailrack-mlflow.service").splitlines()
    words = [word for line in lines if line.startswith("Environment=") for word in line[12:].split()]
    return dict(word.split("=", 1) for word in words)


def _answers(server: Server) -> bool:
    try:
        return server.ask("GET", "/health", user=None).status == 200
    except OSError:
        return False
