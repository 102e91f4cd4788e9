#!/usr/bin/python3
"""The fabric of a site: which networks its nodes share, proven by what they carry.

Usage: fabric.py interfaces SETTING      what this machine has (JSON): `auto`, or the one interface of that name
       fabric.py serve NODE              answer one request on stdin, from root of the cluster (tailrack-fabric.socket)
       fabric.py place FOLDER <NODE      on the head node: prove a node's networks with one that is there already, and
                                         note them in FOLDER/<node>/fabric (JSON in and out)

A network is proven when 1 MiB went each way between two nodes, from interface to interface. Whoever asks a machine to
take part shows by a munge credential that it is root of the cluster, and so does the machine. Nodes that share a
network are a group. Nothing is asked of more than a few nodes, however many there are.
"""

import contextlib
import fcntl
import ipaddress
import json
import re
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

PORT = 6816
BYTES = 2**20
CONNECT_SECONDS, CARRY_SECONDS, LISTEN_SECONDS = 3.0, 10.0, 40.0
TOKEN_CHARACTERS = 64
LINE_LIMIT = 64 * 1024
MOST_INTERFACES, MOST_DEVICES = 16, 16
MOST_AT_ONCE = MOST_INTERFACES**2  # pairs of two machines' interfaces
# Neighbours that are asked, and how many may be silent before the rest is taken for silent too.
MOST_ASKED, MOST_SILENT = 4, 3
# Mb/s; what is more is a driver's word for "unknown".
MOST_SPEED = 10**7
# What the program takes for a name (components/answers.py); Slurm's files and other programs' settings know no quotes.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}", re.ASCII)
ETHERNET, INFINIBAND = 1, 32  # ARPHRD_ of if_arp.h
NET, VERBS = Path("/sys/class/net"), Path("/sys/class/infiniband")
TAILNET_RANGE = ipaddress.IPv4Network("100.64.0.0/10")

Thing = dict[str, Any]
# What reading an answer raises that is none, or is anything else than was asked for.
NO_ANSWER = (OSError, ValueError, KeyError, TypeError)


class FabricError(Exception):
    """What happened, in words for the one who wrote the config."""


class SilentError(Exception):
    """A neighbour gives no answer that could be one: it is no proof of anything, and another is asked."""


# --- what a machine has


def told(*command: str) -> Any:
    """What a command says in JSON."""
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def read(path: Path) -> str:
    """The text of a file of sysfs; empty where it has none to give."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def may_be_fabric(name: str, address: ipaddress.IPv4Interface, is_default: bool) -> bool:
    """Whether `auto` looks at an interface: a network card's, with a private address. Data on it is not encrypted."""
    card = read(NET / name / "type") in (str(ETHERNET), str(INFINIBAND))
    # Bridges of containers and virtual machines lead to those alone; one that leads out is the machine's network.
    own_bridge = (NET / name / "bridge").exists() and not is_default
    private = address.ip.is_private and not address.ip.is_link_local and not address.ip.is_loopback
    return card and not own_bridge and private and address.ip not in TAILNET_RANGE


def interfaces(setting: str) -> Thing:
    """The interfaces and RDMA devices that may be a fabric's; FabricError where the one asked for is not here."""
    defaults = {route.get("dev") for route in told("ip", "-json", "-4", "route", "show", "default")}
    devices = rdma_devices()
    found, all_names = [], []
    for link in told("ip", "-json", "-4", "address", "show", "up"):
        # Some versions of ip leave an empty object in the place of a link without such an address.
        name = link.get("ifname", "")
        here = [each for each in link.get("addr_info", ()) if each["family"] == "inet"]
        all_names += [name] if here and name not in ("lo", "tailscale0") else []
        if not here or not NAME.fullmatch(name) or setting not in ("auto", name):
            continue
        address = ipaddress.IPv4Interface(f"{here[0]['local']}/{here[0]['prefixlen']}")
        if setting == "auto" and not may_be_fabric(name, address, name in defaults):
            continue
        speed = read(NET / name / "speed")
        found.append(
            {
                "name": name,
                "address": str(address),
                "default_route": name in defaults,
                "speed": int(speed) if speed.isdigit() and int(speed) <= MOST_SPEED else 0,
                "rdma": any(device["interface"] == name for device in devices),
            }
        )
    if setting != "auto" and not found:
        raise FabricError(f"there is no interface {setting} with an IPv4 address here ({', '.join(all_names)})")
    chosen = [device for device in devices if setting in ("auto", device["interface"])]
    return {"interfaces": found[:MOST_INTERFACES], "rdma": chosen[:MOST_DEVICES]}


