"""Data sets of two sites, from an S3 server outside and from the share. The tests run in this order."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hub import COMMIT, REPOSITORY, hub
from tests.hub import LARGE as LARGE_ON_HUB
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.lab.s3_store import Store, open_store
from tests.lab.sealer import Sealer, sealer_of

SITES = {"cloud-a": ("a1",), "cloud-b": ("b1", "b2")}
LATER = ("b3", "b4")
NODES = [node for nodes in SITES.values() for node in nodes]
LARGE, SMALL, MB = 4_000_000, 1_000, 1_000_000
FILES = {f"large/{number}.bin": LARGE for number in range(3)} | {
    f"small/{number:03}.txt": SMALL for number in range(40)
}
TOKEN = "hf_token_of_the_lab"
SIZE = sum(FILES.values())
# Bytes of headers, TLS and rsync's lists beside the contents.
ALLOWED = 1.02


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The server, with a data set."""
    with open_store(tmp_path_factory.mktemp("store")) as made:
        for name, size in FILES.items():
            made.put(f"corpus/{name}", size)
        yield made


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, store: Store) -> ClusterUnderTest:
    """Sites of one and of two nodes; each reaches the server by the gateway of its own network."""
    made = make_cluster("datasets")
    made.config["tailrack:head"] = {"name": "head", "site": "cloud-a"}
    made.config["tailrack:sites"] = [
        {"name": site, "kind": "lab", "pools": [{"name": site[-1], "count": len(nodes)}]}
        for site, nodes in SITES.items()
    ]
    made.config["tailrack:accounting"] = {"enabled": False}
    made.up_ok()
    store.make_known(made, "head", *NODES)
    return made


@pytest.fixture(scope="module")
def sealer(cluster: ClusterUnderTest) -> Sealer:
    return sealer_of(cluster)[1]


def report(cluster: ClusterUnderTest, name: str) -> dict[str, Any]:
    """Return what `tailrack data` shows of a data set to a user."""
    shown = cluster.attempt("head", "runuser -u ada -- tailrack data --json").stdout
    rows: dict[str, Any] = {one["name"]: one for one in json.loads(shown or '{"sets": []}')["sets"]}
    return rows.get(name, {"version": "", "nodes": [], "error": ""})


def has_all(cluster: ClusterUnderTest, name: str, count: int = len(NODES)) -> bool:
    states = [row["state"] for row in report(cluster, name)["nodes"]]
    return states == ["complete"] * count


def wait_for_all(cluster: ClusterUnderTest, name: str, seconds: float = 90) -> None:
    try:
        eventually(lambda: has_all(cluster, name), seconds, f"all nodes have {name}")
    except AssertionError:
        log = "journalctl -u 'tailrack-data*' -o cat --no-pager | tail -n 30"
        logs = "\n".join(f"{node}: {cluster.attempt(node, log).stdout}" for node in ("head", *NODES))
        raise AssertionError(f"{report(cluster, name)}\n{logs}") from None


def address(cluster: ClusterUnderTest, node: str) -> str:
    return cluster.run(node, "hostname -I | tr ' ' '\\n' | grep -v '^100\\.' | head -n 1").strip()


def in_the_lead(cluster: ClusterUnderTest, name: str) -> str:
    """Return the node of the second site that fetches a data set from its source."""
    part = f"ls -d /data/.tailrack-data/{name}/*.part"
    eventually(lambda: any(cluster.attempt(node, part).returncode == 0 for node in SITES["cloud-b"]), 60, "one fetches")
    (node,) = [node for node in SITES["cloud-b"] if cluster.attempt(node, part).returncode == 0]
    return node


def got_of_each_site(cluster: ClusterUnderTest, sent: dict[str, int]) -> list[list[int]]:
    """Return how many bytes the nodes of each site got from the server, the largest last."""
    return [sorted(sent.get(address(cluster, node), 0) for node in nodes) for nodes in SITES.values()]


def over_the_tailnet(cluster: ClusterUnderTest) -> dict[str, int]:
    """Return the bytes that the head node has sent to each node, by the counters of its tailscaled."""
    status = json.loads(cluster.run("head", "tailscale status --json"))
    return {peer["DNSName"].split(".")[0]: peer["TxBytes"] for peer in status["Peer"].values()}


