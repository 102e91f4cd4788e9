"""The library for the tailnet on pods: small programs use it against a played proxy and a played tailscaled."""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from components.node import safe_path
from components.node.failure import Failure
from components.roles.pods.pod import library
from components.roles.role import template

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")

OWN, OTHER, PORT = "100.64.0.4", "100.64.0.7", 6817
CONNECT_MS, WHOIS_MS = 700, 500
SOURCE = template("pod", "tailnet.c")
# The beginning of each program.
HEADER = f"""
import errno, os, socket, sys, threading, time
OWN, OTHER, PORT = {OWN!r}, {OTHER!r}, {PORT}
def tcp(family=socket.AF_INET):
    return socket.socket(family, socket.SOCK_STREAM)
def error_of(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
def listening(address):
    listener = tcp()
    listener.bind((address, 0))
    listener.listen()
    return listener
def connected(address):
    s = tcp()
    s.connect(address)
    return s
"""


class Echo(socketserver.ThreadingTCPServer):
    """A server that sends back all that it gets."""

    daemon_threads = True

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while part := self.request.recv(65536):
                self.request.sendall(part)

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


@dataclass
class Proxy:
    """A played SOCKS5 proxy on 127.0.0.3.

    answers   by port of the target: the code of its answer; None: no answer. Every other target is the echo server
    bound     the rest of its answer: type, address and port
    asked     the targets
    """

    target: tuple[str, int]
    answers: dict[int, int | None] = field(default_factory=dict)
    bound: bytes = b"\1\x64\x40\0\4\0\0"
    asked: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.3", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):  # closed by the test
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client:
            assert client.recv(3, socket.MSG_WAITALL) == b"\5\1\0"
            client.sendall(b"\5\0")
            request = client.recv(10, socket.MSG_WAITALL)
            assert request[:4] == b"\5\1\0\1"
            asked = socket.inet_ntoa(request[4:8]), int.from_bytes(request[8:], "big")
            self.asked.append(asked)
            code = self.answers.get(asked[1], 0)
            if code is None:
                with suppress(ConnectionResetError):
                    client.recv(1)
                return
            # In two parts, as a network may deliver it.
            client.sendall(bytes([5, code]))
            client.sendall(b"\0" + self.bound)
            if code == 0:
                with socket.create_connection(self.target) as server:
                    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                    back.start()
                    _copy(client, server)
                    back.join()


