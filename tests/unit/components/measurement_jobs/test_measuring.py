"""The scripts of a measuring job: a rank with its log, what is looked at before, and the program that is built once."""

import hashlib
import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from components.validation import job_files
from components.validation.nccl_tests import distinct, parse
from components.validation.transport import Transport, read_transport
from components.validation.wording import environment_settings
from tests.unit.components.validation.test_nccl_output import SECRET, written
from tests.unit.shell import assert_fails, assert_ok

SCRIPTS = Path(__file__).parents[4] / "components" / "measurement_jobs"
REAL = Path(__file__).parents[3] / "fixtures/nccl_tests/nccl-tests-2.19-1x2-H200-nvlink-nvls-off.txt"


@dataclass
class Node:
    """A node with a folder for the job, a home on the share, and stubs of what a GPU machine has."""

    root: Path

    def stub(self, name: str, body: str) -> Path:
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def run(self, script: str, *arguments: str, **environment: str) -> CompletedProcess[str]:
        (self.root / "job").mkdir(exist_ok=True)
        for path in SCRIPTS.glob("*.sh"):
            (self.root / "job" / path.name).write_bytes(path.read_bytes())
        (self.root / "job" / job_files.PROGRAM).write_bytes(job_files.job_program())
        own = {
            "PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "HOME": str(self.root / "home"), "SLURM_JOB_ID": "7",
            "TMPDIR": str(self.root), "SLURM_SUBMIT_DIR": str(self.root / "job"), "SLURMD_NODENAME": "a1",
        }  # fmt: skip
        command = ["bash", str(self.root / "job" / f"{script}.sh"), *arguments]
        return subprocess.run(command, env={**own, **environment}, capture_output=True, text=True, timeout=60)

    @property
    def job(self) -> dict[str, str]:
        """Files that the job has left."""
        paths = (self.root / "job").iterdir()
        return {path.name: path.read_text() for path in paths if path.suffix not in (".sh", ".pyz")}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


PROGRAM = {"TAILRACK_COLLECTIVE": "all_reduce", "SLURM_PROCID": "3"}


def test_a_rank_keeps_the_nccl_log_lines_that_show_the_path(node: Node) -> None:
    log = [line for line in REAL.read_text().splitlines(keepends=True) if line.startswith("c:")]
    (node.root / "said").write_text("".join(log))
    node.stub("all_reduce_perf", f'echo "$@"; cat "{node.root}/said" >"$NCCL_DEBUG_FILE"; env | grep ^NCCL_DEBUG')
    told = assert_ok(node.run("rank", "2", "-b", "8", TAILRACK_PROGRAM=str(node.root / "bin"), **PROGRAM))
    assert told.stdout.splitlines()[0] == "-b 8"
    assert {"NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"} <= set(told.stdout.splitlines())
    kept = node.job["log.2.3"]
    lines = kept.splitlines(keepends=True)
    assert (lines[:20], lines[-20:]) == (log[:20], log[-20:])
    assert len(lines) < len(log) / 4
    assert read_transport(distinct(kept), 1) == read_transport("".join(log), 1) == Transport("NVLink", None)
    # The log itself lay on a local disk, and is gone.
    assert not list(node.root.glob("tailrack-nccl*"))


