"""Virtual machines with kernels of their own, their network and their tailnet's control server.

All of it is in the namespaces that tests/machines/run.sh has made and ends with them. The machines are reached at
10.9.2.x, as `admin` by the program and as root by the tests, and reach this one as `control.lab`.
"""

import io
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.commands import run
from lab.progress import timed
from tests.machines.image import KEY, Image

NETWORK = "10.9.2"
CONTROL = "control.lab"
BRIDGE = "machines"
SSH_OPTIONS = {
    "IdentitiesOnly": "yes",
    "BatchMode": "yes",
    # A network of these machines' own, which nobody else is on.
    "StrictHostKeyChecking": "no",
    "UserKnownHostsFile": "/dev/null",
    "ConnectTimeout": "20",
    "ServerAliveInterval": "15",
    # One connection a machine: to log in takes an emulated one ten seconds. The path is short: it is a socket's.
    "ControlMaster": "auto",
    "ControlPersist": "yes",
    "ControlPath": "%h.ssh",
}
SSH = ["ssh", "-q", "-F", "/dev/null", "-i", str(KEY), *(f"-o{key}={value}" for key, value in SSH_OPTIONS.items())]
KVM = Path("/dev/kvm")
PROBE_LIMIT_S = 30
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KVM_WORDS = ["-accel", "kvm", "-cpu", "host"]
# Without the widest vectors, whose emulation is the slowest there is.
EMULATED_WORDS = ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,avx512f=off,la57=off"]
# No figure comes of these machines, and each of these costs an emulated one a part of its time.
LIGHTER = "mitigations=off init_on_alloc=0 audit=0 apparmor=0"
# Seconds: an emulated machine whose host is busy takes minutes where others take one.
PATIENT = "systemd.default_timeout_start_sec=600 systemd.default_device_timeout_sec=600"
COMMON_WORDS = ["-machine", "q35", "-nodefaults", "-display", "none", "-no-user-config"]


