"""A machine whose cable is pulled, and writers on the share that keep what was acknowledged to them."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from lab.commands import run
from tests.lab.cluster import ClusterUnderTest, as_user

# States of a bridge's port (ip-link(8)): frames are dropped both ways, and nobody is told.
DISABLED, FORWARDING = "0", "3"
FOLDER = "/shared/scratch"
# Appends numbered lines to a file, and to a log on the machine each that was acknowledged, or the error in its place.
# `open`: the file stays open, and each line is on the server's disk; `each`: it is opened anew for each line.
WRITER = """
import os, sys, time
how, path, log, stop = sys.argv[1:]
kept = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) if how == "open" else None
number = 0
with open(log, "w", buffering=1) as told:
    while not os.path.exists(stop):
        number += 1
        try:
            if kept is None:
                with open(path, "a") as file:
                    print(number, file=file)
            else:
                os.write(kept, b"%d\\n" % number)
                os.fsync(kept)
            print(number, file=told)
        except OSError as error:
            print("error at", number, error, file=told)
        time.sleep(0.2)
"""


def port_of(cluster: ClusterUnderTest, node: str) -> str:
    """The name of this machine's end of a node's cable."""
    index = int(cluster.run(node, "cat /sys/class/net/eth0/iflink"))
    (link,) = [link for link in json.loads(run(["ip", "-json", "link"])) if link["ifindex"] == index]
    return str(link["ifname"])


@contextmanager
def cut(cluster: ClusterUnderTest, node: str) -> Iterator[None]:
    """Nothing reaches a node or leaves it. Its interface stays up, and no connection is told."""
    port = port_of(cluster, node)
    run(["bridge", "link", "set", "dev", port, "state", DISABLED], root=True)
    try:
        yield
    finally:
        run(["bridge", "link", "set", "dev", port, "state", FORWARDING], root=True)


class Writers:
    """Writers of one user on a node, several of each kind; each has a file on the share and a log on the node."""

    def __init__(self, cluster: ClusterUnderTest, node: str, user: str, of_each_kind: int) -> None:
        self._cluster, self._node, self._user = cluster, node, user
        self._place = cluster.run_as(user, node, f"mktemp -d -p {FOLDER}").strip()
        self._here = cluster.run_as(user, node, "mktemp -d").strip()
        self.names = [f"{how}-{number}" for how in ("open", "each") for number in range(of_each_kind)]
        for name in self.names:
            words = [name.partition("-")[0], f"{self._place}/{name}", f"{self._here}/{name}", f"{self._here}/stop"]
            command = f"setsid python3 -c {shlex.quote(WRITER)} {shlex.join(words)} </dev/null >/dev/null 2>&1 &"
            cluster.run(node, as_user(user, command))

    def told(self) -> dict[str, list[str]]:
        """By writer, the numbers that were acknowledged and the errors, in order."""
        # A writer that was told nothing yet has an empty file, or none.
        logs = self._cluster.run(self._node, f"cd {self._here}; grep -H '' {shlex.join(self.names)} || true")
        found: dict[str, list[str]] = {name: [] for name in self.names}
        for line in logs.splitlines():
            name, _, text = line.partition(":")
            found[name].append(text)
        return found

    def stop(self) -> dict[str, list[str]]:
        """End them all; return by writer what the server has of it."""
        stop = f"{self._here}/stop"
        self._cluster.run(self._node, f"touch {stop}; while pgrep -u {self._user} -f {stop}; do sleep 0.1; done")
        place = self._place.replace("/shared", "/export/shared", 1)
        return {name: self._cluster.run("head", f"cat {place}/{name}").split() for name in self.names}
