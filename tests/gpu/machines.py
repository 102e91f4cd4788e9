"""Machines with systemd in namespaces of this one, each with its own GPUs, networks and tailnet's control server.

Two networks: `eth0` of every machine, over which this one reaches them and they reach it (`control.lab`), and `fabric0`
of those that have it. They can be reached as `admin`, who may do everything, with the key `KEY`.
"""

import ipaddress
import os
import re
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLACE = Path("/srv/test")
TREES, CGROUP, KEY = PLACE / "trees", PLACE / "cgroup", PLACE / "key"
PROGRAMS = PLACE / "programs"
PROGRAM = "/usr/local/bin/all_reduce_perf"
"""One of nccl-tests' programs on every machine; the others are beside it."""
PYTORCH = TREES / "pytorch"
"""What machines with GPUs have of this machine's PyTorch: the Python to call, then its folders and files."""

CONTROL, CONTROL_ADDRESS = "control.lab", "10.9.0.1"
FABRIC = "fabric0"
NETWORKS = {"eth0": ipaddress.ip_interface("10.9.0.1/24"), FABRIC: ipaddress.ip_interface("10.9.1.1/24")}
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"}
BOOT_LIMIT_S = 120.0
# NVLink's multicast: a program that uses it can put a server out of service whose other GPUs somebody else has.
NCCL_CONF = "NCCL_NVLS_ENABLE=0\n"
ADMIN_UID = 1000


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine: its number in /dev, its bus address, and its kind such as `h200`."""

    number: int
    bus: str
    kind: str


def gpus_here(driver: Path = Path("/proc/driver/nvidia/gpus")) -> list[Gpu]:
    """Return this machine's GPUs by their numbers, as the driver tells them."""
    found = []
    for folder in driver.glob("*"):
        lines = (line.partition(":") for line in (folder / "information").read_text().splitlines())
        told = {key.strip(): value.strip() for key, _, value in lines}
        found.append(Gpu(int(told["Device Minor"]), folder.name, kind_of(told["Model"])))
    return sorted(found, key=lambda gpu: gpu.number)


def kind_of(model: str) -> str:
    """Return a GPU's kind, its model's first word with a digit: `NVIDIA H200 NVL` is an h200."""
    return next((word for word in model.lower().split() if re.search(r"\d", word)), "gpu")


