"""Run a step of a test on a machine of the lab, with the program that the steps of `up` have installed there."""

import subprocess
from collections.abc import Mapping

from components.node.install import FOLDER
from components.roles.program import program
from components.roles.role import Value
from components.steps.command_line import render_request
from components.steps.composition import Script
from tests.lab.cluster import ClusterUnderTest, patience


def run_step(
    cluster: ClusterUnderTest, machine: str, script: Script, values: Mapping[str, Value], sudo_user: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a step without a lock, with what it reads of the values. `sudo_user`: the login whose sudo runs it."""
    request = render_request(f"{machine}-asks", machine, "", "", {key: values[key] for key in script.reads})
    login = ["-e", f"SUDO_USER={sudo_user}"] if sudo_user else []
    python = ["python3", "-I", "-S", f"{FOLDER}/{program().digest}"]
    start = ["docker", "exec", "-i", *login, cluster.container(machine), *python]
    request = f"{script.file}\n{request}"
    limit = 120 * patience()
    return subprocess.run([*start, "step", "up"], input=request, capture_output=True, text=True, timeout=limit)


def run_python(cluster: ClusterUnderTest, machine: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code on a machine, with the modules of the program there."""
    path = f"import sys; sys.path.insert(0, '{FOLDER}/{program().digest}'); {code}"
    start = ["docker", "exec", "-i", cluster.container(machine), "python3", "-I", "-S", "-c", path]
    return subprocess.run(start, capture_output=True, text=True, timeout=120 * patience())
