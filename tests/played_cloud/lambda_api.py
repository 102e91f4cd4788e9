"""The played cloud in the shape of Lambda's API (docs-api.lambda.ai, OpenAPI 1.8.3)."""

import re
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.played_cloud.account import ACTIVE, BOOTING, ENDED, Api, Machine, NoCapacity, QuotaExceeded

PREFIX = "/api/v1"
_LAUNCH = {"region_name", "instance_type_name", "ssh_key_names"}
_MORE = {"name", "tags", "user_data", "image", "file_system_names", "hostname", "firewall_rulesets"}
_TAG = re.compile(r"[a-z][a-z0-9:-]+")


def error(status: int, code: str, message: str) -> tuple[int, Any]:
    """Return an answer in the shape of Lambda's errors."""
    return status, {"error": {"code": code, "message": message}}


class LambdaApi(Api):
    """Lambda's calls, for one account."""

    prefix = PREFIX
    refusals: ClassVar = {
        401: error(401, "global/invalid-api-key", "API key was invalid, expired, or deleted."),
        403: error(403, "global/account-inactive", "Your account is inactive."),
        429: error(429, "global/too-many-requests", "Too many requests."),
    }

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the answer of a call."""
        match method, path:
            case "GET", "/instances":
                return 200, {"data": [self._instance(each) for each in self._account.machines() if self._listed(each)]}
            case "GET", "/instance-types":
                return 200, {"data": self._types()}
            case "GET", "/ssh-keys":
                keys = self._account.keys.items()
                return 200, {"data": [{"id": id_, "name": name, "public_key": key} for id_, (name, key) in keys]}
            case "POST", "/ssh-keys":
                id_ = secrets.token_hex(16)
                self._account.keys[id_] = str(body["name"]), str(body["public_key"])
                return 200, {"data": {"id": id_, "name": body["name"], "public_key": body["public_key"]}}
            case "DELETE", _ if path.startswith("/ssh-keys/"):
                self._account.keys.pop(path.rpartition("/")[2], None)
                return 200, {"data": {}}
            case "POST", "/instance-operations/launch":
                return self._launch(body)
            case "POST", "/instance-operations/terminate":
                return self._terminate(body)
        return error(404, "global/object-does-not-exist", f"there is no {method} {path} here")

    def _launch(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if not body.keys() >= _LAUNCH or not body.keys() <= _LAUNCH | _MORE or len(body["ssh_key_names"]) != 1:
            return error(400, "global/invalid-parameters", f"Invalid request data: {sorted(body)}")
        if len(str(body.get("name", ""))) > 64:
            return error(400, "global/invalid-parameters", "name is longer than 64 characters")
        tags = {tag["key"]: tag["value"] for tag in body.get("tags", ())}
        if not all(_TAG.fullmatch(key) and len(key) <= 55 and len(value) <= 128 for key, value in tags.items()):
            return error(400, "global/invalid-parameters", "Invalid tag")
        keys = [key for name, key in self._account.keys.values() if name == body["ssh_key_names"][0]]
        if not keys or body["instance_type_name"] not in self._account.prices:
            return error(400, "global/object-does-not-exist", "Specified SSH key or instance type does not exist.")
        place = str(body["instance_type_name"]), str(body["region_name"])
        try:
            machine = self._account.launch(
                str(body.get("name", "")), *place, tags, keys[0], str(body.get("user_data", ""))
            )
        except NoCapacity:
            code = "instance-operations/launch/insufficient-capacity"
            return error(400, code, "Not enough capacity to fulfill launch request.")
        except QuotaExceeded:
            return error(400, "global/quota-exceeded", "Quota exceeded.")
        return 200, {"data": {"instance_ids": [machine.id]}}

    def _terminate(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        known = {machine.id: machine for machine in self._account.bill()}
        if not {*body["instance_ids"]} <= known.keys():
            return error(404, "global/object-does-not-exist", "Specified instance does not exist.")
        for id_ in body["instance_ids"]:
            self._account.end(id_)
        return 200, {"data": {"terminated_instances": [self._instance(known[id_]) for id_ in body["instance_ids"]]}}

    def _types(self) -> dict[str, Any]:
        free = [place for place, count in self._account.capacity.items() if count > 0]
        return {
            name: {
                "instance_type": self._type(name),
                "regions_with_capacity_available": [
                    {"name": region, "description": region} for type_, region in free if type_ == name
                ],
            }
            for name in self._account.prices
        }

    def _type(self, name: str) -> dict[str, Any]:
        specs = {"vcpus": 2, "memory_gib": 4, "storage_gib": 10, "gpus": 0}
        return {
            "name": name,
            "description": name,
            "gpu_description": "none",
            "price_cents_per_hour": self._account.prices[name],
            "specs": specs,
        }

    @staticmethod
    def _listed(machine: Machine) -> bool:
        return machine.state != ENDED or machine.taken_back

    def _instance(self, machine: Machine) -> dict[str, Any]:
        status = {BOOTING: "booting", ACTIVE: "active", ENDED: "preempted" if machine.taken_back else "terminating"}
        return {
            "id": machine.id,
            "name": machine.name,
            **({"ip": machine.address} if machine.address else {}),
            "status": status[machine.state],
            "ssh_key_names": [],
            "file_system_names": [],
            "region": {"name": machine.region, "description": machine.region},
            "instance_type": self._type(machine.type),
            "actions": {},
            "tags": [{"key": key, "value": value} for key, value in machine.tags.items()],
        }
