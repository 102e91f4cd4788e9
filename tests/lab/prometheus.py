"""What a cluster's Prometheus answers, asked over the tailnet as people ask it."""

import json
import shlex
from typing import Any

from tests.lab.cluster import ClusterUnderTest

Cluster = ClusterUnderTest


def api(cluster: Cluster, path: str, *words: str, port: int = 9090) -> Any:
    """Return Prometheus' answer to root of the head node; None where it does not answer."""
    url = f"http://{cluster.address('head')}:{port}/api/v1/{path}"
    line = ["curl", "-fsG", "-m", "10", "-K", "/etc/tailrack/prometheus/login", url]
    said = cluster.attempt(
        "head", shlex.join([*line, *(part for word in words for part in ("--data-urlencode", word))])
    )
    return json.loads(said.stdout)["data"] if said.returncode == 0 else None


def asked(cluster: Cluster, expression: str, label: str = "instance") -> dict[str, float]:
    """The values of an expression now, by a label."""
    found = api(cluster, "query", f"query={expression}") or {"result": []}
    return {one["metric"].get(label, ""): float(one["value"][1]) for one in found["result"]}


def firing(cluster: Cluster) -> list[dict[str, str]]:
    """The alerts that are raised now: labels and what is said of each, together."""
    found = api(cluster, "alerts") or {"alerts": []}
    return [{**one["labels"], **one["annotations"]} for one in found["alerts"] if one["state"] == "firing"]


def listening(cluster: Cluster, node: str, program: str) -> list[str]:
    """Where a program listens."""
    sockets = cluster.run(node, "ss -Hltnp").splitlines()
    return [line.split()[3] for line in sockets if f'"{program}' in line]
