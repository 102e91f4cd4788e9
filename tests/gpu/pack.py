"""Make the archives that `make test-gpu` brings to a machine without network.

    python -m tests.gpu.pack NCCL_TESTS FOLDER [--gpu 9.0] [--artifacts FOLDER]

NCCL_TESTS is the source of nccl-tests (.tar.gz, one folder), built here as a node builds it. FOLDER then contains

    node.tar.xz     the tree of a lab's node with the packages of all roles, without what nothing looks at
    program.tar.xz  what the machine that runs the tests has besides: Python packages, the tailnet's control server,
                    nccl-tests; with --artifacts Enroot's packages, Pyxis' source, and what a head node compiles
                    of it: there is no compiler on the machine
    1/, 2/, ...     the same in parts, for a way to the machine that takes only so much at a time; `make test-gpu`
                    reads these
"""

import argparse
import fnmatch
import hashlib
import io
import lzma
import math
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from cli.pulumi.workspace import PROJECT
from components.roles.containers.enroot_pyxis.settings import PYXIS
from components.roles.order import roles
from components.roles.role import template
from components.validation.job_files import build_files
from lab import docker_daemon, images
from stacks.config import parse
from tests.lab.cluster import dev_config

PLACE = "srv/test"
"""Where the program's files lie in the tree of the machine that runs the tests."""

PYTHON = "3.13"
"""Python of the lab's nodes, which runs the program too."""

PLATFORMS = [
    f"manylinux{version}_x86_64" for version in ("1", "2014", "_2_5", "_2_12", *(f"_2_{n}" for n in range(17, 40)))
]
NCCL = "2.28.9"
"""NCCL that nccl-tests is built with: the machine's."""

PART_BYTES = 45 << 20
TEST_PACKAGES = {
    *("pytest", "pluggy", "iniconfig", "pytest-timeout", "pytest-testinfra", "hypothesis"),
    *("sortedcontainers", "clustermax", "prompt-toolkit", "wcwidth"),
}  # fmt: skip
"""Of requirements/dev.txt, what tests that talk to machines import."""

CONFINED_PACKAGES = {"libpam-slurm-adopt"}
"""What roles install where they find cgroups, besides the packages that they always need."""

LEFT_OUT = [
    ".dockerenv",
    "etc/init.d/?*",
    "etc/ssh/moduli",
    "usr/bin/perl[a-z]*",
    "usr/bin/pydoc*",
    "usr/bin/sqv",
    "usr/bin/ssh-add",
    "usr/include",
    # Nothing is compiled there, and accounting is off.
    "usr/bin/x86_64-linux-gnu-lto-dump*",
    "usr/lib/gcc",
    "usr/libexec/gcc",
    "usr/lib/x86_64-linux-gnu/*.a",
    "usr/lib/x86_64-linux-gnu/lib*san.so*",
    *(f"usr/bin/{name}*" for name in ("aria", "innochecksum", "mariadb", "my_print", "mysql", "resolve")),
    "usr/sbin/mariadb*",
    *(f"usr/lib/python3*/{name}" for name in ("ensurepip", "idlelib", "pydoc_data", "test", "tkinter", "turtledemo")),
    "usr/lib/udev/hwdb.d",
    "usr/lib/valgrind",
    # Software for GPUs of another maker, for graphics and for Java.
    *(
        f"usr/lib/x86_64-linux-gnu/lib{name}*"
        for name in (
            "LLVM", "OpenCL", "X11", "amd_comgr", "amdhip64", "hsa-runtime64", "hsakmt", "mpi_java", "oshmem", "xcb",
            "z3", "ze_",
        )
    ),
    *(f"usr/lib/x86_64-linux-gnu/{name}" for name in ("dri", "gconv", "perl", "tc", "ucx/*rocm*")),
    "usr/sbin/tc",
    *(
        f"usr/share/{name}"
        for name in (
            "X11", "bash-completion", "bug", "common-licenses", "doc", "fonts", "gdb", "icons", "info", "lintian",
            "locale", "man", "perl", "perl5", "zoneinfo",
        )
    ),
    "var/cache/?*",
    "var/lib/apt/lists/?*",
    "var/lib/dpkg/info",
    "*/__pycache__",
    "*/numpy/tests",
    "*/numpy/*/tests",
]  # fmt: skip
"""Patterns of paths; what lies below one that fits is left out too."""

COMPILE = """apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make libslurm-dev slurm-client
cd /src && mkdir source && tar -xzf pyxis.tar.gz -C source --strip-components=1 && make -s -C source
. /etc/os-release
slurm=$(dpkg-query -W -f='${source:Upstream-Version}' slurm-client)
kind=pyxis/$ID-${VERSION_ID:-rolling}-$(dpkg --print-architecture)-slurm-$slurm-pyxis-$PYXIS
mkdir -p "$kind"
cp source/spank_pyxis.so "$kind/"
gcc -O2 -static -o "$kind/slurmstepd" slurmstepd.c
(cd "$kind" && sha256sum spank_pyxis.so slurmstepd >SHA256SUMS)
"""
"""As components/roles/containers/enroot_pyxis/plugin.py does it."""

