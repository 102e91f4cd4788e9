"""What to try after an `up`: commands for the machines that this stack has, and none for others."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from cli.head.command import way_to_head
from cli.pulumi.deployment import Deployment


def next_commands(deployment: Deployment, outputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give commands worth trying next to a stack that is up, and what each is for."""
    make = deployment.make
    if deployment.written.cluster_stack:
        head = outputs["cluster"]["head"]
        yield _on_head(deployment, head, "sinfo", "", "the cluster, with the pool's partitions")
        yield make("report"), "the pool on one page, with charts"
        yield make("down"), "have the pool leave; the cluster stays as it is"
        return
    job, what = _job(deployment, outputs)
    yield _on_head(deployment, deployment.written.head_name, job, deployment.written.first_user, what)
    yield make("report"), "all of it on one page, with charts"
    yield f"{make('outputs')} | python3 -m json.tool", "every figure, as one JSON object"
    yield make("down"), "remove all of it"


def _job(deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[str, str]:
    nodes = [node for node in outputs["cluster"]["nodes"] if node["name"] != deployment.written.head_name]
    if deployment.written.head_computes:
        nodes = outputs["cluster"]["nodes"]
    if len({node["site"] for node in nodes}) > 1:
        return "srun -N2 --switches=2 hostname", "a job that may span sites"
    return ("srun -N2 hostname", "a job on two nodes") if len(nodes) > 1 else ("srun hostname", "a job")


def _on_head(deployment: Deployment, head: str, command: str, user: str, what: str) -> tuple[str, str]:
    """A command on the head node, as a user of the cluster where one is named."""
    as_user = f"su - {user} -c {shlex.quote(command)}" if user else command
    if deployment.written.head_in_lab:
        return deployment.make("shell", NODE=head, COMMAND=as_user), what
    if deployment.written.head_is_here:
        return (f"sudo {as_user}" if user and os.geteuid() else as_user), what
    if way := way_to_head(deployment):
        root = deployment.written.head_login == "root"
        return f"{way} {shlex.quote(as_user if root or not user else f'sudo {as_user}')}", what
    return command, f"{what}: on the head node {head}{f', as {user}' if user else ''}"
