"""The program that finds and proves the fabric of a site, on every machine (role.py packs it into one file)."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from components.roles.fabric.groups import again, place
from components.roles.fabric.networks import FabricError, interfaces
from components.roles.fabric.proof import asked_by_head, serve
from components.roles.fabric.rails import chosen, ports_up
from components.roles.fabric.records import Records

USAGE = """\
fabric.py interfaces FABRIC RDMA  what this machine has (JSON): FABRIC is `auto` or the one interface of that name, RDMA
                                  `auto`, `none`, or names of devices with commas between
fabric.py serve NODE HEAD         answer one request of the head node's root on stdin, a connection from the address
                                  that the file HEAD has (tailrack-fabric.socket)
fabric.py place FOLDER <NODE      on the head node: prove a node's networks with one that is there already, and
                                  note them in FOLDER/<node>/fabric (JSON in and out)
fabric.py again FOLDER            there: prove once more what could not be, because nobody answered (JSON)
"""


def main(words: Sequence[str]) -> int:
    """Do what the command line says; 1 with one line of what is the matter where that cannot be."""
    try:
        match words:
            case ["interfaces", setting, rdma]:
                ports = ports_up()
                with_rdma = {port["interface"] for port in ports}
                answer = {"interfaces": interfaces(setting, with_rdma), "rdma": chosen(ports, rdma)}
            case ["serve", node, head]:
                with socket.socket(fileno=os.dup(sys.stdin.fileno())) as connection:
                    asked_by_head(connection, Path(head).read_text(encoding="utf-8").strip())
                serve(node, sys.stdin, sys.stdout)
                return 0
            case ["place", folder]:
                answer = place(Records(Path(folder)), json.load(sys.stdin))
            case ["again", folder]:
                answer = again(Records(Path(folder)))
            case _:
                sys.stderr.write(USAGE)
                return 2
    except (FabricError, OSError, subprocess.CalledProcessError) as error:
        # Whoever asked over the network is told nothing.
        (sys.stderr if words[0] == "serve" else sys.stdout).write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
