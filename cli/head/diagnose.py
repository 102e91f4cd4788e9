"""`make diagnose`: write one archive with the state of every machine of a stack, for a bug report."""

import io
import json
import os
import platform
import subprocess
import tarfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cli.head.answer import connections_by_machine
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import PROJECT, ROOT, CliError
from components.settings.mask_secrets import mask_suspects
from engine.commands import LOCAL, REMOTE, CommandError, Commands
from stacks.yaml_file import FileError

SCRIPT = Path(__file__).with_suffix(".sh")
# Seconds for all commands on one machine; machines at a time; characters of one machine's answer.
LIMIT_SECONDS = 240
AT_ONCE = 16
MAX_ANSWER = 8 * 2**20
# Run as root if sudo needs no password. Otherwise files that only root can read are missing.
_RUN_SCRIPT = (
    f'run="timeout -k 5 {LIMIT_SECONDS} bash -s"; if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; '
    "then exec sudo -n $run; else exec $run; fi"
)
# A second try would tell no more about a machine that does not answer.
_ONE_TRY = {"dialErrorLimit": 1, "perDialTimeout": 10}


def diagnose(deployment: Deployment, folder: Path) -> tuple[Path, list[str]]:
    """Write the archive into a folder, readable only by its owner; return its path and the machines without answer."""
    files: dict[str, str] = {"stack.txt": _stack(deployment)}
    try:
        resources, error_line = deployment.made(), ""
    except (CliError, FileError) as error:
        resources, error_line = [], f"{error}\n"
    files["steps.txt"] = error_line + "".join(f"{resource.name}\n" for resource in resources)
    files["outputs.json"] = _outputs(deployment)
    connections = connections_by_machine(resources)
    with deployment.forwarded():
        answers = dict(zip(connections, _collect(connections), strict=True))
    silent = sorted(name for name, answer in answers.items() if isinstance(answer, CommandError))
    silent += [name for name in deployment.written.host_names if name not in connections]
    for name, answer in answers.items():
        files[f"machines/{name}.txt"] = f"no answer: {answer.args[0]}\n" if isinstance(answer, CommandError) else answer
    for name in silent:
        files.setdefault(f"machines/{name}.txt", "not queried: no step of the stack has reached it\n")
    files["not-answering.txt"] = "".join(f"{name}\n" for name in silent)
    path = folder / f"diagnose-{deployment.workspace.stack}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.tar.gz"
    _write(path, {name: mask_suspects(text) for name, text in files.items()})
    return path, silent


def _collect(connections: Mapping[str, Mapping[str, Any]]) -> list[str | CommandError]:
    script = SCRIPT.read_text(encoding="utf-8")

    def run(connection: Mapping[str, Any]) -> str | CommandError:
        inputs: dict[str, Any] = {"stdin": script, "addPreviousOutputInEnv": False}
        if connection:
            inputs["connection"] = {**connection, **_ONE_TRY}
        try:
            return commands.run(REMOTE if connection else LOCAL, _RUN_SCRIPT, inputs, {})["stdout"][-MAX_ANSWER:]
        except CommandError as error:
            return error

    with Commands(AT_ONCE, ROOT) as commands, ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, connections.values()))


def _stack(deployment: Deployment) -> str:
    return "".join(
        f"{line}\n"
        for line in (
            f"made: {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC",
            f"stack: {deployment.workspace.stack}",
            f"tailrack: {_output_of('git', '-C', str(PROJECT), 'describe', '--tags', '--always', '--dirty')}",
            f"engine: {'in-process' if deployment.in_process else _output_of('pulumi', 'version')}",
            f"python: {platform.python_version()} on {platform.platform()}",
        )
    )


def _outputs(deployment: Deployment) -> str:
    try:
        outputs = deployment.outputs()
    except (CliError, FileError) as error:
        return f"{error}\n"
    public = {name: value for name, value in outputs.items() if name in ("cluster", "validation", "busbw_gb_per_s")}
    return json.dumps(public, indent=2, sort_keys=True) + "\n"


def _output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({type(error).__name__})"
    return done.stdout.strip() or "unknown"


def _write(path: Path, texts: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in sorted(texts.items()):
            content = text.encode()
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))