def accelerated(qemu: list[str], booted: Image, place: Path) -> bool:
    """Whether this machine's KVM boots a stock kernel: it is tried, since a paravirtual one is there and does not."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return False
    console = place / "probe.console"
    boots = [
        "-kernel",
        str(booted.kernel),
        "-initrd",
        str(booted.initrd),
        "-append",
        "console=ttyS0 panic=-1 rdinit=/bin/true",
    ]
    words = [*qemu, *COMMON_WORDS, *KVM_WORDS, "-m", "512", "-no-reboot", "-serial", f"file:{console}", *boots]
    try:
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    # /bin/true as the first process ends at once, and with it that kernel.
    return console.exists() and "Attempted to kill init" in console.read_text(errors="replace")


@dataclass
class Machine:
    """One machine."""

    name: str
    number: int
    cpus: int
    memory_mb: int
    image: Image
    qemu: list[str]
    slowness: float
    """How many times as long as with KVM everything may take."""
    place: Path
    soft_rdma: bool = False
    host_key: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def console(self) -> Path:
        return self.place / f"{self.name}.console"

    @property
    def is_on(self) -> bool:
        """Whether its QEMU runs."""
        pid = self.place / f"{self.name}.pid"
        return pid.exists() and Path("/proc", pid.read_text().strip(), "exe").exists()

    def start(self) -> None:
        """Turn it on, with the disk that it had."""
        disk, tap = self.place / f"{self.name}.disk", f"to-{self.name}"
        if not disk.exists():
            # Holes stay holes.
            run(["cp", "--sparse=always", str(self.image.disk), str(disk)])
            run(["ip", "tuntap", "add", tap, "mode", "tap"])
            run(["ip", "link", "set", tap, "master", BRIDGE, "up"])
        rdma = "soft" if self.soft_rdma else "none"
        told = f"machine.name={self.name} machine.address={self.address} machine.rdma={rdma}"
        run(
            [
                *self.qemu, *COMMON_WORDS, "-daemonize", "-pidfile", str(self.place / f"{self.name}.pid"),
                "-name", self.name, "-smp", str(self.cpus), "-m", str(self.memory_mb),
                "-drive", f"file={disk},if=virtio,format=raw,cache=unsafe",
                "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=net,mac=52:54:00:77:00:{self.number:02x}",
                "-device", "virtio-rng-pci",
                "-chardev", f"file,id=console,path={self.console},append=on", "-serial", "chardev:console",
                "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd),
                "-append", f"root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet {LIGHTER} {PATIENT} {told}",
            ]
        )  # fmt: skip

    def cut_power(self) -> None:
        """End it as a power cut does; its disk keeps what had been written to it."""
        os.kill(int((self.place / f"{self.name}.pid").read_text()), signal.SIGKILL)
        self.eventually(lambda: not self.is_on, 10, "it is off")
        subprocess.run([*SSH, "-O", "exit", self.address], capture_output=True, cwd=self.place)

    def reboot(self) -> None:
        """Have it reboot itself, and wait until it answers again."""
        before = self.boot_id()
        self.attempt("systemctl reboot", 60)
        self.eventually(lambda: self.boot_id() not in ("", before), 180, "it is booted again")
        self.wait()

    def boot_id(self) -> str:
        """What is another one after every boot; empty while it does not answer."""
        return self.attempt(f"cat {BOOT_ID}", 30).stdout.strip()

    def wait(self) -> None:
        """Wait until systemd has started everything; a unit that failed does not matter, tests look themselves."""
        with timed(f"machines: {self.name} boots"):
            self.eventually(self._is_up, 180, "it is up")
        key = self.attempt("cat /etc/ssh/ssh_host_ed25519_key.pub").stdout.split()
        self.host_key = " ".join(key[:2])

    def _is_up(self) -> bool:
        assert self.is_on, f"{self.name} has turned itself off: {self.last_words()}"
        return self.attempt("systemctl is-system-running", 30).stdout.strip() in ("running", "degraded")

    def last_words(self) -> str:
        """What its console said last."""
        return self.console.read_text(errors="replace")[-2000:] if self.console.exists() else ""

    def eventually(self, condition: Any, seconds: float, what: str) -> None:
        """Wait until a condition holds, for so many seconds where there is KVM, and longer where it is emulated."""
        deadline = time.monotonic() + seconds * self.slowness
        while not condition():
            assert time.monotonic() < deadline, (
                f"{self.name}: not within {seconds * self.slowness:.0f} s: {what}\n{self.last_words()}"
            )
            time.sleep(1)

    def attempt(self, command: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in bash as root, whatever comes of it; 124 when it was ended at the limit of seconds."""
        limit *= self.slowness
        words = [*SSH, f"root@{self.address}", f"timeout -k 5 {limit} bash -s"]
        try:
            return subprocess.run(
                words,
                cwd=self.place,
                input=command,
                capture_output=True,
                text=True,
                errors="replace",
                # A machine whose power was cut does not say that it is gone.
                timeout=limit + 60 * self.slowness,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, "", "no answer")

    def bring(self, folder: Path, target: str) -> None:
        """Copy what is in a folder into one of the machine, as root's own."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, ".")
        unpack = f"mkdir -p {target} && tar -x --no-same-owner -C {target}"
        subprocess.run([*SSH, f"root@{self.address}", unpack], cwd=self.place, input=packed.getvalue(), check=True)

    def host(self) -> dict[str, Any]:
        """Return it as a host of a stack's config."""
        return {
            "name": self.name,
            "address": self.address,
            "user": "admin",
            "private_key_file": str(KEY),
            "host_key": self.host_key,
        }


def connect(place: Path, control: Path) -> None:
    """Make the network of the machines, and start their tailnet's control server on it."""
    run(["ip", "link", "set", "lo", "up"])
    run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "address", "add", f"{NETWORK}.1/24", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])
    (place / "tailnet").mkdir()
    with (place / "control.log").open("w") as log:
        words = [str(control), "-name", CONTROL, "-state", str(place / "tailnet")]
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def is_connected() -> bool:
    """Whether the machines' network is there: whoever works on these tests may run them again on the same machines."""
    return subprocess.run(["ip", "link", "show", BRIDGE], capture_output=True).returncode == 0


def boot(machines: Iterable[Machine]) -> None:
    """Turn on those that are off, all at once, and wait until each answers."""
    for machine in machines:
        if not machine.is_on:
            machine.start()
    for machine in machines:
        machine.wait()
