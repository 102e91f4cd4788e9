"""The program on every machine that finds and proves the fabric of a site (the command `fabric`)."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from components.roles.fabric.groups import prove_again, prove_node
from components.roles.fabric.networks import FabricError, interfaces
from components.roles.fabric.proof import check_peer, serve
from components.roles.fabric.rails import ports_up, select_ports
from components.roles.fabric.records import Records

USAGE = """\
fabric.py interfaces FABRIC RDMA  print this machine's networks (JSON): FABRIC is `auto` or an interface's name, RDMA is
                                  `auto`, `none`, or names of devices, separated by commas
fabric.py serve NODE HEAD         answer one request of the head node's root on stdin, a connection from the address
                                  in the file HEAD (tailrack-fabric.socket)
fabric.py place FOLDER <NODE      on the head node: prove a node's networks with a node that has already joined, and
                                  write them to FOLDER/<node>/fabric (JSON in and out)
fabric.py again FOLDER            on the head node: retry proofs that failed because no node answered (JSON)
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return 1 after one line with the error if it fails."""
    try:
        match arguments:
            case ["interfaces", setting, rdma]:
                ports = ports_up()
                with_rdma = {port["interface"] for port in ports}
                answer = {"interfaces": interfaces(setting, with_rdma), "rdma": select_ports(ports, rdma)}
            case ["serve", node, head]:
                with socket.socket(fileno=os.dup(sys.stdin.fileno())) as connection:
                    check_peer(connection, Path(head).read_text(encoding="utf-8").strip())
                serve(node, sys.stdin, sys.stdout)
                return 0
            case ["place", folder]:
                answer = prove_node(Records(Path(folder)), json.load(sys.stdin))
            case ["again", folder]:
                answer = prove_again(Records(Path(folder)))
            case _:
                sys.stderr.write(USAGE)
                return 2
    except (FabricError, OSError, subprocess.CalledProcessError) as error:
        # A peer on the network gets no error message.
        (sys.stderr if arguments[0] == "serve" else sys.stdout).write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0
