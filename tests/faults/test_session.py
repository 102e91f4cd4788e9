"""`tailrack session`: a real job, a real ssh to its node, and a server that says that it is Jupyter, behind ssh -L."""

import http.client
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.roles.commands.tailrack.session import FOLDER
from components.roles.role import Value
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually
from tests.lab.run_step import run_step
from tests.unit.shell import script_of

# Serves as Jupyter does, as far as the command knows it: address, port, token and the file about itself.
JUPYTER = """#!/usr/bin/python3
import http.server, json, os, pathlib, sys
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
token = pathlib.Path(os.environ["JUPYTER_TOKEN_FILE"]).read_text()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path.partition("?token=")[2] == token else 403)
        self.end_headers()
        self.wfile.write(b"a stub of Jupyter")

    def log_message(self, *words):  # Jupyter leaves the token out of its log
        pass


server = http.server.HTTPServer((options["ip"], int(options["port"])), Handler)
row = {"port": server.server_port, "token": token, "password": False}
pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{os.getpid()}.json").write_text(json.dumps(row))
server.serve_forever()
"""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "laptop"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "laptop", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, key: Path, tmp_path_factory: pytest.TempPathFactory) -> ClusterUnderTest:
    """A head node and a1, the only node that takes jobs. ada has a stub of Jupyter in ~/venv."""
    made = make_cluster("session", one_site=True)
    made.config["tailrack:slurm"]["settings"] = {"PrologFlags": "Contain"}
    public = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    made.config["tailrack:users"] = [{"name": "ada", "uid": 6001, "keys": [public]}, {"name": "bob", "uid": 6002}]
    made.up_ok()
    made.run("head", "scontrol update nodename=head state=drain reason='sessions are on a1'")
    venv = tmp_path_factory.mktemp("home") / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "jupyter-lab").write_text(JUPYTER, encoding="utf-8")
    (venv / "bin" / "jupyter-lab").chmod(0o755)
    made.give("ada", venv)
    return made


@pytest.fixture(scope="module")
def config(cluster: ClusterUnderTest, key: Path) -> Path:
    """The lines for ssh that ada gets, with her key."""
    printed = subprocess.run(cluster.driver("ssh-config"), capture_output=True, text=True, check=True).stdout.split()
    place = f"--head {printed[printed.index('HostName') + 1]}"
    if "Port" in printed:
        place += f" --port {printed[printed.index('Port') + 1]}"
    lines = cluster.run_as("ada", "head", f"tailrack ssh-config {place}")
    path = key.parent / "config"
    path.write_text(f"{lines}\nHost *\n  IdentityFile {key}\n  IdentitiesOnly yes\n", encoding="utf-8")
    return path


def ssh(config: Path, *words: str) -> list[str]:
    options = [
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        "-oIdentityAgent=none",
        "-oUserKnownHostsFile=/dev/null",
    ]
    return ["ssh", "-F", str(config), *options, *words]


def login(config: Path) -> subprocess.CompletedProcess[str]:
    words = ssh(config, "a1", "hostname; whoami")
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


