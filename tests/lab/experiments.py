"""MLflow in the lab: its wheels on the head node, its client on nodes, and what a job of two nodes logs there."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.lab.cluster import ClusterUnderTest, eventually
from tests.lab.wheels import mlflow_wheels

WHEELS = "/srv/mlflow-wheels"
PROGRAM = "/usr/local/lib/tailrack/mlflow-program"
CLIENT = f"{PROGRAM}/bin/python"
STEPS = 30
# Each task logs by the example's own module, as its first rank does: an experiment of two nodes.
LOG = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, os.path.expanduser("~/training"))
from tracking import Tracking
node = os.environ["SLURMD_NODENAME"]
folder = Path.home() / "runs" / node
folder.mkdir(parents=True, exist_ok=True)
system = next(line for line in open("/etc/os-release") if line.startswith("PRETTY_NAME=")).split('"')[1]
run = Tracking(folder, {{"node": node, "system": system}}, rank=0)
for step in range({STEPS}):
    run.loss(step, 1 / (step + 1))
run.send(images_per_second=({STEPS}, 1234.5))
file = folder / "step-{STEPS}.pt"
file.write_text(f"weights of {{node}}")
run.end(file)
"""
# Of each node's newest run: how many losses, the last speed, how it ended, its checkpoints, and where the job ran.
RUNS = """
ids = [one.experiment_id for one in client.search_experiments()]
print(json.dumps({run.data.params["node"]: [
    len(client.get_metric_history(run.info.run_id, "loss")), run.data.metrics["images_per_second"], run.info.status,
    [file.path for file in client.list_artifacts(run.info.run_id, "checkpoints")], run.data.params["system"],
] for run in client.search_runs(ids, order_by=["attributes.start_time ASC"])}))
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "training"


def bring_wheels(cluster: ClusterUnderTest) -> None:
    """Put the packages of MLflow on the head node, in a folder of root's."""
    folder = mlflow_wheels()
    copied = subprocess.run(["tar", "-C", str(folder), "-c", "."], check=True, capture_output=True).stdout
    unpack = f"mkdir -p {WHEELS} && tar -C {WHEELS} -x --no-same-owner"
    words = ["docker", "exec", "-i", cluster.container("head"), "bash", "-c", unpack]
    subprocess.run(words, input=copied, check=True)


def bring_client(cluster: ClusterUnderTest, node: str) -> None:
    """Put MLflow on a node too, as a user would have it in a virtual environment on the share; on a disk, for time."""
    exec_, there = ["docker", "exec"], ["tar", "-C", "/usr/local/lib/tailrack"]
    pack = [*exec_, cluster.container("head"), *there, "-c", "mlflow-program"]
    unpack = [*exec_, "-i", cluster.container(node), *there, "-x"]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as source:
        subprocess.run(unpack, stdin=source.stdout, check=True)


def bring_job(cluster: ClusterUnderTest) -> None:
    """Put what the job of two nodes runs into ada's home: log.py and the example's folder."""
    cluster.give("ada", EXAMPLE)
    cluster.run_as("ada", "head", f"cat >log.py <<'END'\n{LOG}\nEND")


def url(cluster: ClusterUnderTest) -> str:
    """Where it answers."""
    return f"http://{cluster.run('head', 'tailscale ip -4').strip()}:5000"


def asked(cluster: ClusterUnderTest, user: str, script: str, node: str = "head") -> Any:
    """What a script of a user's, with MLflow's own client at hand as `client`, prints as JSON."""
    begin = "import json; from mlflow import MlflowClient; client = MlflowClient()"
    command = f"MLFLOW_TRACKING_URI={url(cluster)} {CLIENT} -W ignore - 2>/dev/null <<'END'\n{begin}\n{script}\nEND"
    return json.loads(cluster.run_as(user, node, command, 240))


def restart(cluster: ClusterUnderTest, node: str) -> None:
    """Restart the server, and wait until it answers a node."""
    cluster.run("head", "systemctl restart tailrack-mlflow")
    health = f"curl -fs {url(cluster)}/health"
    eventually(lambda: cluster.attempt(node, health).returncode == 0, 240, "it answers again")