@dataclass
class Machine:
    """One machine; `process` is its systemd as this machine numbers it, `outer` the process that started that."""

    name: str
    number: int
    gpus: Sequence[Gpu] = ()
    fabric: bool = False
    process: int = 0
    outer: subprocess.Popen[bytes] | None = None
    host_key: str = field(default="", repr=False)

    @property
    def tree(self) -> Path:
        return TREES / self.name

    @property
    def cgroup(self) -> Path:
        return CGROUP / self.name

    @property
    def interfaces(self) -> tuple[str, ...]:
        return ("eth0", FABRIC) if self.fabric else ("eth0",)

    def link(self, interface: str) -> str:
        """The name of the other end of one of its interfaces, on this machine."""
        return f"{interface[0]}-{self.name}"

    def address(self, interface: str = "eth0") -> str:
        """Its IPv4 address on one of its networks."""
        return str(NETWORKS[interface].network[self.number])

    def words(self, words: Sequence[str], limit: float) -> list[str]:
        """Return the command line that runs a command on it as root, for so many seconds at most."""
        inside = ["nsenter", "--target", str(self.process), *["-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--"]]
        named = [f"{key}={value}" for key, value in ENVIRONMENT.items()]
        return [*inside, "env", "-i", *named, "timeout", "-k", "5", str(limit), *words]

    def attempt(self, command: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in bash as root, whatever comes of it; 124 when it was ended at the limit of seconds."""
        words = self.words(["bash", "-c", command], limit)
        return subprocess.run(words, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)

    def host(self) -> dict[str, Any]:
        """Return it as a host of a stack's config."""
        return {
            "name": self.name,
            "address": self.address(),
            "user": "admin",
            "private_key_file": str(KEY),
            "host_key": self.host_key,
        }


def run(*words: str | Path) -> str:
    """Run a command here and return its stdout; what it said is in the error where it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def boot(machines: Iterable[Machine]) -> subprocess.Popen[bytes]:
    """Boot all of them; returns their tailnet's control server when systemd of each is done."""
    if not KEY.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", KEY)
        _networks()
    control = _control_server()
    started = []
    for machine in machines:
        _make_tree(machine)
        _start(machine)
        started.append(machine)
    for machine in started:
        _wait(machine)
    return control


def stop(machines: Iterable[Machine], control: subprocess.Popen[bytes]) -> None:
    """End machines and their tailnet as a power cut does, and forget them: others may have their names then."""
    control.kill()
    control.wait()
    for machine in machines:
        for interface in machine.interfaces:
            # It would go with the machine, but some time later.
            run("ip", "link", "delete", machine.link(interface))
        # All of a machine's processes end with its first one.
        os.kill(machine.process, signal.SIGKILL)
        if machine.outer:
            machine.outer.wait()
        shutil.rmtree(machine.tree)
        shutil.rmtree(PLACE / "disk" / machine.name)
        for cgroup in sorted((path for path in machine.cgroup.rglob("*") if path.is_dir()), reverse=True):
            cgroup.rmdir()
        machine.cgroup.rmdir()


def _networks() -> None:
    run("ip", "link", "set", "lo", "up")
    for interface, address in NETWORKS.items():
        run("ip", "link", "add", f"b-{interface}", "type", "bridge")
        run("ip", "address", "add", str(address), "dev", f"b-{interface}")
        run("ip", "link", "set", f"b-{interface}", "up")


def _control_server() -> subprocess.Popen[bytes]:
    """Start the tailnet's control server, which knows nobody yet; it ends with this process's namespaces."""
    state = PLACE / "state"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    with (PLACE / "out" / "control.log").open("w") as log:
        words = [str(PLACE / "control"), "-name", CONTROL, "-state", str(state)]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def has_nf_tables() -> bool:
    """Whether this machine's kernel can close ports; some made for virtual machines cannot."""
    made = subprocess.run(["nft", "add", "table", "inet", "probe"], capture_output=True)
    return made.returncode == 0


def _make_tree(machine: Machine) -> None:
    """Copy the tree of a node, and make it this machine's: names, keys, and what GPU programs need."""
    tree = machine.tree
    run("cp", "-a", TREES / "node", tree)
    (tree / "etc/hostname").write_text(f"{machine.name}\n")
    (tree / "etc/machine-id").write_text("")
    (tree / "etc/hosts").write_text(f"127.0.0.1 localhost\n{CONTROL_ADDRESS} {CONTROL}\n")
    # It names a file that is not in the archive, and Enroot would look for that.
    (tree / "etc/localtime").unlink(missing_ok=True)
    resolver = tree / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    resolver.symlink_to("../run/systemd/resolve/stub-resolv.conf")
    authorized = tree / "home/admin/.ssh/authorized_keys"
    shutil.copy(KEY.with_suffix(".pub"), authorized)
    # admin's own way from machine to machine, for what is measured by hand.
    own = shutil.copy(KEY, authorized.with_name("id_ed25519"))
    for path in (authorized, own):
        shutil.chown(path, ADMIN_UID, ADMIN_UID)
        Path(path).chmod(0o600)
    key = tree / "etc/ssh/ssh_host_ed25519_key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    machine.host_key = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    for folder in ("var/log/journal", "var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "etc/nccl.conf").write_text(NCCL_CONF)
    shutil.copytree(PROGRAMS, tree / "usr/local/bin", dirs_exist_ok=True)
    shutil.copy(Path(__file__).with_name("gpus_seen.py"), tree / "usr/local/bin/gpus-seen")
    (tree / "usr/local/bin/gpus-seen").chmod(0o755)
    if not has_nf_tables():
        warnings.warn("CLOSED PORTS ARE NOT TESTED: this kernel has no nf_tables, and nft does nothing", stacklevel=2)
        (tree / "usr/sbin/nft").write_text("#!/bin/sh\n")
    smi = TREES / "nvidia-smi"
    if machine.gpus and smi.exists():
        shutil.copy(smi, tree / "usr/bin/nvidia-smi")


