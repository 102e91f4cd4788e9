"""The backup of what the head node alone knows: the section `backup`, and what it must not be."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field, SecretStr

from components.settings.draft import Draft, check_hidden
from components.settings.problems import Report
from components.settings.section import Section, key, number, secret_text
from components.settings.ssh_keys import HostKey
from components.settings.types import refuse

_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_FOLDER = r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+"
SFTP = re.compile(rf"sftp:(?P<user>[A-Za-z_][A-Za-z0-9_.-]{{0,31}})@(?P<host>{_HOST}):(?P<folder>{_FOLDER})")
S3 = re.compile(
    rf"s3:https://(?P<host>{_HOST})(:(?P<port>[1-9][0-9]{{0,4}}))?/(?P<bucket>[a-z0-9][a-z0-9.-]{{1,62}})({_FOLDER})?"
)
_LONGEST = 300
_ONE_LINE = re.compile(r"[!-~]{1,4096}")


def _target(value: str) -> str:
    value = value.rstrip("/")
    if not (SFTP.fullmatch(value) or S3.fullmatch(value)) or len(value) > _LONGEST:
        refuse("is neither sftp:USER@HOST:/FOLDER nor s3:https://HOST/BUCKET[/FOLDER] in plain characters")
    return value


def _private_key(value: SecretStr) -> SecretStr:
    lines = value.get_secret_value().strip().splitlines()
    if len(lines) < 3 or not re.fullmatch(r"-----BEGIN [A-Z ]*PRIVATE KEY-----", lines[0]):
        refuse("is no private key of OpenSSH")
    if not all(re.fullmatch(r"[!-~ ]*", line) for line in lines):
        refuse("has other than plain characters in it")
    return SecretStr("\n".join(lines) + "\n")


def _one_line(value: SecretStr) -> SecretStr:
    if not _ONE_LINE.fullmatch(value.get_secret_value()):
        refuse("is empty, or has blanks, line breaks or other than plain characters in it")
    return value


OneLine = Annotated[SecretStr, AfterValidator(_one_line)]


def command(name: str) -> str:
    """The command that sets a secret of the section."""
    return f"pulumi config set --path --secret tailrack:backup.{name}"


def _secret(name: str, what: str) -> Any:
    return secret_text(what, breaks="no backup could be made", command=command(name))


class Backup(Section):
    """The backup of the head node. A stack without this section has none."""

    target: Annotated[str, Field(max_length=_LONGEST), AfterValidator(_target)] = key(
        "where backups go: `sftp:USER@HOST:/FOLDER`, a folder on a second machine, or "
        "`s3:https://HOST/BUCKET[/FOLDER]`. HOST is an address or name that the head node reaches, best outside the "
        "tailnet: a new head node has to reach it before it is a member",
        wants="sftp:USER@HOST:/FOLDER or s3:https://HOST/BUCKET",
        breaks="nothing would be saved",
        fix="write one of the two, such as sftp:backup@192.0.2.9:/srv/backup/lab",
    )
    port: int = number(
        "of sftp: the port of the machine's SSH server", 1, 65535, breaks="it could not be reached", default=22
    )
    host_key: HostKey | None = key(
        "of sftp, and needed there: the machine's SSH host key, type and key",
        wants="a public key such as `ssh-ed25519 AAAA...`",
        breaks="backups could go to whoever answers at the address",
        fix="write what /etc/ssh/ssh_host_ed25519_key.pub there says",
        default=None,
    )
    private_key: Annotated[SecretStr, AfterValidator(_private_key)] | None = key(
        f"of sftp, and needed there: the SSH key that the head node logs in with, one of its own; a Pulumi secret "
        f"(`{command('private_key')} <FILE`)",
        wants="a private key of OpenSSH",
        breaks="the head node could not log in there",
        fix=f"run: {command('private_key')} <FILE",
        secret=True,
        default=None,
    )
    password: OneLine | None = _secret(
        "password", "what backups are encrypted with; left out, the stack makes one, its secret output backup_password"
    )
    access_key: str | None = key(
        "of s3: the id of an access key; left out, what the machine is allowed to do at its cloud",
        wants="the id of an access key",
        breaks="no backup could be made",
        fix="copy it from where the bucket is",
        pattern=r"^[A-Za-z0-9_/+=.-]{1,200}$",
        default=None,
    )
    secret_key: OneLine | None = _secret("secret_key", "of s3: the secret of the access key")


# Whose machine a target is, where it is none beside the cluster.
HEAD, MADE, LISTED = "the head node itself", "a node that this stack makes", "a node of this cluster"


def check_backup(backup: Draft, whose: Mapping[str, str], storage: Mapping[str, object], report: Report) -> None:
    """Report a target that is no second machine or lies on the share, and what a kind of target lacks.

    whose     HEAD, MADE or LISTED by the names and addresses of the cluster's machines, as far as the config says them
    storage   `path` and `mount` of the share
    """
    at, target = backup.at("target"), backup.value("target")
    for name in ("private_key", "password", "secret_key"):
        breaks = "everybody who reads the config could read every backup, or delete it"
        check_hidden(backup, name, breaks, f"run: {command(name)}", report)
    if not isinstance(target, str):
        return
    if not (found := SFTP.fullmatch(target)):
        if (backup.raw.get("access_key") is None) != (backup.raw.get("secret_key") is None):
            what = "one of access_key and secret_key without the other"
            report.add(backup.path, what, "the bucket would let nobody in", "write both, or neither")
        return
    for name in ("host_key", "private_key"):
        if backup.raw.get(name) is None:
            breaks = "no backup could be made" if name == "private_key" else "backups could go to whoever answers there"
            report.add(backup.at(name), f"is missing beside {report.value(at, target)}", breaks, f"write {name}")
    host = found["host"].lower()
    owner = HEAD if re.fullmatch(r"localhost|127(\.[0-9]+){3}", host) else whose.get(host)
    what = f"{report.value(at, target)} is {owner}"
    if owner == HEAD:
        report.add(at, what, "a backup would be lost with what it is of", "write a second machine, or S3")
    elif owner == MADE:
        report.add(at, what, "a backup would be lost with it", "write a machine that is not made by the stack, or S3")
    elif owner == LISTED:
        report.warn(
            at,
            f"{what}: backups end with that machine, and a new head node, which is in no tailnet yet, has to reach it; "
            "a machine beside the cluster or S3 keeps them better",
        )
    for name, folder in storage.items():
        if isinstance(folder, str) and PurePosixPath(found["folder"]).is_relative_to(folder):
            what = f"{report.value(at, target)} is on the share (storage.{name} is {folder})"
            breaks = "the share is on the head node, and a backup would be lost with it"
            report.add(at, what, breaks, "write a folder of the second machine's own disk")