@pytest.mark.parametrize("folder", ["lib", "lib/x86_64-linux-gnu"])
def test_a_rank_finds_the_efa_plugin_in_awss_folder(node: Node, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (node.root / "scripts").mkdir()
    text = (SCRIPTS / "rank.sh").read_text()
    assert "/opt/amazon/" in text
    (node.root / "scripts/rank.sh").write_text(text.replace("/opt/amazon/", f"{node.root}/amazon/"))
    monkeypatch.setattr("tests.unit.components.measurement_jobs.test_measuring.SCRIPTS", node.root / "scripts")
    node.stub("all_reduce_perf", 'echo "library path: $LD_LIBRARY_PATH"; : >"$NCCL_DEBUG_FILE"')
    own = {**PROGRAM, "TAILRACK_PROGRAM": str(node.root / "bin"), "LD_LIBRARY_PATH": "/own"}
    assert node.run("rank", "1", **own).stdout == "library path: /own\n"
    plugin = node.root / "amazon/ofi-nccl" / folder / "libnccl-net.so"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    assert node.run("rank", "1", **own).stdout == f"library path: /own:{plugin.parent}\n"


def test_the_log_and_the_reason_name_settings_that_come_from_an_image(node: Node) -> None:
    node.stub("all_reduce_perf", 'echo "a1:5:5 [0] NCCL INFO NCCL_PROTO set by environment to LL" >"$NCCL_DEBUG_FILE"')
    told = {**PROGRAM, "TAILRACK_PROGRAM": str(node.root / "bin"), "SLURM_PROCID": "0", "NCCL_PROTO": "LL"}
    node.run("rank", "1", **told)
    assert "The image sets" not in environment_settings(distinct(node.job["log.1.0"]))
    node.run("rank", "2", TAILRACK_IMAGE_SETS="NCCL_PROTO NCCL_ALGO", NCCL_ALGO="Tree", **told)
    reason = environment_settings(distinct(node.job["log.2.0"]))
    assert "/etc/nccl.conf or ~/.nccl.conf: NCCL_PROTO=LL." in reason
    assert reason.endswith(" The image sets NCCL_PROTO=LL, NCCL_ALGO=Tree.")


def test_a_rank_exits_with_its_programs_status_and_keeps_the_error(node: Node) -> None:
    node.stub("all_reduce_perf", 'echo "a1:5:5 [0] NCCL WARN Cuda failure" >"$NCCL_DEBUG_FILE"; exit 3')
    told = node.run("rank", "1", TAILRACK_PROGRAM=str(node.root / "bin"), **PROGRAM)
    assert told.returncode == 3
    assert "Cuda failure" in node.job["log.1.3"]


@pytest.mark.parametrize("image", [{}, {"TAILRACK_IMAGE_SETS": ""}], ids=["machine", "container"])
def test_the_log_of_a_killed_rank_is_collected_with_the_products_settings(node: Node, image: dict[str, str]) -> None:
    warning = "a1:5:5 [0] NCCL WARN Bootstrap : no socket interface found"
    setting = "a1:5:5 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth9"
    node.stub("all_reduce_perf", f'printf "%s\\n" "{setting}" "{warning}" >"$NCCL_DEBUG_FILE"; kill -9 $PPID')
    own = {"TAILRACK_SETS": "NCCL_NET=Socket", "TAILRACK_DEFAULTS": "TMPDIR=/x NCCL_SOCKET_IFNAME==fabric0"}
    killed = node.run("rank", "1", TAILRACK_PROGRAM=str(node.root / "bin"), **PROGRAM, **own, **image)
    assert killed.returncode == -9
    node.run("rank", "collect", **image)
    log = node.job["log.1.3"]
    assert warning in log
    assert "# tailrack sets NCCL_NET=Socket\n# tailrack sets NCCL_SOCKET_IFNAME==fabric0\n" in log
    assert "~/.nccl.conf: NCCL_SOCKET_IFNAME=eth9." in environment_settings(log)
    assert not [*node.root.glob("tailrack-nccl*"), *Path("/dev/shm").glob("tailrack-nccl-7-*")]  # noqa: S108


# A program that knows -J, and writes what nccl-tests does.
WRITES = """# --output_file
while [ $# -gt 1 ]; do [ "$1" != -J ] || file=$2; shift; done
echo "the table"
[ -z "${file:-}" ] || { [ ! -e "$file" ] && printf '%s' "$TOLD" >"$file"; }"""


def test_the_first_rank_tells_its_figures_with_all_their_digits_and_nothing_of_its_environment(node: Node) -> None:
    told = written([(8, 1.234567, 2.5)])
    node.stub("all_reduce_perf", WRITES)
    more = {"TAILRACK_COLLECTIVE": "all_reduce", "TAILRACK_PROGRAM": str(node.root / "bin"), "TOLD": json.dumps(told)}
    done = node.run("rank", "2", "-b", "8", SLURM_PROCID="0", **more)
    assert (done.returncode, done.stdout) == (0, "the table\n")
    assert parse(node.job["figures.2"]).rows[0].out_of_place.time_us == 1.234567
    assert node.run("rank", "3", SLURM_PROCID="1", **more).returncode == 0
    assert "figures.3" not in node.job, "one rank tells for all"
    # The file that the program wrote is gone with its folder.
    assert not list(node.root.glob("tailrack-nccl*"))
    assert not [path for path in node.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_measurement_checks_its_nodes_even_if_the_preflight_fails(node: Node) -> None:
    node.stub("srun", 'while [[ $1 == --* ]]; do shift; done; "$@"')
    (node.root / "job").mkdir()
    (node.root / "job" / "about.json").write_text('{"nodes": {}}\n')
    told = assert_ok(node.run("prepare", "preflight"))
    preflight, facts = told.stdout.splitlines()
    assert preflight.startswith("# tailrack preflight a1 [")
    assert "the argument does not name this node" in preflight
    assert facts.startswith("# tailrack there a1 {")
    # A program that fails, as a Python that is too old, does not stop the job. Without a check, it has no argument.
    assert node.run("prepare", "no-such-command").stdout.splitlines()[0].startswith("# tailrack there a1 {")
    assert node.run("prepare", "").stdout.count("\n") == 1


# The program for the share.


@pytest.fixture
def source(node: Node) -> Path:
    """An archive with a Makefile in the place of nccl-tests' own."""
    folder = node.root / "nccl-tests-1" / "src"
    folder.mkdir(parents=True)
    (folder.parent / "Makefile").write_text("all:\n")
    (folder / "Makefile").write_text(
        "os.build:\n\t@:\n$(BUILDDIR)/all_reduce_perf:\n"
        "\tprintf '#!/bin/bash\\necho $(MPI) $(NVCC_GENCODE)\\n' >$@\n\tchmod +x $@\n"
    )
    path = node.root / "source.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder.parent, "nccl-tests-1")
    return path


@pytest.fixture
def build(node: Node, source: Path) -> dict[str, str]:
    """What the script is told, on a node that has all that it takes."""
    node.stub("nvidia-smi", "echo 9.0; echo 9.0")
    node.stub("nvcc", "echo release")
    node.stub("g++", ":")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    return {"TAILRACK_SOURCE": str(source), "TAILRACK_SHA256": digest, "TAILRACK_COLLECTIVES": "all_reduce"}


def with_libraries(node: Node) -> None:
    """Let the node have NCCL's and MPI's headers: the script looks for them in places of the system."""
    script = (node.root / "job" / "program.sh").read_text()
    for header in ("usr/include/nccl.h", "usr/lib/x/openmpi/include/mpi.h"):
        (node.root / header).parent.mkdir(parents=True, exist_ok=True)
        (node.root / header).touch()
    (node.root / "job" / "program.sh").write_text(script.replace(" /usr/", f" {node.root}/usr/"))


def run_program(node: Node, action: str, told: dict[str, str]) -> CompletedProcess[str]:
    node.run("program", "where", **told)  # puts the scripts into their place
    with_libraries(node)
    own = {"PATH": f"{node.root / 'bin'}:/usr/bin:/bin", "HOME": str(node.root / "home"), "SLURM_JOB_ID": "7", **told}
    command = ["bash", str(node.root / "job" / "program.sh"), action]
    return subprocess.run(command, env={**own, "TMPDIR": str(node.root)}, capture_output=True, text=True, timeout=60)


def test_the_program_is_built_once_for_the_gpus_of_the_node_and_found_again(node: Node, build: dict[str, str]) -> None:
    assert_ok(run_program(node, "build", build))
    place = Path(run_program(node, "where", build).stdout.strip())
    assert (place.parent, place.name.rsplit("-", 2)[1]) == (node.root / "home/.tailrack/nccl-tests", "sm90")
    assert "1 -gencode=arch=compute_90,code=sm_90" in (place / "all_reduce_perf").read_text()
    (node.root / "source.tar.gz").unlink()
    again = run_program(node, "build", build)
    assert (again.returncode, again.stdout) == (0, "")
    assert not list(node.root.glob("tailrack-build.*"))


def test_a_changed_program_on_the_share_is_rebuilt(node: Node, build: dict[str, str]) -> None:
    run_program(node, "build", build)
    (program,) = (node.root / "home/.tailrack/nccl-tests").glob("*/all_reduce_perf")
    whole = program.read_text()
    program.write_text("something else")
    assert "built nccl-tests" in run_program(node, "build", build).stdout
    assert program.read_text() == whole


def test_a_source_that_is_another_one_is_not_built(node: Node, build: dict[str, str]) -> None:
    assert_fails(
        run_program(node, "build", {**build, "TAILRACK_SHA256": "0" * 64}),
        f"has the checksum {build['TAILRACK_SHA256']} instead of {'0' * 64}; check validation.nccl.source_sha256",
    )
    assert not list((node.root / "home/.tailrack/nccl-tests").glob("*/all_reduce_perf"))


def test_a_failed_build_names_the_node_and_others_do_not_wait_for_it(node: Node, build: dict[str, str]) -> None:
    node.stub("make", "echo 'no such thing' >&2; exit 2")
    assert_fails(run_program(node, "build", build), "no such thing")
    other = run_program(node, "build", build)
    assert (other.returncode, "another node of this kind did not build it" in other.stderr) == (1, True)


def test_a_source_behind_a_proxy_that_opens_tls_names_the_certificate(node: Node, build: dict[str, str]) -> None:
    node.stub("curl", "echo 'curl: (60) SSL certificate problem: self-signed certificate'; exit 60")
    ended = run_program(node, "build", {**build, "TAILRACK_SOURCE": "https://x/y.tar"})
    cause = "https://x/y.tar cannot be fetched (certificate verify failed: self-signed certificate); a proxy that opens"
    assert_fails(ended, f"nccl-tests cannot be built on this node: {cause}")
