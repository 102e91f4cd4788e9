"""The fabric of a site: which networks nodes share, proven by what they carry, and who is asked for that."""

import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from components.node import files, safe_path
from components.roles.network.fabric import groups, networks, proof
from components.roles.network.fabric.host import networks_here
from components.roles.network.fabric.networks import FabricError, Thing
from components.roles.network.fabric.proof import SilentError
from components.roles.program import program
from components.roles.slurm.slurm.folders import NODES
from components.validation.preflight.neighbour import BYTES

# What is at the end of each cable: interfaces with the same number are on one network.
ETH0 = {"default_route": True, "speed": 10000, "rdma": False}
FAST = {"default_route": False, "speed": 400000, "rdma": True}
TOKEN = "a" * proof.TOKEN_CHARACTERS


def interface(name: str, network: int, host: int, **more: Any) -> Thing:
    return {"name": name, "address": f"10.{network}.0.{host}/24", **{**ETH0, "default_route": False}, **more}


def port(device: str) -> Thing:
    return {"device": device, "port": 1, "interface": "", "link": "InfiniBand", "rail": -1}


class Site:
    """Nodes of one site as the head node sees them; `asked` are the pairs of nodes that took part in a proof."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / NODES.lstrip("/")
        monkeypatch.setattr(safe_path, "root", str(folder))
        files.make_folder(NODES)
        self.asked: list[tuple[str, str]] = []
        self.silent: set[str] = set()
        self.cut: set[str] = set()  # networks' numbers that carry nothing
        self.rdma = True
        monkeypatch.setattr(groups, "prove", self._proven)

    def _proven(self, mine: Thing, theirs: Thing) -> tuple[list[tuple[Thing, Thing]], list[tuple[Thing, Thing]]]:
        self.asked.append((mine["node"], theirs["node"]))
        if theirs["node"] in self.silent:
            raise SilentError(f"{theirs['node']} is away")
        pairs = [
            (own, other)
            for own in mine["interfaces"]
            for other in theirs["interfaces"]
            if proof.may_share_network(own, other, mine["setting"])
            and own["address"].split(".")[1] == other["address"].split(".")[1]
            and own["address"].split(".")[1] not in self.cut
        ]
        return pairs, networks.pair_ports(mine["rdma"], theirs["rdma"]) if self.rdma else []

    def join(self, node: str, *interfaces: Thing, setting: str = "auto", rdma: tuple[str, ...] = ()) -> Thing:
        devices = [port(name) for name in rdma]
        what = {"node": node, "site": "rack", "setting": setting, "address": f"100.64.0.{len(node)}"}
        return groups.prove_node({**what, "interfaces": list(interfaces), "rdma": devices})

    def leave(self, node: str) -> None:
        for path in (self.folder / node).iterdir():
            path.unlink()

    @property
    def topology(self) -> str:
        """The comments that Slurm brings to every node."""
        return "".join(path.read_text().lstrip() for path in sorted(self.folder.glob("*/fabric")))

    def groups(self) -> dict[str, set[str]]:
        """Nodes by group."""
        found: dict[str, set[str]] = {}
        for line in self.topology.splitlines():
            _, _, node, _, group, _, _, _ = line.split(" ")
            found.setdefault(group, set()).add(node)
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_the_second_node_of_a_site_proves_the_fabric_of_the_first(site: Site) -> None:
    first = site.join("a1", interface("eth0", 1, 1), interface("eth1", 2, 1))
    assert (first["interfaces"], first["note"], first["error"], site.topology) == ([], "", "", "")
    second = site.join("a2", interface("ens5", 1, 2, default_route=True), interface("ens6", 2, 2))
    assert second["interfaces"] == ["ens6", "ens5"], "of two alike, the one that is not the way out comes first"
    assert second["with"] == [("a1", "eth1"), ("a1", "eth0")]
    assert sorted(site.groups().values(), key=str) == [{"a1", "a2"}, {"a1", "a2"}]


def test_a_node_that_lacks_the_fast_network_shares_the_other_one_and_the_rest_keep_the_fast(site: Site) -> None:
    site.join("head", interface("eth0", 1, 1, default_route=True))
    for host, node in enumerate(("g1", "g2", "g3"), start=2):
        told = site.join(node, interface("eth0", 1, host, default_route=True), interface("ib0", 2, host, **FAST))
    assert told["interfaces"] == ["ib0", "eth0"]
    assert sorted(map(sorted, site.groups().values())) == [["g1", "g2", "g3"], ["g1", "g2", "g3", "head"]]


def test_an_unproven_fabric_is_proven_when_a_neighbour_answers(site: Site) -> None:
    site.join("a1", interface("eth0", 1, 1))
    site.silent = {"a1"}
    assert site.join("a2", interface("eth0", 1, 2))["note"]
    assert groups.prove_again() == {"proven": [], "left": ["a2"]}
    site.silent = set()
    assert groups.prove_again() == {"proven": ["a2"], "left": []}
    assert list(site.groups().values()) == [{"a1", "a2"}]
    asked = len(site.asked)
    assert groups.prove_again() == {"proven": [], "left": []}
    assert len(site.asked) == asked, "what is proven is left alone"


def join_while_silent(site: Site) -> None:
    """Bring a1, a2 and a3 in; when the last two come, the first two do not answer."""
    site.join("a1", interface("eth0", 1, 1))
    site.silent = {"a1", "a2"}
    for host, node in ((2, "a2"), (3, "a3")):
        site.join(node, interface("eth0", 1, host))


def test_a_silent_node_keeps_no_other_from_its_proof(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    join_while_silent(site)
    count = len(site.asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "AGAIN_SECONDS", 0.0)
        assert sorted(groups.prove_again()["left"]) == ["a2", "a3"]
    assert len(site.asked) == count, "the time is over"
    site.silent = set()
    answers = site._proven

    def proven(mine: Thing, theirs: Thing) -> Any:
        if mine["node"] == "a2":
            raise FabricError("a2 does not answer")
        return answers(mine, theirs)

    monkeypatch.setattr(groups, "prove", proven)
    assert groups.prove_again() == {"proven": ["a3"], "left": ["a2"]}


def test_a_node_that_leaves_during_its_proof_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.join("a1", interface("eth0", 1, 1))
    site.silent = {"a1"}
    site.join("a2", interface("eth0", 1, 2))
    site.silent = set()
    answers = site._proven

    def proven(mine: Thing, theirs: Thing) -> Any:
        site.leave("a2")
        (site.folder / "a2").rmdir()
        return answers(mine, theirs)

    monkeypatch.setattr(groups, "prove", proven)
    groups.prove_again()
    assert not (site.folder / "a2").exists()


def test_a_node_with_a_failed_network_uses_the_tailnet_and_reports_it(site: Site) -> None:
    for host, node in enumerate(("a1", "a2", "a3"), start=1):
        site.join(node, interface("eth0", 1, host))
    site.cut = {"1"}
    told = site.join("a3", interface("eth0", 1, 3))
    note = "eth0 (10.1.0.3/24) of a3 carried no 1 MiB to a1 of site rack: its jobs stay on the tailnet"
    assert (told["interfaces"], told["note"], told["error"]) == ([], note, "")
    assert list(site.groups().values()) == [{"a1", "a2"}]


def test_a_named_interface_that_carries_nothing_is_an_error_that_restores_the_earlier_record(site: Site) -> None:
    site.join("a1", interface("eth0", 1, 1))
    site.join("a2", interface("eth0", 1, 2))
    before = site.topology
    site.join("b1", interface("eth9", 3, 1), setting="eth9")
    told = site.join("a2", interface("eth9", 4, 2), setting="eth9")
    assert told["error"] == "eth9 (10.4.0.2/24) of a2 carried no 1 MiB to b1 of site rack"
    assert site.topology == before
    assert site.join("c1", interface("eth9", 5, 1), setting="eth9")["error"]
    assert groups.load("c1") is None


def test_a_node_that_comes_back_at_another_network_is_not_taken_for_the_one_before(site: Site) -> None:
    for host, node in enumerate(("a1", "a2", "a3"), start=1):
        site.join(node, interface("eth0", 1, host))
    site.leave("a1")
    site.join("a1", interface("eth0", 2, 1))
    site.join("b", interface("eth0", 2, 2))
    assert sorted(map(sorted, site.groups().values())) == [["a1", "b"], ["a2", "a3"]]


def test_two_that_join_at_once_end_up_in_one_group(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.join("a1", interface("eth0", 1, 1))
    meeting = threading.Barrier(2, timeout=10)
    known = site._proven

    def together(mine: Thing, theirs: Thing) -> Any:
        if theirs["node"] == "a1":
            meeting.wait()
        return known(mine, theirs)

    monkeypatch.setattr(groups, "prove", together)
    joins = [
        threading.Thread(target=site.join, args=(node, interface("eth0", 1, host)))
        for host, node in ((2, "a2"), (3, "a3"))
    ]
    for thread in joins:
        thread.start()
    for thread in joins:
        thread.join()
    assert list(site.groups().values()) == [{"a1", "a2", "a3"}]


def test_rdma_ports_that_carried_are_a_group_of_their_own(site: Site) -> None:
    ports = ("mlx5_0", "mlx5_1")
    site.join("g1", interface("eth0", 1, 1), rdma=ports)
    assert site.join("g2", interface("eth0", 1, 2), rdma=(*ports, "mlx5_9"))["rdma"] == ["mlx5_0:1", "mlx5_1:1"]
    site.rdma = False
    assert site.join("g3", interface("eth0", 1, 3), rdma=ports)["rdma"] == []
    lines = [line.split(" ")[2:] for line in site.topology.splitlines()]
    assert [(node, *rest) for node, _, _, *rest in lines] == [
        ("g1", "eth0", "10.1.0.0/24", "-"), ("g1", "rdma:InfiniBand", "-", "mlx5_0:1,mlx5_1:1"),
        ("g2", "eth0", "10.1.0.0/24", "-"), ("g2", "rdma:InfiniBand", "-", "mlx5_0:1,mlx5_1:1"),
        ("g3", "eth0", "10.1.0.0/24", "-"),
    ]  # fmt: skip


def test_a_record_of_an_earlier_release_is_proven_by_ip_until_its_node_comes_by(site: Site) -> None:
    site.join("g1", interface("eth0", 1, 1), rdma=("mlx5_0",))
    old = groups.load("g1")
    assert old is not None
    old["rdma"] = [{"device": "mlx5_0", "port": 1, "interface": ""}]
    old["groups"] = {"rack/g1/eth0/1": {"rank": 1, "interface": "eth0", "network": "10.1.0.0/24", "rdma": ["mlx5_0:1"]}}
    groups.save(old)
    told = site.join("g2", interface("eth0", 1, 2), rdma=("mlx5_0",))
    assert (told["interfaces"], told["rdma"], told["note"]) == (["eth0"], [], "")
    assert site.join("g1", interface("eth0", 1, 1), rdma=("mlx5_0",))["rdma"] == ["mlx5_0:1"]


# --- what is carried


def test_one_mebibyte_goes_there_and_comes_back() -> None:
    with proof.Listener(TOKEN, [["lo", "127.0.0.1"], ["lo", "127.0.0.2"]], []) as listener:
        end, other = socket.socketpair()
        serving = threading.Thread(target=listener.serve, args=(end,))
        serving.start()
        assert set(listener.ports) <= set(proof.PORTS)
        pairs = [["lo", "127.0.0.1", "127.0.0.2", listener.ports[1]], ["lo", "127.0.0.1", "127.0.0.1", 1]]
        assert proof.connect(TOKEN, pairs, "", []) == {"carried": [True, False], "rdma": []}
        assert proof.connect("b" * len(TOKEN), pairs[:1], "", [])["carried"] == [False]
        other.close()
        serving.join(5)
        assert not serving.is_alive()
        end.close()


def answering(answer: Callable[[bytes], bytes]) -> tuple[int, threading.Thread]:
    """A listener on loopback that answers once what it got in its own way; its port."""
    door = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with door, door.accept()[0] as connection:
            connection.sendall(proof.greeting(TOKEN))
            data = b""
            while len(data) < proof.TOKEN_CHARACTERS + BYTES and (more := connection.recv(2**16)):
                data += more
            connection.sendall(answer(data[proof.TOKEN_CHARACTERS :]))

    thread = threading.Thread(target=run)
    thread.start()
    return int(door.getsockname()[1]), thread


def test_only_the_same_bytes_prove_a_network() -> None:
    for answer, proves in (
        (lambda data: data, True),
        (lambda data: data[:-1], False),
        (lambda data: data[:-1] + b"x", False),
        (lambda data: b"\0" * len(data), False),
        (lambda data: b"", False),
    ):
        port, thread = answering(answer)
        assert proof.carry(TOKEN, "lo", "127.0.0.1", "127.0.0.1", port) is proves, answer(b"12")
        thread.join(5)


def test_a_port_in_use_is_left_alone_and_a_missing_address_has_port_0(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        ports = [int(door.getsockname()[1]) for door in (taken, free)]
        free.close()
        monkeypatch.setattr(proof, "PORTS", ports)
        with proof.Listener(TOKEN, [["lo", "127.0.0.1"], ["lo", "127.0.0.1"]], []) as listener:
            assert sorted(listener.ports) == [0, ports[1]]
    with proof.Listener(TOKEN, [["lo", "192.0.2.1"], ["no-such-card", "127.0.0.1"]], []) as listener:
        assert listener.ports == [0, 0]


# --- who is let in


@pytest.fixture
def munge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Stand-ins for munge and unmunge; return a function that says which uid made what comes next."""
    tools = tmp_path / "bin"
    tools.mkdir()

    def program(name: str, text: str) -> None:
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)

    def made_by(uid: int) -> None:
        program(
            "unmunge",
            f"IFS= read -r text; [[ $text == MUNGE:*: ]] || exit 1; text=${{text#MUNGE:}}\n"
            f'printf "STATUS:    Success (0)\\nUID:    somebody ({uid})\\nLENGTH: 1\\n\\n%s" "${{text%:}}"',
        )

    program("munge", 'printf "MUNGE:%s:\\n" "$(cat)"')
    program("ibv_rc_pingpong", f'echo "$@" >>{tmp_path}/pingpong; [[ $* != *mlx5_9* ]]')
    made_by(0)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return made_by


