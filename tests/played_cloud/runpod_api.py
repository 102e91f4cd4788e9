"""The played cloud in the shape of RunPod's API (runpod/docs, api-reference-v2/openapi.json).

The type of a machine is the id of a GPU: a machine in the lab has no GPU, so a pod with several is not free.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from tests.played_cloud.account import ACTIVE, BOOTING, ENDED, Api, Machine, NoCapacity, QuotaExceeded

PREFIX = "/runpod/v2"
_CREATE = {"name", "image", "gpu", "cloud", "args", "ports", "disk", "mounts", "env"}
_COMMUNITY = "community"


def error(status: int, title: str, detail: str) -> tuple[int, Any]:
    """Return an answer in the shape of RunPod's errors (RFC 9457)."""
    return status, {"title": title, "status": status, "detail": detail}


class RunPodApi(Api):
    """RunPod's calls, for one account."""

    prefix = PREFIX
    refusals: ClassVar = {
        401: error(401, "Unauthorized", "missing bearer token"),
        403: error(403, "Forbidden", "access denied"),
        429: error(429, "Too Many Requests", "rate limit exceeded for the minute window"),
    }

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the answer of a call."""
        match method, path:
            case "GET", "/pods":
                return 200, {"pods": [self._pod(machine) for machine in self._account.bill()]}
            case "GET", "/catalog/gpus":
                if (body.get("include"), body.get("product")) != ("AVAILABILITY", "POD"):
                    return error(400, "Bad Request", "include=AVAILABILITY requires product")
                return 200, {"gpus": [self._gpu(name, int(body.get("count", 1))) for name in self._account.prices]}
            case "POST", "/pods":
                return self._create(body)
            case "DELETE", _ if path.startswith("/pods/"):
                id_ = path.rpartition("/")[2]
                if id_ not in [machine.id for machine in self._account.bill()]:
                    return error(404, "Not Found", "pod not found")
                self._account.end(id_)
                return 204, {}
        return error(404, "Not Found", "resource not found")

    def _create(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if not _CREATE <= body.keys() <= _CREATE | {"dataCenterIds"} or "22/tcp" not in body["ports"]:
            return error(422, "Unprocessable Entity", f"Request validation failed. {sorted(body)}")
        if body["disk"] < 1 or body["mounts"]["persistent"]["size"] < 10:
            return error(422, "Unprocessable Entity", "Request validation failed.")
        region = body["dataCenterIds"][0] if body["cloud"] == "SECURE" else _COMMUNITY
        name, env = body["gpu"]["id"].replace(" ", "_"), body["env"]
        if name not in self._account.prices:
            return error(400, "Bad Request", "request could not be processed")
        try:
            if body["gpu"]["count"] > 1:
                raise NoCapacity
            tags = dict(parse_qsl(env["tailrack_tags"]))
            start = json.dumps({"args": body["args"], "env": env})
            machine = self._account.launch(body["name"], name, region.lower(), tags, env["PUBLIC_KEY"], start)
        except NoCapacity:
            detail = "There are no longer any instances available with the requested specifications."
            return error(400, "Bad Request", f"{detail} Please refresh and try again.")
        except QuotaExceeded:
            return error(402, "Payment Required", "Insufficient balance.")
        return 201, self._pod(machine)

    def _gpu(self, name: str, count: int) -> dict[str, Any]:
        price, free = self._account.prices[name] / 100, self._account.capacity
        centers = [region.upper() for type_, region in free if type_ == name and region != _COMMUNITY]
        levels = {
            center: "LOW" if count == 1 and free.get((name, center.lower()), 0) > 0 else "NONE" for center in centers
        }
        return {
            "id": name.replace("_", " "),
            "name": name,
            "pool": None,
            "manufacturer": "NVIDIA",
            "memory": 80,
            "secure": True,
            "community": True,
            "price": {"secure": price, "community": price},
            "maxCount": {"secure": 8, "community": 8},
            "availability": "LOW" if "LOW" in levels.values() else "NONE",
            "dataCenters": [{"id": id_, "name": id_, "availability": level} for id_, level in levels.items()],
        }

    def _pod(self, machine: Machine) -> dict[str, Any]:
        status = {BOOTING: "STARTING", ACTIVE: "RUNNING", ENDED: "TERMINATED"}[machine.state]
        community = machine.region == _COMMUNITY
        host, _, port = machine.address.partition(":")
        direct = {"host": host, "port": int(port or 22), "username": "root", "command": f"ssh root@{host}"}
        return {
            "id": machine.id,
            "name": machine.name,
            "status": status,
            "actions": ["terminate"],
            "env": json.loads(machine.user_data)["env"],
            "ports": ["22/tcp"],
            "gpu": {"id": machine.type.replace("_", " "), "count": 1},
            "cloud": "COMMUNITY" if community else "SECURE",
            "dataCenterId": machine.region.upper() if machine.address and not community else None,
            "ssh": {"proxy": None, "direct": direct if machine.address else None},
            "cost": self._account.prices[machine.type] / 100,
        }
