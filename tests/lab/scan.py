"""Which ports of a machine answer another machine: a program of a few lines that runs on the one that looks."""

import json
import shlex
from collections.abc import Collection

from tests.lab.cluster import ClusterUnderTest

# Seconds: for a port that must be open, and for all others together. They begin when the program runs: how long a busy
# machine takes to start it says nothing about a port.
MUST_ANSWER, MAY_ANSWER = 60.0, 3.0

_TCP = """
import json, selectors, socket, sys, time
address, ports, expected, patience, limit = json.loads(sys.argv[1])

def tcp(ports):
    waiting, found = selectors.DefaultSelector(), set()
    for port in ports:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((address, port))
        waiting.register(one, selectors.EVENT_WRITE, port)
    end = time.monotonic() + limit
    while waiting.get_map() and (left := end - time.monotonic()) > 0:
        for key, _ in waiting.select(left):
            if not key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                found.add(key.data)
            waiting.unregister(key.fileobj)
            key.fileobj.close()
    for key in list(waiting.get_map().values()):
        key.fileobj.close()
    return found

begin, found = time.monotonic(), set()
while not found >= set(expected) and time.monotonic() < begin + patience:
    found |= tcp(set(expected) - found)
    time.sleep(0.2)
rest = sorted(set(ports) - found)
for start in range(0, len(rest), 900):
    found |= tcp(rest[start:start + 900])
print(json.dumps(sorted(found)))
"""

_UDP = """
import json, select, socket, sys, time
address, ports, expected, patience, limit = json.loads(sys.argv[1])
begin, sockets, found = time.monotonic(), {}, {}
for port in ports:
    sockets[port] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sockets[port].connect((address, port))
while (passed := time.monotonic() - begin) < limit or (not found.keys() >= set(expected) and passed < patience):
    for port in sockets.keys() - found.keys():
        try:
            sockets[port].send(b"?")
        except ConnectionRefusedError:
            found[port] = "refuses"
    for one in select.select([sockets[port] for port in sockets.keys() - found.keys()], [], [], 0.5)[0]:
        port = one.getpeername()[1]
        try:
            one.recv(100)
            found[port] = "answers"
        except ConnectionRefusedError:
            found[port] = "refuses"
print(json.dumps([[port, found.get(port, "is silent")] for port in ports]))
"""


def open_tcp_ports(
    cluster: ClusterUnderTest, node: str, address: str, ports: Collection[int], *, expected: Collection[int]
) -> set[int]:
    """Return which TCP ports of an address take a connection from a node; those `expected` have a minute for it."""
    asked = json.dumps([address, sorted(ports), sorted(expected), MUST_ANSWER, MAY_ANSWER])
    said = cluster.run(node, f"python3 -c {shlex.quote(_TCP)} {shlex.quote(asked)}", limit=180)
    return set(json.loads(said))


def udp_ports(
    cluster: ClusterUnderTest, node: str, address: str, ports: Collection[int], *, expected: Collection[int]
) -> dict[int, str]:
    """Return what each UDP port of an address does with datagrams from a node: `answers`, `refuses` or `is silent`.

    Nobody listens on one that refuses. One that is silent is closed by rules, or has nothing to say to strangers.
    """
    asked = json.dumps([address, sorted(ports), sorted(expected), MUST_ANSWER, MAY_ANSWER])
    said = cluster.run(node, f"python3 -c {shlex.quote(_UDP)} {shlex.quote(asked)}", limit=180)
    return dict(json.loads(said))