def _copy(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            to.sendall(part)
        to.shutdown(socket.SHUT_WR)


class Tailscaled(socketserver.ThreadingUnixStreamServer):
    """A played LocalAPI of tailscaled, which says that the same machine is behind every port.

    answer   its answer, without the status line; None: it says nothing
    asked    the requests
    """

    daemon_threads = True
    status = "200 OK"

    class Handler(socketserver.StreamRequestHandler):
        server: Tailscaled

        def handle(self) -> None:
            lines = []
            while line := self.rfile.readline().strip():
                lines.append(line.decode())
            self.server.asked.append(lines[0])
            if self.server.answer is None:
                self.rfile.read(1)
                return
            self.wfile.write(f"HTTP/1.0 {self.server.status}\r\n\r\n{self.server.answer}".encode())

    def __init__(self, path: Path) -> None:
        self.answer: str | None = whois(f"{OTHER}/32", "fd7a:115c:a1e0::7/128")
        self.asked: list[str] = []
        super().__init__(str(path), self.Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


def whois(*addresses: str, name: str = "head") -> str:
    """Return an answer of tailscaled's LocalAPI."""
    node = {"ID": 1, "Name": f"{name}.lab.", "Addresses": addresses, "AllowedIPs": addresses}
    return json.dumps({"Node": node, "UserProfile": {"DisplayName": name}, "CapMap": {"x": "y" * 20000}})


@dataclass
class Pod:
    """The library with its configuration, and what is around it."""

    library: Path
    config: Path
    proxy: Proxy
    tailscaled: Tailscaled

    def run(self, program: str, **environment: str) -> Any:
        """Run a Python program with the library. Return the value that it gives to `show`."""
        process = self.begin(program, **environment)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return json.loads(output)

    def begin(self, program: str, **environment: str) -> subprocess.Popen[str]:
        """Start a Python program with the library."""
        text = f"{HEADER}\nimport json\ndef show(value): print(json.dumps(value), flush=True)\n{program}"
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", text],
            env={"PATH": os.environ["PATH"], "LD_PRELOAD": str(self.library), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def accepted_by(self, program: str) -> Any:
        """Run a server as slurmd has the library; connect to the port that it shows, and return what it shows then."""
        process = self.begin(program, TAILNET_ACCEPT="1")
        assert process.stdout
        port = json.loads(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)):
            output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return json.loads(output)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the library. gcc must have no warning."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "tailnet.c").write_text(SOURCE)
    macros = (f'-DCONFIG="{folder}/config"', f"-DCONNECT_MS={CONNECT_MS}", f"-DWHOIS_MS={WHOIS_MS}")
    warnings = ("-Wall", "-Wextra", "-Wshadow", "-Werror")
    options = (*library._OPTIONS, *warnings, *macros, "-o", folder / "tailnet.so", folder / "tailnet.c")
    subprocess.run(["gcc", *options, *library._LIBRARIES], check=True)
    return folder


@pytest.fixture
def pod(built: Path, tmp_path: Path) -> Iterator[Pod]:
    """A pod with a proxy, tailscaled, and an echo server behind each address of the tailnet."""
    echo = Echo()
    proxy = Proxy(echo.server_address[:2])  # type: ignore[arg-type]
    tailscaled = Tailscaled(tmp_path / "s")
    (built / "config").write_text(f"{OWN} 127.0.0.3:{proxy.port} {tmp_path}/s\n")
    yield Pod(built / "tailnet.so", built / "config", proxy, tailscaled)
    proxy.close()
    for server in (echo, tailscaled):
        server.shutdown()
        server.server_close()


def test_a_connection_to_another_machine_goes_through_the_proxy_and_shows_that_machine(pod: Pod) -> None:
    program = """
s = connected((OTHER, PORT))
s.sendall(b"hello")
show([s.recv(5).decode(), s.getpeername(), s.getblocking()])"""
    assert pod.run(program) == ["hello", [OTHER, PORT], True]
    assert pod.proxy.asked == [(OTHER, PORT)]


@pytest.mark.parametrize("bound", [b"\1\x64\x40\0\4\0\0", b"\4" + b"\0" * 18, b"\3\5where\0\0"])
def test_no_byte_of_the_proxys_answer_reaches_the_program(pod: Pod, bound: bytes) -> None:
    pod.proxy.bound = bound
    program = "s = tcp(); s.connect((OTHER, PORT)); s.sendall(b'x'); show(s.recv(100).decode())"
    assert pod.run(program) == "x"


def test_a_refusal_is_an_error_and_the_socket_can_connect_again(pod: Pod) -> None:
    program = """
s = tcp()
failed = error_of(lambda: s.connect((OTHER, 1)))
alone = error_of(s.getpeername)
s.connect((OTHER, PORT))
show([failed, alone, s.getpeername()])"""
    for code, error in {1: "ECONNREFUSED", 3: "ENETUNREACH", 4: "EHOSTUNREACH", 5: "ECONNREFUSED"}.items():
        pod.proxy.answers[1] = code
        assert pod.run(program) == [error, "ENOTCONN", [OTHER, PORT]], code


def test_a_proxy_that_does_not_answer_is_waited_for_until_the_limit(pod: Pod) -> None:
    pod.proxy.answers[PORT] = None
    program = """
began = time.monotonic()
failed = error_of(lambda: tcp().connect((OTHER, PORT)))
show([failed, time.monotonic() - began])"""
    error, seconds = pod.run(program)
    assert error == "ETIMEDOUT"
    assert CONNECT_MS / 1000 <= seconds < CONNECT_MS / 1000 + 2


def test_a_connected_socket_stays_connected_when_it_is_connected_again(pod: Pod) -> None:
    program = """
s = connected((OTHER, PORT))
failed = error_of(lambda: s.connect((OTHER, PORT)))
s.sendall(b"x")
show([failed, s.recv(1).decode()])"""
    assert pod.run(program) == ["EISCONN", "x"]


def test_a_socket_that_does_not_block_is_connected_at_once_and_still_does_not_block(pod: Pod) -> None:
    program = """
import select
s = tcp()
s.setblocking(False)
failed = s.connect_ex((OTHER, PORT))
writable = select.select([], [s], [], 5)[1] == [s]
nothing = error_of(lambda: s.recv(1))
show([failed, writable, s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), nothing, os.get_blocking(s.fileno())])"""
    assert pod.run(program) == [0, True, 0, "EAGAIN", False]


def test_a_machines_own_address_is_reached_without_the_proxy_and_is_the_other_side_on_both_ends(pod: Pod) -> None:
    program = """
listener = listening(OWN)
port = listener.getsockname()[1]
client = connected((OWN, port))
server, address = listener.accept()
show([listener.getsockname()[0], address[0], server.getpeername()[0], client.getpeername() == (OWN, port)])"""
    assert pod.run(program, TAILNET_ACCEPT="1") == ["127.0.0.1", OWN, OWN, True]
    assert (pod.proxy.asked, pod.tailscaled.asked) == ([], [])


ACCEPT = """
listener = listening(OWN)
show(listener.getsockname()[1])
server, address = listener.accept()
show([address[0], server.getpeername()[0], server.getpeername()[1] == address[1]])"""


def test_slurmd_sees_the_machine_behind_a_connection_that_tailscaled_has_forwarded(pod: Pod) -> None:
    assert pod.accepted_by(ACCEPT) == [OTHER, OTHER, True]
    (asked,) = pod.tailscaled.asked
    assert asked.startswith("GET /localapi/v0/whois?proto=tcp&addr=127.0.0.1:")


def test_only_slurmd_asks_for_the_peers_of_a_pod(pod: Pod) -> None:
    program = """
listener = listening(OWN)
client = connected(("127.0.0.1", listener.getsockname()[1]))
show(listener.accept()[1][0])"""
    assert pod.run(program) == "127.0.0.1"
    assert pod.tailscaled.asked == []


def test_a_connection_without_a_known_machine_shows_loopback(pod: Pod) -> None:
    cut_off, long = '{"Node":{"Addresses":["100.64.0.', '{"Node":{"Addresses":["' + "1" * 9000
    for answer in ("no such peer", "", None, whois("192.0.2.1/32"), whois(), cut_off, long):
        pod.tailscaled.answer = answer
        assert pod.accepted_by(ACCEPT) == ["127.0.0.1", "127.0.0.1", True], answer
    # No name of a machine can look like its address.
    name = '","Addresses":["100.64.0.1/32"],"x":"'
    pod.tailscaled.answer = json.dumps({"Node": {"Name": name, "Addresses": [f"{OTHER}/32"]}})
    assert pod.accepted_by(ACCEPT)[0] == OTHER


def test_many_threads_connect_at_the_same_time_and_see_their_own_other_side(pod: Pod) -> None:
    program = """
wrong = []
def talk(number):
    for turn in range(10):
        s, target = tcp(), ("100.64.1.%d" % number, 1000 + turn)
        s.connect(target)
        s.sendall(b"%d" % number)
        if s.getpeername() != target or s.recv(10) != b"%d" % number:
            wrong.append(target)
        s.close()
threads = [threading.Thread(target=talk, args=(number,)) for number in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
show(wrong)"""
    assert pod.run(program) == []
    assert len(pod.proxy.asked) == 160


def test_a_descriptor_that_is_used_again_does_not_show_the_earlier_machine(pod: Pod) -> None:
    program = """
listener = listening("127.0.0.1")
s = connected((OTHER, PORT))
number = s.fileno()
s.close()
again = connected(listener.getsockname())
show([again.fileno() == number, again.getpeername()[0]])"""
    assert pod.run(program) == [True, "127.0.0.1"]


def test_a_copied_descriptor_and_a_child_process_see_the_same_machine(pod: Pod) -> None:
    program = """
s = connected((OTHER, PORT))
copy = s.dup()
reader, writer = os.pipe()
if os.fork() == 0:
    s.close()
    fresh = connected((OTHER, PORT))
    os.write(writer, repr([copy.getpeername()[0], fresh.getpeername()[0]]).encode())
    os._exit(0)
os.wait()
show([copy.getpeername()[0], os.read(reader, 1000).decode()])"""
    assert pod.run(program) == [OTHER, repr([OTHER, OTHER])]


def test_a_child_forked_while_threads_connect_does_not_hang(pod: Pod) -> None:
    program = """
stop = False
s = connected((OTHER, PORT))
def look():
    while not stop:
        s.getpeername()
threads = [threading.Thread(target=look) for _ in range(4)]
[thread.start() for thread in threads]
statuses = []
for turn in range(50):
    child = os.fork()
    if child == 0:
        os._exit(s.getpeername() != (OTHER, PORT))
    statuses.append(os.waitpid(child, 0)[1])
stop = True
show(statuses)"""
    assert pod.run(program) == [0] * 50


def test_udp_and_other_addresses_are_left_alone(pod: Pod) -> None:
    program = """
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    udp.connect((OTHER, PORT))
    where = udp.getpeername()[0]
except OSError as error:  # no route
    where = OTHER
bound = error_of(lambda: udp.bind((OWN, 0)))
listener = listening("127.0.0.1")
client = connected(listener.getsockname())
pair = socket.socketpair()
show([where, bound is None, client.getpeername() == listener.getsockname(), pair[0].getpeername()])"""
    assert pod.run(program) == [OTHER, False, True, ""]
    assert pod.proxy.asked == []


def test_without_a_valid_configuration_nothing_changes(pod: Pod) -> None:
    program = """
listener = listening("127.0.0.1")
client = connected(listener.getsockname())
show([error_of(lambda: tcp().bind((OWN, 0))), listener.accept()[1][0], client.getpeername()[0]])"""
    places = (
        "192.0.2.1 127.0.0.3:1055",
        "100.64.0.4 192.0.2.1:1055",
        "100.64.0.4 127.0.0.3:0",
        "100.64.0.4 127.0.0.3:70000",
    )
    for text in ("", "100.64.0.4", "1" * 300, *(f"{place} /s" for place in places)):
        pod.config.write_text(text)
        assert pod.run(program, TAILNET_ACCEPT="1") == ["EADDRNOTAVAIL", "127.0.0.1", "127.0.0.1"], text


FOPEN = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def opens(path, name="fopen"):
    call = getattr(libc, name)
    call.restype = ctypes.c_void_p
    file = call(path.encode(), b"r")
    if not file:
        return errno.errorcode[ctypes.get_errno()]
    text = ctypes.create_string_buffer(100)
    libc.fgets.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p)
    libc.fgets(text, 100, file)
    return text.value.decode()
"""


def test_files_that_can_be_read_are_read_from_their_beginning(pod: Pod) -> None:
    program = """
paths = (f"/proc/{os.getpid()}/io", "/proc/self/io", "/etc/hostname", "/nonexistent")
show([[opens(path, name) for path in paths] for name in ("fopen", "fopen64")])"""
    for io, itself, host, missing in pod.run(FOPEN + program):
        assert io.startswith("rchar: ")
        assert itself.startswith("rchar: ")
        assert host
        assert missing == "ENOENT"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program of another account")
def test_figures_of_a_process_that_root_may_not_see_into_cannot_be_opened(pod: Pod) -> None:
    program = """
CAP_SYS_PTRACE, PR_CAPBSET_DROP = 19, 24
child = os.fork()
if child == 0:
    os.setuid(65534)
    time.sleep(60)
    os._exit(0)
while os.stat(f"/proc/{child}").st_uid == 0:
    time.sleep(0.01)
libc.prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0)
# Programs that start from now on lack the capability, as all programs on a pod do.
os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", os.environ["SECOND"], str(child)])
"""
    second = f"""{HEADER}{FOPEN}
