"""Disks of virtual machines, and the QEMU that runs them where this machine's own is too old.

    python -m tests.machines.image trixie...      makes what is missing, in .tailrack/machines; minutes the first time

A disk is a Debian root file system made here, without booting anything: the packages of all roles are in it and nothing
of them starts by itself, as on a machine whose image somebody has prepared; so virtual machines need no network.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.file_lock import locked
from cli.pulumi.workspace import ROOT
from lab import programs
from lab.commands import run
from lab.debian import ensure_installed, find_mirrors
from lab.distributions import OTHERS, USUAL
from lab.errors import LabError
from lab.programs import digest
from lab.progress import timed
from tests.gpu.pack import CONFINED_PACKAGES, role_packages

PLACE = ROOT / "machines"
KEY = PLACE / "key"
"""The login of root and of `admin` on every machine."""

DISK_GB = 6

# A server with a stock kernel: the cloud kernel has no Soft-RoCE.
SYSTEM = (
    *("systemd", "systemd-sysv", "systemd-timesyncd", "udev", "dbus", "libpam-systemd", "kmod", "procps", "e2fsprogs"),
    *("openssh-server", "sudo", "iproute2", "iputils-ping", "netbase", "curl", "ca-certificates"),
    *("initramfs-tools", "linux-image-amd64", "rdma-core", "ibverbs-providers"),
)
# What roles install where a machine calls for it: the kernel's NFS, RDMA devices.
CALLED_FOR = ("nfs-kernel-server", "nfs-common", "ibverbs-utils")
SLURM = ("slurm-client", "slurmctld", "slurmd", "slurm-wlm-basic-plugins", *sorted(CONFINED_PACKAGES))
# What packages of one Slurm release need and roles do not: no machine has a mirror to bring it from.
FOR_A_RELEASE = (
    *("munge", "bash-completion", "libfreeipmi17", "libipmimonitoring6", "libhwloc15", "libjson-c5", "liblua5.3-0"),
    *("libmariadb3", "libmunge2", "libnuma1", "librdkafka1", "libyaml-0-2", "liblz4-1", "libdbus-1-3"),
)
RELEASES: Mapping[str, Sequence[str]] = {
    "trixie": (*SLURM, *FOR_A_RELEASE, "libcurl4t64", "libhdf5-310", "libhdf5-hl-310", "libjwt2", "libreadline8t64"),
    "bookworm": (*FOR_A_RELEASE, "libcurl4", "libhdf5-103-1", "libhdf5-hl-100", "libjwt0", "libreadline8"),
}
"""Releases of Debian that machines have, and what of Slurm is on them: Debian 12 has one that is too old for a node."""

NOT_YET = ("munge", "slurmctld", "slurmd", "nfs-server", "nfs-client.target", "nfs-blkmap", "rpcbind.socket", "rpcbind")
"""Units that packages enable, where they are there; the machine that has just been made starts none of them."""

GENERATORS = ("systemd-fstab-generator", "nfs-server-generator", "rpc-pipefs-generator")
"""What is left of systemd's: each `daemon-reload` runs all of them, which takes an emulated machine up to two minutes,
and steps call it a dozen times."""

FILES = Path(__file__).with_name("files")
"""What every machine has besides its packages, at its path."""


@dataclass(frozen=True)
class Image:
    """A disk to copy from, and what boots it."""

    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def kernel(self) -> Path:
        return self.folder / "kernel"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"


def image(release: str) -> Image:
    """Return the image of a Debian release as this checkout's sources make it, whether or not it is there."""
    files = [Path(__file__), *(path for path in FILES.rglob("*") if path.is_file())]
    versions = [programs.MODULE / "go.mod", programs.MODULE / "go.sum"]
    return Image(PLACE / f"{release}-{digest([*files, *versions], *packages(release))}")


def packages(release: str) -> list[str]:
    """Return the Debian packages that a disk is made of: the system, and what roles would install."""
    return sorted({*SYSTEM, *CALLED_FOR, *RELEASES[release]} | (set(role_packages()) - set(SLURM)))


def ensure_image(release: str) -> Image:
    """Return the image of a Debian release, made if it is not there. Raises LabError where something fails."""
    made = image(release)
    with locked(PLACE / "lock"):
        if not made.folder.exists():
            for older in PLACE.glob(f"{release}-*"):
                shutil.rmtree(older)
            with timed(f"machines: a disk with {release}"):
                _make(release, made)
    return made