@pytest.fixture
def machines(munge: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Thing]]:
    """Machines a1 and a2 on loopback, each answering as its socket unit does."""
    ends = {"a1": "127.0.0.11", "a2": "127.0.0.12"}
    # Loopback stands for both, the site's network and the tailnet.
    monkeypatch.setattr(proof, "is_peer", proof.is_address)
    monkeypatch.setattr(proof, "is_tailnet", proof.is_address)
    doors = []
    for node, address in ends.items():
        door = socket.create_server((address, networks.PORT))
        doors.append(door)

        def answer(node: str = node, door: socket.socket = door) -> None:
            while True:
                try:
                    connection, _ = door.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(node, connection), daemon=True).start()

        def one(node: str, connection: socket.socket) -> None:
            with connection, connection.makefile("r") as reading, connection.makefile("w") as writing:
                proof.serve(node, reading, writing)

        threading.Thread(target=answer, daemon=True).start()
    yield {
        node: {
            "node": node, "site": "rack", "setting": "lo", "address": address, "groups": {}, "rdma": [],
            "interfaces": [{"name": "lo", "address": f"{address}/8", **ETH0}],
        }
        for node, address in ends.items()
    }  # fmt: skip
    for door in doors:
        door.shutdown(socket.SHUT_RDWR)
        door.close()