def rdma_devices() -> list[Thing]:
    """InfiniBand's and RoCE's ports that are up. `interface` is empty for a port without an IP network."""
    found = []
    for port in sorted(VERBS.glob("*/ports/*")):
        device, layer = port.parent.parent.name, read(port / "link_layer")
        up = "ACTIVE" in read(port / "state") and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,30}", device)
        if up and layer in ("InfiniBand", "Ethernet"):
            name = read(port / "gid_attrs/ndevs/0")
            if not name:
                cards = sorted(each.name for each in (VERBS / device / "device/net").glob("*"))
                name = cards[0] if len(cards) == 1 else ""
            found.append({"device": device, "port": int(port.name), "interface": name if NAME.fullmatch(name) else ""})
    return found


def gid_index(device: str, port: int) -> int | None:
    """The entry of a RoCE port's table for version 2 with an IPv4 address; None for InfiniBand, which needs none."""
    folder = VERBS / device / "ports" / str(port)
    for path in sorted((folder / "gid_attrs/types").glob("*"), key=lambda each: int(each.name)):
        if read(path) == "RoCE v2" and read(folder / "gids" / path.name).startswith("0000:0000:0000:0000:0000:ffff"):
            return int(path.name)
    return None


# --- requests, each sealed by munge


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


def serve(node: str, reading: Any, writing: Any) -> None:
    """Answer one request to this node; a listener stays until the one who asked is done with it."""

    def say(answer: Thing) -> None:
        writing.write(sealed({**answer, "nonce": request["nonce"]}) + "\n")
        writing.flush()

    request = opened(reading.readline(LINE_LIMIT))
    if request.get("to") != node:
        raise FabricError("it means another machine")
    if any(len(request.get(key, ())) > MOST_AT_ONCE for key in ("interfaces", "rdma", "pairs")):
        raise FabricError(f"it asks for more than {MOST_AT_ONCE} at once")
    if request["do"] == "listen":
        with Listener(request["token"], request["interfaces"], request["rdma"]) as listener:
            say({"ports": listener.ports, "rdma_ports": listener.rdma_ports})
            listener.serve(reading)
    elif request["do"] == "connect":
        say(connect(request["token"], request["pairs"], request["server"], request["rdma"]))


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


# --- 1 MiB each way


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
                door.bind((address, 0))
                door.listen()
                self.ports.append(door.getsockname()[1])
            except OSError:
                self.ports.append(0)  # this address is not here any more
        self.rdma_ports = [free_port() for _ in devices]
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


def free_port() -> int:
    with socket.create_server(("", 0)) as door:
        return int(door.getsockname()[1])


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


# --- the head node: who is proven with whom


