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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pulumi
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, create_model

from components.settings.network_names import DEVICE, INTERFACE, TAILNET
from components.settings.public_key import ED25519, check_key

MOST_GPUS = 256  # of a node: nvidia's device files have numbers below it
# Characters of an answer, and how deep its lists and objects may lie in one another.
MOST_SAID, MOST_DEPTH = 2**20, 64
# A measurement's: what the driver may say (validate.sh), and what is added to it.
MOST_MEASURED = 80_000_000
CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"


def _whole(least: int, most: int) -> Any:
    return Annotated[int, Field(strict=True, ge=least, le=most)]


def _matching(pattern: str) -> Any:
    return Annotated[str, Field(strict=True, pattern=f"^(?:{pattern})$")]


def _list_of(kind: Any, most: int = 16) -> Any:
    return Annotated[list[kind], Field(strict=True, max_length=most)]


def _pair_of(one: Any, other: Any) -> Any:
    return Annotated[tuple[one, other], AfterValidator(list)]


def _only(holds: bool) -> None:
    if not holds:
        raise ValueError


def _tailnet_address(value: str) -> str:
    address = ipaddress.IPv4Address(value)
    _only(address in TAILNET and str(address) == value)
    return value


def _ed25519(value: str) -> str:
    """A public key as `ssh-ed25519 BASE64`."""
    kind, _, text = value.partition(" ")
    _only(kind == ED25519)
    check_key(kind, text)
    return value


def _in_order(numbers: list[int]) -> list[int]:
    """Numbers of device files, in their order, each once."""
    _only(numbers == sorted(set(numbers)))
    return numbers


def _address(value: str) -> str:
    """An IPv4 address with its prefix length that is none of the tailnet."""
    address = ipaddress.IPv4Interface(value)
    _only(str(address) == value and address.ip not in TAILNET and not address.ip.is_loopback)
    return value


def _certificate(value: str) -> str:
    """A certificate of an ed25519 key, as `ssh-ed25519-cert-v01@openssh.com BASE64`, without its comment."""
    kind, text, *_ = [*value.split(" "), "", ""]
    # The kind is also written inside of it, after its length.
    inside = base64.b64decode(text, validate=True)[4:]
    _only(value.isprintable() and kind == CERTIFICATE and inside.startswith(kind.encode()))
    return f"{kind} {text}"


def _printable(value: str) -> str:
    _only(value.isprintable())
    return value


_TRUTH: Any = Annotated[bool, Field(strict=True)]
_TEXT: Any = Annotated[str, Field(strict=True)]
_INTERFACE, _NODE = _matching(INTERFACE), _matching(r"[a-z0-9][a-z0-9-]{0,62}")
_WORDS: Any = Annotated[_TEXT, Field(max_length=4000), AfterValidator(_printable)]  # for people, on one line
_VERSION = _matching(r"[0-9][A-Za-z0-9.+:~-]{0,63}")
_KEY: Any = Annotated[_TEXT, AfterValidator(_ed25519)]


def _object(**kinds: Any) -> Any:
    """An object of these keys and no others."""
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in kinds.items()}
    return Annotated[create_model("_Object", __config__=ConfigDict(extra="forbid"), **fields), AfterValidator(dict)]


# What may be its site's fabric (components/roles/fabric/networks.py): interfaces with addresses, RDMA devices.
_NETWORKS = _object(
    interfaces=_list_of(
        _object(
            name=_INTERFACE,
            address=Annotated[_TEXT, AfterValidator(_address)],
            default_route=_TRUTH,
            speed=_whole(0, 10**7),
            rdma=_TRUTH,
        )
    ),
    rdma=_list_of(_object(device=_matching(DEVICE), port=_whole(1, 255), interface=_matching(f"|{INTERFACE}"))),
)
# What came of proving a node's fabric (components/roles/fabric/groups.py); None on the tailnet.
_PROVEN = (
    _object(
        interfaces=_list_of(_INTERFACE),
        rdma=_list_of(_matching(r"[A-Za-z0-9_.-]{1,64}:[0-9]{1,3}")),
        **{"with": _list_of(_pair_of(_NODE, _INTERFACE))},
        note=_WORDS,
        error=_WORDS,
    )
    | None
)


@dataclass(frozen=True)
class Answer:
    """What a step has to answer.

    fields   how each is read; None for a user's words, of which nothing is known but that they are an object
    most     characters of it
    needed   without it there is nothing to do for any machine: a problem of it ends the program
    """

    fields: Mapping[str, TypeAdapter[Any]] | None
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


def _kinds(**kinds: Any) -> Mapping[str, TypeAdapter[Any]]:
    return {name: TypeAdapter(kind) for name, kind in kinds.items()}


_FACTS = _kinds(
    cpus=_whole(1, 2**16),
    memory_mb=_whole(1, 2**31),
    gpus=_whole(0, MOST_GPUS),
    gpu_kind=_matching(r"|[a-z][a-z0-9-]{0,40}"),
    gpu_devices=Annotated[_list_of(_whole(0, 255), MOST_GPUS), AfterValidator(_in_order)],
    gpu_memory_mb=_whole(0, 2**31),
    gpu_driver=_matching(r"|[0-9][0-9A-Za-z.-]{0,40}"),
    gpu_nvlinks=_whole(0, 64),
    kernel_nfs_server=_TRUTH,
    cgroups=_TRUTH,
    slurm_version=_VERSION,
)
_JOINED = _kinds(
    tailnet_ip=Annotated[_TEXT, AfterValidator(_tailnet_address)],
    tailscale_version=_VERSION,
    sshd_port=_whole(1, 65535),
    host_key=_KEY,
    fabric=_NETWORKS,
)
GATE = Answer(_FACTS)
JOIN = Answer(_JOINED)
REACH = Answer({**_JOINED, **_kinds(path=_matching(r"direct|relay|peer-relay"))})
HEAD = Answer(_kinds(authority=_KEY, leave_key=_KEY, own_file_system=_TRUTH, slurm_version=_VERSION, fabric=_PROVEN))
MEMBER = Answer(_kinds(certificate=Annotated[_TEXT, AfterValidator(_certificate)], fabric=_PROVEN))
NODE = Answer(_kinds(slurm_version=_VERSION))
HOST_KEY = Answer(_kinds(host_key=_KEY))
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


def read(fields: Mapping[str, TypeAdapter[Any]], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer that hold, the others as None, and `problem`: empty, or which do not hold.

    What came instead is not quoted: it may be anything.
    """
    found: dict[str, Any] = {}
    wrong = []
    for name, kind in fields.items():
        try:
            found[name] = kind.validate_python(answer.get(name))
        except ValueError:
            found[name] = None
            wrong.append(name)
    problem = f"its answer has no {', '.join(wrong)} that could be one" if wrong else ""
    return {**found, "problem": problem}