def test_rdma_is_proven_by_a_transfer_of_its_own(machines: dict[str, Thing], tmp_path: Path) -> None:
    for node in machines.values():
        node["rdma"] = [port(name) for name in ("mlx5_0", "mlx5_9")]
    _, rdma = proof.prove(machines["a2"], machines["a1"])
    assert [(own["device"], other["device"]) for own, other in rdma] == [("mlx5_0", "mlx5_0")]
    calls = (tmp_path / "pingpong").read_text().splitlines()
    assert all("-s 1048576" in call for call in calls)
    assert len([call for call in calls if call.endswith(" 127.0.0.11")]) == 2


def test_a_missing_machine_is_silent_as_a_neighbour_and_an_error_as_the_node(machines: dict[str, Thing]) -> None:
    away = {**machines["a1"], "node": "a3", "address": "127.0.0.13"}
    with pytest.raises(SilentError, match=r"a3 at 127\.0\.0\.13"):
        proof.prove(machines["a1"], away)
    with pytest.raises(FabricError, match=r"a3 does not answer at 127\.0\.0\.13:6816"):
        proof.prove(away, machines["a1"])


@pytest.mark.parametrize(
    "ports", ["[70000]", "[-1]", "[true]", '["22"]', "[1.5]", f"[{'9' * 4000}]", "[" * 20_000 + "]" * 20_000, "[1, 2]"]
)
def test_a_neighbour_that_answers_nonsense_is_silent_and_does_no_harm_to_the_node_that_joins(
    machines: dict[str, Thing], monkeypatch: pytest.MonkeyPatch, ports: str
) -> None:
    sealed = proof.seal

    def sealed_by_a1(value: Thing) -> str:
        if "rdma_ports" not in value:
            return sealed(value)
        return f'MUNGE:{{"nonce": "{value["nonce"]}", "rdma_ports": [], "ports": {ports}}}:'

    monkeypatch.setattr(proof, "seal", sealed_by_a1)
    with pytest.raises(SilentError, match=r"a1 at 127\.0\.0\.11"):
        proof.prove(machines["a2"], machines["a1"])