def _make(release: str, made: Image) -> None:
    built = programs.ready()
    if not KEY.exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(KEY)])
    with tempfile.TemporaryDirectory(dir=PLACE, prefix="new-") as folder:
        new, root = Image(Path(folder) / "image"), Path(folder) / "root"
        # Before the packages: the kernel's own makes the initrd with what is here.
        before = f"cp -a --no-preserve=ownership {FILES}/. $1/"
        bootstrap(release, root, packages(release), f"--essential-hook={before}")
        _furnish(root, built)
        new.folder.mkdir()
        for name, pattern in (("kernel", "vmlinuz-*"), ("initrd", "initrd.img-*")):
            (found,) = (root / "boot").glob(pattern)
            shutil.copyfile(found, new.folder / name)
        run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(new.disk), f"{DISK_GB}G"])
        shutil.rmtree(root)
        new.folder.rename(made.folder)


def bootstrap(release: str, root: Path, packages: Sequence[str], *words: str) -> None:
    """Make a root file system of a Debian release with packages; `words` are mmdebstrap's (installed if missing)."""
    (of,) = (each for each in (USUAL, *OTHERS.values()) if each.release == release)
    _, keys = of.keyring
    which = ["--variant=minbase", f"--keyring={keys}", f"--include={','.join(packages)}"]
    ensure_installed("mmdebstrap", of, PLACE)
    run(["mmdebstrap", "--quiet", *which, *words, release, str(root), find_mirrors(of=of).main], root=True)


def _furnish(root: Path, built: Path) -> None:
    """Tailscale as in the lab's image, one login, and nothing of the cluster that starts by itself."""
    for program, path, mode in (
        (built / "tailscale", "usr/bin/tailscale", 0o755),
        (built / "tailscaled", "usr/sbin/tailscaled", 0o755),
        (built / "tailscaled.service", "usr/lib/systemd/system/tailscaled.service", 0o644),
    ):
        shutil.copyfile(program, root / path)
        (root / path).chmod(mode)
    flags = re.sub("(?m)^FLAGS=.*", 'FLAGS="--no-logs-no-support"', (built / "tailscaled.defaults").read_text())
    (root / "etc/default/tailscaled").write_text(flags)
    _inside(root, "useradd", "-m", "-s", "/bin/bash", "admin")
    for owner, home in (("root", "root"), ("admin", "home/admin")):
        keys = root / home / ".ssh"
        keys.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(KEY.with_suffix(".pub"), keys / "authorized_keys")
        _inside(root, "chown", "-R", f"{owner}:{owner}", f"/{home}/.ssh")
    units = root / "usr/lib/systemd/system"
    there = [name for name in (*NOT_YET, "nftables") if any(units.glob(f"{name}*"))]
    _inside(root, "systemctl", "disable", *there)
    _inside(root, "systemctl", "enable", "ssh", "systemd-timesyncd", "this-machine")
    _inside(root, "systemctl", "set-default", "multi-user.target")
    masks = root / "etc/systemd/system-generators"
    masks.mkdir()
    for generator in (root / "usr/lib/systemd/system-generators").iterdir():
        if generator.name not in GENERATORS:
            (masks / generator.name).symlink_to("/dev/null")
    for made_here in (*(root / "etc/ssh").glob("ssh_host_*"), root / "etc/munge/munge.key"):
        made_here.unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")
    (root / "etc/apt/sources.list").write_text("")


def _inside(root: Path, *words: str) -> None:
    run(["chroot", str(root), *words], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"})


def ensure_qemu() -> list[str]:
    """Return the words that call QEMU: this machine's where it is new enough, else Debian 13's from its own root."""
    if own_qemu() >= OLDEST_QEMU:
        return ["qemu-system-x86_64"]
    root = PLACE / "qemu"
    with locked(PLACE / "lock"):
        if not root.exists():
            with tempfile.TemporaryDirectory(dir=PLACE, prefix="new-") as folder, timed("machines: Debian 13's QEMU"):
                bootstrap("trixie", Path(folder) / "root", ["qemu-system-x86"])
                (Path(folder) / "root").rename(root)
    # Its own libraries and firmware, and no change of root: it opens files of this machine.
    libraries = root / "usr/lib/x86_64-linux-gnu"
    found = [
        str(libraries / "ld-linux-x86-64.so.2"),
        "--library-path",
        str(libraries),
        str(root / "usr/bin/qemu-system-x86_64"),
    ]
    return [*found, *(word for name in ("qemu", "seabios") for word in ("-L", str(root / "usr/share" / name)))]


OLDEST_QEMU = 9
"""Emulated by version 7.2, cmpxchg16b goes wrong and Debian's kernels panic. With KVM an older one would do too."""


def own_qemu() -> int:
    """Return the major version of this machine's QEMU, 0 where it has none."""
    if shutil.which("qemu-system-x86_64") is None:
        return 0
    said = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)", said)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    try:
        ensure_qemu()
        for each in sys.argv[1:]:
            print(ensure_image(each).folder)
    except LabError as error:
        sys.exit(f"test-machines: {error}")
