"""A cluster under test: a stack of its own in this checkout, its config as a dictionary, nodes as testinfra hosts."""

import base64
import copy
import io
import os
import shlex
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import testinfra
import yaml
from testinfra.host import Host

from cli import lab_commands
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found
from cli.pulumi.workspace import PROJECT, ROOT, Workspace
from cli.run_events import Event, Summary
from lab import docker_daemon as lab_engine
from lab import network
from lab import node as machine
from lab.identity import container_name, lab_id
from lab.profiles.machine import Like
from lab.spec import NetworkSpec
from lab.spec import NodeSpec as MachineSpec
from tests.lab import pod_restarts

_KEPT = "TAILRACK_TESTS_ARTIFACTS"
ARTIFACTS = os.environ.pop("TAILRACK_ARTIFACTS", None) or os.environ.get(_KEPT)
"""The folder that Enroot and Pyxis come from, of test_containers.py alone: every other stack here has no containers."""
if ARTIFACTS:
    # pytest's workers come of a process that has read this file.
    os.environ[_KEPT] = ARTIFACTS

JOB_LIMIT_SECONDS = 5
"""How long a job may go on in the cluster `full` when its node is needed."""

# Sizes and repeats that take seconds over the relay.
SMALL_MEASUREMENT = {
    "min_bytes": "64K",
    "max_bytes": "256K",
    "factor": 4,
    "iterations": 2,
    "warmup": 1,
    "gate_bytes": "256K",
    "time_limit_minutes": 5,
}


def dev_config() -> dict[str, Any]:
    """Return the config of the dev stack (Pulumi.dev.yaml) with a measurement that takes seconds and without floors.

    b1 is a machine like the others, with its packages, and none of a cloud, which installs them and looks for updates
    for a minute: the cluster of the fixture `cluster` has such a one, and tests that are about them make their own.
    """
    config: dict[str, Any] = yaml.safe_load((PROJECT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))["config"]
    config["tailrack:validation"].update(SMALL_MEASUREMENT, floors_gb_per_s={})
    config["tailrack:slurm"]["job_limit_seconds"] = 20
    # The fabric has tests of its own (test_names.py); what these are about is the tailnet.
    for site in config["tailrack:sites"]:
        site["fabric"] = "tailnet"
        for pool in site["pools"]:
            pool.pop("like", None)
    return config


