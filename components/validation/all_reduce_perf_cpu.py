"""all_reduce on CPUs, measured and printed like nccl-tests on GPUs.

Usage: srun --mpi=pmix python3 tailrack.pyz all-reduce --transport mpi [-b 64K] [-e 4M] [-f 4] [-n 20] [-w 5]
       srun --mpi=none python3 tailrack.pyz all-reduce --transport tcp --meet tailscale0 [--interface eth1] [the same]

Sums float32 out of place and in place. A time, in microseconds, is the largest over ranks of the mean of `-n`
iterations; algbw = bytes/time and busbw = algbw x 2(ranks-1)/ranks in 1e9 bytes per second. After each timing the
result is checked element by element. Exits with 7 if a result was wrong, like nccl-tests, or with 3 if the ranks lost
each other (tcp).

It prints `# tailrack transport:` with the interface that the transport should use, if this node has it, and
`# tailrack traffic:` with its sent bytes and the minimum that must leave a node.
"""

import argparse
import ipaddress
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from components.validation.model import parse_size
from components.validation.tcp_ring import Limits, Ring, RingError
from components.validation.this_node import address_of, node_name

HOST = node_name()
PATTERN = 61  # a prime, so that a misplaced chunk of the buffer is detected
# Open MPI 5 crashes if a message arrives while its receiver is still in MPI_Init (open-mpi/ompi issue 12495).
SETTLE_SECONDS = 1
SUPERTITLE = "#" + " " * 62 + "out-of-place                       in-place          "
TITLES = "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw  #wrong"
UNITS = "#        (B)    (elements)                          " + 2 * "     (us)  (GB/s)  (GB/s)        "


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line: sizes from -b to -e by factor -f; -n timed iterations after -w for warm-up."""
    parser = argparse.ArgumentParser(prog="all-reduce", description=read_arguments.__doc__)
    parser.add_argument("--transport", choices=("mpi", "tcp"), required=True)
    parser.add_argument("--meet", help="the interface to which node names resolve (tcp)")
    parser.add_argument(
        "--interface", help="the interface for tcp, TAILRACK_INTERFACE by default; mpi has its own settings"
    )
    parser.add_argument("--connect-limit", type=float, default=60, help="seconds until all ranks are connected (tcp)")
    parser.add_argument("--progress-limit", type=float, default=60, help="seconds without progress (tcp)")
    for flag, size in (("-b", "64K"), ("-e", "4M")):
        parser.add_argument(flag, type=parse_size, default=size)
    for flag, number in (("-f", 4), ("-n", 20), ("-w", 5)):
        parser.add_argument(flag, type=int, default=number)
    options = parser.parse_args(arguments)
    if options.f < 2 or options.n < 1 or options.w < 0 or options.e < options.b or options.b % 4:
        parser.error("needs -f of 2 or more, -n of 1 or more, -w of 0 or more, -b a multiple of 4, and -e not below it")
    if options.transport == "tcp":
        options.interface = options.interface or os.environ.get("TAILRACK_INTERFACE")
    if (options.transport == "tcp") != bool(options.interface):
        parser.error("--transport tcp needs --interface, and mpi takes none")
    return options


class MpiWorld:
    """The ranks that MPI started."""

    def __init__(self) -> None:
        from mpi4py import MPI  # only here: it may be absent elsewhere, and importing it starts MPI

        self.world, self.in_place = MPI.COMM_WORLD, MPI.IN_PLACE
        self.rank, self.ranks = self.world.Get_rank(), self.world.Get_size()
        self.barrier, self.allgather = self.world.Barrier, self.world.allgather
        time.sleep(SETTLE_SECONDS)

    def all_reduce(self, source: np.ndarray, receive: np.ndarray) -> None:
        self.world.Allreduce(self.in_place if source is receive else source, receive)


World = MpiWorld | Ring


def ring(options: argparse.Namespace) -> Ring:
    """Return the ranks that srun started, connected by TCP. Raises ConnectionError if they do not find each other."""
    addresses = []
    for interface in (options.interface, options.meet or options.interface):
        try:
            addresses.append(address_of(interface))
        except OSError as error:
            raise RingError(f"{HOST} has no IPv4 address on interface {interface!r}: {error.strerror}") from None
    address, meet = addresses
    return Ring(address, meet, Limits(options.connect_limit, options.progress_limit))


def say(world: World, line: str) -> None:
    """Write a line from rank 0 at once, so that a job that fails keeps its measurements."""
    if world.rank == 0:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def say_each(world: World, line: str) -> None:
    say(world, "\n".join(world.allgather(line)))


def mpi_interface() -> tuple[str, str]:
    """Return (name, text for the report) of the only interface that MPI may use on this node; name is "" if unknown."""
    settings = {name: os.environ.get(f"OMPI_MCA_{name}", "") for name in ("pml", "btl", "btl_tcp_if_include")}
    if set(settings["btl"].split(",")) != {"tcp", "self"} or settings["pml"] not in ("", "ob1"):
        return "", f"unknown, MPI is not restricted to tcp: {settings}"
    return described(interface_of(settings["btl_tcp_if_include"]))


def interface_of(setting: str) -> str:
    """Return the interface in MPI's setting: a name, or a network (10.1.2.0/24) with an address of this node."""
    for _, name in socket.if_nameindex() if "/" in setting else ():
        try:
            if ipaddress.IPv4Address(address_of(name)) in ipaddress.IPv4Network(setting):
                return name
        except OSError:  # it has no IPv4 address
            continue
    return setting


