"""Commands behind the Makefile: up, preview, outputs, status, diagnose, report, floors, images, shell, trust, down, ...

Progress and tables go to stderr and the terminal; only `outputs` writes to stdout, one JSON object.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from cli import change_commands, elastic_commands, init, show_commands
from cli.open_stack import say
from cli.output.terminal import Terminal
from cli.pulumi.workspace import ROOT
from lab.errors import LabError
from stacks import bugs
from stacks.yaml_file import FileError

_REFRESH = "read clouds and tailnet first; needs the Pulumi CLI"


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return the parser of the command line; `about` is its description."""
    root = argparse.ArgumentParser(prog="python -m cli", description=about)
    root.add_argument("--stack", default=os.environ.get("STACK") or "dev")
    root.add_argument("--config-file", type=Path, help="instead of Pulumi.<stack>.yaml")
    root.add_argument("--state-dir", type=Path, default=ROOT, help="folder of stacks, their state and passphrase")
    root.add_argument("--engine", default=os.environ.get("ENGINE", ""), help="cli or inprocess; cli if left out")
    commands = root.add_subparsers(dest="command", required=True)
    commands.add_parser("init", help="make a stack's state, passphrase and config, and ask for the auth key")
    up = commands.add_parser("up", help="bring the stack to its config, measure it, and show it")
    up.add_argument("--refresh", action="store_true", help=_REFRESH)
    for name, text in (
        ("outputs", "print the stack's outputs as one JSON object"),
        ("trust", "show unknown host keys of machines, ask, and record them"),
        ("github-keys", "show SSH keys of users at GitHub, ask, and record them in the stack's config"),
        ("status", "show nodes, jobs and why a node is out"),
        ("diagnose", "write one archive without secrets for a bug report: states, reasons and logs of every machine"),
        ("report", "write the last measurements and the nodes into one HTML file"),
        ("floors", "write floors from the last measurement into the stack's config"),
        ("ssh-config", "print lines for ~/.ssh/config with which you log in to every machine of the stack's cluster"),
        ("images", "show the images of containers and the nodes that have them"),
        ("engine", "print which engine the other commands use"),
        ("sweep", "remove every lab of this checkout, whatever its stack"),
    ):
        commands.add_parser(name, help=text)
    commands.add_parser("reap", help="remove a pool that has been idle for longer than its idle_limit_minutes")
    elastic = commands.add_parser("elastic", help="rent and return the machines of an elastic pool, as its jobs need")
    elastic.add_argument("--once", action="store_true", help="end when nothing is left to do")
    rent = commands.add_parser("rent", help="one run of `elastic`, which starts it")
    rent.add_argument("--result", type=Path, required=True, help="file for the failures by node")
    down = commands.add_parser("down", help="remove everything of the stack")
    down.add_argument("--cluster-gone", action="store_true", help="for a pool whose cluster no longer exists")
    preview = commands.add_parser("preview", help="show the changes that up would make")
    preview.add_argument("--comment", type=Path, help="also write it as Markdown for a pull request")
    preview.add_argument("--refresh", action="store_true", help=_REFRESH)
    preview.add_argument("--expect-no-changes", action="store_true", help="fail if up would change anything")
    shell = commands.add_parser("shell", help="open a shell on a lab node, or run one command there")
    shell.add_argument("--node", required=True)
    shell.add_argument("--run", default="", help="command for bash on the node")
    return root


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = parser(__doc__).parse_args(argv)
    console = Terminal()
    try:
        status: int = {
            "init": init.init,
            "up": change_commands.up,
            "preview": change_commands.preview,
            "down": change_commands.down,
            "reap": change_commands.reap,
            "elastic": elastic_commands.elastic,
            "rent": elastic_commands.rent,
            "sweep": change_commands.sweep,
            "outputs": show_commands.outputs,
            "status": show_commands.status,
            "diagnose": show_commands.diagnose,
            "report": show_commands.report,
            "floors": show_commands.floors,
            "images": show_commands.images,
            "ssh-config": show_commands.ssh_config,
            "shell": show_commands.shell,
            "github-keys": show_commands.github_keys,
            "trust": show_commands.trust,
            "engine": show_commands.engine,
        }[arguments.command](arguments, console)
    except (FileError, LabError) as error:
        say(console, f"tailrack: {error}", style="red")
        return 1
    except KeyboardInterrupt:
        say(console, "tailrack: interrupted; run the same command again", style="red")
        return 130
    except Exception as error:  # noqa: BLE001 - any bug becomes one sentence and a private file
        say(console, f"tailrack: {bugs.report(error, arguments.state_dir)}", style="red")
        return 1
    return status
