"""Compare mount options of the share over the tailnet and over a plain network, on two virtual machines.

    python -m bench.share_options [ROUNDS]     as root

The kernel of the head node serves a folder over a network with a round trip of 20 ms, and a node mounts it with each
set of options in turn. Times and requests are printed as multiples of those with the share's options, from the same
run. Without KVM the machines are emulated, which makes them slow: then only the multiples mean something. The disk of
`make test-machines` is made first if it is missing (minutes). Nothing is judged.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from components.roles.nfs_exports.mount import SHARE_OPTIONS
from lab import binaries
from tests.machines.conftest import EMULATED_SLOWNESS
from tests.machines.image import PLACE, ensure_image, ensure_qemu, image
from tests.machines.machines import CONTROL, EMULATED_WORDS, KVM_WORDS, Machine, accelerated, boot, connect

INSIDE = "--inside"
DELAY_MS = 10
ADDED = {
    "(the share's)": "",
    "nconnect=4": "nconnect=4",
    "rsize,wsize=64k": "rsize=65536,wsize=65536",
    "rsize,wsize=256k": "rsize=262144,wsize=262144",
    "actimeo=60": "actimeo=60",
    "nocto": "nocto",
    "fsc": "fsc",
}
SERVER = f"""
mkdir -p /export/small /export/other && cd /export
for size in 2 8; do head -c ${{size}}M /dev/urandom >large$size; done
for number in $(seq 40); do head -c 4096 /dev/urandom >small/$number; cp small/$number other; done
echo '/export *(rw,sync,no_subtree_check,no_root_squash)' >/etc/exports
modprobe nfsd && {{ mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd; }}
# A server with less than 4 GB of memory offers smaller requests than others.
echo 1048576 >/proc/fs/nfsd/max_block_size
# Clients may open files only after this many seconds.
echo 10 >/proc/fs/nfsd/nfsv4gracetime
systemctl start nfs-server && exportfs -ra
tc qdisc replace dev eth0 root netem delay {DELAY_MS}ms limit 10000
"""
NODE = f"""
dpkg -i --force-depends /root/packages/*.deb >/dev/null 2>&1
mkdir -p /mnt/share /var/cache/fscache && modprobe cachefiles && cachefilesd
tc qdisc replace dev eth0 root netem delay {DELAY_MS}ms limit 10000
"""
JOIN = (
    f"systemctl start tailscaled && tailscale up --timeout=120s --login-server=http://{CONTROL}:8080 "
    "--auth-key=tskey-none && tailscale ip -4"
)
# Mounts, and prints the seconds and requests of each piece of work as JSON.
WORK = """
import json, os, re, subprocess, sys, time
source, options, size = sys.argv[1:]
folder, results = "/mnt/share", {}
def mount():
    subprocess.run(["umount", folder], stderr=subprocess.DEVNULL)
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
    subprocess.run(["mount", "-t", "nfs4", "-o", options, source, folder], check=True)
def requests():
    with open("/proc/self/mountstats") as file:
        text = file.read().partition(f"mounted on {folder} with")[2].partition("\\ndevice ")[0]
    return sum(int(number) for number in re.findall(r"^\\s+[A-Z_]+: (\\d+)", text.partition("per-op")[2], re.M))
def timed(name, work):
    before, begun = requests(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    results[name] = seconds, requests() - before
def write():
    with open(f"{folder}/new", "wb") as file:
        for _ in range(int(size)):
            file.write(block)
        os.fsync(file.fileno())
def read():
    with open(f"{folder}/large{size}", "rb") as file:
        while file.read(1 << 20):
            pass
def small():
    for number in range(1, 41):
        with open(f"{folder}/small/{number}", "rb") as file:
            file.read()
def look():
    for number in range(1, 41):
        os.stat(f"{folder}/other/{number}")
block = os.urandom(1 << 20)
mount()
timed("write a large file", write)
mount()
timed("read a large file", read)
mount()
timed("read it after a new mount", read)
timed("read 40 files of 4 KiB", small)
timed("read them again", small)
timed("stat 40 other files", look)
time.sleep(4)
timed("stat them after 4 s", look)
os.unlink(f"{folder}/new")
subprocess.run(["umount", folder], check=True)
print(json.dumps(results))
"""
Results = Mapping[str, tuple[float, int]]


def main(arguments: list[str]) -> None:
    """Make what needs a network, then run again in namespaces of this program's own."""
    rounds = int(next((word for word in arguments if word.isdigit()), "3"))
    if INSIDE in arguments:
        compare(rounds)
        return
    if os.geteuid():
        print("share options: virtual machines need root; not measured")
        return
    ensure_qemu()
    ensure_image("trixie")
    folder = PLACE / "bench"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "packages").mkdir(parents=True)
    # The machines have no network.
    subprocess.run(["apt-get", "-q", "download", "cachefilesd"], cwd=folder / "packages", check=True)
    namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    subprocess.run(["nice", *namespaces, sys.executable, "-m", "bench.share_options", INSIDE, str(rounds)], check=True)


def compare(rounds: int) -> None:
    """Boot the machines, and print a table for each network."""
    place = PLACE / "bench"
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        connect(Path(folder), binaries.ready().control)
        head, node = machines(Path(folder))
        boot((head, node))
        node.bring(place / "packages", "/root/packages")
        address = run(head, JOIN)
        run(node, JOIN)
        run(head, SERVER)
        run(node, NODE)
        run(node, f"cat >/root/work.py <<'END'\n{WORK}\nEND")
        # An emulated machine encrypts some hundred kB a second.
        for network, source, size in (("a plain network", head.address, 8), ("the tailnet", address, 2)):
            print(f"\nover {network}, a large file is {size} MiB:", flush=True)
            print_table(network, measure(node, f"{source}:/export", size, rounds))


def machines(place: Path) -> tuple[Machine, Machine]:
    """Return the head node and a node, not booted."""
    qemu, trixie = ensure_qemu(), image("trixie")
    fast = accelerated(qemu, trixie, place)
    print(f"share options: {'KVM' if fast else 'emulated machines'}, a round trip of {2 * DELAY_MS} ms", flush=True)
    words, slowness = (KVM_WORDS, 1.0) if fast else (EMULATED_WORDS, EMULATED_SLOWNESS)
    head, node = (
        Machine(name, number, 1, 1280, trixie, [*qemu, *words], slowness, place)
        for name, number in (("head", 11), ("n1", 21))
    )
    return head, node


def run(machine: Machine, command: str) -> str:
    """Return the output of a command of root."""
    done = machine.attempt(command, 300)
    if done.returncode:
        sys.exit(f"share options: {machine.name}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def measure(node: Machine, source: str, size: int, rounds: int) -> dict[str, list[Results]]:
    """Return the results of all rounds for each set of options. A round has every set, so that a drift reaches all."""
    results: dict[str, list[Results]] = {name: [] for name in ADDED}
    for _ in range(rounds):
        for name, added in ADDED.items():
            options = f"{SHARE_OPTIONS},{added}".rstrip(",")
            row = json.loads(run(node, f"python3 /root/work.py {source} {options} {size}"))
            print(f"  {name}: {', '.join(f'{work} {seconds:.2f} s' for work, (seconds, _) in row.items())}", flush=True)
            results[name].append(row)
    return results


def print_table(network: str, results: Mapping[str, list[Results]]) -> None:
    """Print medians: seconds and requests of the first set of options, and multiples of these for the others."""
    first, *others = results
    for work in results[first][0]:
        base, requests = median(results[first], work)
        spread = [row[work][0] for row in results[first]]
        print(f"\n{work} over {network}, {first}: {base:.2f} s ({min(spread):.2f} to {max(spread):.2f}), ", end="")
        print(f"{requests:.0f} requests")
        for name in others:
            seconds, count = median(results[name], work)
            requested = f"{count / requests:.2f}" if requests else f"{count:.0f} instead of 0"
            print(f"  {name:<18} time {seconds / base:5.2f}  requests {requested}", flush=True)


def median(rows: list[Results], work: str) -> tuple[float, float]:
    """Return the medians of the seconds and of the requests."""
    return statistics.median(row[work][0] for row in rows), statistics.median(row[work][1] for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
