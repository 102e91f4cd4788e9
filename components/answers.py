"""What a machine's steps answer, read into types before any of it goes anywhere else.

A machine that has been taken over says what it likes. Its answer is parsed here, field by field; one that does not
hold is None, and `problem` says so. The step about that node on the head node then refuses it, and the other nodes go
on: an error raised here would end the program, and with it the work on every other machine.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from components.public_key import ED25519, check_key
from components.settings.network_names import DEVICE, INTERFACE

TAILNET = ipaddress.IPv4Network("100.64.0.0/10")  # RFC 6598; Tailscale gives its addresses from it
MOST_GPUS = 256  # of a node: nvidia's device files have numbers below it

Reader = Callable[[object], Any]


def _whole(least: int, most: int) -> Reader:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return read


def _matching(pattern: str) -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError
        return value

    return read


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _tailnet_address(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    address = ipaddress.IPv4Address(value)
    if address not in TAILNET or str(address) != value:
        raise ValueError
    return value


def _ed25519(value: object) -> str:
    """A public key as `ssh-ed25519 BASE64`."""
    kind, _, text = value.partition(" ") if isinstance(value, str) else ("", "", "")
    if kind != ED25519:
        raise ValueError
    check_key(kind, text)
    return f"{kind} {text}"


def _device_numbers(value: object) -> list[int]:
    """Numbers of device files, in their order, each once."""
    if not isinstance(value, list) or len(value) > MOST_GPUS:
        raise ValueError
    numbers = [_whole(0, 255)(number) for number in value]
    if numbers != sorted(set(numbers)):
        raise ValueError
    return numbers


_INTERFACE = _matching(INTERFACE)
_DEVICE = _matching(DEVICE)


def _networks(value: object) -> dict[str, Any]:
    """What may be its site's fabric (components/roles/fabric/networks.py): interfaces with addresses, RDMA devices."""
    if not isinstance(value, dict) or value.keys() != {"interfaces", "rdma"}:
        raise ValueError
    return {"interfaces": _each(value["interfaces"], _interface), "rdma": _each(value["rdma"], _rdma)}


def _each(value: object, parse: Reader) -> list[Any]:
    if not isinstance(value, list) or len(value) > 16:
        raise ValueError
    return [parse(item) for item in value]


def _interface(value: object) -> dict[str, Any]:
    fields = {
        "name": _INTERFACE,
        "address": _address,
        "default_route": _truth,
        "speed": _whole(0, 10**7),
        "rdma": _truth,
    }
    return _whole_of(value, fields)


def _rdma(value: object) -> dict[str, Any]:
    if isinstance(value, dict) and value.get("interface") == "":
        return {**_whole_of({**value, "interface": "none"}, _RDMA), "interface": ""}
    return _whole_of(value, _RDMA)


def _whole_of(value: object, fields: Mapping[str, Reader]) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != fields.keys():
        raise ValueError
    return {name: parse(value[name]) for name, parse in fields.items()}


def _address(value: object) -> str:
    """An IPv4 address with its prefix length that is none of the tailnet."""
    if not isinstance(value, str) or "/" not in value:
        raise ValueError
    address = ipaddress.IPv4Interface(value)
    if str(address) != value or address.ip in TAILNET or address.ip.is_loopback:
        raise ValueError
    return value


_RDMA: Mapping[str, Reader] = {"device": _DEVICE, "port": _whole(1, 255), "interface": _INTERFACE}
_VERSION = _matching(r"[0-9][A-Za-z0-9.+:~-]{0,63}")

GATE: Mapping[str, Reader] = {
    "cpus": _whole(1, 2**16),
    "memory_mb": _whole(1, 2**31),
    "gpus": _whole(0, MOST_GPUS),
    "gpu_kind": _matching(r"|[a-z][a-z0-9-]{0,40}"),
    "gpu_devices": _device_numbers,
    "gpu_memory_mb": _whole(0, 2**31),
    "gpu_driver": _matching(r"|[0-9][0-9A-Za-z.-]{0,40}"),
    "gpu_nvlinks": _whole(0, 64),
    "kernel_nfs_server": _truth,
    "cgroups": _truth,
    "slurm_version": _VERSION,
}
JOIN: Mapping[str, Reader] = {
    "tailnet_ip": _tailnet_address,
    "tailscale_version": _VERSION,
    "sshd_port": _whole(1, 65535),
    "host_key": _ed25519,
    "fabric": _networks,
}
REACH: Mapping[str, Reader] = {**JOIN, "path": _matching(r"direct|relay|peer-relay")}
NODE: Mapping[str, Reader] = {"slurm_version": _VERSION}


def reader(fields: Mapping[str, Reader]) -> Callable[[str], dict[str, Any]]:
    """Return a function from what a step printed to its fields, see `read`. It never raises."""

    return lambda stdout: read(fields, said(stdout))


def said(stdout: str) -> dict[str, Any]:
    """Return the JSON object that a step printed, an empty one where it printed anything else. It never raises."""
    try:
        answer = json.loads(stdout)
    except (ValueError, RecursionError):
        answer = None
    return answer if isinstance(answer, dict) else {}


def read(fields: Mapping[str, Reader], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer that hold, the others as None, and `problem`: empty, or which do not hold.

    What came instead is not quoted: it may be anything.
    """
    found: dict[str, Any] = {}
    wrong = []
    for name, parse in fields.items():
        try:
            found[name] = parse(answer.get(name))
        except ValueError:
            found[name] = None
            wrong.append(name)
    problem = f"its answer has no {', '.join(wrong)} that could be one" if wrong else ""
    return {**found, "problem": problem}
