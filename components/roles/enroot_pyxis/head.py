"""Put Enroot's and Pyxis' files on the share for all nodes, and enable --container-image in Slurm."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from components.node import files, systemd
from components.node.artifacts import Artifact, keep_artifact
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.enroot_pyxis.artifacts import SHARED, work_folder
from components.roles.enroot_pyxis.install import PLUGSTACK, PYXIS_CONF, ContainersValues, install_containers
from components.roles.enroot_pyxis.plugin import compile_plugin, has_plugin, plugin_kind

PLUGSTACK_CONF = "/etc/slurm/plugstack.conf"
_KEYS = ("tailrack:containers.artifacts", "tailrack:containers.checksums")


@dataclass(frozen=True)
class Content:
    """A file that the step carries, in base64."""

    name: str
    text: str


@dataclass(frozen=True)
class HeadValues(ContainersValues):
    """The files that the step carries, and the directory of the share."""

    enroot_pyxis_contents: list[Content]
    nfs_exports_path: str


def head(step: Step, values: HeadValues) -> None:
    """Provide the files and the plugin, and install containers here."""
    fetch_artifacts(step, values)
    kind = plugin_kind(values)
    folder = f"{values.nfs_exports_path}/{SHARED}/pyxis/{kind}"
    if not has_plugin(folder):
        compile_plugin(step, values, folder)
    if not files.exists(PYXIS_CONF):
        hold_nodes_without_containers()
    install_containers(step, values, kind)
    ensure_plugstack()


def fetch_artifacts(step: Step, values: HeadValues) -> None:
    """Put the files on the share."""
    shared = f"{values.nfs_exports_path}/{SHARED}"
    # Root owns the parents of these folders, so no account can replace them.
    for folder in (shared, f"{shared}/artifacts", f"{shared}/pyxis"):
        files.make_folder(folder)
    contents = {content.name: content.text for content in values.enroot_pyxis_contents}
    for file in values.enroot_pyxis_artifacts:
        path = f"{shared}/artifacts/{file.name}"
        if file.address:
            keep_artifact(step, path, Artifact(file.digest, file.address, *_KEYS))
        elif files.sha256(path) != file.digest:
            with work_folder() as work:
                carried = f"{work}/{file.name}"
                with os.fdopen(files.open_to_write(carried), "wb") as stream:
                    stream.write(base64.b64decode(contents.get(file.name, "")))
                keep_artifact(step, path, Artifact(file.digest, files.on_disk(carried), *_KEYS))


def hold_nodes_without_containers() -> None:
    """Drain nodes without containers: there Slurm would silently run a container's job on the bare machine.

    Each node's next step resumes it.
    """
    if not systemd.is_active("slurmctld"):
        return
    for node in _nodes_without_containers(attempt("scontrol", "show", "nodes", "--json", quiet=True).output):
        note(f"{node} has no containers yet: drained until its own step finishes")
        reason = "reason=tailrack: containers are not set up here yet"
        attempt("scontrol", "update", f"nodename={node}", "state=drain", reason)


def _nodes_without_containers(text: str) -> Iterator[str]:
    try:
        nodes = json.loads(text)["nodes"]
    except (ValueError, KeyError):
        return
    for node in nodes:
        if "DRAIN" not in node["state"] and not (node.get("extra") or "").startswith("containers"):
            yield node["name"]


def ensure_plugstack() -> None:
    """Add a line to Slurm's plugstack.conf, which slurmctld serves to all nodes.

    Each machine loads the plugins in its own folder.
    """
    if files.add_line(PLUGSTACK_CONF, f"include {PLUGSTACK}/*.conf") and systemd.is_active("slurmctld"):
        run("scontrol", "reconfigure")
