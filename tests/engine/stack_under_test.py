"""One stack in a folder of its own, driven by the engine and, where there is one, by the real CLI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from cli.run_events import Event, Summary
from cli.stack_config.stack_file import ConfigSecrets, load_config, passphrase
from engine.engine import Engine
from engine.state import State
from tests.engine.ssh_host import SshHost

SIGNATURE = "4dabf18193072939515e22adb298388d"
HEADER = """
import json, pathlib, pulumi
from pulumi import ResourceOptions as Options
from pulumi_command import local, remote

HOST = json.loads(pathlib.Path("host.json").read_text())

def step(name, script, *, connection=None, depends_on=None, options=None, **inputs):
    return remote.Command(
        name,
        connection=remote.ConnectionArgs(**{**HOST, **(connection or {})}),
        create="bash -euo pipefail -s",
        stdin=script,
        logging=remote.Logging.NONE,
        add_previous_output_in_env=False,
        opts=Options(depends_on=depends_on, **(options or {})),
        **inputs,
    )
"""

# More of a program, for steps of the product: `way` leads to the host, `Node(name)` is something to belong to. The
# program that machines get is a fake (played_program.py), and lies in the stack's folder.
STEPS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.engine.played_program import play
play(pathlib.Path.cwd() / "installed")
from components.steps.results import Answer
from components.steps.delivery import deliver
from components.host import Connection, Machine
from components.steps.step import Step
from components.steps.composition import Script

class Node(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("trial:node:Node", name)

way = Connection(HOST["host"], HOST["port"], "root", HOST["private_key"], HOST["host_key"])
"""


@dataclass
class Stack:
    """`events` are the engine's, of all runs so far."""

    folder: Path
    host: SshHost
    events: list[Event] = field(default_factory=list)

    def write(self, program: str, config: Mapping[str, Any] | None = None, salt: str = "") -> None:
        """Write the program (HEADER goes before it), the project file and the stack's config."""
        self.folder.mkdir(exist_ok=True)
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "trial", "runtime": runtime}))
        (self.folder / "host.json").write_text(json.dumps(self.host.connection()))
        (self.folder / "__main__.py").write_text(HEADER + program)
        stack_file = {"config": {f"trial:{key}": value for key, value in (config or {}).items()}}
        if salt:
            stack_file["encryptionsalt"] = salt  # type: ignore[assignment]
        if config:
            (self.folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump(stack_file))

    @property
    def state_file(self) -> Path:
        """Where the engine keeps its state."""
        return self.folder / "state" / "dev.json"

    def engine(self, parallel: int = 32) -> Engine:
        """An engine for this stack."""
        config = load_config(self.folder, self.folder / "Pulumi.dev.yaml")
        return Engine(
            self.folder, "dev", lambda stack: self.state_file.with_stem(stack), config, self.events.append, parallel
        )

    def cli(self, folder: Path, **settings: str) -> Cli:
        """The real CLI with a new stack in a folder, without the machine's own credentials of Tailscale."""
        (backend := folder / "backend").mkdir()
        own = {"PULUMI_BACKEND_URL": f"file://{backend}", "PULUMI_HOME": f"{folder}/home", **settings}
        quiet = {"PULUMI_SKIP_UPDATE_CHECK": "true", "PYTHONDONTWRITEBYTECODE": "1"}
        machine = {name: value for name, value in os.environ.items() if "TAILSCALE" not in name}
        cli = Cli(self, backend, {**machine, **quiet, **own})
        assert cli.run("stack", "init").returncode == 0
        return cli

    def up(self) -> Summary:
        """`up` by the engine."""
        return self.engine().up()

    def start_up(self) -> subprocess.Popen[str]:
        """`up` by the engine in a process of its own."""
        root = Path(__file__).parents[2]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.engine.run_engine", str(self.folder), str(self.state_file)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def engine_picture(self) -> dict[str, Any]:
        """The engine's state in the form of `picture`."""
        state = State(self.state_file, "trial/dev", passphrase(), dry_run=True)
        found = {
            urn: {
                "inputs": _marked(resource.inputs),
                "outputs": _marked(resource.outputs),
                "needs": resource.needs,
                "deleted_with": resource.deleted_with,
                "retain": resource.retain_on_delete,
            }
            for urn, resource in state.live.items()
            if resource.custom
        }
        return {
            "resources": found,
            "components": sorted(urn for urn, resource in state.live.items() if not resource.custom),
            "condemned": sorted(resource.urn for resource in state.condemned),
            "outputs": _marked(state.outputs),
        }