def test_a_slow_neighbour_delays_a_proof_like_a_silent_one(munge: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "LISTEN_SECONDS", 0.3)
    with socket.create_server(("127.0.0.13", networks.PORT)) as door:
        over = threading.Event()

        def drip() -> None:
            with door.accept()[0] as connection:
                while not over.wait(0.05):
                    connection.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        with proof.Request("a3", "127.0.0.13", {"do": "listen"}) as asked:
            late = threading.Timer(3, over.set)
            late.start()
            with pytest.raises(TimeoutError):
                asked.answer()
            assert not over.is_set()
            late.cancel()
            over.set()
            dripping.join(5)


@pytest.mark.parametrize(
    ("do", "what"), [("listen", "interfaces"), ("listen", "rdma"), ("connect", "pairs"), ("connect", "rdma")]
)
def test_a_request_for_more_than_any_machine_has_is_refused(munge: object, do: str, what: str) -> None:
    request = {"do": do, "to": "a1", "nonce": "1" * 32, "token": TOKEN, "interfaces": [], "pairs": [], "rdma": []}
    many = [["mlx5_0", 1]] * 257
    asked = proof.seal({**request, "server": "127.0.0.1", what: many})
    with pytest.raises(FabricError, match="more than"):
        proof.serve("a1", io.StringIO(f"{asked}\n"), io.StringIO())