import json
child = sys.argv[1]
print(json.dumps([opens(path) for path in ("/proc/self/io", f"/proc/{{child}}/io", f"/proc/{{child}}/stat")]))
os.kill(int(child), 9)
"""
    own, others, stat = pod.run(FOPEN + program, SECOND=second)
    assert own.startswith("rchar: ")
    assert others == "EACCES"
    assert "(" in stat


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the pod's disk."""
    monkeypatch.setattr(safe_path, "root", str(tmp_path))
    return tmp_path


def test_the_library_is_built_once_for_each_version(machine: Path) -> None:
    path = Path(f"{machine}{library.library_path(SOURCE)}")
    library.build_library(SOURCE, "p1")
    state = path.stat()
    assert state.st_mode & 0o777 == 0o755
    library.build_library(SOURCE, "p1")
    assert path.stat() == state
    assert [entry.name for entry in path.parent.iterdir() if entry.suffix == ".new"] == []


def test_a_source_that_does_not_compile_names_the_command_to_run(machine: Path) -> None:
    with pytest.raises(Failure, match="gcc cannot build the library") as caught:
        library.build_library("int main(", "p1")
    assert "gcc -shared -fPIC -o /tmp/library.so /usr/local/lib/tailrack/tailnet.c' on p1" in str(caught.value.remedy)
    assert not list(machine.rglob("*.so*"))


def older(machine: Path) -> Path:
    """Return the path of a library of another version."""
    path = Path(f"{machine}{library.library_path('another')}")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    return path


def process(machine: Path, pid: int, uid: int, maps: str) -> None:
    """Show a process in the folder that stands for /proc."""
    folder = machine / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "maps").write_text(maps)


def test_an_older_library_goes_once_no_process_may_use_it(machine: Path) -> None:
    path = older(machine)
    process(machine, 1, 0, "7f0-7f1 r-xp 00000000 00:1f 123                    /usr/bin/sleep\n7f2-7f3 rw-p 0 0:0 0\n")
    process(machine, 9, 100, "")  # munged, into which root cannot see
    process(machine, 7, 6001, "")  # a job, into which root cannot see
    library.build_library(SOURCE, "p1")
    assert path.exists()
    shutil.rmtree(machine / "proc/7")
    library.build_library(SOURCE, "p1")
    assert not path.exists()
