"""Containers for jobs, with Enroot and Pyxis as they are: how they and images come to machines, and the proof of it."""

import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.lab.cluster import ClusterUnderTest as Cluster
from tests.lab.cluster import as_user, eventually, patience
from tests.lab.containers import NEEDS_ARTIFACTS, NODES, PASSWORD, SHARED, TOUCHED, inside

pytestmark = NEEDS_ARTIFACTS
STARTS_WITHIN_SECONDS = 1.0


@pytest.fixture
def healthy(contained: Cluster) -> Iterator[None]:
    """Whatever a test broke on a1 is as the product had it, and a1 takes jobs again."""
    yield
    contained.run(
        "a1", "cd /usr/local/lib/tailrack; [ ! -e aside.so ] || mv aside.so spank_pyxis.so; systemctl start slurmd"
    )
    contained.attempt("head", "scontrol update nodename=a1 state=resume")
    contained.run("a1", "tailrack-containers prove", limit=90)


def test_a_change_of_images_touches_no_node(contained: Cluster) -> None:
    assert {"head-services"} == TOUCHED


@pytest.mark.parametrize("node", NODES)
def test_a_plain_users_job_runs_inside_on_every_node(contained: Cluster, node: str) -> None:
    assert "An image of the lab" in inside(
        contained, f"-w {node} --container-image=tools", "cat /etc/os-release", user="bob"
    )
    assert "Debian" in inside(contained, f"-w {node}", "cat /etc/os-release", user="bob")


def test_every_node_has_proven_it_and_shows_its_images(contained: Cluster) -> None:
    shown = subprocess.run(contained.driver("images"), capture_output=True, text=True, check=True).stdout
    for node in NODES:
        assert re.search(rf"^{node} +proven +.*tools@[0-9a-f]{{12}}", shown, re.MULTILINE), shown
    assert re.search(r"^hello +\S+ +[0-9a-f]{12} +puller@registry.lab:5000#team/hello:1$", shown, re.MULTILINE)
    assert "hello@" not in re.findall(r"^b1 .*$", shown, re.MULTILINE)[0]


def test_pyxis_was_compiled_once_and_the_nodes_took_it_from_the_share(contained: Cluster) -> None:
    (kind,) = contained.run("head", "ls /export/shared/containers/pyxis").split()
    assert re.fullmatch(r"debian-13-amd64-slurm-\d+\.\d+\.\d+-pyxis-0\.24\.0", kind)
    sums = f"/shared/containers/pyxis/{kind}/SHA256SUMS"
    for node in NODES:
        contained.run(node, f"cd /usr/local/lib/tailrack && sha256sum --strict -c {sums}")
    assert contained.attempt("a1", "command -v gcc").returncode != 0


def test_root_of_a_node_cannot_write_container_files_of_other_nodes(contained: Cluster) -> None:
    for place in ("artifacts", "pyxis", "images", "pyxis/*", "."):
        tried = contained.attempt("a1", f"touch /shared/containers/{place}/planted")
        assert tried.returncode != 0, place
    assert contained.run("head", "find /export/shared/containers ! -user root") == ""


def test_a_node_without_the_plugin_runs_no_container_job_and_drains(contained: Cluster, healthy: None) -> None:
    contained.run("a1", "cd /usr/local/lib/tailrack; mv spank_pyxis.so aside.so")
    tried = contained.attempt(
        "head", as_user("ada", "srun -w a1 --container-image=tools cat /etc/os-release"), limit=60
    )
    assert tried.returncode != 0
    assert "Debian" not in tried.stdout
    looked = contained.attempt("a1", "tailrack-containers keep")
    assert "spank_pyxis.so is not the one that was installed; run up again" in looked.stderr
    # By the look, or by Slurm itself, whose epilog wants the plugin too.
    assert "drain" in contained.run("head", "sinfo -h -n a1 -o %T")