def described(name: str) -> tuple[str, str]:
    """Return (name, text for the report) of an interface; name is "" if it has no address."""
    try:
        return name, f"tcp interface {name} {address_of(name)}"
    except OSError as error:
        return "", f"unknown, no IPv4 address on interface {name!r}: {error.strerror}"


def sent(name: str) -> int:
    """Return the bytes that the interface has sent since it was created."""
    return int(Path(f"/sys/class/net/{name}/statistics/tx_bytes").read_text())


def values(count: int, weight: int, offset: int) -> np.ndarray:
    """Return float32 that differ by index, and by rank through `weight` and `offset`."""
    return np.resize(np.arange(PATTERN, dtype=np.float32), count) * np.float32(weight) + np.float32(offset)


def measure(world: World, options: argparse.Namespace, send: np.ndarray, receive: np.ndarray) -> tuple[float, int]:
    """Return (microseconds per iteration, wrong elements on all ranks); in place if `send` is `receive`."""
    # 31 and 29 keep every sum of float32 exact up to 9,000 ranks.
    weights, offsets = [rank % 31 + 1 for rank in range(world.ranks)], [rank % 29 for rank in range(world.ranks)]
    for iterations in (options.w, options.n):
        # Fill them again after the warm-up, because sums in place grow.
        send[:] = values(send.size, weights[world.rank], offsets[world.rank])
        world.barrier()
        start = time.perf_counter()
        for _ in range(iterations):
            world.all_reduce(send, receive)
        elapsed = time.perf_counter() - start
    receive.fill(np.nan)  # a result left from the timed iterations must not pass
    send[:] = values(send.size, weights[world.rank], offsets[world.rank])
    world.all_reduce(send, receive)
    wrong = np.count_nonzero(receive != values(receive.size, sum(weights), sum(offsets)))
    measurements = world.allgather((elapsed, int(wrong)))
    return max(elapsed for elapsed, _ in measurements) / options.n * 1e6, sum(wrong for _, wrong in measurements)


def fixed(value: float, width: int) -> str:
    """Return `value` with as many decimals as fit, at most two (getFloatStr of nccl-tests)."""
    texts = (f"{value:{width}.{decimals}f}" for decimals in (2, 1, 0))
    return next((text for text in texts if len(text) <= width), f"{value:{width}.{1 if width > 6 else 0}e}")


def measure_all(world: World, options: argparse.Namespace) -> int:
    say(world, "# Collective test starting: all_reduce_perf_cpu\n# Using devices")
    say_each(world, f"#  Rank {world.rank:2d} Group  0 Pid {os.getpid():6d} on {HOST:>10} cpu")
    name, transport = described(options.interface) if options.interface else mpi_interface()
    say_each(world, f"# tailrack transport: {transport} rank {world.rank} on {HOST}")
    sent_before, size, least, failures, bandwidths = sent(name) if name else 0, options.b, 0, 0, list[float]()
    say(world, f"#\n{SUPERTITLE}\n{TITLES} \n{UNITS} ")
    while size <= options.e:
        row = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:6d}"
        send, receive = np.empty(size // 4, np.float32), np.empty(size // 4, np.float32)
        for source in (send, receive):
            duration, wrong = measure(world, options, source, receive)
            algbw = size / duration / 1e3
            bandwidths.append(algbw * 2 * (world.ranks - 1) / world.ranks)
            row += f"  {fixed(duration, 7)}  {fixed(algbw, 6)}  {fixed(bandwidths[-1], 6)}  {wrong:6g}"
            failures += wrong > 0
            least += size * (options.w + options.n + 1)
        say(world, row)
        size *= options.f
    least *= len(set(world.allgather(HOST))) > 1  # within one node no data has to leave it
    measured = f"{name} sent {sent(name) - sent_before}" if name else "unknown"
    say_each(world, f"# tailrack traffic: {measured} of {least} rank {world.rank} on {HOST}")
    say(world, f"# Out of bounds values : {failures} {'FAILED' if failures else 'OK'}")
    say(world, f"# Avg bus bandwidth    : {sum(bandwidths) / len(bandwidths):g} ")
    say(world, "#\n# Collective test concluded: all_reduce_perf_cpu\n#")
    return 7 if failures else 0


def main(arguments: Sequence[str]) -> int:
    """Measure, and return the exit status."""
    options = read_arguments(arguments)
    try:
        # In-place sums may overflow float32 over many iterations; the buffers are filled again before the check.
        with np.errstate(over="ignore"):
            return measure_all(ring(options) if options.transport == "tcp" else MpiWorld(), options)
    except ConnectionError as error:
        sys.stderr.write(f"tailrack ring: {error}\n")
        return 3
