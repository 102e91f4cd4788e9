"""The CPU program over TCP: real ranks on loopback, as srun starts them, and those who must not take part."""

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.slurm_commands.nodes import node_names
from components.validation.job_files import PROGRAM, job_program
from components.validation.model import JobReport, Measurement
from components.validation.nccl_tests import parse
from components.validation.tcp_ring import FIRST_PORT, NONCE_BYTES, PORTS, PROOF_BYTES, TOKEN, TOKEN_BYTES
from components.validation.transport import Transport, read_transport
from components.validation.verdict import judge

THE_TOKEN = "a token of one job and no other"
LIMIT_SECONDS = 60

Rank = subprocess.Popen[str]
Start = Callable[..., Rank]


@pytest.fixture
def job() -> int:
    """A job's number whose port nobody listens on."""
    while True:
        number = random.randrange(1, 10**6)  # noqa: S311
        with socket.socket() as tried:
            if tried.connect_ex(door(number)):
                return number


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program as a job has it."""
    path = tmp_path / PROGRAM
    path.write_bytes(job_program())
    return path


@pytest.fixture
def start(job: int, program: Path) -> Iterator[Start]:
    """Start one rank as srun would: start(rank, ranks, *options, token=..., **environment)."""
    started: list[Rank] = []

    def run(rank: int, ranks: int, *options: str, token: str = THE_TOKEN, interface: str = "lo", **more: str) -> Rank:
        environment = {
            "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(ranks), "SLURM_JOB_ID": str(job),
            "SLURM_STEP_NODELIST": "localhost", TOKEN: token, "OPENBLAS_NUM_THREADS": "1", **more,
        }  # fmt: skip
        told = ["--interface", interface] if interface else []
        command = [sys.executable, str(program), "all-reduce", "--transport", "tcp", *told, *options]
        path = {"PYTHONPATH": ":".join(sys.path)}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=environment | path, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def door(job: int) -> tuple[str, int]:
    """Where rank 0 of a job listens."""
    return "127.0.0.1", FIRST_PORT + job % PORTS


def ended(process: Rank) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    out, error = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, out, error


def reached(address: tuple[str, int]) -> socket.socket:
    """A connection to a process that is still starting."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            return socket.create_connection(address, timeout=LIMIT_SECONDS)
        except ConnectionRefusedError:
            assert time.monotonic() < end


def read(connection: socket.socket, count: int) -> bytes:
    with connection.makefile("rb") as stream:
        return stream.read(count)


def other_interface() -> tuple[str, str]:
    """An interface of this machine beside loopback, and its address."""
    said = subprocess.run(["ip", "-json", "-4", "address"], capture_output=True, text=True, check=True).stdout
    found = [(link["ifname"], each["local"]) for link in json.loads(said) for each in link.get("addr_info", ())]
    return next((name, address) for name, address in found if name != "lo")


def test_ranks_meet_at_the_named_address_and_send_over_their_interface(start: Start) -> None:
    name, address = other_interface()
    options = ("-b", "4", "-e", "1M", "-f", "37", "-n", "2", "-w", "1", "--meet", "lo")
    ranks = [start(rank, 3, *options, interface="", TAILRACK_INTERFACE=name) for rank in range(3)]
    told = [ended(process) for process in ranks]
    assert [(code, error) for code, _, error in told] == [(0, "")] * 3
    assert f"# tailrack transport: tcp interface {name} {address} rank 2" in told[0][1]
    assert (parse(told[0][1]).problems, parse(told[0][1]).out_of_bounds) == ((), 0)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_on_loopback_print_a_table_that_is_read_and_judged(start: Start, ranks: int) -> None:
    # 4 bytes are fewer elements than ranks, and no size here divides by all of them; the last is several segments.
    options = ("-b", "4", "-e", "1M", "-f", "37", "-n", "2", "-w", "1")
    told = [ended(process) for process in [start(rank, ranks, *options) for rank in range(ranks)]]
    assert [(code, error) for code, _, error in told] == [(0, "")] * ranks
    output = told[0][1]
    assert [out for _, out, _ in told[1:]] == [""] * (ranks - 1)
    table = parse(output)
    assert (table.problems, table.ranks, table.out_of_bounds) == ((), ranks, 0)
    assert {half.wrong for row in table.rows for half in (row.out_of_place, row.in_place)} == {0}
    assert read_transport(output, nodes=1) == Transport("TCP", "lo")
    asked = Measurement(
        backend="tcp-cpu", min_bytes=4, max_bytes=2**20, factor=37, iterations=2, warmup=1, gate_bytes=202612,
        ranks=ranks, nodes=1, floor_gb_per_s=1e-6,
    )  # fmt: skip
    report = JobReport.from_json(
        {"job_id": 1, "state": "COMPLETED", "exit_code": 0, "seconds": 1, "nodes": ["localhost"], "output": output}
    )
    result = judge(asked, report)
    assert (result["verdict"], result["backend"], result["wrong"]) == ("PASS", "tcp-cpu", 0), result["reason"]


