"""No daemon stays dead: each is killed twelve times, as soon as it is back, and the cluster works afterwards."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

TIMES = 12
# systemd's delay grows from 2 to 30 seconds; with a start beside each.
LIMIT = 480
# Of packages; tailrack's own are those that run.
PACKAGES = ("munge", "tailscaled", "ssh", "slurmd")
OF_THE_HEAD = ("slurmctld", "slurmdbd", "nfs-ganesha")
# Daemons that run here, and then, side by side, the main process of each killed as soon as there is another one.
KILL = """
own=$(systemctl list-units -q --plain --no-legend --type=service --state=running 'tailrack-*' | awk '{ print $1 }')
main() { systemctl show -P MainPID "$1"; }
kill_it() {
    local last=0 pid time
    for time in {1..%(times)d}; do
        until pid=$(main "$1") && [ "$pid" -gt 0 ] && [ "$pid" != "$last" ] && kill -KILL "$pid" 2>/dev/null; do
            sleep 0.2
        done
        last=$pid
    done
    echo "$1 killed"
}
for unit in %(units)s $own; do kill_it "${unit%%.service}" & done
wait
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node and a compute node of one site."""
    made = make_cluster("k1")
    del made.config["tailrack:sites"][1:]
    made.up_ok()
    return made


def succeeds(cluster: ClusterUnderTest, node: str, command: str) -> bool:
    return cluster.attempt(node, command).returncode == 0


def units(node: str) -> tuple[str, ...]:
    return (*PACKAGES, *(OF_THE_HEAD if node == "head" else ()))


def test_a_daemon_that_is_killed_twelve_times_is_back(cluster: ClusterUnderTest) -> None:
    nodes = ("head", "a1")
    with ThreadPoolExecutor(len(nodes)) as pool:
        words = {node: KILL % {"times": TIMES, "units": " ".join(units(node))} for node in nodes}
        said = dict(pool.map(lambda node: (node, cluster.attempt(node, words[node], LIMIT).stdout), nodes))
    for node in nodes:
        killed = {line.removesuffix(" killed") for line in said[node].splitlines()}
        watchdogs = {"tailrack-slurmd-watchdog", *(["tailrack-slurmctld-watchdog"] if node == "head" else [])}
        assert killed >= {*units(node), *watchdogs}, f"{node}: {cluster.run(node, 'systemctl --failed --no-legend')}"
        running = f"for unit in {' '.join(sorted(killed))}; do systemctl -q is-active $unit || exit 1; done"
        eventually(partial(succeeds, cluster, node, running), 90, f"all that was killed runs on {node}")
    eventually(lambda: "take work" in cluster.run("head", "tailrack nodes"), 180, "all nodes take work")
    cluster.run_as("ada", "head", "timeout 120 srun -w a1 true", 150)
