"""Commands behind the Makefile: up, preview, outputs, status, diagnose, report, floors, images, shell, trust, down, ...

Progress and tables go to stderr and the terminal; only `outputs` writes to stdout, one JSON object.
"""

from __future__ import annotations

from cli import change_commands, elastic_commands, init, show_commands
from cli.command_line import parser
from cli.open_stack import say
from cli.output.terminal import Terminal
from lab.errors import LabError
from stacks import bugs
from stacks.yaml_file import FileError


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
