"""all_reduce over MPI on CPUs, measured and printed as nccl-tests does it for GPUs.

Usage: srun --mpi=pmix python3 all_reduce_perf_mpi.py [-b 64K] [-e 4M] [-f 4] [-n 20] [-w 5]
Sums float32 out of place and in place. A time, in microseconds, is the largest over ranks of the mean of
`-n` iterations; algbw = bytes/time and busbw = algbw x 2(ranks-1)/ranks in 1e9 bytes a second (nccl-tests'
doc/PERFORMANCE.md). After each timing the buffers are filled anew, reduced once more and compared element
by element. Exits 0, or 7 if a result was wrong, like nccl-tests.
`# tailrack transport:` names the interface that MPI was told to use and this node has; `# tailrack traffic:`
says how much it sent, beside the least that the reductions must send out of a node.
"""

import argparse
import fcntl
import os
import re
import socket
import struct
import sys
from pathlib import Path
from time import sleep

import numpy as np  # type: ignore[import-not-found]  # lives on the nodes only
from mpi4py import MPI  # type: ignore[import-not-found]

WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.Get_rank(), WORLD.Get_size()
HOST = socket.gethostname().split(".")[0]
PATTERN = 61  # a prime: a chunk of the buffer that lands in another's place does not fit there
# Open MPI 5 dies of a message that comes while its receiver is still leaving MPI_Init (open-mpi/ompi issue 12495).
SETTLE_SECONDS = 1
SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface
SUPERTITLE = "#" + " " * 62 + "out-of-place                       in-place          "
TITLES = "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw  #wrong"
UNITS = "#        (B)    (elements)                          " + 2 * "     (us)  (GB/s)  (GB/s)        "


def parse_size(text: str) -> int:
    """Bytes of `64K`, `4M`, `1G` (powers of 1024) or a plain number."""
    found = re.fullmatch(r"([0-9]+)([KMG]?)", text.upper())
    size = int(found[1]) * 1024 ** " KMG".index(found[2] or " ") if found else 0
    if size < 4 or size % 4:
        raise argparse.ArgumentTypeError(f"{text} is not a multiple of 4 bytes such as 64K, 4M or 8")
    return size


def arguments() -> argparse.Namespace:
    """The command line: sizes from -b to -e by factor -f; -n timed iterations after -w for warming up."""
    parser = argparse.ArgumentParser(description=arguments.__doc__)
    for flag, size in (("-b", "64K"), ("-e", "4M")):
        parser.add_argument(flag, type=parse_size, default=size)
    for flag, number in (("-f", 4), ("-n", 20), ("-w", 5)):
        parser.add_argument(flag, type=int, default=number)
    asked = parser.parse_args()
    if asked.f < 2 or asked.n < 1 or asked.w < 0 or asked.e < asked.b:
        parser.error("needs -f of 2 or more, -n of 1 or more, -w of 0 or more, and -e not below -b")
    return asked


def say(line: str) -> None:
    """Write a line from rank 0 at once, so that a job that dies keeps what it measured."""
    if RANK == 0:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def say_each(line: str) -> None:
    """Write one line of every rank, in rank order."""
    say("\n".join(WORLD.gather(line) or []))


def interface() -> tuple[str, str]:
    """(name, words for the report) of the one interface MPI may use on this node; name is "" if not known."""
    told = {name: os.environ.get(f"OMPI_MCA_{name}", "") for name in ("pml", "btl", "btl_tcp_if_include")}
    name = told["btl_tcp_if_include"]
    if set(told["btl"].split(",")) != {"tcp", "self"} or told["pml"] not in ("", "ob1"):
        return "", f"unknown, MPI is not told to use tcp alone: {told}"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            found = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", name.encode()))
    except OSError as error:
        return "", f"unknown, no IPv4 address on interface {name!r}: {error.strerror}"
    return name, f"tcp interface {name} {socket.inet_ntoa(found[20:24])}"