class Records:
    """What the head node keeps of its members' fabric: <node>/fabric.json, and for Slurm <node>/fabric."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / "fabric.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def load(self, node: str) -> Thing | None:
        """A node's record; None where there is none that can be read."""
        try:
            record = json.loads((self.folder / node / "fabric.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def others(self, mine: Thing) -> list[Thing]:
        """The other nodes of its site that are asked for the same, the oldest first."""
        names = [path.parent.name for path in self.folder.glob("*/fabric.json")]
        found = [record for name in names if name != mine["node"] and (record := self.load(name))]
        same = [record for record in found if all(record[key] == mine[key] for key in ("site", "setting"))]
        return sorted(same, key=lambda record: (record["since"], record["node"]))

    def put_back(self, node: str, before: Thing | None) -> None:
        """Have a node's record be what it was, or none."""
        if before:
            self.save(before)
            return
        for name in ("fabric.json", "fabric"):
            (self.folder / node / name).unlink(missing_ok=True)

    def save(self, record: Thing) -> None:
        place = self.folder / record["node"]
        place.mkdir(exist_ok=True)
        write(place / "fabric.json", json.dumps(record, sort_keys=True))
        write(place / "fabric", "".join(f"{line}\n" for line in lines(record)))


def write(path: Path, text: str) -> None:
    """Nobody reads half of it."""
    fresh = path.with_name(f".{path.name}.fresh")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def lines(record: Thing) -> list[str]:
    """A node's networks as comments of topology.conf, which Slurm brings to every node (read by task-prolog)."""
    return [
        " ".join(["# fabric", record["node"], str(group["rank"]), name, group["interface"], group["network"],
                  ",".join(group["rdma"]) or "-"])
        for name, group in sorted(record["groups"].items())
    ]  # fmt: skip


def rank(mine: Thing, theirs: Thing) -> int:
    """How good a network is: RDMA before all, then speed; of two alike, the one that is not the way out."""
    way_out = mine["default_route"] or theirs["default_route"]
    speed = int(min(mine["speed"], theirs["speed"]))
    return 10**9 * bool(mine["rdma"] and theirs["rdma"]) + 10 * speed + (not way_out)


def network_of(interface: Thing) -> str:
    """The network as Open MPI takes it, alike on all its nodes; the interface's name where each has one of its own."""
    network = ipaddress.IPv4Interface(interface["address"]).network
    return str(network) if network.prefixlen <= 30 else str(interface["name"])


def worth_a_try(mine: Thing, theirs: Thing, setting: str) -> bool:
    """Whether two interfaces may be on one network: by their addresses, or where the provider routes between them."""
    own, other = ipaddress.IPv4Interface(mine["address"]), ipaddress.IPv4Interface(theirs["address"])
    if own.ip == other.ip:
        return False
    routed = mine["default_route"] and theirs["default_route"]
    return setting != "auto" or own.network == other.network or routed


def group_of(record: Thing, interface: str) -> str | None:
    """The group that an interface of a node is in."""
    return next((name for name, group in record["groups"].items() if group["interface"] == interface), None)


def neighbours(others: Sequence[Thing]) -> Generator[Thing, bool, None]:
    """Nodes to prove the fabric with: as few as cover every group, and an interface that is in no group yet.

    It is sent whether the last one answered.
    """

    def covers(record: Thing) -> set[str]:
        loose = any(group_of(record, each["name"]) is None for each in record["interfaces"])
        return {*record["groups"], *(["a loose interface"] if loose else [])}

    left = list(others)
    covered: set[str] = set()
    while left:
        best = max(left, key=lambda record: len(covers(record) - covered))
        if not covers(best) - covered:
            return
        left.remove(best)
        # Where it was silent, others of its groups are asked.
        if (yield best):
            covered |= covers(best)


def proven(mine: Thing, theirs: Thing) -> tuple[list[tuple[Thing, Thing]], list[str]]:
    """Pairs of interfaces, and RDMA devices, that carried 1 MiB from a node to a neighbour and back.

    SilentError where the neighbour does not answer, FabricError where the node itself does not.
    """
    token = secrets.token_hex(TOKEN_CHARACTERS // 2)
    theirs_too = [(each["device"], each["port"]) for each in theirs["rdma"]]
    devices = [device for each in mine["rdma"] if (device := (each["device"], each["port"])) in theirs_too]
    wanted = [[each["name"], host_of(each)] for each in theirs["interfaces"]]
    listen = {"do": "listen", "token": token, "interfaces": wanted, "rdma": devices}
    with contextlib.ExitStack() as stack:
        try:
            answer = stack.enter_context(Asked(theirs["node"], theirs["address"], listen)).answer()
            doors = [*zip(theirs["interfaces"], map(port_of, answer["ports"]), strict=True)]
            rdma = [[*each, port_of(port)] for each, port in zip(devices, answer["rdma_ports"], strict=True)]
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
            return carried, [f"{each[0]}:{each[1]}" for each, yes in zip(devices, found["rdma"], strict=True) if yes]
        except (*NO_ANSWER, FabricError) as error:
            what = f"{mine['node']} does not answer at {mine['address']}:{PORT}, where it is asked to prove its fabric"
            raise FabricError(f"{what}: {error}") from None


def port_of(value: Any) -> int:
    """A port of an answer, 0 where nobody listens; ValueError for anything else: the node that joins is told it."""
    if type(value) is not int or not 0 <= value < 2**16:
        raise ValueError("it names a port that is none")
    return value


def host_of(interface: Thing) -> str:
    """The address of an interface, without its prefix length."""
    return str(interface["address"]).partition("/")[0]


def join_groups(mine: Thing, theirs: Thing, carried: Sequence[tuple[Thing, Thing]], rdma: Sequence[str]) -> None:
    """Put both into the groups of the networks that they share; the best pairs first, an interface is in one group."""
    for own, other in sorted(carried, key=lambda pair: -rank(*pair)):
        # The time keeps it apart from a group of before, if the node has left and come back.
        new = f"{mine['site']}/{theirs['node']}/{other['name']}/{int(theirs['since'] * 1000)}"
        name = group_of(theirs, other["name"]) or new
        if name in mine["groups"] or group_of(mine, own["name"]) is not None:
            continue
        there = theirs["groups"].setdefault(name, {"rank": rank(own, other), **_part(other, rdma)})
        there["rdma"] = there["rdma"] or list(rdma)
        mine["groups"][name] = {"rank": there["rank"], **_part(own, rdma)}


def _part(interface: Thing, rdma: Sequence[str]) -> Thing:
    return {"interface": interface["name"], "network": network_of(interface), "rdma": list(rdma)}


def place(records: Records, node: Mapping[str, Any]) -> Thing:
    """Prove a node's networks and note them; what came of it, with `error` where a named interface carries nothing.

    node   node, site, setting, address (tailnet), interfaces, rdma
    """
    with records.locked():
        before = records.load(node["node"])
        same = before is not None and all(before.get(key) == value for key, value in node.items())
        mine: Thing = {**node, "since": before["since"] if before else time.time()}
        mine["groups"] = before["groups"] if before and same else {}
        records.save(mine)
        others = records.others(mine)
    old = set(mine["groups"])
    partners: dict[str, tuple[str, str]] = {}
    tried: list[str] = []
    silent: list[str] = []
    asking = neighbours(others)
    neighbour = next(asking, None)
    while neighbour and len(tried) < MOST_ASKED and len(silent) < MOST_SILENT:
        name = neighbour["node"]
        try:
            carried, rdma = proven(mine, neighbour)
        except SilentError as error:
            silent.append(str(error))
        else:
            with records.locked():
                # Others may have put either into a group meanwhile; what was proven before counts no more.
                mine, theirs = records.load(mine["node"]) or mine, records.load(name) or neighbour
                if not tried:
                    mine["groups"] = {group: part for group, part in mine["groups"].items() if group not in old}
                known = set(mine["groups"])
                join_groups(mine, theirs, carried, rdma)
                records.save(theirs)
                records.save(mine)
            tried.append(name)
            partners |= {group: (name, theirs["groups"][group]["interface"]) for group in set(mine["groups"]) - known}
        try:
            neighbour = asking.send(name in tried)
        except StopIteration:
            break
    answer = _told(mine, partners, tried, silent)
    if answer["error"]:
        # The step fails, and the stack's state stays what it was: so does this.
        with records.locked():
            records.put_back(mine["node"], before)
    return answer


def _told(record: Thing, partners: Mapping[str, tuple[str, str]], tried: Sequence[str], silent: Sequence[str]) -> Thing:
    """What a person and the program are told of a node's fabric; the best network first."""
    best = sorted(record["groups"].items(), key=lambda item: -item[1]["rank"])
    names = ", ".join(f"{each['name']} ({each['address']})" for each in record["interfaces"]) or "no interface"
    note = error = ""
    if not best and tried:
        what = f"{names} of {record['node']} carried no 1 MiB to {' or '.join(tried)} of site {record['site']}"
        if record["setting"] == "auto":
            note = f"{what}: its jobs stay on the tailnet"
        else:
            error = what
    elif not best and silent:
        note = f"the fabric of {record['node']} could not be proven, its jobs stay on the tailnet: {', '.join(silent)}"
    return {
        "interfaces": [group["interface"] for _, group in best],
        "rdma": best[0][1]["rdma"] if best else [],
        # Neighbours that it was proven with, each with the interface there.
        "with": [partners[name] for name, _ in best if name in partners],
        "note": note,
        "error": error,
    }


def main(words: Sequence[str]) -> int:
    """Do what the command line says; 1 with one line of what is the matter where that cannot be."""
    try:
        match words:
            case ["interfaces", setting]:
                answer = interfaces(setting)
            case ["serve", node]:
                serve(node, sys.stdin, sys.stdout)
                return 0
            case ["place", folder]:
                answer = place(Records(Path(folder)), json.load(sys.stdin))
            case _:
                sys.stderr.write(f"{__doc__}\n")
                return 2
    except (FabricError, OSError, subprocess.CalledProcessError) as error:
        # Whoever asked over the network is told nothing.
        (sys.stderr if words[0] == "serve" else sys.stdout).write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