def test_each_byte_crosses_the_wan_once_per_site_and_all_nodes_have_the_data(
    cluster: ClusterUnderTest, store: Store, sealer: Sealer
) -> None:
    cluster.config["tailrack:datasets"] = [store.data_set(sealer)]
    cluster.config["tailrack:staging"] = {"reserve_gb": 1}
    cluster.up_ok()
    wait_for_all(cluster, "corpus")
    for *others, most in got_of_each_site(cluster, store.sent("/lab/corpus/")):
        assert not any(others)
        assert SIZE <= most <= ALLOWED * SIZE
    sums = {cluster.run(node, "cd /data/corpus/ && find . -type f -exec sha256sum {} + | sort") for node in NODES}
    assert len(sums) == 1
    assert len(sums.pop().splitlines()) == len(FILES)
    # The copies inside a site went over its proven network.
    port = cluster.run("b2", "systemctl cat tailrack-data.socket")
    assert f"ListenStream={address(cluster, 'b2')}:6815" in port


def test_jobs_ask_for_it_by_a_feature_and_read_it_but_cannot_change_it(cluster: ClusterUnderTest) -> None:
    out = cluster.run_as("ada", "head", "srun -C data-corpus -w b2 sh -c 'wc -c </data/corpus/small/001.txt'")
    assert out.strip() == str(SMALL)
    for words in ("touch /data/corpus/new", "rm /data/corpus/small/001.txt", "rm /data/corpus"):
        assert cluster.attempt("b2", f"runuser -u ada -- {words}").returncode != 0
    # Another `up` neither takes the feature away nor registers nodes again.
    cluster.config["tailrack:cluster"]["repair"] = {"b2": "again"}
    cluster.up_ok()
    assert "data-corpus" in cluster.run("head", "scontrol show node b2")


def test_another_account_of_a_member_cannot_read_from_the_server(cluster: ClusterUnderTest) -> None:
    words = f"rsync rsync://tailrack@{address(cluster, 'b1')}:6815/set-corpus/"
    refused = cluster.attempt("b2", f"runuser -u ada -- env RSYNC_PASSWORD=wrong {words}")
    assert "auth failed" in refused.stderr
    assert cluster.attempt("b2", "runuser -u ada -- cat /var/lib/tailrack/data/password").returncode != 0
    # The secret key is nowhere that users can read.
    assert cluster.attempt("head", "runuser -u ada -- cat /var/lib/tailrack/data/settings.json").returncode != 0


def test_damaged_and_missing_files_are_repaired_from_a_neighbour(cluster: ClusterUnderTest, store: Store) -> None:
    before = store.sent()
    good = cluster.run("b1", "cd /data/corpus/ && sha256sum large/0.bin small/000.txt")
    damage = "f=/data/corpus/large/0.bin; t=$(stat -c %y $f); printf x | dd of=$f conv=notrunc bs=1 seek=9 2>&1; "
    cluster.run("b2", f'{damage} touch -d "$t" $f; rm /data/corpus/small/000.txt; tailrack-data verify corpus')
    check = f"cd /data/corpus/ && sha256sum -c - <<'END'\n{good}END"
    eventually(lambda: cluster.attempt("b2", check).returncode == 0, 60, "b2 has the whole files again")
    assert store.sent() == before


def test_wrong_credentials_are_one_error_and_other_data_sets_go_on(
    cluster: ClusterUnderTest, store: Store, sealer: Sealer
) -> None:
    size = 12 * MB
    cluster.run(
        "head", f"mkdir -p /export/shared/sets/words && cd $_ && seq 9 >numbers && head -c {size} /dev/urandom >a"
    )
    before = over_the_tailnet(cluster)
    cluster.config["tailrack:datasets"] += [
        store.data_set(sealer, "locked", "another-secret"),
        {"name": "words", "source": "/shared/sets/words"},
    ]
    cluster.up_ok()
    wait_for_all(cluster, "words")
    eventually(lambda: bool(report(cluster, "locked")["error"]), 60, "the error is shown")
    shown = cluster.attempt("head", "runuser -u ada -- tailrack data locked")
    assert shown.returncode == 1
    (line,) = [line for line in shown.stdout.splitlines() if "SignatureDoesNotMatch" in line]
    assert "next: check source, endpoint, access_key and secret_key of locked in tailrack:datasets" in line
    assert "another-secret" not in shown.stdout
    assert cluster.run("b1", "tail -n 1 /data/words/numbers") == "9\n"
    assert has_all(cluster, "corpus")
    # From the share too, each file goes to one node of a site. The counters include headers of the tunnel (7 %),
    # what `up` sends to both, and what a busy machine sends again.
    after = over_the_tailnet(cluster)
    less, more = sorted(after[node] - before[node] for node in SITES["cloud-b"])
    assert less < size / 4, (less, more)
    assert size <= more - less < 1.8 * size, (less, more)


