"""The command `tailrack` on the head node. A subcommand is a module with NAME, HELP, `arguments` and `run`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.roles.commands.tailrack import (
    costs,
    data,
    elastic,
    idle,
    nodes,
    resume,
    session,
    ssh_config,
    usage,
    why,
)
from components.roles.slurm.slurm.folders import LINK
from components.slurm_commands.slurm import SlurmError

SUBCOMMANDS: Sequence[Any] = (nodes, resume, why, costs, usage, idle, elastic, data, ssh_config, session)
# Their files are on the head node alone; log-in nodes have the command too.
ON_HEAD = (costs, usage, elastic, ssh_config)


def main(argv: Sequence[str]) -> int:
    """Run a subcommand and return its exit status; 1 after an error (argparse exits with 2 for wrong arguments)."""
    parser = argparse.ArgumentParser(prog="tailrack", description="Show and change the state of a tailrack cluster.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in SUBCOMMANDS:
        module.arguments(commands.add_parser(module.NAME, help=module.HELP, description=module.HELP))
    arguments = parser.parse_args(list(argv))
    (chosen,) = [module for module in SUBCOMMANDS if arguments.command == module.NAME]
    try:
        if chosen in ON_HEAD and Path(LINK).exists():
            raise SlurmError(f"this is a log-in node: run 'tailrack {chosen.NAME}' on the head node")
        return int(chosen.run(arguments))
    except SlurmError as error:
        print(f"tailrack: {error}", file=sys.stderr)
    except BrokenPipeError:  # `tailrack nodes | head`
        sys.stderr.close()
    except KeyboardInterrupt:
        pass
    return 1