@dataclass
class Cli:
    """The real CLI for the same stack, its file backend in `backend`."""

    stack: Stack
    backend: Path
    environment: dict[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run pulumi for the stack."""
        return subprocess.run(
            ["pulumi", *words, "--stack", "dev", "--non-interactive"],
            cwd=self.stack.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def counts(self, *words: str) -> tuple[bool, dict[str, int]]:
        """Run an operation; whether it succeeded, and its resources by operation."""
        done = self.run(*words, "--yes", "--skip-preview", "--continue-on-error", "--color", "never")
        summary = done.stdout.rpartition("\nResources:\n")[2]
        names = {"created": "create", "updated": "update", "replaced": "replace", "deleted": "delete"}
        names["unchanged"] = "same"
        found = {names[word]: int(count) for count, word in re.findall(r"(\d+) (\w+)", summary) if word in names}
        return done.returncode == 0, found

    def picture(self) -> dict[str, Any]:
        """The CLI's state: resources, components, replaced ones to delete, outputs; secrets marked as such."""
        file = self.backend / ".pulumi" / "stacks" / "trial" / "dev.json"
        latest = json.loads(file.read_text())["checkpoint"]["latest"]
        secrets = ConfigSecrets(latest["secrets_providers"]["state"]["salt"])
        rows = _opened(latest.get("resources", []), secrets)
        rows = [row for row in rows if "providers" not in row["type"] and not row.get("pendingReplacement")]
        stacks = [row for row in rows if row["type"] == "pulumi:pulumi:Stack"]
        return {
            "resources": {
                row["urn"]: {
                    "inputs": _marked(row.get("inputs", {})),
                    "outputs": {k: v for k, v in _marked(row["outputs"]).items() if k in ("stdout", "stderr")},
                    "needs": sorted(_needs(row)),
                    "deleted_with": row.get("deletedWith", ""),
                    "retain": row.get("retainOnDelete", False),
                }
                for row in rows
                if row["custom"] and not row.get("delete")
            },
            "components": sorted(row["urn"] for row in rows if not row["custom"]),
            "condemned": sorted(row["urn"] for row in rows if row.get("delete")),
            "outputs": _marked(stacks[0].get("outputs", {})) if stacks else {},
        }


def _opened(value: Any, secrets: ConfigSecrets, inside: bool = False) -> Any:
    """The CLI's state with its secrets decrypted (the passphrase provider's format is the config's)."""
    if isinstance(value, dict):
        if "ciphertext" in value and SIGNATURE in value:
            # A secret inside a secret is encrypted with it, and plain in itself.
            text = value["ciphertext"] if inside else secrets.open("the state", value["ciphertext"])
            return {SIGNATURE: value[SIGNATURE], "value": _opened(json.loads(text), secrets, inside=True)}
        return {key: _opened(item, secrets, inside) for key, item in value.items()}
    return [_opened(item, secrets, inside) for item in value] if isinstance(value, list) else value


def _needs(row: dict[str, Any]) -> set[str]:
    """All that a resource in the CLI's state names: dependencies, parent, and what it is deleted with."""
    lists = [urns or [] for urns in (row.get("propertyDependencies") or {}).values()]
    return {*row.get("dependencies", []), *chain(*lists), row.get("parent", ""), row.get("deletedWith", "")} - {""}


def _marked(value: Any) -> Any:
    """Secrets as {"secret": value}, without marks inside them, whichever of the two wrote them; folders as their path.

    Each of the two has its own hash of what is in a folder; none has the content in its state.
    """
    if isinstance(value, dict):
        if "hash" in value and SIGNATURE in value:
            assert value.keys() == {SIGNATURE, "hash", "path"}
            return {"folder": value["path"]}
        if SIGNATURE in value:
            return {"secret": _bare(_marked(value["value"]))}
        return {key: _marked(item) for key, item in value.items()}
    return [_marked(item) for item in value] if isinstance(value, list) else value


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return _bare(value["secret"]) if set(value) == {"secret"} else {k: _bare(v) for k, v in value.items()}
    return [_bare(item) for item in value] if isinstance(value, list) else value
