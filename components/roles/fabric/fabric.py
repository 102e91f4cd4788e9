"""The program on every machine that answers the head node's requests to prove the fabric (the command `fabric`)."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CalledProcessError

from components.roles.fabric.networks import FabricError
from components.roles.fabric.proof import check_peer, serve

USAGE = """\
fabric.py serve NODE HEAD   answer one request of the head node's root on stdin, a connection from the address in the
                            file HEAD (tailrack-fabric.socket)
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return 1 after one line with the error if it fails."""
    match arguments:
        case ["serve", node, head]:
            try:
                with socket.socket(fileno=os.dup(sys.stdin.fileno())) as connection:
                    check_peer(connection, Path(head).read_text(encoding="utf-8").strip())
                serve(node, sys.stdin, sys.stdout)
            except (FabricError, OSError, CalledProcessError) as error:
                # A peer on the network gets no error message.
                sys.stderr.write(f"{error}\n")
                return 1
            return 0
    sys.stderr.write(USAGE)
    return 2
