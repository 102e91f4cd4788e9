"""The command `ask-ras` on a node, as a job's user: ask the NCCL of a job for the state of its communicators.

    ask-ras JOB    print a finding as JSON, or nothing

RAS listens on a port of this machine, where any user may listen too. So only a port at which a process of the job
listens is asked, and only one that the job's environment names or that is NCCL's default: other servers of the user
could take a request for something else. The answer is bounded in size and time.

All ranks on a machine listen on the same port, and the kernel chooses one for each connection. A stopped rank does not
answer, so the request is repeated until another one gets it.

NCCL's RAS subsystem answers in JSON since 2.28.7, in the format of its src/ras/client_support.cc. The answer is
untrusted.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from components.roles.jobs.job_hangs.communicators import EQUAL, MOST_RANKS, NONE, Communicator, Rank, finding

DEFAULT_PORT = 28028
# RAS answers a greeting at once, and collects for ten seconds at most.
LIMIT_SECONDS = 25.0
_GREETING_SECONDS = 1.5
# 16,000 entries of ranks.
MOST_BYTES = 2**23
MOST_PROCESSES = 4096
_REQUEST = b"CLIENT PROTOCOL 2\nTIMEOUT 5\nSET FORMAT json\nVERBOSE STATUS\n"
_ADDRESS = re.compile(r"(?:^|\0)NCCL_RAS_ADDR=([^\0]{1,255})")
_LISTENS = "0A"
_MOST = 2**53
_MOST_COMMUNICATORS = 4096
_OPERATION = re.compile(r"[A-Za-z]{1,24}")
# NCCL 2.28.7 and 2.28.9 forget a comma there.
_FORGOTTEN_COMMA = re.compile(r'("nvml_dev": [0-9]+)(\n *"status": \{\n *"unresponsive")')


def main(arguments: Sequence[str]) -> int:
    """Print the finding."""
    environments = processes_of(arguments[0])
    for place in places(environments):
        communicators = read_answer(ask(place))
        # Another program of the user may share the port (SO_REUSEPORT).
        if communicators is not None and _is_of_job(communicators, {*environments}):
            sys.stdout.write(as_json(communicators))
            break
    return 0


def as_json(communicators: Sequence[Communicator]) -> str:
    """Return the finding as JSON; `here` says that a rank's machine is this one.

    Where RAS shows no late rank, the ranks are those of this machine: one that sends or receives nothing may be late.
    """
    result = finding(communicators)
    ranks: Sequence[Rank] = result.ranks
    if result.kind in (EQUAL, NONE):
        # Numbers of the largest communicator, which is that of the whole job.
        by_size = sorted(communicators, key=lambda item: item.size)
        programs = {rank.program: rank for item in by_size for rank in item.ranks if is_local(rank.host)}
        ranks = sorted(programs.values(), key=lambda rank: rank.number)[:MOST_RANKS]
    marked = tuple(replace(rank, here=is_local(rank.host)) for rank in ranks)
    return json.dumps(asdict(replace(result, ranks=marked)))


def processes_of(job: str) -> dict[int, str]:
    """Return the environments of this account's processes that belong to a job."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        # Other accounts' environments cannot be read.
        with suppress(OSError):
            if folder.name.isdecimal() and len(found) < MOST_PROCESSES:
                environment = (folder / "environ").read_text(encoding="utf-8", errors="replace")
                if f"\0SLURM_JOB_ID={job}\0" in f"\0{environment}\0":
                    found[int(folder.name)] = environment
    return found


def places(environments: Mapping[int, str]) -> list[tuple[str, int]]:
    """Return the addresses and ports to ask, from the environments of a job's processes."""
    ports, sockets = {DEFAULT_PORT}, set[str]()
    tables: dict[str, tuple[int, str]] = {}
    for process, environment in environments.items():
        folder = Path(f"/proc/{process}")
        if match := _ADDRESS.search(environment):
            port = match[1].rpartition(":")[2]
            ports |= {int(port)} if re.fullmatch(r"[0-9]{1,5}", port) else set()
        with suppress(OSError):
            # A process in a network of its own cannot be asked from here.
            if (folder / "ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino:
                continue
            for entry in (folder / "fd").iterdir():
                with suppress(OSError):
                    sockets.add(str(entry.readlink()))
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            tables |= listening(Path(f"/proc/self/net/{name}").read_text(encoding="ascii"))
    found = {place for inode, place in tables.items() if f"socket:[{inode}]" in sockets and place[0] in ports}
    # A port that the job's environment names comes first.
    return sorted(((address, port) for port, address in found), key=lambda place: place[1] == DEFAULT_PORT)


def listening(table: str) -> dict[str, tuple[int, str]]:
    """Return port and address by inode of the listening sockets in /proc/net/tcp or tcp6."""
    rows = (line.split() for line in table.splitlines()[1:])
    found = {}
    for cells in rows:
        if len(cells) > 9 and cells[3] == _LISTENS:
            address, _, port = cells[1].partition(":")
            # The kernel prints four bytes at a time in the machine's order.
            packed = b"".join(
                int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8)
            )
            host = ipaddress.ip_address(packed)
            if host.is_unspecified:
                host = ipaddress.ip_address("127.0.0.1" if host.version == 4 else "::1")
            found[cells[9]] = (int(port, 16), str(host))
    return found