def sent(name: str) -> int:
    """Bytes that the interface has sent since it was made."""
    return int(Path(f"/sys/class/net/{name}/statistics/tx_bytes").read_text())


def values(count: int, weight: int, offset: int) -> np.ndarray:
    """float32 that differ with the index, and with the rank by `weight` and `offset`."""
    return np.resize(np.arange(PATTERN, dtype=np.float32), count) * np.float32(weight) + np.float32(offset)


def measure(asked: argparse.Namespace, send: np.ndarray, receive: np.ndarray) -> tuple[float, int]:
    """(microseconds an iteration, wrong elements on all ranks); in place if `send` is `receive`."""
    source = MPI.IN_PLACE if send is receive else send
    # 31 and 29 keep every sum of float32 exact up to 9,000 ranks.
    weights, offsets = [rank % 31 + 1 for rank in range(RANKS)], [rank % 29 for rank in range(RANKS)]
    for iterations in (asked.w, asked.n):
        # Filled again after warming up, because sums in place grow.
        send[:] = values(send.size, weights[RANK], offsets[RANK])
        WORLD.Barrier()
        start = MPI.Wtime()
        for _ in range(iterations):
            WORLD.Allreduce(source, receive)
        elapsed = MPI.Wtime() - start
    receive.fill(np.nan)  # a result left from the timed iterations must not pass
    send[:] = values(send.size, weights[RANK], offsets[RANK])
    WORLD.Allreduce(source, receive)
    wrong = np.count_nonzero(receive != values(receive.size, sum(weights), sum(offsets)))
    return WORLD.allreduce(elapsed, MPI.MAX) / asked.n * 1e6, WORLD.allreduce(int(wrong))


def fixed(value: float, width: int) -> str:
    """`value` with as many decimals, two at most, as fit (getFloatStr of nccl-tests)."""
    texts = (f"{value:{width}.{decimals}f}" for decimals in (2, 1, 0))
    return next((text for text in texts if len(text) <= width), f"{value:{width}.{1 if width > 6 else 0}e}")


def main() -> int:
    """Measure every size, write the table, return the exit code."""
    asked = arguments()
    sleep(SETTLE_SECONDS)
    say("# Collective test starting: all_reduce_perf_mpi\n# Using devices")
    say_each(f"#  Rank {RANK:2d} Group  0 Pid {os.getpid():6d} on {HOST:>10} cpu")
    name, told = interface()
    say_each(f"# tailrack transport: {told} rank {RANK} on {HOST}")
    before, size, least, failures, bandwidths = sent(name) if name else 0, asked.b, 0, 0, list[float]()
    say(f"#\n{SUPERTITLE}\n{TITLES} \n{UNITS} ")
    while size <= asked.e:
        row = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:6d}"
        send, receive = np.empty(size // 4, np.float32), np.empty(size // 4, np.float32)
        for source in (send, receive):
            time, wrong = measure(asked, source, receive)
            algbw = size / time / 1e3
            bandwidths.append(algbw * 2 * (RANKS - 1) / RANKS)
            row += f"  {fixed(time, 7)}  {fixed(algbw, 6)}  {fixed(bandwidths[-1], 6)}  {wrong:6g}"
            failures += wrong > 0
            least += size * (asked.w + asked.n + 1)
        say(row)
        size *= asked.f
    least *= len(set(WORLD.allgather(HOST))) > 1  # within one node nothing has to leave it
    measured = f"{name} sent {sent(name) - before}" if name else "unknown"
    say_each(f"# tailrack traffic: {measured} of {least} rank {RANK} on {HOST}")
    say(f"# Out of bounds values : {failures} {'FAILED' if failures else 'OK'}")
    say(f"# Avg bus bandwidth    : {sum(bandwidths) / len(bandwidths):g} ")
    say("#\n# Collective test concluded: all_reduce_perf_mpi\n#")
    return 7 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
