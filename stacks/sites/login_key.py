"""The key that logs in to machines which a stack creates: in a file, or in an ssh-agent with its public half."""

from typing import Annotated, Any, Protocol

from pydantic import AfterValidator

from components.settings.problems import Report
from components.settings.section import key
from components.settings.ssh_keys import public_key


def _public_key(value: str) -> str:
    """Return the key as 'TYPE BASE64' without its comment."""
    return public_key(value, "public key", "public key of type ed25519 or ecdsa")


PublicKey = Annotated[str, AfterValidator(_public_key)]


def private_key_file_key(machines: str) -> Any:
    """Return the key of the private key's file. `machines` is the cloud's word for them."""
    return key(
        f"private key for the log-in; the {machines} get its public half. Use this or `agent`",
        wants="a path of a private key file",
        breaks="tailrack could not log in",
        fix="write the path of your key, such as ~/.ssh/id_ed25519",
        default=None,
    )


def public_key_key(machines: str) -> Any:
    """Return the key of the public half."""
    return key(
        f"with `agent`: the key's public half, which the {machines} get",
        wants="a public key such as 'ssh-ed25519 AAAA...'",
        breaks="no one could log in",
        fix="write the line that `ssh-add -L` prints",
        default=None,
    )


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