def test_an_image_that_shows_the_wrong_text_drains_the_node(contained: Cluster, healthy: None) -> None:
    keep = "cd /var/lib/tailrack/containers; cp inside inside.kept; trap 'mv inside.kept inside' EXIT"
    tried = contained.attempt("a1", f"{keep}; echo another >inside; tailrack-containers prove", limit=90)
    assert tried.returncode == 1
    reason = contained.run("head", "sinfo -h -n a1 -o %E:%200E")
    assert "does not run inside a container: it printed another text" in reason
    # What it showed.
    assert contained.run("a1", "cat /var/lib/tailrack/containers/inside").strip() in reason


def test_a_job_that_fails_inside_keeps_its_cause_in_slurmds_journal(contained: Cluster, healthy: None) -> None:
    kept = "cd /var/lib/tailrack/containers; mv smoke.sqsh kept.sqsh; trap 'mv kept.sqsh smoke.sqsh' EXIT"
    tried = contained.attempt(
        "a1", f"{kept}; rm proven; echo nonsense >smoke.sqsh; tailrack-containers prove", limit=90
    )
    assert tried.returncode == 1
    journal = contained.run("a1", "journalctl -u slurmd -o cat --no-pager -n 60")
    said = tried.stderr.partition("the job's output: ")[2].splitlines()
    assert said[0] in journal
    assert "slurmstepd" in journal


def test_a_job_names_a_task_prolog_that_cannot_start_inside_as_the_cause(contained: Cluster, healthy: None) -> None:
    # Slurm's own slurmstepd, in the place of the static one: its loader and libraries are not in there.
    swap = "cd /usr/local/lib/tailrack; cp -p slurmstepd kept; trap 'mv kept slurmstepd' EXIT"
    broken = f"{swap}; cp --remove-destination /usr/sbin/slurmstepd slurmstepd; tailrack-containers prove"
    assert contained.attempt("a1", broken, limit=90).returncode == 1
    assert "TaskProlog failed status=127" in contained.run("head", "sinfo -h -n a1 -o %E:%200E")
    assert "TaskProlog failed status=127" in contained.run("a1", "journalctl -u slurmd -o cat --no-pager -n 60")


def test_slurms_task_prolog_runs_for_a_task_in_a_container_of_one_static_program(contained: Cluster) -> None:
    # No loader and no library is in that image.
    image = "/var/lib/tailrack/containers/smoke.sqsh"
    shown = inside(
        contained, f"-N2 --switches=2 -w a1,b1 --container-image={image}", "sh -c 'echo $TAILRACK_INTERFACE'"
    )
    assert shown == "tailscale0\ntailscale0\n"


def test_a_staged_image_starts_in_under_a_second(contained: Cluster) -> None:
    inside(contained, "-w a1 --container-image=tools", "true")
    times = []
    for _ in range(3):
        begun = time.monotonic()
        inside(contained, "-w a1 --container-image=tools", "true")
        times.append(time.monotonic() - begun)
    # `docker exec` and the log-in shell are in it too.
    assert sorted(times)[1] < STARTS_WITHIN_SECONDS * patience(), times


def test_an_image_that_a_site_does_not_keep_is_read_from_the_share(contained: Cluster) -> None:
    assert inside(contained, "-w b1 --container-image=hello", "cat /etc/greeting") == "from the registry\n"
    assert inside(contained, "-w a1 --container-image=hello", "sh -c 'echo $GREETING'") == "hello\n"


def test_the_log_in_at_the_registry_is_nowhere_but_in_its_config(contained: Cluster) -> None:
    assert "/v2/team/hello/manifests/1" in contained.run("head", "journalctl -u lab-registry -o cat --no-pager")
    kept = "grep -rlF --exclude-dir=registry nobody-may-see /var/log /var/lib/tailrack /run /etc /tmp /var/tmp /export"
    assert contained.attempt("head", f"{kept} /var/cache/enroot /var/lib/enroot").stdout == ""
    assert not [path for path in contained.state_files() if b"nobody-may-see" in path.read_bytes()]


