"""The proof of a network: 1 MiB each way between two machines, from interface to interface.

The head node alone asks machines to take part: from its address in the tailnet, with a munge credential of its root. A
machine connects to nobody but others' addresses and the ports of the proof, and says nothing to who does not show first
that it listens for this very proof.
"""

import contextlib
import errno
import hashlib
import ipaddress
import json
import re
import secrets
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from components.roles.fabric.networks import MOST_AT_ONCE, TAILNET_RANGE, FabricError, Thing, gid_index
from components.roles.fabric.rails import paired
from components.settings.network_names import DEVICE, INTERFACE

PORT = 6816
# Where a proof listens. The kernel gives none of them to a program that asks for any port.
PORTS = range(61000, 62000)
BYTES = 2**20
CONNECT_SECONDS, CARRY_SECONDS, LISTEN_SECONDS = 3.0, 10.0, 40.0
TOKEN_CHARACTERS = 64
GREETING_CHARACTERS = 64
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
            line += receive_some(self.connection, LINE_LIMIT, deadline)
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


def on_interface(connection: socket.socket, name: str) -> None:
    """Keep a socket on an interface, whatever the routes say."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())


def receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        data += receive_some(connection, min(count - len(data), 2**16), deadline)
    return bytes(data)


def receive_some(connection: socket.socket, most: int, deadline: float) -> bytes:
    """What comes next, one byte or more; OSError where nothing comes before the deadline, or ever."""
    connection.settimeout(max(deadline - time.monotonic(), 1e-3))
    if not (more := connection.recv(most)):
        raise ConnectionError("it closed the connection")
    return more


def greeting(token: str) -> bytes:
    """What a listener says first: to who knows the token, that this is the proof, and to others nothing."""
    return hashlib.sha256(b"tailrack fabric " + token.encode()).hexdigest().encode()


def pattern(token: str) -> bytes:
    """What is carried: bytes that follow from the token, so that nobody else's can pass for them."""
    return (token.encode() * (BYTES // len(token) + 1))[:BYTES]


class Listener:
    """Takes 1 MiB on each of some interfaces and sends it back."""

    def __init__(self, token: str, wanted: Sequence[Sequence[str]], devices: Sequence[Sequence[Any]]) -> None:
        self.token = token
        self.doors: list[socket.socket] = []
        self.ports: list[int] = []
        for name, address in wanted:
            door = socket.socket()
            self.doors.append(door)
            try:
                on_interface(door, name)
                self.ports.append(bound(door, address))
                door.listen()
            except OSError:
                self.ports.append(0)  # this address is not here any more
        self.rdma_ports = free_ports(len(devices))
        self.rdma = [
            pingpong(device, port, door) for (device, port), door in zip(devices, self.rdma_ports, strict=True)
        ]

    def serve(self, asking: Any) -> None:
        """Until the one who asked is done, or has been away for too long."""
        deadline = time.monotonic() + LISTEN_SECONDS
        open_doors = [door for door, port in zip(self.doors, self.ports, strict=True) if port]
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([asking, *open_doors], [], [], left)
            if asking in ready:
                return
            for door in ready:
                threading.Thread(target=self._echo, args=(door.accept()[0],), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + CARRY_SECONDS
        with connection, contextlib.suppress(OSError):
            connection.sendall(greeting(self.token))
            if secrets.compare_digest(receive(connection, TOKEN_CHARACTERS, deadline), self.token.encode()):
                connection.sendall(receive(connection, BYTES, deadline))

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        for door in self.doors:
            door.close()
        for process in self.rdma:
            if process:
                process.kill()


def carry(token: str, name: str, address: str, to: str, port: int) -> bool:
    """Whether 1 MiB went from an interface to an address and came back."""
    deadline = time.monotonic() + CARRY_SECONDS
    sent = pattern(token)
    try:
        with socket.socket() as connection:
            on_interface(connection, name)
            connection.bind((address, 0))
            connection.settimeout(CONNECT_SECONDS)
            connection.connect((to, port))
            if not secrets.compare_digest(receive(connection, GREETING_CHARACTERS, deadline), greeting(token)):
                return False
            connection.settimeout(CARRY_SECONDS)
            connection.sendall(token.encode() + sent)
            return receive(connection, BYTES, deadline) == sent
    except OSError:
        return False


def connect(token: str, pairs: Sequence[Sequence[Any]], server: str, devices: Sequence[Sequence[Any]]) -> Thing:
    """Which pairs (own interface and address, the other's address and port) and RDMA devices carried 1 MiB."""
    carried = side_by_side([partial(carry, token, *pair) for pair in pairs])
    return {"carried": carried, "rdma": side_by_side([partial(rdma_carry, server, *each) for each in devices])}


def side_by_side(tasks: Sequence[Callable[[], bool]]) -> list[bool]:
    """What tasks return that run at the same time."""
    results = [False] * len(tasks)

    def run(index: int) -> None:
        results[index] = tasks[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def bound(door: socket.socket, address: str) -> int:
    """Bind a socket to an address and one of the proof's ports that is free there; OSError where there is none."""
    first = secrets.randbelow(len(PORTS))
    ports: list[int] = [*PORTS[first:], *PORTS[:first]]
    for port in ports:
        try:
            door.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(errno.EADDRINUSE, "every port of the proof is taken")


def free_ports(count: int) -> list[int]:
    """Ports of the proof, each another one, at which nobody listens."""
    with contextlib.ExitStack() as doors:
        return [bound(doors.enter_context(socket.socket()), "") for _ in range(count)]


def pingpong(device: str, port: int, tcp_port: int, server: str = "") -> "subprocess.Popen[bytes] | None":
    """ibverbs-utils' program that sends 1 MiB messages there and back by RDMA; None where it is not installed."""
    index = gid_index(device, port)
    options = ["-d", device, "-i", str(port), "-s", str(BYTES), "-n", "4", "-p", str(tcp_port)]
    options += [] if index is None else ["-g", str(index)]
    words = ["ibv_rc_pingpong", *options, *([server] if server else [])]
    try:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return None


def rdma_carry(server: str, device: str, port: int, tcp_port: int) -> bool:
    """Whether 4 MiB went there and back by RDMA."""
    process = pingpong(device, port, tcp_port, server)
    if process is None:
        return False
    try:
        return process.wait(CARRY_SECONDS) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        return False


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