def ask(place: tuple[str, int]) -> str:
    """Return RAS's answer; empty after a time limit, an error or too much."""
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        try:
            with socket.create_connection(place, timeout=_GREETING_SECONDS) as connection:
                connection.sendall(_REQUEST)
                if first := connection.recv(65536):
                    return _rest(connection, bytearray(first), end)
        except TimeoutError:
            continue
        except OSError:
            break
        # A server that closes the connection is none of RAS.
        break
    return ""


def _rest(connection: socket.socket, answer: bytearray, end: float) -> str:
    """Read until the server closes the connection. Raise OSError."""
    while (left := end - time.monotonic()) > 0 and len(answer) <= MOST_BYTES:
        connection.settimeout(left)
        part = connection.recv(65536)
        if not part:
            return answer.decode("utf-8", "replace")
        answer += part
    return ""


def _is_of_job(communicators: Iterable[Communicator], processes: set[int]) -> bool:
    """Return whether ranks on this machine, if the answer names any, are processes of the job."""
    named = {rank.process for item in communicators for rank in item.ranks if rank.process and is_local(rank.host)}
    return not named or bool(named & processes)


@cache
def is_local(host: str) -> bool:
    """Return whether an address is one of this machine."""
    if not host:
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
            return True
    except OSError:
        return False


def read_answer(text: str) -> list[Communicator] | None:
    """Read RAS's answer to `SET FORMAT json` and `VERBOSE STATUS`; None if it is none or was cut off."""
    begin = re.search(r"^\{", text, re.MULTILINE)
    try:
        # raw_decode: the connection may carry more.
        data = json.JSONDecoder().raw_decode(_FORGOTTEN_COMMA.sub(r"\1,\2", text[begin.start() if begin else 0 :]))[0]
        rows = data["communicators"]
        if not isinstance(rows, list) or len(rows) > _MOST_COMMUNICATORS:
            return None
        return [item for row in rows if (item := _communicator(row)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _communicator(row: Mapping[str, Any]) -> Communicator | None:
    """Return a communicator; None if all its ranks leave it. A rank that leaves it alone is behind the others."""
    missing: list[Rank] = []
    absent: list[Rank] = []
    counts: dict[str, dict[int, list[Rank]]] = {}
    flags = ("finalize_called", "destroy_flag", "abort_flag")
    leaving = [any(entry["status"].get(flag) is not False for flag in flags) for entry in row["ranks"]]
    if leaving and all(leaving):
        return None
    for entry in row["ranks"]:
        rank = _rank(entry)
        for name, count in entry["collective_counts"].items():
            if not _OPERATION.fullmatch(name):
                raise ValueError
            counts.setdefault(name, {}).setdefault(_number(count), []).append(rank)
    for entry in row["missing_ranks"]:
        lost = entry["status"].get("unresponsive") is not False or entry["status"].get("considered_dead") is not False
        (missing if lost else absent).append(_rank(entry))
    operations = {
        name: {count: tuple(ranks) for count, ranks in sorted(groups.items())} for name, groups in counts.items()
    }
    name = f"{_hash(row['hash'])}:{_hash(row['secondary_hash'])}"
    return Communicator(name, _number(row["size"]), operations, tuple(missing), tuple(absent))


def _rank(entry: Mapping[str, Any]) -> Rank:
    # The process of a rank that RAS cannot find any more is -1.
    process = entry["pid"]
    return Rank(
        _number(entry["rank"]),
        _host(entry["host"]),
        max(0, process) if process == -1 else _number(process),
        _number(entry["nvml_dev"]),
    )


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError
    return value


def _hash(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fx:]{1,60}", value):
        raise ValueError
    return value


def _host(value: object) -> str:
    """Return an IP address, or an empty text."""
    try:
        return str(ipaddress.ip_address(str(value).partition("%")[0]))
    except ValueError:
        return ""