class ClusterUnderTest:
    """One stack. `config` is what the next `up` gets; `events` are those of the last operation."""

    def __init__(self, stack: str, folder: Path, found: Found, config: dict[str, Any]) -> None:
        self.stack, self.folder, self.found = stack, folder, found
        self.config = copy.deepcopy(config)
        self.events: list[Event] = []

    @property
    def config_file(self) -> Path:
        """The config as a file, as a user has it."""
        return self.folder / f"Pulumi.{self.stack}.yaml"

    def deployment(self) -> Deployment:
        """Write the config and return the stack as the driver runs it."""
        self.config_file.write_text(yaml.safe_dump({"config": self.config}), encoding="utf-8")
        workspace = Workspace(PROJECT, self.stack, self.config_file, ROOT / "tests")
        self.events = []
        return Deployment(workspace, self.found, self.events.append)

    def use_machines(self, *sites: dict[str, Any], computes: bool = False) -> None:
        """Let the config have sites of machines; the node `head` is at the first one, and computes or not."""
        risk = {"compute": True, "accept_root_risk": True} if computes else {}
        self.config["tailrack:head"] = {"name": "head", "site": sites[0]["name"], **risk}
        self.config["tailrack:sites"] = [{"kind": "hosts", **site} for site in sites]
        self.config["tailrack:tailnet"]["control_url"] = "http://control.lab:8080"

    def rent_at_lambda(self, count: int, head: str = "desk") -> None:
        """Let the config have an idle head node at a site `home`, and nodes l1, l2, ... at a site `lambda`."""
        self.config["tailrack:head"] = {"name": head, "site": "home"}
        self.config["tailrack:sites"] = [
            {"name": "home", "kind": "lab", "fabric": "tailnet"},
            {"name": "lambda", "kind": "lab", "fabric": "tailnet", "pools": [{"name": "l", "count": count}]},
        ]

    def up(self) -> Summary:
        """Bring the stack to its config; failures are in the summary."""
        return self.deployment().up()

    @contextmanager
    def while_up(self) -> Iterator[Self]:
        """Bring the stack up, and remove it at the end."""
        try:
            self.up_ok()
            yield self
        finally:
            self.remove()

    def up_ok(self) -> Summary:
        """Bring the stack to its config and insist that nothing failed."""
        summary = self.up()
        assert summary.ok, "\n\n".join(failure.message for failure in summary.failures)
        return summary

    def repair(self, node: str) -> Summary:
        """Run a node's steps again, as any change of theirs would."""
        self.config["tailrack:cluster"].setdefault("repair", {})[node] = str(time.time_ns())
        return self.up()

    def touched(self) -> set[str]:
        """Names of the steps that the last operation ran, components left out."""
        return {
            event.name
            for event in self.events
            if event.kind == "done"
            and event.operation != "same"
            and not event.type.startswith(("tailrack:", "pulumi:"))
        }

    @property
    def lab(self) -> str:
        """The id of this stack's lab."""
        return lab_id(PROJECT, self.stack)

    def forget_an_earlier_run(self) -> None:
        """Begin with nothing: a run that was killed has left a state, whose machines may be gone, and machines."""
        deployment = self.deployment()
        lab_commands.clear_away(deployment.lab)
        deployment.workspace.forget()

    def what_slurm_says(self) -> str:
        """For a test that failed: nodes and why they are out, jobs, and the ends of logs and lists of job steps."""
        head = self.config["tailrack:head"]["name"]
        journal = "journalctl -n 15 -o short-iso --no-hostname --no-pager -u slurmd -u '*slurmctld*'"
        said = [self.attempt(head, "sinfo -h -N -p all -o '%N %t %E'; squeue -h -o 'job %A %T %r %N'", limit=20)]
        nodes = {head, *(line.split()[0] for line in said[0].stdout.splitlines() if not line.startswith("job "))}
        said += [self.attempt(node, f"echo {node}; {journal}; timeout 5 scontrol listpids", limit=20) for node in nodes]
        return "".join(result.stdout + result.stderr for result in said)

    def remove(self) -> None:
        """Destroy the stack, and take away whatever is left of it."""
        deployment = self.deployment()
        deployment.destroy()
        lab_commands.clear_away(deployment.lab)
        deployment.workspace.forget()

    def container(self, node: str) -> str:
        """The name of a node's container."""
        return container_name(self.lab, node)

    def node(self, name: str) -> Host:
        """A node as root sees it."""
        return testinfra.get_host(f"docker://{self.container(name)}")

    def attempt(self, node: str, command: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command as root on a node, whatever comes of it; 124 when it was ended at the limit of seconds."""
        return subprocess.run(
            ["docker", "exec", self.container(node), "timeout", str(limit * patience()), "bash", "-c", command],
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, node: str, command: str, limit: float = 60) -> str:
        """Run a command as root on a node and return its stdout; fail with all it said when it fails."""
        result = self.attempt(node, command, limit)
        assert result.returncode == 0, f"{node}: {command}\nexit {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def run_as(self, user: str, node: str, command: str, limit: float = 60) -> str:
        """Run a command in a user's login shell on a node and return its stdout; fail when it fails."""
        return self.run(node, as_user(user, command), limit)

    def why(self, job: str) -> str:
        """Return what `tailrack why` prints for a job of ada's."""
        return self.run_as("ada", "head", f"tailrack why {job}")

    def address(self, node: str) -> str:
        """Return a node's address in the tailnet."""
        return self.run(node, "tailscale ip -4").strip()

    def write(self, node: str, path: str, text: str) -> None:
        """Write a file on a node."""
        self.run(node, f"base64 -d >{path} <<<{base64.b64encode(text.encode()).decode()}")

    def give_gpus(self, node: str, numbers: Iterable[int], nvidia_smi: str, xml: str) -> None:
        """Give a node device files of GPUs and a fake nvidia-smi that shows /usr/local/share/fake.xml; run `up`."""
        self.write(node, "/usr/local/share/fake.xml", xml)
        self.write(node, "/usr/local/bin/nvidia-smi", nvidia_smi)
        devices = "; ".join(f"mknod /dev/nvidia{number} c 195 {number}" for number in numbers)
        self.run(node, f"chmod 755 /usr/local/bin/nvidia-smi; {devices}; mknod /dev/nvidiactl c 195 255")
        self.config["tailrack:cluster"]["repair"] = {node: "it has GPUs now"}
        self.up_ok()

    def give(self, user: str, folder: Path) -> None:
        """Copy a folder into a user's home on the share, as the user's own."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, folder.name)
        unpack = as_user(user, "tar -x --no-same-owner")
        words = ["docker", "exec", "-i", self.container("head"), "bash", "-c", unpack]
        subprocess.run(words, input=packed.getvalue(), check=True)

    def ended(self, folder: str, words: str, limit: float = 240) -> str:
        """Submit a script of a folder in ada's home, and wait for its end; what it printed, whatever became of it."""
        # `sbatch --wait` looks after 2, 10 and 42 s: most of these jobs are over just after it has looked.
        over = 'until left=$(squeue -h -j "$job") && [ -z "$left" ]; do sleep 1; done'
        submit = f'submit() {{ job=$(sbatch --parsable --output=out "$@") && {over}; }}'
        self.run_as("ada", "head", f"cd {folder} && rm -f out; {submit}; submit {words}; true", limit)
        return self.run("head", f"cat /shared/home/ada/{folder}/out")

    def submit(self, words: str, user: str = "ada") -> str:
        """Submit a batch job without output as a user and return its number."""
        return self.run_as(user, "head", f"cd; sbatch --parsable --output=/dev/null {words}").strip()

    def job(self, number: str) -> dict[str, str]:
        """Return a job's fields as `scontrol show job` has them."""
        words = self.run("head", f"scontrol show job -o {number}").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def end_of(self, number: str, seconds: float = 60) -> str:
        """Wait until a job has ended, with its epilog, and return its state."""
        running = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
        eventually(lambda: self.job(number)["JobState"] not in running, seconds, f"{number} ended")
        return self.job(number)["JobState"]

    def pods(self, *names: str, **keys: str) -> dict[str, Any]:
        """Make pods that no stack owns; return them as the site `pods` of a stack's config with more keys."""
        hosts = [own_machine(self.lab, name, like="pod", site="pods") for name in names]
        return {"name": "pods", "hosts": hosts, "pods": True, "accept_pod_risk": True, **keys}

    def preview(self) -> str:
        """What the driver's preview prints, in one line."""
        shown = subprocess.run(self.driver("preview"), capture_output=True, text=True, check=False)
        return " ".join((shown.stdout + shown.stderr).split())

    def driver(self, *words: str) -> list[str]:
        """Return the command of a Makefile target (`up`, `outputs`, ...) for this stack and its config as it is now."""
        self.config_file.write_text(yaml.safe_dump({"config": self.config}), encoding="utf-8")
        engine = IN_PROCESS if self.found.cli is None else "cli"
        place = ["--config-file", str(self.config_file), "--state-dir", str(ROOT / "tests"), "--engine", engine]
        return [sys.executable, "-m", "cli", "--stack", self.stack, *place, *words]

    def state_files(self) -> list[Path]:
        """Every file the engine and the driver keep for this stack."""
        return [path for path in (ROOT / "tests").rglob("*") if path.is_file()]


MakeCluster = Callable[..., ClusterUnderTest]
"""Makes a cluster under a stack name, with `one_site=True` without its second site (conftest.py)."""


def as_user(user: str, command: str) -> str:
    """Return the command line with which root runs a command in a user's login shell."""
    return f"su - {user} -c {shlex.quote(command)}"


def own_machine(
    lab: str, node: str, *, bare: bool = False, like: Like = "", busy: bool = False, site: str = "rack"
) -> dict[str, Any]:
    """Make a machine that no stack owns, in a lab's network; return it as a host of a stack's config.

    bare   nothing of the cluster's software in its image
    like   the real machine that it looks like; bare too
    busy   a cloud machine whose first minute is taken by updates
    """
    client = lab_engine.connect()
    place: dict[str, Any] = {"lab": lab, "state_dir": lab_commands.STATE_DIR}
    network.up(client, NetworkSpec(**place, sites={site: None}))
    made = machine.up(client, MachineSpec(**place, node=node, site=site, bare=bare, like=like, busy=busy))
    client.close()
    return _host(lab, node, made)


def stop_pod(lab: str, node: str, site: str) -> None:
    """Kill a pod."""
    _change_pod(pod_restarts.stop, lab, node, site)


def start_pod(lab: str, node: str, site: str) -> dict[str, Any]:
    """Start a stopped pod; return it as a host of a stack's config."""
    return _host(lab, node, _change_pod(pod_restarts.start, lab, node, site))


def recreate_pod(lab: str, node: str, site: str) -> dict[str, Any]:
    """Replace a pod, with only /workspace kept; return it as a host of a stack's config."""
    return _host(lab, node, _change_pod(pod_restarts.recreate, lab, node, site))


def _change_pod(change: Callable[..., Any], lab: str, node: str, site: str) -> Any:
    with closing(lab_engine.connect()) as client:
        pod = MachineSpec(lab=lab, state_dir=lab_commands.STATE_DIR, node=node, site=site, like="pod")
        return change(client, pod)


def _host(lab: str, node: str, address: machine.NodeAddress) -> dict[str, Any]:
    return {
        "name": node,
        "address": address.address,
        "port": address.port,
        "user": address.user,
        "private_key_file": str(lab_commands.STATE_DIR / lab / "id_ed25519"),
        "host_key": address.host_key,
    }


def patience() -> float:
    """How many times as long everything takes here now: processes that want a core, by two a core; 1 to 4.

    Limits are for two cores with a lab's own work. A machine that others use too fails no test for that.
    """
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1) / 2, 1.0), 4.0)


def eventually(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until a condition holds; fail with what was waited for.

    It is tried three times at least: one command that hangs for all of the time says nothing about the next.
    """
    began, tries = time.monotonic(), 1
    while not condition():
        limit = seconds * patience()
        assert tries < 3 or time.monotonic() < began + limit, f"not within {limit:.0f} s: {what}"
        tries += 1
        time.sleep(0.5)
