"""The key that logs in to machines which a stack creates: in a file, or in an ssh-agent with its public half."""

from typing import Annotated, Protocol

from pydantic import AfterValidator

from components.settings.problems import Report
from components.settings.section import Help
from components.settings.ssh_keys import public_key


def _public_key(value: str) -> str:
    """Return the key as 'TYPE BASE64' without its comment."""
    return public_key(value, "public key", "public key of type ed25519 or ecdsa")


PublicKey = Annotated[
    str,
    AfterValidator(_public_key),
    Help("a public key such as 'ssh-ed25519 AAAA...'", "write the line that `ssh-add -L` prints"),
]


class NewMachines(Protocol):
    """A site whose machines get the public half of a key."""

    @property
    def agent(self) -> bool: ...
    @property
    def public_key(self) -> str | None: ...


def check_public_key(site: NewMachines, machines: str, report: Report) -> None:
    """Report an agent without a public key, and a public key without an agent."""
    path = report.at(site, "public_key")
    if site.agent and site.public_key is None:
        breaks, fix = f"no one could log in to the {machines}", "write the line that `ssh-add -L` prints"
        report.add(path, "is missing, but the key is in an agent", breaks, fix)
    if site.public_key is not None and not site.agent:
        breaks = "it may not belong to the key that logs in"
        report.add(path, "is set, but agent is not true", breaks, "remove it")