def test_a_private_repository_of_hugging_face_is_copied_and_its_token_stays_secret(
    cluster: ClusterUnderTest, store: Store, sealer: Sealer
) -> None:
    contents = {"README.md": b"pictures", "train/a #1.tar": b"a" * MB, "train/b.tar": b"b" * LARGE_ON_HUB}
    with hub(contents, TOKEN, "storage.lab", store.folder) as port:
        cluster.config["tailrack:datasets"].append(
            {
                "name": "pictures",
                "source": f"hf://{REPOSITORY}@{COMMIT}",
                "endpoint": f"https://s3.lab:{port}",
                "token": {"secure": sealer.seal(TOKEN)},
            }
        )
        cluster.up_ok()
        wait_for_all(cluster, "pictures")
    for path, text in contents.items():
        for node in ("a1", "b2"):
            assert cluster.run(node, f"cat '/data/pictures/{path}'") == text.decode()
    for node in ("head", *NODES):
        find = f"grep -rlsF {TOKEN} /etc /home /tmp /usr/local /var/lib/tailrack /var/log/tailrack /run || :"
        assert cluster.run_as("ada", node, find) == ""
        assert TOKEN not in cluster.run(node, "journalctl --no-pager -o cat")
    cluster.config["tailrack:datasets"].pop()


def test_a_changed_source_becomes_a_version_beside_the_one_that_a_job_uses(cluster: ClusterUnderTest) -> None:
    old = report(cluster, "words")["version"]
    job = cluster.run_as("ada", "head", "sbatch --parsable -w b1 --output=none --wrap 'tail -f /dev/null'").strip()
    eventually(lambda: cluster.run("head", f"squeue -h -j {job} -o %T").strip() == "RUNNING", 30, "the job runs")
    cluster.run("head", "echo more >/export/shared/sets/words/more; tailrack-data-head check words")
    eventually(lambda: report(cluster, "words")["version"] not in ("", old), 60, "a new version is listed")
    wait_for_all(cluster, "words")
    assert cluster.run("b1", "cat /data/words/more") == "more\n"
    # The file that did not change takes no room again.
    assert cluster.run("b1", f"stat -c %h /data/.tailrack-data/words/{old}/a").strip() == "2"
    gone = f"! test -e /data/.tailrack-data/words/{old}"
    eventually(lambda: cluster.attempt("b2", gone).returncode == 0, 60, "b2 is rid of it")
    cluster.run("b1", f"test -e /data/.tailrack-data/words/{old}/numbers")
    cluster.run("head", f"scancel {job}")
    eventually(lambda: cluster.attempt("b1", gone).returncode == 0, 60, "b1 is rid of it")


def test_of_a_changed_bucket_only_the_new_file_crosses_the_wan(cluster: ClusterUnderTest, store: Store) -> None:
    before, old = got_of_each_site(cluster, store.sent("/lab/corpus/")), report(cluster, "corpus")["version"]
    store.put("corpus/new", MB)
    cluster.run("head", "tailrack-data-head check corpus")
    eventually(lambda: report(cluster, "corpus")["version"] not in ("", old), 60, "a new version is listed")
    wait_for_all(cluster, "corpus")
    after = got_of_each_site(cluster, store.sent("/lab/corpus/"))
    assert [sum(row) for row in after] == [sum(row) + MB for row in before]
    assert {cluster.run(node, "wc -c </data/corpus/new").strip() for node in NODES} == {str(MB)}


