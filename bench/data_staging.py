"""How fast a node gets a data set: from S3 and from the share, against rclone and rsync by hand in the same run.

Brings up a head node and one node, and stages data sets there, one after another. Prints MB/s of the transfer alone, of
all until jobs can use the copy (with the sums, and the exchange of them with the head node), and of the same program by
hand; and the transfer's share of the latter. Medians; nothing is judged.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from cli import lab_commands
from cli.pulumi.find_engine import find_engine
from tests.lab.cluster import ClusterUnderTest, dev_config, eventually
from tests.lab.s3_store import Store, open_store
from tests.lab.sealer import sealer_of

STACK, ROUNDS, NODE, SITE, MB = "benchdata", 3, "a1", "cloud-a", 10**6
FILES = {f"large/{number}": 20 * MB for number in range(5)} | {f"small/{number}": 40_000 for number in range(500)}
SIZE = sum(FILES.values())
# Write down when the states of data sets change.
WATCH = """
import json, time
last = {}
while True:
    try:
        sets = json.load(open("/var/lib/tailrack/data/state/status.json"))["sets"]
    except (OSError, ValueError):
        sets = {}
    for name, row in sets.items():
        if last.get(name) != row["state"]:
            last[name] = row["state"]
            print(json.dumps([name, row["state"], time.time()]), flush=True)
    time.sleep(0.02)
"""
DATA_FILES = "/usr/local/lib/tailrack/data-files"
RCLONE = f"{DATA_FILES} rclone /root/rclone.json copy --transfers=8 --checkers=16 source:lab/{{name}} /data/hand"
RSYNC = (
    "rsync -rt --password-file=/var/lib/tailrack/data/password "
    "rsync://tailrack@$(cat /var/lib/tailrack/data/head):6814/source-{name}/ /data/hand/"
)


def staged(cluster: ClusterUnderTest, store: Store) -> dict[str, dict[str, float]]:
    """Stage all data sets. Return by name when its transfer began and ended, and when it was complete."""
    sealer = sealer_of(cluster)[1]
    cluster.config["tailrack:staging"] = {"reserve_gb": 1}
    cluster.config["tailrack:datasets"] = [
        *(store.data_set(sealer, f"s3-{number}", sites=[SITE]) for number in range(ROUNDS)),
        *({"name": f"nfs-{number}", "source": f"/shared/{number}", "sites": [SITE]} for number in range(ROUNDS)),
    ]
    cluster.run(NODE, f"nohup python3 -c '{WATCH}' >/root/states 2>/dev/null </dev/null & true")
    cluster.up_ok()
    times: dict[str, dict[str, float]] = {}

    def all_complete() -> bool:
        for line in cluster.run(NODE, "cat /root/states").splitlines():
            name, state, at = json.loads(line)
            times.setdefault(name, {}).setdefault(state, at)
        return all("complete" in times.get(one["name"], {}) for one in cluster.config["tailrack:datasets"])

    eventually(all_complete, 300, "all data sets are staged")
    return times


def by_hand(cluster: ClusterUnderTest, command: str) -> float:
    """Return the seconds of a program that copies a data set."""
    cluster.run(NODE, "rm -rf /data/hand; sync")
    begun = time.monotonic()
    cluster.run(NODE, command, 300)
    return time.monotonic() - begun


def measure(cluster: ClusterUnderTest, store: Store) -> list[str]:
    """Return a line for each program."""
    for number in range(ROUNDS):
        for name, size in FILES.items():
            store.put(f"s3-{number}/{name}", size)
        make = (
            f"mkdir -p /export/shared/{number}/large /export/shared/{number}/small; cd /export/shared/{number} && "
            f"for n in {{0..4}}; do head -c {20 * MB} /dev/urandom >large/$n; done; "
            "for n in {0..499}; do head -c 40000 /dev/urandom >small/$n; done"
        )
        cluster.run("head", make)
    times = staged(cluster, store)
    cluster.run(NODE, "cp /var/lib/tailrack/data/from-head/remote.s3-0 /root/rclone.json")
    lines = []
    for kind, command in (("s3", RCLONE), ("nfs", RSYNC)):
        names = [f"{kind}-{number}" for number in range(ROUNDS)]
        transfer = statistics.median(times[name]["compares sums"] - times[name]["copies"] for name in names)
        whole = statistics.median(times[name]["complete"] - times[name]["copies"] for name in names)
        hand = statistics.median(by_hand(cluster, command.format(name=name)) for name in names)
        lines.append(
            f"{command.partition(' ')[0]:8}by hand {SIZE / MB / hand:6.1f} MB/s   transfer {SIZE / MB / transfer:6.1f} "
            f"MB/s ({hand / transfer:.0%})   until complete {SIZE / MB / whole:6.1f} MB/s"
        )
    return lines


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder)) as store:
        cluster = ClusterUnderTest(STACK, Path(folder), find_engine(os.environ.get("ENGINE", "")), dev_config())
        cluster.config["tailrack:head"] = {"name": "head", "site": SITE}
        cluster.config["tailrack:sites"] = [{"name": SITE, "kind": "lab", "pools": [{"name": "a", "count": 1}]}]
        cluster.config["tailrack:accounting"] = {"enabled": False}
        cluster.config["tailrack:validation"]["floors_gb_per_s"] = {}
        lab_commands.prepare(cluster.deployment().written.profiles)
        try:
            cluster.up_ok()
            store.make_known(cluster, "head", NODE)
            print("\n".join(measure(cluster, store)))
        finally:
            cluster.remove()


if __name__ == "__main__":
    main()