def _start(machine: Machine) -> None:
    """Start it in a cgroup of its own and connect it to its networks."""
    machine.cgroup.mkdir()
    # The process that starts it stays behind in another one: systemd may pass controllers on only while the cgroup that
    # it works in holds no process.
    starters = CGROUP / "starters"
    starters.mkdir(exist_ok=True)
    enter = ["bash", "-c", 'echo $$ >"$1" && shift && exec "$@"', "bash", str(machine.cgroup / "cgroup.procs")]
    own = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--net", "--cgroup", "--fork"]
    begin = ["bash", str(Path(__file__).with_name("machine.sh")), machine.name, str(machine.tree), str(PLACE / "disk")]
    gpus = [f"{gpu.number}={gpu.bus}" for gpu in machine.gpus]
    with (PLACE / "out" / f"{machine.name}.console").open("w") as log:
        outer = subprocess.Popen(
            [*enter, *own, *begin, TREES / "folders", PYTORCH, *gpus],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    machine.outer, machine.process = outer, _child(outer)
    (starters / "cgroup.procs").write_text(str(outer.pid))
    for interface in machine.interfaces:
        _connect(machine, interface)


def _child(outer: subprocess.Popen[bytes]) -> int:
    """Wait for the process that `outer` has started and return its number."""
    deadline = time.monotonic() + BOOT_LIMIT_S
    while time.monotonic() < deadline and outer.poll() is None:
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = status.read_text().rpartition(")")[2].split()[1]
            except OSError:  # ended meanwhile
                continue
            if int(parent) == outer.pid:
                return int(status.parent.name)
    raise AssertionError(f"{outer.args!r} started nothing")


def _connect(machine: Machine, interface: str) -> None:
    bridge, end = f"b-{interface}", machine.link(interface)
    process = str(machine.process)
    run("ip", "link", "add", end, "type", "veth", "peer", "name", interface, "netns", process)
    run("ip", "link", "set", end, "master", bridge, "up")
    inside = ("nsenter", "--target", process, "--net", "ip")
    size = NETWORKS[interface].network.prefixlen
    run(*inside, "address", "add", f"{machine.address(interface)}/{size}", "dev", interface)
    run(*inside, "link", "set", interface, "up")
    if interface == "eth0":
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "route", "add", "default", "via", CONTROL_ADDRESS)


def _wait(machine: Machine) -> None:
    """Wait for systemd to have started everything; a unit that failed does not matter, the program looks itself."""
    deadline = time.monotonic() + BOOT_LIMIT_S
    while machine.attempt("systemctl is-system-running", 5).stdout.strip() not in ("running", "degraded"):
        if time.monotonic() > deadline or not Path("/proc", str(machine.process)).exists():
            console = (PLACE / "out" / f"{machine.name}.console").read_text(errors="replace")
            waits = machine.attempt("systemctl list-jobs; systemctl --failed; journalctl -n 40 --no-pager", 20)
            # The most frequent reason on a machine with many containers: systemd says nothing and ends.
            limit = Path("/proc/sys/fs/inotify/max_user_instances").read_text().strip()
            hint = f"(fs.inotify.max_user_instances is {limit} for all machines and containers here)"
            raise AssertionError(f"{machine.name} did not boot {hint}\n{console}\n{waits.stdout}\n{waits.stderr}")
        time.sleep(0.2)
