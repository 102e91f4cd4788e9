"""The proof of a network: two machines are asked to carry 1 MiB each way, from interface to interface (carrying.py).

The head node alone asks machines to take part: from its address in the tailnet, with a munge credential of its root. A
machine connects to nobody but others' addresses and the ports of the proof.
"""

import contextlib
import ipaddress
import json
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from components.roles.fabric.carrying import CONNECT_SECONDS, LISTEN_SECONDS, PORTS, TOKEN_CHARACTERS, Listener, connect
from components.roles.fabric.networks import MOST_AT_ONCE, TAILNET_RANGE, FabricError, Thing
from components.roles.fabric.rails import paired
from components.settings.network_names import DEVICE, INTERFACE

PORT = 6816
LINE_LIMIT = 64 * 1024
# What reading an answer raises that is none, or is anything else than was asked for.
NO_ANSWER = (OSError, ValueError, KeyError, TypeError)


class SilentError(Exception):
    """A neighbour gives no answer that could be one: it is no proof of anything, and another is asked."""


def sealed(value: Thing) -> str:
    """A value as a munge credential, which says who made it and can be opened in the cluster alone."""
    done = subprocess.run(["munge"], input=json.dumps(value), capture_output=True, text=True, check=False)
    if done.returncode:
        raise FabricError(f"munge does not work here: {done.stderr.strip()}")
    return done.stdout.strip()


def opened(credential: str) -> Thing:
    """The value of a credential that root of the cluster made just now; FabricError for any other."""
    done = subprocess.run(["unmunge"], input=credential, capture_output=True, text=True, check=False)
    about, _, text = done.stdout.partition("\n\n")
    if done.returncode or not re.search(r"^UID:\s+\S+ \(0\)$", about, re.MULTILINE):
        raise FabricError("it does not show that it is root of the cluster")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FabricError("it says something else")
    return value


def asked_by_head(connection: socket.socket, head: str) -> None:
    """FabricError where it is not the head node that asks: its address in the tailnet is nobody else's."""
    asking = connection.getpeername()[0]
    if asking != head:
        raise FabricError(f"{asking} asks, which is not the head node")


def serve(node: str, reading: Any, writing: Any) -> None:
    """Answer one request to this node; a listener stays until the one who asked is done with it."""

    def say(answer: Thing) -> None:
        writing.write(sealed({**answer, "nonce": request["nonce"]}) + "\n")
        writing.flush()

    request = opened(reading.readline(LINE_LIMIT))
    check(request, node)
    if request["do"] == "listen":
        with Listener(request["token"], request["interfaces"], request["rdma"]) as listener:
            say({"ports": listener.ports, "rdma_ports": listener.rdma_ports})
            listener.serve(reading)
    else:
        say(connect(request["token"], request["pairs"], request["server"], request["rdma"]))


def check(request: Thing, node: str) -> None:
    """FabricError for a request that is not to this node, or that asks for anything that no proof needs."""
    if request.get("to") != node:
        raise FabricError("it means another machine")
    try:
        if any(len(request.get(key, ())) > MOST_AT_ONCE for key in ("interfaces", "rdma", "pairs")):
            raise FabricError(f"it asks for more than {MOST_AT_ONCE} at once")
        for key, holds in wanted(request["do"]).items():
            if not holds(request[key]):
                raise FabricError(f"it asks for what no proof needs: {key}")
    except NO_ANSWER:
        raise FabricError("it says something else") from None


def wanted(do: Any) -> dict[str, Callable[[Any], bool]]:
    """What a request must have, by what it wants done."""
    is_interface, is_device = partial(is_like, INTERFACE), partial(is_like, DEVICE)
    if do == "listen":
        own = {"interfaces": each_of(is_interface, is_address), "rdma": each_of(is_device, is_rdma_port)}
    elif do == "connect":
        own = {
            "pairs": each_of(is_interface, is_address, is_others, is_proofs_port),
            "rdma": each_of(is_device, is_rdma_port, is_proofs_port),
            "server": is_members,
        }
    else:
        raise FabricError("it asks for what no proof needs: do")
    return {"nonce": is_hex(32), "token": is_hex(TOKEN_CHARACTERS), **own}


def is_hex(characters: int) -> Callable[[Any], bool]:
    return partial(is_like, f"[0-9a-f]{{{characters}}}")


