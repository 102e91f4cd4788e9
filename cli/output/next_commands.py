"""Commands to try after an `up`, for the machines of this stack."""

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cli.head.answer import ssh_to_head
from cli.pulumi.deployment import Deployment
from components.settings.types import NODE
from components.validation.results import scopes_of
from components.validation.slurm_jobs import REPEAT


def next_commands(deployment: Deployment, outputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give commands worth trying next, each with its purpose."""
    make = deployment.make
    if deployment.written.cluster_stack:
        head = outputs["cluster"]["head"]
        yield _on_head(deployment, head, "sinfo", "", "show the cluster, with the pool's partitions")
        if deployment.written.elastic:
            yield make("elastic"), "rent and return the pool's machines as jobs need them; keep it running"
        yield from _floors(deployment, outputs)
        yield make("report"), "write the pool's report page, with charts"
        yield make("down"), "remove the pool; the cluster stays"
        return
    head, user = deployment.written.head_name, deployment.written.first_user
    job, purpose = _job(deployment, outputs)
    yield _on_head(deployment, head, job, user, purpose)
    for scope, result in (outputs.get("validation") or {}).items():
        if scope != NODE and result["rows"]:
            repeat = f"sh .tailrack/validation/{scope}/{REPEAT}"
            yield _on_head(deployment, head, repeat, user, f"repeat the measurement of {scope}")
    yield from _floors(deployment, outputs)
    yield make("report"), "write the cluster's report page, with charts"
    yield f"{make('outputs')} | python3 -m json.tool", "show every figure, as one JSON object"
    yield make("down"), "remove everything"


def _floors(deployment: Deployment, outputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the command that writes floors if a measurement was not judged for want of one."""
    results = scopes_of(outputs.get("validation") or {})
    if any(result["verdict"] == "UNJUDGED" and result["rows"] for _, result in results):
        yield deployment.make("floors"), "if the figures are right, write floors, which judge the next measurement"


def _job(deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[str, str]:
    idle = "" if deployment.written.head_computes else deployment.written.head_name
    nodes = [node for node in outputs["cluster"]["nodes"] if node["name"] != idle and not node.get("login")]
    sizes = Counter(node["site"] for node in nodes)
    if len(sizes) > 1:  # Slurm keeps a job in one site if it fits
        return f"srun -N{max(sizes.values()) + 1} --switches=2 hostname", "run a job across sites"
    return ("srun -N2 hostname", "run a job on two nodes") if len(nodes) > 1 else ("srun hostname", "run a job")


def _on_head(deployment: Deployment, head: str, command: str, user: str, purpose: str) -> tuple[str, str]:
    """Return a command on the head node, run as a user of the cluster if one is given, and its purpose."""
    as_user = f"su - {user} -c {shlex.quote(command)}" if user else command
    if deployment.written.head_in_lab:
        return deployment.make("shell", NODE=head, COMMAND=as_user), purpose
    if deployment.written.head_is_here:
        return (f"sudo {as_user}" if user and os.geteuid() else as_user), purpose
    if ssh := ssh_to_head(deployment):
        root = deployment.written.head_login == "root"
        return f"{ssh} {shlex.quote(as_user if root or not user else f'sudo {as_user}')}", purpose
    return command, f"{purpose}: on the head node {head}{f', as {user}' if user else ''}"
