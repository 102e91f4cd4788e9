"""How long an unchanged `up` of 200 resources takes: this project's engine against the Pulumi CLI, in the same run.

Prints the seconds of both, each a whole process from its start to its end, best of three taken in turns, and their
ratio. Nothing is judged. Without a CLI and its command provider on PATH only the engine's own time is printed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 3
COUNT = 200
PROGRAM = f"""
import pulumi
from pulumi_command import local

before = None
for number in range({COUNT}):
    command = local.Command(
        f"step-{{number}}",
        create="true",
        stdin=pulumi.Output.secret(f"input {{number}}") if number % 10 == 0 else f"input {{number}}",
        logging=local.Logging.NONE,
        opts=pulumi.ResourceOptions(depends_on=[before] if before and number % 5 else None),
    )
    before = command
"""

ENGINE = """
from pathlib import Path
from cli.stack_config.stack_file import load_config
from engine.engine import Engine

here = Path()
config = load_config(here, here / "Pulumi.dev.yaml")
assert Engine(here, "dev", lambda stack: here / "state.json", config, lambda event: None).up().ok
"""


def seconds_of(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Run a command in folder and return the seconds it took. Raises CalledProcessError when it fails."""
    begun = time.monotonic()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def main() -> None:
    """Make the stack with each, then time it unchanged."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runtime = f"{{name: python, options: {{virtualenv: {sys.prefix}}}}}"
        (folder / "Pulumi.yaml").write_text(f"name: bench\nruntime: {runtime}\n", encoding="utf-8")
        (folder / "__main__.py").write_text(PROGRAM, encoding="utf-8")
        (folder / "backend").mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PULUMI_BACKEND_URL": f"file://{folder}/backend",
            "PULUMI_CONFIG_PASSPHRASE": secrets.token_hex(),
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        runs = {"engine": [sys.executable, "-c", ENGINE]}
        if shutil.which("pulumi") and shutil.which("pulumi-resource-command"):
            up = ["pulumi", "up", "--yes", "--non-interactive", "--stack", "dev"]
            runs |= {"CLI": up, "CLI without its preview": [*up, "--skip-preview"]}
            seconds_of(["pulumi", "stack", "init", "dev"], folder, environment)
            seconds_of(runs["CLI without its preview"], folder, environment)
        seconds_of(runs["engine"], folder, environment)
        times: dict[str, list[float]] = {runner: [] for runner in runs}
        for _ in range(ROUNDS):
            for runner, command in runs.items():
                times[runner].append(seconds_of(command, folder, environment))
    best = {runner: min(seconds) for runner, seconds in times.items()}
    print(f"unchanged up of {COUNT} resources:")
    for runner, seconds in best.items():
        ratio = f", engine/{runner} {best['engine'] / seconds:.2f}" if runner != "engine" else ""
        print(f"  {runner:24} {seconds:6.2f} s{ratio}")
    if "CLI" not in runs:
        print("  NOT COMPARED: there is no pulumi CLI with its command provider on PATH")


if __name__ == "__main__":
    main()
