"""The section `backup`, the backup of the head node's data, and checks of its target."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from components.settings.problems import ROOT, Report, Stack, secret_command
from components.settings.rules import check_both
from components.settings.section import Help, Section, key, keys_of
from components.settings.ssh_keys import HostKey
from components.settings.types import FOLDER, HOST, PORT, AccessKey, OneLine, SshPort, Whole, full, must, without_slash

SFTP = re.compile(rf"sftp:(?P<user>[A-Za-z_][A-Za-z0-9_.-]{{0,31}})@(?P<host>{HOST}):(?P<folder>{FOLDER})")
S3 = re.compile(rf"s3:https://(?P<host>{HOST})(?P<port>{PORT})?/(?P<bucket>[a-z0-9][a-z0-9.-]{{1,62}})({FOLDER})?")

Target = Annotated[
    str,
    Field(max_length=300),
    without_slash,
    must(
        lambda target: SFTP.fullmatch(target) or S3.fullmatch(target),
        "is neither sftp:USER@HOST:/FOLDER nor s3:https://HOST/BUCKET[/FOLDER] in plain characters",
    ),
    Help("sftp:USER@HOST:/FOLDER or s3:https://HOST/BUCKET", "write one such as sftp:backup@192.0.2.9:/srv/backup/lab"),
]

PrivateKey = Annotated[
    SecretStr,
    must(full(r"\s*-----BEGIN [A-Z ]*PRIVATE KEY-----(\r?\n[ -~]*){2,}\s*"), "is no OpenSSH private key"),
    AfterValidator(lambda key: SecretStr("\n".join(key.get_secret_value().strip().splitlines()) + "\n")),
]
# Neither **, nor a folder `..`, nor only wildcards.
_PATTERN = r"(?!.*(\*\*|(^|/)\.\.(/|$))|[*?./]*$)[A-Za-z0-9_.*?@+=,~-]+(/[A-Za-z0-9_.*?@+=,~-]+)*"

Pattern = Annotated[
    str, Field(max_length=200), must(full(_PATTERN), "is no plain relative path, or matches everything")
]
# Keys that sftp needs, and what happens without them.
_SFTP_KEYS = {"host_key": "backups could go to any machine there", "private_key": "no backup could be made"}


class Homes(Section):
    """The users' homes on the share; without this section, backups do not contain them."""

    max_gb: Whole = key(ge=1, le=100_000, default=200)
    """The largest size of all homes together; above it the largest homes are left out (`tailrack-backup status`)."""
    exclude: tuple[Pattern, ...] = key("a list of paths", 'write [.cache, "*.ckpt"]', max_length=100, default=())
    """Files and folders to leave out, at any depth: names or paths such as `.cache`, `*.ckpt` or `ada/data`."""


class Backup(Section):
    """The backup of the head node; off without this section."""

    target: Target
    """Where backups go: `sftp:USER@HOST:/FOLDER` on a second machine, best outside the tailnet, which a new head node
    joins only later; or `s3:https://HOST/BUCKET[/FOLDER]`."""
    port: SshPort = 22
    """Sftp only: the port of the machine's SSH server."""
    host_key: HostKey | None = key(
        "a public key", "copy /etc/ssh/ssh_host_ed25519_key.pub of that machine", default=None
    )
    """Sftp only, required: the machine's SSH host key, as type and key."""
    private_key: PrivateKey | None = key(
        "an OpenSSH private key", f"run: {secret_command(f'{ROOT}backup.private_key')} <FILE", default=None
    )
    """Sftp only, required: the SSH key of the head node for the log-in, used for nothing else."""
    password: OneLine | None = None
    """Encryption password of backups; default: the stack makes one, its secret output backup_password."""
    access_key: AccessKey | None = None
    """S3 only: the id of an access key; default: the permissions of the machine at its cloud."""
    secret_key: OneLine | None = None
    """S3 only: the secret of the access key."""
    homes: Homes | None = None

    def check(self, stack: Stack, report: Report) -> None:
        path, config = report.at(self, "target"), stack.config
        target = report.value(path, self.target)
        if self.homes and config.storage.homes:
            problem, breaks = "is set, and storage.homes is another server", "root may not read the homes there"
            report.add((self, "homes"), problem, breaks, "remove it, and back them up on that server")
        if not (sftp := SFTP.fullmatch(self.target)):
            check_both(self, "access_key", "secret_key", "the bucket would reject the log-in", report)
            return
        for name, breaks in _SFTP_KEYS.items():
            if name not in self.model_fields_set:
                report.add((self, name), f"is missing beside {target}", breaks, keys_of(Backup)[name].help.fix)
        host, head = sftp["host"].lower(), config.head.name
        hosts = [host for site in config.sites for host in getattr(site, "hosts", ())]
        # An address with another port may be that of another machine.
        made = {host.address: False for host in hosts if host.port == self.port}
        made |= {node.name: node.site in stack.made for node in stack.nodes}
        heads = {head, *(host.address for host in hosts if host.name == head)}
        if host in heads or re.fullmatch(r"localhost|127(\.[0-9]+){3}", host):
            problem, breaks = f"{target} is the head node itself", "a backup would be lost with the head node"
            report.add(path, problem, breaks, "write a second machine, or S3")
        elif made.get(host):
            breaks = "destroying the stack would delete the backups"
            report.add(path, f"{target} is a node that this stack makes", breaks, "write another machine, or S3")
        elif host in made:
            text = "is a node of this cluster: backups are lost with that machine, and a new head node must reach it"
            report.warn(path, f"{target} {text} before it joins the tailnet; use a machine outside the cluster, or S3")
        for name, folder in (("path", config.storage.path), ("mount", config.storage.mount)):
            if PurePosixPath(sftp["folder"]).is_relative_to(folder):
                problem = f"{target} is on the share (storage.{name} is {folder})"
                report.add(path, problem, "a backup would be lost with it", "write a folder of the second machine")
