"""Containers for jobs, with Enroot and Pyxis as they are, wherever somebody has their files at hand."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import ARTIFACTS, ClusterUnderTest, as_user, eventually
from tests.lab.sealer import sealer_of

pytestmark = pytest.mark.skipif(
    ARTIFACTS is None,
    reason="CONTAINERS ARE NOT TESTED: TAILRACK_ARTIFACTS names no folder with Enroot's packages and Pyxis' source",
)
HERE = Path(__file__).parent
NODES = ("head", "a1", "b1")
TOOLS = "/export/tools.sqsh"
PASSWORD = "lab-registry-password-nobody-may-see"
SHARED = "/export/shared/containers/images"
STARTS_WITHIN_SECONDS = 1.0
TOUCHED: set[str] = set()  # by the `up` that brought the images
Cluster = ClusterUnderTest


def put(cluster: Cluster, node: str, name: str) -> None:
    """Copy a file of this folder to a machine."""
    subprocess.run(["docker", "cp", "-q", str(HERE / name), f"{cluster.container(node)}:/root/{name}"], check=True)


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], Cluster]) -> Cluster:
    """The dev stack with two users and containers; then with two images, one of a registry that wants a log-in."""
    made = make_cluster("containers")
    made.config["tailrack:users"].append({"name": "bob", "uid": 6002})
    made.config["tailrack:containers"] = {"artifacts": ARTIFACTS}
    _, sealer = sealer_of(made)
    made.up_ok()
    for name in ("container_image.sh", "registry.py", "registry.sh"):
        put(made, "head", name)
    made.run("head", f"bash /root/container_image.sh {TOOLS} && bash /root/registry.sh {PASSWORD}")
    made.config["tailrack:containers"] |= {
        "registries": [{"host": "registry.lab:5000", "user": "puller", "password": {"secure": sealer.seal(PASSWORD)}}],
        "images": [
            {"name": "tools", "source": TOOLS},
            {"name": "hello", "source": "puller@registry.lab:5000#team/hello:1", "where": ["cloud-a"]},
        ],
    }
    made.up_ok()
    TOUCHED.update(made.touched())
    for node in NODES:
        made.run(node, "systemctl start tailrack-containers")
    return made


@pytest.fixture
def healthy(cluster: Cluster) -> Iterator[None]:
    """Whatever a test broke on a1 is as the product had it, and a1 takes jobs again."""
    yield
    cluster.run(
        "a1", "cd /usr/local/lib/tailrack; [ ! -e aside.so ] || mv aside.so spank_pyxis.so; systemctl start slurmd"
    )
    cluster.attempt("head", "scontrol update nodename=a1 state=resume")
    cluster.run("a1", "tailrack-containers prove", limit=90)


def inside(cluster: Cluster, words: str, command: str, *, user: str = "ada", node: str = "head") -> str:
    """Run a command in a container by srun, called as the user on a node; its stdout."""
    return cluster.run_as(user, node, f"srun --quiet {words} {command}", limit=90)


def test_a_change_of_images_touches_no_node(cluster: Cluster) -> None:
    assert {"head-services"} == TOUCHED


@pytest.mark.parametrize("node", NODES)
def test_a_plain_users_job_runs_inside_on_every_node(cluster: Cluster, node: str) -> None:
    assert "An image of the lab" in inside(
        cluster, f"-w {node} --container-image=tools", "cat /etc/os-release", user="bob"
    )
    assert "Debian" in inside(cluster, f"-w {node}", "cat /etc/os-release", user="bob")


def test_every_node_has_proven_it_and_shows_its_images(cluster: Cluster) -> None:
    shown = subprocess.run(cluster.driver("images"), capture_output=True, text=True, check=True).stdout
    for node in NODES:
        assert re.search(rf"^{node} +proven +.*tools@[0-9a-f]{{12}}", shown, re.MULTILINE), shown
    assert re.search(r"^hello +\S+ +[0-9a-f]{12} +puller@registry.lab:5000#team/hello:1$", shown, re.MULTILINE)
    assert "hello@" not in re.findall(r"^b1 .*$", shown, re.MULTILINE)[0]


def test_pyxis_was_compiled_once_and_the_nodes_took_it_from_the_share(cluster: Cluster) -> None:
    (kind,) = cluster.run("head", "ls /export/shared/containers/pyxis").split()
    assert re.fullmatch(r"debian-13-amd64-slurm-\d+\.\d+\.\d+-pyxis-0\.24\.0", kind)
    for file in ("spank_pyxis.so", "slurmstepd"):
        wanted = cluster.run("head", f"cat /export/shared/containers/pyxis/{kind}/{file}.sha256")
        for node in NODES:
            assert cluster.run(node, f"sha256sum </usr/local/lib/tailrack/{file}").split()[0] == wanted.strip()
    assert cluster.attempt("a1", "command -v gcc").returncode != 0


def test_root_of_a_node_cannot_write_what_the_others_install(cluster: Cluster) -> None:
    for place in ("artifacts", "pyxis", "images", "pyxis/*", "."):
        tried = cluster.attempt("a1", f"touch /shared/containers/{place}/planted")
        assert tried.returncode != 0, place
    assert cluster.run("head", "find /export/shared/containers ! -user root") == ""


def test_a_node_whose_plugin_is_gone_runs_no_such_job_bare_and_is_drained(cluster: Cluster, healthy: None) -> None:
    cluster.run("a1", "cd /usr/local/lib/tailrack; mv spank_pyxis.so aside.so")
    tried = cluster.attempt("head", as_user("ada", "srun -w a1 --container-image=tools cat /etc/os-release"), limit=60)
    assert tried.returncode != 0
    assert "Debian" not in tried.stdout
    looked = cluster.attempt("a1", "tailrack-containers keep")
    assert "spank_pyxis.so is not the one that was installed; run up again" in looked.stderr
    # By the look, or by Slurm itself, whose epilog wants the plugin too.
    assert "drain" in cluster.run("head", "sinfo -h -n a1 -o %T")


def test_an_image_that_shows_the_wrong_text_drains_the_node(cluster: Cluster, healthy: None) -> None:
    keep = "cd /var/lib/tailrack/containers; cp inside inside.kept; trap 'mv inside.kept inside' EXIT"
    tried = cluster.attempt("a1", f"{keep}; echo another >inside; tailrack-containers prove", limit=90)
    assert tried.returncode == 1
    assert "does not run inside a container" in cluster.run("head", "sinfo -h -n a1 -o %E:%200E")


def test_a_job_that_fails_inside_keeps_its_cause_in_slurmds_journal(cluster: Cluster, healthy: None) -> None:
    kept = "cd /var/lib/tailrack/containers; mv smoke.sqsh kept.sqsh; trap 'mv kept.sqsh smoke.sqsh' EXIT"
    tried = cluster.attempt("a1", f"{kept}; rm proven; echo nonsense >smoke.sqsh; tailrack-containers prove", limit=90)
    assert tried.returncode == 1
    journal = cluster.run("a1", "journalctl -u slurmd -o cat --no-pager -n 60")
    said = tried.stderr.partition("the job said: ")[2].splitlines()
    assert said[0] in journal
    assert "slurmstepd" in journal


def test_slurms_task_prolog_runs_for_a_task_in_a_container_of_one_static_program(cluster: Cluster) -> None:
    # No loader and no library is in that image.
    image = "/var/lib/tailrack/containers/smoke.sqsh"
    shown = inside(cluster, f"-N2 --switches=2 -w a1,b1 --container-image={image}", "sh -c 'echo $TAILRACK_INTERFACE'")
    assert shown == "tailscale0\ntailscale0\n"


def test_a_staged_image_starts_in_under_a_second(cluster: Cluster) -> None:
    inside(cluster, "-w a1 --container-image=tools", "true")
    times = []
    for _ in range(3):
        begun = time.monotonic()
        inside(cluster, "-w a1 --container-image=tools", "true")
        times.append(time.monotonic() - begun)
    # `docker exec` and the log-in shell are in it too.
    assert sorted(times)[1] < STARTS_WITHIN_SECONDS, times


def test_an_image_that_a_site_does_not_keep_is_read_from_the_share(cluster: Cluster) -> None:
    assert inside(cluster, "-w b1 --container-image=hello", "cat /etc/greeting") == "from the registry\n"
    assert inside(cluster, "-w a1 --container-image=hello", "sh -c 'echo $GREETING'") == "hello\n"


def test_the_log_in_at_the_registry_is_nowhere_but_in_its_config(cluster: Cluster) -> None:
    assert "/v2/team/hello/manifests/1" in cluster.run("head", "journalctl -u lab-registry -o cat --no-pager")
    kept = "grep -rlF --exclude-dir=registry nobody-may-see /var/log /var/lib/tailrack /run /etc /tmp /var/tmp /export"
    assert cluster.attempt("head", f"{kept} /var/cache/enroot").stdout == ""
    assert not [path for path in cluster.state_files() if b"nobody-may-see" in path.read_bytes()]


def test_an_import_that_breaks_off_leaves_nothing_half_and_the_old_one_in_place(cluster: Cluster) -> None:
    before = cluster.run("head", f"sha256sum {SHARED}/hello.sqsh")
    images = cluster.config["tailrack:containers"]["images"]
    images[1]["source"] = "puller@registry.lab:5000#team/hello:torn"
    images.append({"name": "other", "source": "/export/nothing.sqsh"})
    try:
        failed = cluster.up()
        (failure,) = failed.failures
        assert "these images could not be imported: hello, other" in failure.message
        assert cluster.touched() <= {"head-services"}
        assert cluster.run("head", f"sha256sum {SHARED}/hello.sqsh") == before
        assert set(cluster.run("head", f"ls -A {SHARED}").split()) == {
            f"{name}.{ending}" for name in ("tools", "hello") for ending in ("image", "sqsh")
        }
        assert cluster.attempt("head", "ls /var/lib/tailrack/images /run/tailrack-images").stdout == ""
    finally:
        images[1]["source"] = "puller@registry.lab:5000#team/hello:1"
        images.pop()
    cluster.up_ok()


def test_ranks_and_the_masters_address_are_right_for_two_nodes_with_two_tasks(cluster: Cluster) -> None:
    shown = inside(
        cluster,
        "-N2 --ntasks-per-node=2 -w head,a1 --container-image=tools",
        "sh -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $SLURM_PROCID'",
    )
    rows = sorted(line.split() for line in shown.splitlines())
    masters = {(row[3], row[4]) for row in rows}
    assert [(*row[:3], row[5]) for row in rows] == [(str(n), str(n % 2), "4", str(n)) for n in range(4)]
    ((address, port),) = masters
    assert (
        address
        == inside(cluster, "-N2 -w head,a1", "sh -c 'echo $SLURMD_NODENAME $SLURM_PROCID'").split(" 0")[0].split()[-1]
    )
    assert 61000 <= int(port) < 65536


def test_a_variable_that_the_job_sets_stays(cluster: Cluster) -> None:
    shown = cluster.run_as(
        "ada",
        "head",
        "MASTER_PORT=1234 srun --quiet -w a1 --container-image=tools --container-env=MASTER_PORT "
        "sh -c 'echo $MASTER_PORT'",
    )
    assert shown == "1234\n"


def test_mpi_inside_containers_joins_the_ranks_by_pmix(cluster: Cluster) -> None:
    program = "from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.rank, c.size, c.allreduce(c.rank))"
    words = "--mpi=pmix -N2 --ntasks-per-node=2 -w head,a1 --container-image=tools"
    assert sorted(inside(cluster, words, f'python3 -c "{program}"').splitlines()) == [f"{n} 4 6" for n in range(4)]


def test_a_named_container_stays_for_its_user_on_its_node(cluster: Cluster) -> None:
    inside(cluster, "-w a1 --container-image=tools --container-name=work", "sh -c 'echo kept >/kept'")
    assert inside(cluster, "-w a1 --container-name=work", "cat /kept") == "kept\n"
    for words, user in (("-w head", "ada"), ("-w a1", "bob")):
        tried = cluster.attempt("head", as_user(user, f"srun {words} --container-name=work cat /kept"), limit=60)
        assert tried.returncode != 0
        assert 'name "pyxis_work" does not exist' in tried.stderr
    inside(cluster, "-w a1", "enroot remove -f pyxis_work")


def test_homes_mounts_and_root_inside_are_as_documented(cluster: Cluster) -> None:
    image = "-w b1 --container-image=tools"
    home = inside(
        cluster,
        f"{image} --container-mount-home --no-container-remap-root",
        "sh -c 'id -un; cd; pwd; touch from-inside'",
    )
    assert home == "ada\n/shared/home/ada\n"
    assert cluster.run_as("ada", "head", "stat -c %U from-inside; rm from-inside") == "ada\n"
    assert inside(cluster, f"{image} --container-remap-root", "id -u") == "0\n"
    mounted = f"{image} --container-mounts=/shared/scratch:/data:ro"
    assert inside(cluster, mounted, "sh -c 'touch /data/x 2>/dev/null || echo read-only'") == "read-only\n"


def test_a_batch_script_asks_for_containers_in_its_steps_or_for_itself(cluster: Cluster) -> None:
    show = "cat /etc/os-release"
    script = f"cd; printf '#!/bin/bash\\n{show}; srun --quiet --container-image=tools {show}\\n' >job.sh"
    cluster.run_as("ada", "head", f"{script}; sbatch -W --quiet -w b1 -o job.out job.sh", limit=90)
    bare, contained = cluster.run_as("ada", "head", "cat job.out").split("pyxis: importing")
    assert "Debian" in bare
    assert "An image of the lab" in contained
    cluster.run_as(
        "ada",
        "head",
        f"sbatch -W --quiet -w b1 -o job.out --container-image=tools --wrap '{show}'",
        limit=90,
    )
    assert "An image of the lab" in cluster.run_as("ada", "head", "tail -n 1 job.out; rm job.out job.sh")


def test_sshd_inside_a_container_lets_its_user_in(cluster: Cluster) -> None:
    sshd = (
        "/usr/sbin/sshd -D -e -f /dev/null -p 2222 -h $HOME/.ssh/id_ed25519 -o PidFile=none -o StrictModes=no"
        " -o AuthorizedKeysFile=$HOME/.ssh/authorized_keys"
    )
    words = "-w a1 --container-image=tools --container-mount-home --no-container-remap-root"
    started = f"srun --quiet {words} sh -c '{sshd}' >sshd.log 2>&1 &"
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    ssh = f"ssh -p 2222 {options} a1 cat /etc/os-release"
    cluster.run_as("ada", "head", f"cd; {started}")
    try:
        eventually(
            lambda: cluster.attempt("head", as_user("ada", ssh), limit=10).returncode == 0, 30, "sshd in the container"
        )
        assert "An image of the lab" in cluster.run_as("ada", "head", ssh)
    finally:
        cluster.run("head", "scancel -u ada")
    eventually(lambda: not cluster.run("head", "squeue -h").strip(), 30, "no jobs are left")


def test_an_image_taken_out_of_the_config_is_gone_everywhere(cluster: Cluster) -> None:
    kept = cluster.config["tailrack:containers"]["images"].pop()
    try:
        cluster.up_ok()
        for node in ("head", "a1"):
            cluster.run(node, "systemctl start tailrack-containers")
            assert "hello" not in cluster.run(node, "ls /var/lib/enroot/images")
        assert "hello" not in cluster.run("head", f"ls {SHARED}")
    finally:
        cluster.config["tailrack:containers"]["images"].append(kept)