def is_like(shape: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(shape, value, re.ASCII) is not None


def is_address(value: Any) -> bool:
    return isinstance(value, str) and str(ipaddress.IPv4Address(value)) == value


def is_others(value: Any) -> bool:
    """Whether an address can be another machine's in a network of a site."""
    if not is_address(value):
        return False
    ip = ipaddress.IPv4Address(value)
    special = ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_reserved or ip.packed[0] == 0
    return not special and ip not in TAILNET_RANGE and not is_own(value)


def is_own(address: str) -> bool:
    """Whether an address is this machine's: nobody else can bind to it."""
    with socket.socket() as door:
        try:
            door.bind((address, 0))
        except OSError:
            return False
        return True


def is_members(value: Any) -> bool:
    """Whether an address is one of the tailnet's, where the other's program for RDMA is found."""
    return is_address(value) and ipaddress.IPv4Address(value) in TAILNET_RANGE


def is_rdma_port(value: Any) -> bool:
    return type(value) is int and 0 < value < 256


def is_proofs_port(value: Any) -> bool:
    return type(value) is int and value in PORTS


def each_of(*fields: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is a list of lists with such fields."""

    def is_one(value: Any) -> bool:
        fitting = isinstance(value, list) and len(value) == len(fields)
        return fitting and all(holds(part) for holds, part in zip(fields, value, strict=True))

    return lambda value: isinstance(value, list) and all(is_one(one) for one in value)


class Asked:
    """One request to a machine. OSError where it does not answer, FabricError where its answer is not root's."""

    def __init__(self, node: str, address: str, request: Thing) -> None:
        self.nonce = secrets.token_hex(16)
        self.connection = socket.create_connection((address, PORT), CONNECT_SECONDS)
        self.connection.settimeout(LISTEN_SECONDS)
        self.connection.sendall((sealed({**request, "to": node, "nonce": self.nonce}) + "\n").encode())

    def answer(self) -> Thing:
        deadline, line = time.monotonic() + LISTEN_SECONDS, b""
        while not line.endswith(b"\n"):
            # Of the whole answer: one that comes letter by letter would hold whoever joins.
            self.connection.settimeout(max(deadline - time.monotonic(), 1e-3))
            if not (more := self.connection.recv(LINE_LIMIT)):
                raise ConnectionError("it closed the connection")
            line += more
            if len(line) > LINE_LIMIT:
                raise FabricError("it says too much")
        value = opened(line.decode("ascii"))
        if value.get("nonce") != self.nonce:
            raise FabricError("it answers another question")
        return value

    def __enter__(self) -> "Asked":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def worth_a_try(mine: Thing, theirs: Thing, setting: str) -> bool:
    """Whether two interfaces may be on one network: by their addresses, or where the provider routes between them."""
    own, other = ipaddress.IPv4Interface(mine["address"]), ipaddress.IPv4Interface(theirs["address"])
    if own.ip == other.ip:
        return False
    routed = mine["default_route"] and theirs["default_route"]
    return setting != "auto" or own.network == other.network or routed


def proven(mine: Thing, theirs: Thing) -> tuple[list[tuple[Thing, Thing]], list[tuple[Thing, Thing]]]:
    """Pairs of interfaces, and of RDMA ports, that carried 1 MiB from a node to a neighbour and back.

    SilentError where the neighbour does not answer, FabricError where the node itself does not.
    """
    token = secrets.token_hex(TOKEN_CHARACTERS // 2)
    ports = paired(mine["rdma"], theirs["rdma"])
    doors_of_rdma = [[other["device"], other["port"]] for _, other in ports]
    wanted = [[each["name"], host_of(each)] for each in theirs["interfaces"]]
    listen = {"do": "listen", "token": token, "interfaces": wanted, "rdma": doors_of_rdma}
    with contextlib.ExitStack() as stack:
        try:
            answer = stack.enter_context(Asked(theirs["node"], theirs["address"], listen)).answer()
            doors = [*zip(theirs["interfaces"], map(port_of, answer["ports"]), strict=True)]
            at = map(port_of, answer["rdma_ports"])
            rdma = [[own["device"], own["port"], port] for (own, _), port in zip(ports, at, strict=True)]
        except (*NO_ANSWER, FabricError) as error:
            raise SilentError(f"{theirs['node']} at {theirs['address']}: {error}") from None
        pairs = [
            (own, other, port)
            for own in mine["interfaces"]
            for other, port in doors
            if port and worth_a_try(own, other, mine["setting"])
        ]
        tried = [[own["name"], host_of(own), host_of(other), port] for own, other, port in pairs]
        ask = {"do": "connect", "token": token, "pairs": tried, "server": theirs["address"], "rdma": rdma}
        try:
            found = stack.enter_context(Asked(mine["node"], mine["address"], ask)).answer()
            carried = [pair[:2] for pair, yes in zip(pairs, found["carried"], strict=True) if yes is True]
            return carried, [pair for pair, yes in zip(ports, found["rdma"], strict=True) if yes is True]
        except (*NO_ANSWER, FabricError) as error:
            what = f"{mine['node']} does not answer at {mine['address']}:{PORT}, where it is asked to prove its fabric"
            raise FabricError(f"{what}: {error}") from None


def port_of(value: Any) -> int:
    """A port of an answer, 0 where nobody listens; ValueError for anything else: the node that joins is told it."""
    if type(value) is not int or value not in (0, *PORTS):
        raise ValueError("it names a port that is none of the proof's")
    return int(value)


def host_of(interface: Thing) -> str:
    """The address of an interface, without its prefix length."""
    return str(interface["address"]).partition("/")[0]
