"""What steps answer, read into types before any of it goes anywhere else.

A machine that has been taken over says what it likes. Each answer is bounded and parsed here, field by field; one that
does not hold is None, and `problem` says so. The next step about that node then refuses it, and the other nodes go on:
an error raised here would end the program, and with it the work on every other machine. It is raised for what the head
node answers of itself, without which there is nothing to do.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.settings.network_names import DEVICE, INTERFACE, TAILNET
from components.settings.public_key import ED25519, check_key

MOST_GPUS = 256  # of a node: nvidia's device files have numbers below it
# Characters of an answer, and how deep its lists and objects may lie in one another.
MOST_SAID, MOST_DEPTH = 2**20, 64
# A measurement's: what the driver may say (validate.sh), and what is added to it.
MOST_MEASURED = 80_000_000

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


def _certificate(value: object) -> str:
    """A certificate of an ed25519 key, as `ssh-ed25519-cert-v01@openssh.com BASE64`, without its comment."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    kind, text, *_ = [*value.split(" "), "", ""]
    # The kind is also written inside of it, after its length.
    if kind != CERTIFICATE or not base64.b64decode(text, validate=True)[4:].startswith(kind.encode()):
        raise ValueError
    return f"{kind} {text}"


def _text(most: int) -> Reader:
    """Words for people, on one line."""

    def read(value: object) -> str:
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise ValueError
        return value

    return read


def _list_of(parse: Reader, most: int = 16) -> Reader:
    def read(value: object) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError
        return [parse(item) for item in value]

    return read


def _node_and_interface(value: object) -> list[str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError
    return [_NODE(value[0]), _INTERFACE(value[1])]


def _proven(value: object) -> dict[str, Any] | None:
    """What came of proving a node's fabric (components/roles/fabric/groups.py); None on the tailnet."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError
    return {name: parse(value.get(name)) for name, parse in _PROVEN.items()}


CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"
_NODE = _matching(r"[a-z0-9][a-z0-9-]{0,62}")
_PROVEN: Mapping[str, Reader] = {
    "interfaces": _list_of(_INTERFACE),
    "rdma": _list_of(_matching(r"[A-Za-z0-9_.-]{1,64}:[0-9]{1,3}")),
    "with": _list_of(_node_and_interface),
    "note": _text(4000),
    "error": _text(4000),
}


@dataclass(frozen=True)
class Answer:
    """What a step has to answer.

    fields   how each is read; None for a user's words, of which nothing is known but that they are an object
    most     characters of it
    needed   without it there is nothing to do for any machine: a problem of it ends the program
    """

    fields: Mapping[str, Reader] | None
    most: int = MOST_SAID
    needed: bool = False

    def read(self, step: str, stdout: str) -> dict[str, Any]:
        """Return the fields that hold of what a step printed, the others as None, and `problem`.

        Without fields, the object, empty where it is none. RunError where it is needed and has a problem.
        """
        answer = said(stdout, self.most)
        if self.fields is None:
            return answer or {}
        found = read(self.fields, answer or {})
        if answer is None:
            found["problem"] = f"its answer is no JSON object of at most {self.most} characters"
        if self.needed and found["problem"]:
            # What came instead is not quoted: it may be anything, half of a secret too.
            raise pulumi.RunError(
                f"step {step}: {found['problem']}; look at the machine itself, where something answers in the place of "
                "tailrack's steps, then run up again"
            )
        return found

    def demanded(self) -> Answer:
        """Return the same answer as one that is needed."""
        return Answer(self.fields, self.most, needed=True)


_FACTS: Mapping[str, Reader] = {
    "cpus": _whole(1, 2**16),
    "memory_mb": _whole(1, 2**31),
    "gpus": _whole(0, MOST_GPUS),
    "gpu_kind": _matching(r"|[a-z][a-z0-9-]{0,40}"),
    "gpu_devices": _device_numbers,
    "gpu_memory_mb": _whole(0, 2**31),
    "gpu_driver": _matching(r"|[0-9][0-9A-Za-z.-]{0,40}"),
    "gpu_nvlinks": _whole(0, 64),
    "kernel_nfs_server": _truth,
    "open_ports": _list_of(_whole(1, 65535)),
    "cgroups": _truth,
    "slurm_version": _VERSION,
}
_JOINED: Mapping[str, Reader] = {
    "tailnet_ip": _tailnet_address,
    "tailscale_version": _VERSION,
    "sshd_port": _whole(1, 65535),
    "host_key": _ed25519,
    "fabric": _networks,
}
GATE = Answer(_FACTS)
JOIN = Answer(_JOINED)
REACH = Answer({**_JOINED, "path": _matching(r"direct|relay|peer-relay")})
HEAD = Answer(
    {
        "authority": _ed25519,
        "leave_key": _ed25519,
        "own_file_system": _truth,
        "slurm_version": _VERSION,
        "fabric": _proven,
    }
)
MEMBER = Answer({"certificate": _certificate, "fabric": _proven})
NODE = Answer({"slurm_version": _VERSION})
HOST_KEY = Answer({"host_key": _ed25519})
NOTHING = Answer({})
MEASUREMENT = Answer(None, MOST_MEASURED)


def said(stdout: str, most: int = MOST_SAID) -> dict[str, Any] | None:
    """Return the JSON object that a step printed, None where it printed anything else. It never raises."""
    if len(stdout) > most:
        return None
    try:
        answer = json.loads(stdout, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and _is_flat(answer) else None


def _no_number(word: str) -> None:
    raise ValueError(word)


def _is_flat(answer: object) -> bool:
    """Whether nothing lies deeper in it than an answer's parts do: who goes through it may do so by recursion."""
    level: list[Any] = [answer]
    for _ in range(MOST_DEPTH):
        inner = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        level = [part for part in inner if isinstance(part, dict | list)]
        if not level:
            return True
    return False


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