BUILD = """apt-get update && apt-get install -y --no-install-recommends g++ make libopenmpi-dev python3-pip
printf '#!/bin/sh\\necho %s\\n' "$GPU" >/usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi
cd /src && mkdir programs
bash program.sh build
cp -L "$(bash program.sh where)"/*_perf programs/
"""
"""As a node without a toolkit builds nccl-tests, with wheels that pip has fetched on this machine."""

_LEFT_OUT = re.compile("|".join(fnmatch.translate(path) for pattern in LEFT_OUT for path in (pattern, f"{pattern}/*")))


def is_left_out(path: str) -> bool:
    """Whether the archive of a node goes without a path of its tree, such as usr/share/doc/bash."""
    return _LEFT_OUT.match(path.removeprefix("./").rstrip("/")) is not None


def chosen(requirements: str, names: Iterable[str]) -> str:
    """Return the entries of a compiled requirements file, hashes and all, whose packages are among `names`.

    Raises ValueError for a name that is not there.
    """
    found = re.finditer(r"^([A-Za-z0-9._-]+)==(?:.*\\\n)+.*\n", requirements, re.MULTILINE)
    entries = {entry[1]: entry[0] for entry in found}
    if missing := sorted(set(names) - set(entries)):
        raise ValueError(f"not in the requirements: {', '.join(missing)}")
    return "".join(entries[name] for name in sorted(names))


@contextmanager
def packed(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a new archive for writing; it has its name once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    # A higher preset saves a tenth of the size and takes ten times as long.
    with lzma.open(part, "wb", preset=2) as file, tarfile.open(fileobj=file, mode="w|") as archive:
        yield archive
    part.rename(path)


def pack_node(client: docker.DockerClient, path: Path, artifacts: Path | None) -> None:
    """Write the tree of the lab's node image, with every package that a role installs: there is no source for them."""
    install = f"apt-get update && apt-get install -y --no-install-recommends {shlex.join(role_packages(artifacts))}"
    container = client.containers.create(
        images.tags().node, ["sh", "-c", install], environment={"DEBIAN_FRONTEND": "noninteractive"}
    )
    try:
        container.start()
        status, said = container.wait()["StatusCode"], container.logs(tail=20).decode(errors="replace")
        if status != 0:
            raise RuntimeError(f"{install}\nexit {status}\n{said}")
        with tarfile.open(fileobj=Stream(container.export()), mode="r|") as tree, packed(path) as archive:
            for member in tree:
                if not is_left_out(member.name):
                    archive.addfile(member, tree.extractfile(member) if member.isreg() else None)
    finally:
        container.remove(force=True)


def role_packages(artifacts: Path | None = None) -> list[str]:
    """Return the Debian packages of all roles, as the dev stack has them, on machines that confine jobs."""
    raw = {key.removeprefix("tailrack:"): value for key, value in dev_config().items()}
    config = parse({**raw, **({"containers": {"artifacts": str(artifacts)}} if artifacts else {})}, base_dir=PROJECT)
    always = {name for role in roles(config) for names in role.packages.values() for name in names}
    return sorted(always | CONFINED_PACKAGES)


def pack_program(client: docker.DockerClient, nccl_tests: Path, gpu: str, path: Path, artifacts: Path | None) -> None:
    """Write what the machine that runs the tests has besides a node's tree."""
    with tempfile.TemporaryDirectory() as folder, packed(path) as archive:
        site = Path(folder) / "site"
        install_packages(site)
        archive.add(site, f"{PLACE}/site", filter=as_root)
        archive.add(control_program(client, Path(folder)), f"{PLACE}/control", filter=as_root)
        archive.add(programs(client, nccl_tests, gpu, Path(folder)), f"{PLACE}/programs", filter=as_root)
        if artifacts:
            archive.add(artifacts, f"{PLACE}/artifacts", filter=as_root)
            archive.add(compiled(client, artifacts, Path(folder)), f"{PLACE}/artifacts/pyxis", filter=as_root)


def programs(client: docker.DockerClient, nccl_tests: Path, gpu: str, folder: Path) -> Path:
    """Return a folder with nccl-tests' programs, built by the script that builds them on nodes.

    gpu   compute capability of the machine's GPUs, such as 9.0
    """
    source = folder / "src"
    source.mkdir()
    shutil.copy(nccl_tests, source / "nccl-tests.tar.gz")
    for name, text in build_files("set by the container").items():
        (source / name).write_text(text)
    script = (source / "program.sh").read_text()
    wanted = [*re.findall(r"nvidia-[a-z0-9-]+==[0-9.]+", script), f"nvidia-nccl-cu13=={NCCL}"]
    download = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", str(source / "wheels"), *wanted]
    subprocess.run([sys.executable, "-m", "pip", *download], check=True)
    environment = {
        "TAILRACK_COLLECTIVES": "all_reduce all_gather alltoall reduce_scatter", "SLURM_JOB_ID": "1",
        "DEBIAN_FRONTEND": "noninteractive", "GPU": gpu, "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/src/wheels", "TAILRACK_SOURCE": "/src/nccl-tests.tar.gz",
        "TAILRACK_SHA256": hashlib.sha256(nccl_tests.read_bytes()).hexdigest(),
    }  # fmt: skip
    return in_container(client, BUILD, environment, source, "programs", folder)


def in_container(
    client: docker.DockerClient, command: str, environment: dict[str, str], source: Path, result: str, folder: Path
) -> Path:
    """Run a command on a lab's node that has `source` as /src; return what it left in /src/`result`, below `folder`."""
    container = client.containers.create(images.tags().node, ["bash", "-euc", command], environment=environment)
    try:
        sources = io.BytesIO()
        with tarfile.open(fileobj=sources, mode="w") as archive:
            archive.add(source, "src", filter=as_root)
        container.put_archive("/", sources.getvalue())
        container.start()
        status, output = container.wait()["StatusCode"], container.logs(tail=20).decode(errors="replace")
        if status != 0:
            raise RuntimeError(f"{command}\nexit {status}\n{output}")
        stream, _ = container.get_archive(f"/src/{result}")
        with tarfile.open(fileobj=Stream(stream), mode="r|") as found:
            found.extractall(folder, filter="data")
    finally:
        container.remove(force=True)
    return folder / result


def compiled(client: docker.DockerClient, artifacts: Path, folder: Path) -> Path:
    """Return a folder with what a head node compiles of Pyxis' source, by the name of the machines' kind."""
    source = folder / "pyxis-source"
    source.mkdir()
    shutil.copy(artifacts / f"v{PYXIS}.tar.gz", source / "pyxis.tar.gz")
    (source / "slurmstepd.c").write_text(template("enroot_pyxis", "slurmstepd.c"))
    environment = {"DEBIAN_FRONTEND": "noninteractive", "PYXIS": PYXIS}
    return in_container(client, COMPILE, environment, source, "pyxis", folder)


def install_packages(site: Path) -> None:
    """Install what the program and its tests import, for the nodes' Python, whatever Python this is."""
    dev = (PROJECT / "requirements/dev.txt").read_text(encoding="utf-8")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as tests:
        tests.write(chosen(dev, TEST_PACKAGES))
        tests.flush()
        subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--no-compile",
                "--require-hashes", "--no-deps", "--only-binary=:all:", "--implementation=cp",
                f"--python-version={PYTHON}", *(f"--platform={name}" for name in PLATFORMS), f"--target={site}",
                "--requirement", str(PROJECT / "requirements.txt"), "--requirement", tests.name,
            ],
            check=True,
        )  # fmt: skip
    # Only a debugger, which nothing here loads.
    subprocess.run(["rm", "-rf", *site.glob("debugpy*"), site / "bin"], check=True)