@contextmanager
def tunnel(config: Path, forward: str, port: int) -> Iterator[None]:
    """Run the printed `ssh -L`, in which only the port of this machine is another."""
    with subprocess.Popen(ssh(config, "-N", "-L", forward, "a1"), stdin=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: answers(port), 30, "the tunnel is open")
            yield
        finally:
            process.terminate()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fetch(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def queue(cluster: ClusterUnderTest) -> str:
    return cluster.run("head", "squeue -h -o '%i %u %j %T %N'")


def test_ctrl_c_while_the_session_waits_cancels_it(cluster: ClusterUnderTest) -> None:
    cluster.run("head", "scontrol update nodename=a1 state=drain reason='new disk'")
    waits = "tailrack session --gpus 0 >out 2>&1 & echo $! >pid; wait $!"
    # A background process of a shell without job control ignores Ctrl-C, unless the shell starts it with `set -m`.
    done = subprocess.Popen(
        ["docker", "exec", cluster.container("head"), "bash", "-c", as_user("ada", f"set -m; {waits}")]
    )
    read = as_user("ada", "cat out")
    eventually(lambda: "a1 (drained): new disk" in cluster.attempt("head", read).stdout, 60, "why it waits is shown")
    cluster.run_as("ada", "head", "kill -INT $(cat pid)")
    assert done.wait(60) == 1
    text = cluster.run("head", read)
    assert re.search(r"^submitted job (\d+)\n", text)
    assert re.search(r"\ncancelled job (\d+)\n$", text), text
    eventually(lambda: queue(cluster) == "", 60, "no job is left")
    cluster.run("head", "scontrol update nodename=a1 state=resume")


def test_a_jupyter_session_is_reached_as_printed_and_ends_with_its_job(cluster: ClusterUnderTest, config: Path) -> None:
    # Without cgroups, a node lets users in until `up` or this step requires a job.
    values: dict[str, Value] = {
        "pam_slurm_adopt_wanted": True, "node_confined": True, "node_login": "", "slurm_release": "",
        "users_lines": ["ada 6001 6001", "bob 6002 6002"],
    }  # fmt: skip
    assert login(config).stdout == "a1\nada\n"
    asked = run_step(cluster, "a1", script_of("pam_slurm_adopt", "node"), values, sudo_user="admin")
    assert asked.returncode == 0, asked.stderr
    assert "you have no active jobs on this node" in login(config).stderr

    text = cluster.run_as("ada", "head", "tailrack session --gpus 0 --hours 1 --jupyter --code", limit=120)
    (job,) = re.findall(r"^submitted job (\d+)$", text, re.MULTILINE)
    assert queue(cluster) == f"{job} ada session RUNNING a1\n"
    lines = [line.strip() for line in text.splitlines()]
    assert "ssh a1" in lines
    assert "code --folder-uri vscode-remote://ssh-remote+a1/shared/home/ada" in lines
    assert lines[-1] == f"To end it: scancel {job}"
    # The node lets her in as printed.
    assert login(config).stdout == "a1\nada\n"

    (port,) = re.findall(r"ssh -L (\d+):127\.0\.0\.1:\1 a1$", text, re.MULTILINE)
    url = rf"open http://127\.0\.0\.1:{port}(/lab\?token=([0-9a-f]{{48}}))$"
    ((path, token),) = re.findall(url, text, re.MULTILINE)
    local = free_port()
    with tunnel(config, f"{local}:127.0.0.1:{port}", local):
        assert fetch(local, path) == (200, b"a stub of Jupyter")
        assert fetch(local, "/lab")[0] == 403

    # No one but ada can read the token, in no list of processes, file or log.
    assert "jupyter-lab --no-browser" in cluster.run("a1", "ps -eo args")
    assert token not in cluster.run("a1", "ps -eo args")
    folder = f"/shared/home/ada/{FOLDER}"
    assert cluster.attempt("head", as_user("bob", f"cat {folder}/{job}/token")).returncode != 0
    assert cluster.run_as("ada", "head", f"stat -c %a {folder}/{job}/token") == "600\n"
    assert cluster.run_as("ada", "head", f"cat {folder}/{job}.out") == ""
    again = cluster.run_as("ada", "head", f"tailrack session --job {job} --jupyter --code")
    assert again in text
    refused = cluster.attempt("head", as_user("bob", f"tailrack session --job {job} --jupyter"))
    assert f"job {job} is a job of ada, not yours" in refused.stderr

    cluster.run_as("ada", "head", lines[-1].partition(": ")[2])
    eventually(lambda: queue(cluster) == "", 60, "the job has ended")
    assert "jupyter-lab" not in cluster.run("a1", "ps -eo args")
    eventually(lambda: login(config).returncode == 255, 60, "no login after the job")
    left = as_user("ada", f"ls {folder}")
    eventually(lambda: cluster.attempt("head", left).stdout == f"{job}.out\n", 60, "the token is gone")
