"""`make diagnose`: one archive for a bug report or a colleague, of what every machine of a stack says of itself."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import tarfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cli.head.connections import ways_to
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import PROJECT, ROOT, CliError
from engine.commands import LOCAL, REMOTE, CommandError, Commands
from stacks.yaml_file import FileError

QUESTIONS = Path(__file__).with_suffix(".sh")
# Seconds for one machine, all of its questions together; machines at once; characters of one machine's answer.
LIMIT_SECONDS = 240
AT_ONCE = 16
MOST_SAID = 8 * 2**20
# As root where that is to be had without a password; what only root can read is missing otherwise.
_ASK = (
    f'run="timeout -k 5 {LIMIT_SECONDS} bash -s"; if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; '
    "then exec sudo -n $run; else exec $run; fi"
)
# Of somebody who does not answer there is no more to be learned by another try.
_NO_PATIENCE = {"dialErrorLimit": 1, "perDialTimeout": 10}
# No program of ours prints one; whatever else a log holds. A hostile machine wrote the text: each pattern reads each
# character a bounded number of times.
_HIDDEN = "[hidden]"
_SECRETS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), _HIDDEN),
    (re.compile(r"tskey-[A-Za-z0-9_-]+"), _HIDDEN),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), _HIDDEN),
    (
        re.compile(
            r"(?i)\b((?:password|passphrase|secret|token|auth_?key|api_?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]{4,}"
        ),
        rf"\1{_HIDDEN}",
    ),
    # As base64 of keys: the munge key, a passphrase.
    (re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{120,}={0,2}"), _HIDDEN),
)


# Characters of a JSON Web Token, all of a run at once, and how one begins. The run has dots between its parts.
_RUN = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]{16,}")
_TOKEN = re.compile(r"\beyJ[A-Za-z0-9_-]{10}")


def diagnose(deployment: Deployment, folder: Path) -> tuple[Path, list[str]]:
    """Write the archive into a folder, for its owner alone; return its path, and the machines that did not answer."""
    found: dict[str, str] = {"stack.txt": _stack(deployment)}
    try:
        made, unread = deployment.made(), ""
    except (CliError, FileError) as error:
        made, unread = [], f"{error}\n"
    found["steps.txt"] = unread + "".join(f"{each.urn.rpartition('::')[2]}\n" for each in made)
    found["outputs.json"] = _outputs(deployment)
    ways = ways_to(made)
    answers = dict(zip(ways, _asked(ways), strict=True))
    silent = sorted(name for name, said in answers.items() if isinstance(said, CommandError))
    silent += [name for name in deployment.written.host_names if name not in ways]
    for name, said in answers.items():
        found[f"machines/{name}.txt"] = f"no answer: {said.args[0]}\n" if isinstance(said, CommandError) else said
    for name in silent:
        found.setdefault(f"machines/{name}.txt", "not asked: no step of the stack has reached it\n")
    found["not-answering.txt"] = "".join(f"{name}\n" for name in silent)
    path = folder / f"diagnose-{deployment.workspace.stack}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.tar.gz"
    _write(path, {name: without_secrets(text) for name, text in found.items()})
    return path, silent


def without_secrets(text: str) -> str:
    """The text without what looks like a secret."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return _RUN.sub(_without_token, text)


def _without_token(run: re.Match[str]) -> str:
    """A run of characters without a JSON Web Token (header.claims.signature) in it."""
    for part in run[0].split(".")[:-2]:
        if _TOKEN.search(part):
            return _HIDDEN
    return run[0]


def _asked(ways: Mapping[str, Mapping[str, Any]]) -> list[str | CommandError]:
    script, commands = QUESTIONS.read_text(encoding="utf-8"), Commands(AT_ONCE, ROOT, dry_run=False)

    def ask(way: Mapping[str, Any]) -> str | CommandError:
        inputs: dict[str, Any] = {"stdin": script, "addPreviousOutputInEnv": False}
        if way:
            inputs["connection"] = {**way, **_NO_PATIENCE}
        try:
            return commands.run(REMOTE if way else LOCAL, _ASK, inputs, {})["stdout"][-MOST_SAID:]
        except CommandError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, ways.values()))


def _stack(deployment: Deployment) -> str:
    return "".join(
        f"{line}\n"
        for line in (
            f"made: {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC",
            f"stack: {deployment.workspace.stack}",
            f"tailrack: {_words('git', '-C', str(PROJECT), 'describe', '--tags', '--always', '--dirty')}",
            f"engine: {'in-process' if deployment.in_process else _words('pulumi', 'version')}",
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


def _words(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not known ({type(error).__name__})"
    return done.stdout.strip() or "not known"


def _write(path: Path, texts: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in sorted(texts.items()):
            content = text.encode()
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))