def control_program(client: docker.DockerClient, folder: Path) -> Path:
    """Return the tailnet's control server, taken out of its image."""
    container = client.containers.create(images.tags().control)
    try:
        stream, _ = container.get_archive("/control")
        with tarfile.open(fileobj=Stream(stream), mode="r|") as found:
            found.extractall(folder, filter="data")
    finally:
        container.remove()
    return folder / "control"


def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Have a file belong to root, whoever packs it."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


class Stream(io.RawIOBase):
    """A file to read from, made of the pieces that Docker sends."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Fill the buffer as far as the next piece goes; 0 at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = piece
        taken, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def in_parts(node: Path, program: Path) -> list[Path]:
    """Write the archives as folders of about one size, PART_BYTES at most, beside them; return the files there."""
    whole, rest = node.read_bytes(), program.read_bytes()
    count = math.ceil((len(whole) + len(rest)) / PART_BYTES)
    size = math.ceil((len(whole) + len(rest)) / count)
    for older in node.parent.glob("[0-9]"):
        shutil.rmtree(older)
    parts = {f"{at + 1}/node.tar.xz.{at + 1}": whole[at * size : (at + 1) * size] for at in range(count)}
    parts[f"{count}/program.tar.xz"] = rest
    for name, content in parts.items():
        path = node.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return [node.parent / name for name in parts]


def main() -> None:
    """Read the command line and make the archives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nccl_tests", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--gpu", default="9.0", help="compute capability to build nccl-tests for (default: 9.0, Hopper)"
    )
    parser.add_argument("--artifacts", type=Path, help="folder with Enroot and Pyxis (docs/data.md#containers)")
    parser.add_argument("--only", choices=("node", "program"), help="make one of the two again")
    arguments = parser.parse_args()
    client = docker_daemon.connect()
    tags = images.tags()
    images.ensure_images(client, [tags.node, tags.control])
    node, program = (arguments.folder / f"{name}.tar.xz" for name in ("node", "program"))
    if arguments.only != "node":
        pack_program(client, arguments.nccl_tests, arguments.gpu, program, arguments.artifacts)
    if arguments.only != "program":
        pack_node(client, node, arguments.artifacts)
    for part in in_parts(node, program) if node.exists() and program.exists() else ():
        print(f"{part}: {part.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
