"""The key that logs in to machines which a stack creates: in a file, or in an ssh-agent with its public half."""

from typing import Annotated

from pydantic import AfterValidator

from components.settings.problems import Report, Stack
from components.settings.section import Help
from components.settings.ssh_keys import public_key
from stacks.sites.hosts.ssh_types import KeyFile, check_one_key, public_half
from stacks.sites.kind import Site

# As 'TYPE BASE64' without its comment.
PublicKey = Annotated[
    str,
    AfterValidator(lambda value: public_key(value, "public key", "public key of type ed25519 or ecdsa")),
    Help("a public key such as 'ssh-ed25519 AAAA...'", "write the line that `ssh-add -L` prints"),
]


class SiteOfNewMachines(Site):
    """A site whose machines get the public half of a log-in key."""

    private_key_file: KeyFile | None = None
    """Private key for the log-in; the machines get its public half. Use this or `agent`."""
    agent: bool = False
    """Use a key in your ssh-agent instead of a key file."""
    public_key: PublicKey | None = None
    """With `agent`: the key's public half, which the machines get."""

    @property
    def private_key(self) -> str | None:
        """Return the content of the key file; None for a key in an agent."""
        return self.private_key_file.read_text(encoding="utf-8") if self.private_key_file else None

    @property
    def login_key(self) -> str:
        """Return the public half, which the machines get."""
        return str(public_half(self.private_key_file) if self.private_key_file else self.public_key)

    def check(self, stack: Stack, report: Report) -> None:
        """Report a log-in without a key or with two, and a public key without an agent, or the reverse."""
        check_one_key(self, report)
        if self.agent and self.public_key is None:
            breaks, fix = "no one could log in to the machines", "write the line that `ssh-add -L` prints"
            report.add((self, "public_key"), "is missing, but the key is in an agent", breaks, fix)
        if self.public_key is not None and not self.agent:
            breaks = "it may not belong to the key that logs in"
            report.add((self, "public_key"), "is set, but agent is not true", breaks, "remove it")