def test_an_image_of_no_list_is_fetched_once_for_each_user_who_has_a_log_in(contained: Cluster) -> None:
    image = "-w head --container-image=puller@registry.lab:5000#team/hello:1"
    limit = "sed -i 's/^IMPORTED_GB=.*/IMPORTED_GB={}/' /etc/tailrack/containers"
    log, imported = "journalctl -u lab-registry -o cat --no-pager", "/var/lib/enroot/imported/user-6002-bob"

    def fetched() -> int:
        return contained.run("head", log).count("GET /v2/team/hello/blobs/")

    login = f"machine registry.lab login puller password {PASSWORD}"
    contained.run_as("bob", "head", f"umask 77; mkdir -p .config/enroot; echo '{login}' >.config/enroot/.credentials")
    try:
        before = fetched()
        assert inside(contained, image, "cat /etc/greeting", user="bob") == "from the registry\n"
        assert fetched() == before + 2, "a layer and the image's settings"
        assert inside(contained, image, "cat /etc/greeting", user="bob") == "from the registry\n"
        assert fetched() == before + 2
        assert contained.attempt("head", as_user("ada", f"srun {image} true"), limit=60).returncode != 0
        assert contained.attempt("head", as_user("ada", f"ls {imported}")).returncode != 0
        kept = contained.run("head", f"stat -c '%n %U %a' {imported}/*.sqsh")
        assert re.fullmatch(rf"{imported}/[0-9a-f]{{64}}-[0-9a-f]{{32}}.sqsh bob 400\n", kept)
        # Without room, the image goes, and the next step fetches its layers again.
        unused = f"{limit.format(0)}; touch -d '1 hour ago' {imported}/*; tailrack-containers keep"
        contained.run("head", unused, limit=90)
        assert contained.run("head", f"ls {imported}") == ""
        assert inside(contained, image, "cat /etc/greeting", user="bob") == "from the registry\n"
        assert fetched() == before + 4
    finally:
        contained.run("head", f"{limit.format(100)}; rm -r /shared/home/bob/.config/enroot")


@pytest.mark.proof
@pytest.mark.parametrize(
    ("image", "remedy"),
    [
        ("registry.lab:5000#team/hello:1", "the registry requires a log-in"),
        ("/shared/home/ada/nothing.sqsh", "there is no such image"),
    ],
)
def test_a_user_sees_the_reason_for_a_failed_image_download(contained: Cluster, image: str, remedy: str) -> None:
    asks = f"sbatch --parsable -w head --wrap 'srun --container-image={image} true'"
    job = contained.run_as("ada", "head", asks).strip()

    def told() -> str:
        return contained.attempt("head", as_user("ada", f"tailrack why {job}")).stdout

    # Its node may still clean up after it, and that is what is told meanwhile.
    eventually(lambda: ": failed\n" in told(), 90, "the job has failed")
    assert "Its container could not be created:" in told(), told()
    assert remedy in told(), told()


def test_an_import_that_breaks_off_leaves_nothing_half_and_the_old_one_in_place(contained: Cluster) -> None:
    before = contained.run("head", f"sha256sum {SHARED}/hello.sqsh")
    images = contained.config["tailrack:containers"]["images"]
    images[1]["source"] = "puller@registry.lab:5000#team/hello:torn"
    images.append({"name": "other", "source": "/export/nothing.sqsh"})
    try:
        failed = contained.up()
        (failure,) = failed.failures
        assert "these images could not be imported: hello, other" in failure.message
        assert contained.touched() <= {"head-services"}
        assert contained.run("head", f"sha256sum {SHARED}/hello.sqsh") == before
        assert set(contained.run("head", f"ls -A {SHARED}").split()) == {
            f"{name}.{ending}" for name in ("tools", "hello") for ending in ("image", "sqsh")
        }
        assert contained.attempt("head", "ls /var/lib/tailrack/images /run/tailrack-images").stdout == ""
    finally:
        images[1]["source"] = "puller@registry.lab:5000#team/hello:1"
        images.pop()
    contained.up_ok()


def test_an_image_taken_out_of_the_config_is_gone_everywhere(contained: Cluster) -> None:
    kept = contained.config["tailrack:containers"]["images"].pop()
    try:
        contained.up_ok()
        for node in ("head", "a1"):
            contained.run(node, "tailrack-minute containers")
            assert "hello" not in contained.run(node, "ls /var/lib/enroot/images")
        assert "hello" not in contained.run("head", f"ls {SHARED}")
    finally:
        contained.config["tailrack:containers"]["images"].append(kept)