LISTEN = {
    "do": "listen", "to": "a1", "nonce": "1" * 32, "token": TOKEN, "interfaces": [["lo", "127.0.0.1"]], "rdma": [],
}  # fmt: skip
CONNECT = {
    "do": "connect", "to": "a1", "nonce": "1" * 32, "token": TOKEN, "rdma": [["mlx5_0", 1, 61000]],
    "server": "100.64.0.2", "pairs": [["eth1", "10.2.0.1", "10.2.0.2", 61000]],
}  # fmt: skip


def to(address: str, port: Any = 61000) -> Thing:
    return {"pairs": [["eth1", "10.2.0.1", address, port]]}


@pytest.mark.parametrize(
    "wrong",
    [
        to("127.0.0.1"), to("127.8.8.8"), to("0.0.0.1"), to("169.254.169.254"), to("224.0.0.1"), to("255.255.255.255"),
        to("100.64.0.1"), to("::1"), to("localhost"), to("10.2.0.02"), to("2130706433"), to("OWN"),
        *(to("10.2.0.2", port) for port in (22, 80, 6817, 60999, 62000, 0, -1, True, "61000", 61000.0, None)),
        {"pairs": [["eth1", "10.2.0.1", "10.2.0.2", 61000, 1]]}, {"pairs": [["../e", "10.2.0.1", "10.2.0.2", 61000]]},
        {"pairs": {"eth1": 1}}, {"pairs": 7}, {"pairs": "eth1"}, {"pairs": [7]},
        {"token": "POST / HTTP/1.0\r\n\r\n"}, {"token": "a" * 63}, {"token": ["a" * 64]}, {"token": f"{'a' * 64}\n"},
        {"nonce": {}}, {"server": "127.0.0.1"}, {"server": "10.2.0.2"}, {"server": "-d"}, {"server": 7},
        {"rdma": [["mlx5_0", 1, 22]]}, {"rdma": [["--help", 1, 61000]]}, {"rdma": [["mlx5_0", 0, 61000]]},
        {"do": "anything"}, {"do": []}, {"do": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_machine_proves_only_to_its_site_at_the_ports_of_the_proof(wrong: Thing) -> None:
    own = next(iter(own_addresses()))
    request = json.loads(json.dumps({**CONNECT, **wrong}).replace("OWN", own))
    with pytest.raises(FabricError):
        proof.check(request, "a1")


def own_addresses() -> list[str]:
    """This machine's addresses beside loopback's."""
    said = subprocess.run(["ip", "-json", "-4", "address"], capture_output=True, text=True, check=True).stdout
    found = [each["local"] for link in json.loads(said) for each in link.get("addr_info", ())]
    return [address for address in found if not address.startswith("127.")]


def test_only_the_head_node_starts_a_proof_on_a_machine(munge: object, tmp_path: Path, installed: Path) -> None:
    """As its unit runs it: a connection on stdin, whose other end is the one who asks."""
    head = tmp_path / "head-address"
    head.write_text("127.0.0.21\n")

    def asked(address: str) -> str:
        with (
            socket.create_server(("127.0.0.11", 0)) as door,
            socket.create_connection(door.getsockname(), source_address=(address, 0)) as asking,
            door.accept()[0] as end,
        ):
            asking.sendall(f"{proof.seal({**LISTEN, 'interfaces': []})}\n".encode())
            asking.shutdown(socket.SHUT_WR)
            words = [sys.executable, str(installed / program().digest), "fabric", "serve", "a1", str(head)]
            done = subprocess.run(
                words, stdin=end.fileno(), stdout=end.fileno(), stderr=subprocess.PIPE, text=True, timeout=30
            )
            end.shutdown(socket.SHUT_WR)
            answer = asking.makefile().read()
        assert bool(answer) is not bool(done.stderr), done.stderr
        assert done.returncode == (0 if answer else 1)
        return answer or done.stderr

    assert "a request came from 127.0.0.22, which is not the head node" in asked("127.0.0.22")
    assert proof.unseal(asked("127.0.0.21")) == {"ports": [], "rdma_ports": [], "nonce": "1" * 32}
    head.unlink()
    assert "head-address" in asked("127.0.0.21"), "before it knows its head node a machine answers nobody"


@pytest.mark.parametrize("said", ["", "\n", "GET / HTTP/1.0\n", "MUNGE:[]:\n", "MUNGE:{:\n", "x" * 10**6])
def test_the_proof_rejects_an_invalid_request(munge: object, said: str) -> None:
    with pytest.raises(FabricError):
        proof.serve("a1", io.StringIO(said), io.StringIO())


def test_a_request_to_another_machine_or_of_another_account_is_refused(munge: Callable[[int], None]) -> None:
    said = io.StringIO()
    with pytest.raises(FabricError, match="another machine"):
        proof.serve("a1", io.StringIO(f"{proof.seal({**LISTEN, 'to': 'a2'})}\n"), said)
    munge(6001)
    with pytest.raises(FabricError, match="root of the cluster"):
        proof.serve("a1", io.StringIO(f"{proof.seal({**LISTEN, 'interfaces': []})}\n"), said)
    assert said.getvalue() == ""


# --- what a machine has


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with many kinds of interface."""
    monkeypatch.setattr(networks, "NET", tmp_path / "net")
    for module in (networks, networks):
        monkeypatch.setattr(module, "VERBS", tmp_path / "infiniband")
    links = {
        "lo": ("127.0.0.1", 8, 772), "ens5": ("10.1.0.5", 20, 1), "ib0": ("192.168.7.5", 16, 32),
        "docker0": ("172.17.0.1", 16, 1), "tailscale0": ("100.64.0.5", 32, 65534), "wg0": ("10.9.0.5", 24, 65534),
        "wan0": ("8.8.4.4", 24, 1), "zeroconf": ("169.254.1.2", 16, 1), "carrier": ("100.70.0.5", 24, 1),
    }  # fmt: skip
    for name, (_, _, kind) in links.items():
        (tmp_path / "net" / name).mkdir(parents=True)
        (tmp_path / "net" / name / "type").write_text(f"{kind}\n")
    (tmp_path / "net/docker0/bridge").mkdir()
    (tmp_path / "net/ens5/speed").write_text("25000\n")
    (tmp_path / "net/ib0/speed").write_text("-1\n")
    for device, state, layer, interface in (
        ("mlx5_0", "4: ACTIVE", "InfiniBand", "ib0"), ("mlx5_1", "1: DOWN", "InfiniBand", ""),
        ("mlx5_2", "4: ACTIVE", "InfiniBand", ""), ("efa_0", "4: ACTIVE", "Unspecified", ""),
    ):  # fmt: skip
        port = tmp_path / "infiniband" / device / "ports/1"
        (port / "gid_attrs/ndevs").mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text(f"{layer}\n")
        (port / "gid_attrs/ndevs/0").write_text(f"{interface}\n")
    shown = [
        {"ifname": name, "addr_info": [{"family": "inet", "local": address, "prefixlen": length}]}
        for name, (address, length, _) in links.items()
    ]
    shown.append({"ifname": "eth9", "addr_info": []})

    def told(*command: str) -> Any:
        return [{"dev": "ens5", "dst": "default"}] if "route" in command else shown

    monkeypatch.setattr(networks, "json_output", told)
    return tmp_path


def test_private_networks_of_cards_may_be_the_fabric_and_nothing_else(machine: Path) -> None:
    found = networks_here("auto", "auto")
    assert found["interfaces"] == [
        {"name": "ens5", "address": "10.1.0.5/20", "default_route": True, "speed": 25000, "rdma": False},
        {"name": "ib0", "address": "192.168.7.5/16", "default_route": False, "speed": 0, "rdma": True},
    ]
    assert [(each["device"], each["interface"]) for each in found["rdma"]] == [("mlx5_0", "ib0"), ("mlx5_2", "")]


def test_an_interface_that_is_named_may_have_any_address_and_takes_no_rdma_device_away(machine: Path) -> None:
    assert [each["name"] for each in networks_here("wan0", "auto")["interfaces"]] == ["wan0"]
    assert [each["device"] for each in networks_here("ib0", "auto")["rdma"]] == ["mlx5_0", "mlx5_2"]
    assert [each["device"] for each in networks_here("wan0", "mlx5_2")["rdma"]] == ["mlx5_2"]
    assert networks_here("ib0", "none")["interfaces"][0]["name"] == "ib0"
    # A name that this machine lacks is refused with those that it has.
    with pytest.raises(FabricError, match=r"no interface eth9 with an IPv4 address here \(ens5, ib0, docker0"):
        networks.interfaces("eth9", ())
    with pytest.raises(FabricError, match=r"^there is no interface eth9 "):
        networks_here("eth9", "auto")
    with pytest.raises(FabricError, match=r"^there is no RDMA device mlx5_7 here \(efa_0, mlx5_0, mlx5_1, mlx5_2\)"):
        networks_here("ib0", "mlx5_7")


def test_roce_takes_the_entry_of_version_2_with_an_ipv4_address(machine: Path) -> None:
    port = machine / "infiniband/mlx5_0/ports/1"
    (port / "gids").mkdir()
    (port / "gid_attrs/types").mkdir()
    for index, (kind, address) in enumerate(
        [("IB/RoCE v1", "fe80"), ("RoCE v2", "fe80"), ("IB/RoCE v1", "0000"), ("RoCE v2", "0000")]
    ):
        (port / f"gid_attrs/types/{index}").write_text(f"{kind}\n")
        (port / f"gids/{index}").write_text(f"{address}:0000:0000:0000:0000:ffff:0a01:0005\n")
    assert networks.gid_index("mlx5_0", 1) == 3
    assert networks.gid_index("mlx5_2", 1) is None
