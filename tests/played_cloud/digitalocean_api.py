"""The played cloud in the shape of DigitalOcean's API (github.com/digitalocean/openapi)."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.played_cloud.account import ACTIVE, BOOTING, ENDED, Api, Machine, NoCapacity, QuotaExceeded

PREFIX = "/v2"
_CREATE = {"name", "region", "size", "image", "ssh_keys", "user_data", "tags"}
_TAG = re.compile(r"[A-Za-z0-9:_-]{1,255}")


def error(status: int, id_: str, message: str) -> tuple[int, Any]:
    """Return an answer in the shape of DigitalOcean's errors."""
    return status, {"id": id_, "message": message, "request_id": "played"}


class DigitalOceanApi(Api):
    """DigitalOcean's calls, for one account. Droplets and keys have whole numbers as ids."""

    prefix = PREFIX
    refusals: ClassVar = {
        401: error(401, "unauthorized", "Unable to authenticate you"),
        403: error(403, "forbidden", "You are not authorized to perform this operation"),
        429: error(429, "too_many_requests", "API rate limit exceeded."),
    }

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the answer of a call."""
        match method, path:
            case "GET", "/droplets":
                return 200, {"droplets": [self._droplet(machine) for machine in self._account.bill()], "links": {}}
            case "GET", "/sizes":
                return 200, {"sizes": [self._size(name) for name in self._account.prices], "links": {}}
            case "GET", "/account/keys":
                keys = self._account.keys.items()
                rows = [{"id": int(id_), "name": name, "public_key": key} for id_, (name, key) in keys]
                return 200, {"ssh_keys": rows, "links": {}}
            case "POST", "/account/keys":
                if body["public_key"] in [key for _, key in self._account.keys.values()]:
                    return error(422, "unprocessable_entity", "SSH Key is already in use on your account")
                id_ = max(map(int, self._account.keys), default=512189) + 1
                self._account.keys[str(id_)] = str(body["name"]), str(body["public_key"])
                return 201, {"ssh_key": {"id": id_, "name": body["name"], "public_key": body["public_key"]}}
            case "DELETE", _ if path.startswith("/account/keys/"):
                self._account.keys.pop(path.rpartition("/")[2], None)
                return 204, {}
            case "POST", "/droplets":
                return self._create(body)
            case "DELETE", _ if path.startswith("/droplets/"):
                return self._destroy(path.rpartition("/")[2])
        return error(404, "not_found", "The resource you requested could not be found.")

    def _create(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if body.keys() != _CREATE or not all(_TAG.fullmatch(tag) for tag in body["tags"]):
            return error(422, "unprocessable_entity", f"Invalid request: {sorted(body)}")
        key = self._account.keys.get(str(body["ssh_keys"][0]))
        if key is None or body["size"] not in self._account.prices or not body["image"]:
            return error(422, "unprocessable_entity", "You specified an invalid key, size or image.")
        tags = {tag.rpartition(":")[0]: tag.rpartition(":")[2] for tag in body["tags"]}
        try:
            machine = self._account.launch(body["name"], body["size"], body["region"], tags, key[1], body["user_data"])
        except NoCapacity:
            return error(422, "unprocessable_entity", "Size is not available in this region.")
        except QuotaExceeded:
            message = "creating this/these droplet(s) will exceed your droplet limit"
            return error(422, "unprocessable_entity", message)
        return 202, {"droplet": self._droplet(machine), "links": {}}

    def _destroy(self, number: str) -> tuple[int, Any]:
        found = [machine for machine in self._account.bill() if str(machine.number) == number]
        if not found:
            return error(404, "not_found", "The resource you requested could not be found.")
        self._account.end(found[0].id)
        return 204, {}

    def _size(self, name: str) -> dict[str, Any]:
        free = self._account.capacity.items()
        return {
            "slug": name,
            "price_hourly": self._account.prices[name] / 100,
            "regions": [region for (type_, region), count in free if type_ == name and count > 0],
            "available": True,
        }

    def _droplet(self, machine: Machine) -> dict[str, Any]:
        status = {BOOTING: "new", ACTIVE: "active", ENDED: "archive"}[machine.state]
        addresses = [{"ip_address": "10.9.9.9", "type": "private"}, {"ip_address": machine.address, "type": "public"}]
        return {
            "id": machine.number,
            "name": machine.name,
            "status": status,
            "size_slug": machine.type,
            "size": self._size(machine.type),
            "region": {"slug": machine.region},
            "networks": {"v4": addresses if machine.address else [], "v6": []},
            "tags": [f"{key}:{value}" for key, value in machine.tags.items()],
        }