def test_a_killed_fetch_resumes_and_no_process_shows_the_secret(
    cluster: ClusterUnderTest, store: Store, sealer: Sealer
) -> None:
    count = 24
    for number in range(count):
        store.put(f"slow/{number}", MB)
    cluster.config["tailrack:staging"] = {"reserve_gb": 1, "rate_mb_per_s": 3}
    cluster.config["tailrack:datasets"][1] = store.data_set(sealer, "slow", sites=["cloud-b"])
    cluster.up_ok()
    node = in_the_lead(cluster, "slow")
    # rclone has it in its environment, which only root and its account can read.
    environments = "runuser -u ada -- sh -c 'cat /proc/[0-9]*/environ'"
    processes = f"{{ cat /proc/[0-9]*/cmdline; {environments}; }} 2>/dev/null | tr '\\0' '\\n'"
    eventually(lambda: "slow.paths" in cluster.attempt(node, processes).stdout, 60, "rclone runs")
    shown = cluster.attempt(node, processes).stdout
    eventually(lambda: sum(store.sent("/lab/slow/").values()) > count * MB / 2, 60, "half is fetched")
    cluster.run(node, "systemctl kill -s KILL tailrack-data-stage; pkill -KILL -x rclone || :")
    eventually(lambda: has_all(cluster, "slow", 2), 90, "both nodes have it")
    # At most the eight files in flight came twice.
    assert count * MB <= sum(store.sent("/lab/slow/").values()) <= (count + 9) * MB
    shown += "".join(cluster.run(name, "journalctl --no-pager -o cat") for name in ("head", node))
    assert store.key[1] not in shown + cluster.run("head", "cat /var/lib/tailrack/data/report.json")
    for path in cluster.state_files():
        assert store.key[1].encode() not in path.read_bytes(), path


def test_another_node_fetches_when_the_fetching_node_dies(
    cluster: ClusterUnderTest, store: Store, sealer: Sealer
) -> None:
    for number in range(12):
        store.put(f"dies/{number}", MB)
    cluster.config["tailrack:staging"] = {"reserve_gb": 1, "rate_mb_per_s": 1}
    cluster.config["tailrack:datasets"][1] = store.data_set(sealer, "dies", sites=["cloud-b"])
    cluster.up_ok()
    node = in_the_lead(cluster, "dies")
    (other,) = set(SITES["cloud-b"]) - {node}
    subprocess.run(["docker", "pause", cluster.container(node)], check=True, capture_output=True)
    try:
        eventually(lambda: cluster.attempt(other, "test -e /data/dies/11").returncode == 0, 200, f"{other} has it")
        assert f"{node}: does not answer" in cluster.attempt("head", "tailrack data dies").stdout
    finally:
        subprocess.run(["docker", "unpause", cluster.container(node)], check=True, capture_output=True)
    eventually(lambda: has_all(cluster, "dies", 2), 120, "both nodes have it")


def test_a_full_disk_is_named_with_the_next_command(cluster: ClusterUnderTest) -> None:
    cluster.config["tailrack:staging"] = {"reserve_gb": 900_000}
    cluster.config["tailrack:datasets"][1] = {"name": "more", "source": "/shared/sets/words", "sites": ["cloud-a"]}
    cluster.up_ok()
    full = "the disk of /data on a1 is full"
    eventually(lambda: full in cluster.attempt("head", "tailrack data more").stdout, 60, "the full disk is shown")
    assert "df -h /data" in cluster.attempt("head", "tailrack data more").stdout


def test_nodes_that_join_later_copy_from_neighbours_while_up_waits(cluster: ClusterUnderTest, store: Store) -> None:
    before = store.sent("/lab/corpus/")
    cluster.config["tailrack:staging"] = {"reserve_gb": 1}
    del cluster.config["tailrack:datasets"][1]
    cluster.config["tailrack:datasets"][0]["wait"] = True
    cluster.config["tailrack:sites"][1]["pools"][0]["count"] = 4
    cluster.up_ok()
    for node in LATER:
        assert cluster.run(node, "wc -c </data/corpus/large/0.bin").strip() == str(LARGE)
    assert store.sent("/lab/corpus/") == before


def test_taken_out_of_the_config_the_copies_and_features_are_gone(cluster: ClusterUnderTest) -> None:
    del cluster.config["tailrack:datasets"], cluster.config["tailrack:staging"]
    cluster.up_ok()
    for node in (*NODES, *LATER):
        assert cluster.attempt(node, "ls -A /data").stdout == ""
        assert cluster.attempt(node, "systemctl list-unit-files 'tailrack-data*' --no-legend").stdout == ""
    assert "data-" not in cluster.run("head", "scontrol show nodes | grep Features")
    assert cluster.attempt("head", "test -e /var/lib/tailrack/data").returncode == 1