def test_the_first_rank_rejects_a_wrong_token_and_the_others_name_the_missing_rank(start: Start, job: int) -> None:
    first = start(0, 2, "--connect-limit", "2")
    other = start(1, 2, "--connect-limit", "2", token="the token of another job")
    code, _, error = ended(other)
    place = f"rank 0 on localhost (127.0.0.1:{door(job)[1]})"
    assert code == 3
    assert f"tailrack ring: {place} rejected rank" in error
    assert len(error.splitlines()) == 1
    code, out, error = ended(first)
    turned_away, missing = error.splitlines()
    assert (code, out) == (3, "")
    assert turned_away == f"tailrack ring: {place} rejected 127.0.0.1: it does not know this job's {TOKEN}"
    assert missing == f"tailrack ring: {place} waited 2 s, but these did not connect: rank 1 on localhost (127.0.0.1)"


def test_strangers_do_not_keep_the_ranks_from_measuring(start: Start, job: int) -> None:
    first = start(0, 2, "-e", "64K")
    with reached(door(job)) as says_nonsense, reached(door(job)) as leaves_at_once:
        leaves_at_once.close()
        says_nonsense.sendall(bytes(200))
        assert len(read(says_nonsense, NONCE_BYTES)) == NONCE_BYTES  # and never a proof
    second = start(1, 2, "-e", "64K")
    assert ended(second)[0] == 0
    code, out, error = ended(first)
    assert (code, parse(out).out_of_bounds) == (0, 0)
    assert error.count(" rejected 127.0.0.1: ") == 2


@pytest.mark.parametrize("proof", ["nonce", "own proof"])
def test_a_rank_does_not_trust_one_that_sends_back_its_nonce_or_proof(start: Start, job: int, proof: str) -> None:
    with socket.create_server(door(job)) as false_head:
        rank = start(1, 2)
        false_head.settimeout(LIMIT_SECONDS)
        connection, _ = false_head.accept()
        with connection:
            connection.sendall(bytes(NONCE_BYTES))
            own = read(connection, NONCE_BYTES if proof == "nonce" else NONCE_BYTES + 9 + PROOF_BYTES)
            connection.sendall(own[:PROOF_BYTES] if proof == "nonce" else own[-PROOF_BYTES:])
            code, _, error = ended(rank)
    assert code == 3
    assert f"does not trust rank 0 on localhost (127.0.0.1:{door(job)[1]})" in error


def test_ranks_that_never_come_are_named_with_their_nodes(start: Start) -> None:
    nodes = "localhost,no-such-node[1-2]"
    code, _, error = ended(start(0, 3, "--connect-limit", "1", SLURM_STEP_NODELIST=nodes))
    assert code == 3
    assert len(error.splitlines()) == 1
    assert "waited 1 s, but these did not connect: rank 1 on no-such-node1 (its name: " in error
    assert "rank 2 on no-such-node2 (" in error


def measuring(rank: Rank) -> None:
    """Return when the header of the table is there."""
    assert rank.stdout
    for line in rank.stdout:
        if line.split()[:2] == ["#", "(B)"]:
            return
    pytest.fail("the rank ended before its table began")


@pytest.fixture
def endless(start: Start) -> list[Rank]:
    """Three ranks in the middle of a reduction that takes longer than any test."""
    options = ("-b", "64M", "-e", "64M", "-n", "100000", "-w", "0", "--progress-limit", "1")
    ranks = [start(rank, 3, *options) for rank in range(3)]
    measuring(ranks[0])
    return ranks


def test_a_rank_that_dies_ends_the_others_at_once(endless: list[Rank]) -> None:
    endless[2].kill()
    for rank in endless[:2]:
        code, _, error = ended(rank)
        assert code == 3
        assert " lost rank " in error
        assert len(error.splitlines()) == 1


def test_a_rank_that_stands_still_is_noticed_within_the_limit(endless: list[Rank]) -> None:
    endless[2].send_signal(signal.SIGSTOP)
    errors = [ended(rank)[2] for rank in endless[:2]]
    assert any("nothing for 1 s" in error for error in errors)
    assert all(" lost rank " in error for error in errors)


@pytest.mark.parametrize("token", ["", "x" * (TOKEN_BYTES - 1)])
def test_no_rank_listens_without_a_long_token(start: Start, token: str) -> None:
    code, _, error = ended(start(0, 2, token=token))
    assert code == 3
    assert f"{TOKEN} has {len(token)} bytes but needs {TOKEN_BYTES}" in error


def test_slurms_short_form_of_names_is_written_out_up_to_the_most_nodes() -> None:
    assert node_names("a1") == ["a1"]
    assert node_names("head,a[1-2],b-2") == ["head", "a1", "a2", "b-2"]
    assert node_names("n[08-10,12],x") == ["n08", "n09", "n10", "n12", "x"]
    for hostlist in ("a[1-999999999]", "a[x]"):
        with pytest.raises(ValueError, match=r"more than|invalid literal"):
            node_names(hostlist)
