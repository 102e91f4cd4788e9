"""Print what two GPUs and NCCL's RAS show while a job works and while it hangs. Needs two GPUs, nvidia-smi and PyTorch.

    python3 tests/gpu/hang_by_hand.py [SCENARIO...] [> hang.txt]

It uses nothing of tailrack. Each scenario starts two ranks, prints samples of nvidia-smi and raw answers of RAS, and
ends them. The figures check the threshold in components/roles/usage, the answers its parser.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PORT = 21907
QUERY = "index,utilization.gpu,power.draw,power.limit,enforced.power.limit,clocks.sm,memory.used,pstate"
# Scenario: seconds at which RAS is asked, and whether rank 1 gets a signal at second 5.
SCENARIOS = {
    "work": ((4, 8), None),
    "all_reduce": ((4, 8), None),
    "small_kernels": ((4,), None),
    "copy": ((4,), None),
    "sleep": ((4, 14, 24), None),
    "sleep_first": ((4, 10), None),
    "compute": ((4, 10), None),
    "other_collective": ((4, 10), None),
    "two_groups": ((4, 10), None),
    "default_port": ((4,), None),
    "stopped": ((10, 32, 75), signal.SIGSTOP),
    "killed": ((8, 20), signal.SIGKILL),
}


def rank_main(scenario: str) -> None:
    """Run one rank; it ends by a signal."""
    import torch  # type: ignore[import-not-found]
    import torch.distributed as dist  # type: ignore[import-not-found]

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    group = dist.new_group([0, 1])
    data = torch.ones(1 << 24, device="cuda")
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    small = torch.ones(16, device="cuda")
    if scenario != "sleep_first" or rank == 0:
        dist.all_reduce(data)
    for _ in range(20):
        if scenario == "sleep_first" and rank == 1:
            time.sleep(3600)
        dist.all_reduce(data)
        dist.broadcast(small, 0)
    torch.cuda.synchronize()
    print(f"rank {rank}: pid {os.getpid()} torch {torch.__version__} nccl {torch.cuda.nccl.version()}", flush=True)
    while True:
        if scenario in ("work", "stopped", "killed", "default_port"):
            for _ in range(10):
                square @ square
            dist.all_reduce(data)
        elif scenario == "all_reduce":
            dist.all_reduce(data)
        elif scenario == "small_kernels":
            small.add_(1)
        elif scenario == "copy":
            data.clone()
        elif rank == 1 and scenario == "compute":
            square @ square
            torch.cuda.synchronize()
        elif rank == 1 and scenario == "other_collective":
            dist.all_gather_into_tensor(torch.empty(2 << 24, device="cuda"), data)
        elif rank == 1:
            time.sleep(3600)
        elif scenario == "two_groups":
            dist.all_reduce(data, group=group)
        else:
            dist.all_reduce(data)
        torch.cuda.synchronize()


def ask(port: int, *words: str) -> str:
    """Return RAS's raw answer."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.settimeout(20)
            for word in ("CLIENT PROTOCOL 2", "TIMEOUT 5", *words):
                connection.sendall(word.encode() + b"\n")
            while len(answer) < 200_000 and (part := connection.recv(65536)):
                answer += part
    except OSError as error:
        return f"{answer.decode(errors='replace')}\n[{error}]"
    return answer.decode(errors="replace")


def listening(pid: int) -> list[str]:
    """Return the listening TCP sockets of a process."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()))
    rows = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in inodes:
                address, port = cells[1].split(":")
                rows.append(f"{address}:{int(port, 16)}")
    return rows


def smi() -> str:
    """Return a sample of the GPUs."""
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"], capture_output=True, text=True
    )
    return " | ".join(done.stdout.splitlines()[:2])


def run(scenario: str) -> None:
    """Run a scenario and print what it shows."""
    print(f"\n######## {scenario}", flush=True)
    seconds, number = SCENARIOS[scenario]
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "WORLD_SIZE": "2", "NCCL_NVLS_ENABLE": "0"}
    own["TORCH_NCCL_ENABLE_MONITORING"] = "0"
    port = 28028
    if scenario != "default_port":
        own["NCCL_RAS_ADDR"], port = f"localhost:{PORT}", PORT
    command = [sys.executable, __file__, "--rank", scenario]
    ranks = [subprocess.Popen(command, env={**os.environ, **own, "RANK": str(rank)}) for rank in range(2)]
    try:
        # Until RAS answers with a communicator, at most a minute.
        for _ in range(60):
            time.sleep(1)
            if re.search(r"RUNNING|\bINIT\b", ask(port, "STATUS")):
                break
        begin = time.monotonic()
        for rank in ranks:
            print(f"pid {rank.pid} listens on {listening(rank.pid)}", flush=True)
        signalled = False
        for second in range(max(seconds) + 1):
            time.sleep(max(0.0, begin + second - time.monotonic()))
            if second % 2 == 0:
                print(f"+{second:3} s  {smi()}", flush=True)
            if number is not None and second >= 5 and not signalled:
                ranks[1].send_signal(number)
                signalled = True
            if second in seconds:
                for words in (("STATUS",), ("VERBOSE STATUS",), ("SET FORMAT json", "STATUS")):
                    start = time.monotonic()
                    answer = ask(port, *words)
                    print(
                        f"---- +{second} s {' / '.join(words)} ({time.monotonic() - start:.2f} s)\n{answer}", flush=True
                    )
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def main() -> None:
    """Run the scenarios."""
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[2])
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
    print(f"{QUERY}\nidle: {smi()}", flush=True)
    for scenario in sys.argv[1:] or SCENARIOS:
        run(scenario)


if __name__ == "__main__":
    main()
