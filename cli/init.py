"""`make init`: the state folder, the passphrase, the stack, its config file and the auth key; overwrites nothing."""

import argparse
import getpass
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from cli import open_stack
from cli.open_stack import say
from cli.pulumi.stack_locks import backend_folder
from cli.pulumi.workspace import PROJECT, CliError, Workspace, make_passphrase
from cli.stack_config.stack_file import read_stack_file
from cli.stack_config.written_config import WrittenConfig

FILE_VARIABLE = "PULUMI_CONFIG_PASSPHRASE_FILE"
AUTH_KEY = "tailrack:tailnet.auth_key"
CONFIG = Path(__file__).with_name("new_stack.yaml")  # the example for a new stack, with STACK in place of its name


def init(arguments: argparse.Namespace, console: Console) -> None:
    """Make what is missing, and ask for the auth key if the config has none."""
    config, engine = arguments.config_file, open_stack.announced_engine(arguments, console)
    if not config.exists():
        config.write_text(CONFIG.read_text(encoding="utf-8").replace("STACK", arguments.stack), encoding="utf-8")
        say(console, f"{config}: an example; replace its machines and users")
    workspace = Workspace(PROJECT, arguments.stack, config, arguments.state_dir)
    if folder := backend_folder(os.environ.get("PULUMI_BACKEND_URL") or ""):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file := os.environ.get(FILE_VARIABLE):
        make_passphrase(Path(file).expanduser())
    workspace.prepare()
    variables = workspace.environment()
    kept = os.environ.get(FILE_VARIABLE) or variables.get(FILE_VARIABLE) or "the passphrase"
    say(console, f"Keep a copy of {variables['PULUMI_BACKEND_URL']} and of {kept} elsewhere.")
    if engine.cli is None:
        say(console, f"The in-process engine encrypts no config; set {AUTH_KEY} with the Pulumi CLI.")
        return
    key, commands = None, [["stack", "select", "--create", arguments.stack]]
    written = read_stack_file(config)["config"]
    # A pool uses its cluster's tailnet, and other kinds of tailnet need other secrets.
    if not WrittenConfig(written).cluster_stack and not written.get("tailrack:tailnet"):
        key = _auth_key()
        commands.append(["config", "set", "--stack", arguments.stack, "--path", "--secret", AUTH_KEY])
    environment = {**os.environ, **variables}
    for command in commands:
        stdin = key if AUTH_KEY in command else None
        pulumi = [engine.cli.command, *command]
        if subprocess.run(pulumi, cwd=PROJECT, env=environment, input=stdin, text=True, check=False).returncode:
            raise CliError(f"`pulumi {' '.join(command)}` failed; its message is above. Nothing was overwritten")


def _auth_key() -> str:
    """Return the key from the terminal, which does not show it, or from stdin. Raises CliError without one."""
    prompt = "The tailnet's auth key, which is written encrypted into the config: "
    key = (getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not key:
        raise CliError("no auth key was given; run make init again in a terminal, or with the key on stdin")
    return key
