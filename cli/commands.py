"""Commands behind the Makefile: up, preview, outputs, status, diagnose, report, floors, images, shell, trust, down, ...

Progress and tables go to stderr and the terminal; only `outputs` writes to stdout, one JSON object.
"""

import argparse
import os
from pathlib import Path

from cli import change_commands, elastic_commands, init, show_commands
from cli.open_stack import say
from cli.output.terminal import Terminal
from cli.pulumi.deployment import stack_config
from cli.pulumi.workspace import PROJECT, ROOT
from lab.errors import LabError
from stacks import unexpected_errors
from stacks.yaml_file import FileError

# The names of commands and of their functions, by module. Looked up late, so that a test can replace one.
_COMMANDS = {
    init: "init",
    change_commands: "up preview down reap sweep",
    show_commands: "engine outputs status diagnose report floors trust github_keys ssh_config images shell",
    elastic_commands: "elastic rent",
}
_REFRESH = "read clouds and tailnet first; needs the Pulumi CLI"


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return the parser of the command line; `about` is its description."""
    root = argparse.ArgumentParser(prog="python -m cli", description=about)
    root.add_argument("--stack", default=os.environ.get("STACK") or "dev")
    root.add_argument("--config-file", type=Path, help="instead of Pulumi.<stack>.yaml")
    root.add_argument("--state-dir", type=Path, default=ROOT, help="folder of stacks, their state and passphrase")
    root.add_argument("--engine", default=os.environ.get("ENGINE", ""), help="cli or inprocess; cli if left out")
    commands = root.add_subparsers(dest="command", required=True)
    parsers = {}
    for module, names in _COMMANDS.items():
        for name in names.split():
            run = getattr(module, name)
            parsers[name] = commands.add_parser(name.replace("_", "-"), help=run.__doc__)
            parsers[name].set_defaults(run_command=run)
    parsers["up"].add_argument("--refresh", action="store_true", help=_REFRESH)
    parsers["elastic"].add_argument("--once", action="store_true", help="end when nothing is left to do")
    parsers["rent"].add_argument("--result", type=Path, required=True, help="file for the failures by node")
    parsers["down"].add_argument("--cluster-gone", action="store_true", help="for a pool whose cluster is gone")
    preview = parsers["preview"]
    preview.add_argument("--comment", type=Path, help="also write it as Markdown for a pull request")
    preview.add_argument("--refresh", action="store_true", help=_REFRESH)
    preview.add_argument("--expect-no-changes", action="store_true", help="fail if up would change anything")
    shell = parsers["shell"]
    shell.add_argument("--node", required=True)
    shell.add_argument("--run", default="", help="command for bash on the node")
    return root


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = parser(__doc__).parse_args(argv)
    console = Terminal()
    try:
        arguments.config_file = arguments.config_file or stack_config(PROJECT, arguments.stack)
        status: int | None = arguments.run_command(arguments, console)
    except (FileError, LabError) as error:
        say(console, f"tailrack: {error}", style="red")
        return 1
    except KeyboardInterrupt:
        say(console, "tailrack: interrupted; run the same command again", style="red")
        return 130
    except Exception as error:  # noqa: BLE001 - any bug becomes one sentence and a private file
        say(console, f"tailrack: {unexpected_errors.report(error, arguments.state_dir)}", style="red")
        return 1
    return status or 0  # None of a command that has no other status
