"""The backup's target: its address, its identity and the keys. It is checked before anything is changed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.run import Ended, attempt_bounded
from components.roles.storage.backup.restic import TARGET, last_reason, restic, shown

# Seconds for a short command: restic retries for 15 minutes when S3 refuses a request.
CHECK_SECONDS = 45
_SFTP_SECONDS = 60
_MOST_SFTP = 2**20
# Kilobytes that must be free at the target.
_ROOM_NEEDED = 262144
_NO_BUCKET = re.compile(r"bucket does not exist|NoSuchBucket", re.IGNORECASE)
# Messages of S3 for an unknown or wrong key, or one without permission.
_REFUSES = re.compile(
    r"access ?denied|forbidden|signature we calculated|SignatureDoesNotMatch|access key id|InvalidAccessKeyId",
    re.IGNORECASE,
)
_NO_REPOSITORY = re.compile(r"is there a repository|no such file|does not exist|not exist", re.IGNORECASE)
_REAL_PATH = re.compile(r"^Remote working directory: (.*)", re.MULTILINE)
_MODE = re.compile(r"^(d\S*) .*[ /]\.$", re.MULTILINE)
_CLOSED = re.compile(r"d...------.*")


@dataclass(frozen=True)
class TargetValues:
    """The target and the share.

    backup_repository   in restic's format
    backup_host, backup_port                  of a machine or S3
    backup_user, backup_host_key              of a machine; empty for S3
    backup_private_key, backup_password, backup_secret_key   secret
    backup_access_key, backup_bucket          of S3; empty for a machine
    backup_cluster      the cluster's name
    """

    backup_repository: str
    backup_host: str
    backup_user: str
    backup_port: str
    backup_host_key: str
    backup_private_key: str
    backup_password: str
    backup_secret_key: str
    backup_access_key: str
    backup_bucket: str
    backup_cluster: str
    share_path: str
    share_mount: str

    @property
    def path(self) -> str:
        """Return the folder on a machine."""
        return self.backup_repository.rpartition(":")[2]


_SSH_CONFIG = """Host {target}
    HostName {values.backup_host}
    Port {values.backup_port}
    User {values.backup_user}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    BatchMode yes
    HostKeyAlias {target}
    StrictHostKeyChecking yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    CanonicalizeHostname no
    ConnectTimeout 10
    ServerAliveInterval 10
    ServerAliveCountMax 3"""


def write_target(folder: str, values: TargetValues) -> None:
    """Write all that restic and ssh need to a folder that only root can open."""
    files.make_folder(folder, 0o700)
    # A config may have no keys any more.
    for name in ("access_key", "secret_key"):
        files.remove(f"{folder}/{name}")
    files.write_all([files.File(f"{folder}/{name}", text, 0o600) for name, text in _texts(folder, values)])


def _texts(folder: str, values: TargetValues) -> Iterator[tuple[str, str]]:
    yield "repository", values.backup_repository
    yield "cluster", values.backup_cluster
    yield "password", values.backup_password
    if values.backup_user:
        yield "key", values.backup_private_key
        yield "known_hosts", f"{TARGET} {values.backup_host_key}"
        yield "ssh_config", _SSH_CONFIG.format(target=TARGET, values=values, folder=files.on_disk(folder))
    if values.backup_secret_key:
        yield "access_key", values.backup_access_key
        yield "secret_key", values.backup_secret_key


def close_target(folder: str, values: TargetValues) -> None:
    """Close the folder that restic has created: with most umasks others can open it."""
    if values.backup_user and not (ended := _sftp(folder, f"chmod 700 {values.path}\n")).ok:
        raise Failure(
            f"cannot close the backup's target to other accounts there: {_last_line(ended)}",
            f"run 'chmod 700 {values.path}' on {values.backup_host}, then run up again",
        )


def check_target(folder: str, values: TargetValues) -> bool:
    """Return whether there is a repository.

    Raises Failure if the target cannot be used: it does not answer, the folder is open to others or on the share, the
    disk is full, or the password differs.
    """
    if values.backup_user:
        _check_folder(folder, values)
    # This only reads; try_target checks writing, which has its own error.
    ended = restic(folder, "cat", "config", "--no-lock", limit=CHECK_SECONDS)
    if ended.ok:
        return True
    if values.backup_bucket and _NO_BUCKET.search(ended.errors):
        # restic would create one, also for a misspelt name.
        raise Failure(
            f"there is no bucket {values.backup_bucket} at {values.backup_host}",
            "create it there as a private bucket, or correct tailrack:backup.target; then run up again",
        )
    if values.backup_bucket and _REFUSES.search(ended.errors):
        raise Failure(
            f"the bucket {values.backup_bucket} at {values.backup_host} refuses access: {last_reason(ended.errors)}",
            "check access_key and secret_key in tailrack:backup, and the key's permissions for the bucket; then run up "
            "again",
        )
    if "wrong password" in ended.errors:
        command = "pulumi config set --path --secret tailrack:backup.password" if values.backup_password else ""
        raise Failure(
            "the backups at the target were encrypted with another password",
            f"set their password ({command}), or set tailrack:backup.target to an empty folder",
        )
    if not _NO_REPOSITORY.search(ended.errors):
        raise Failure(
            f"the backup's target cannot be used: {last_reason(ended.errors)}",
            "check tailrack:backup.target and the logs of that target, then run up again",
        )
    return False


def _check_folder(folder: str, values: TargetValues) -> None:
    """Check the folder on a machine, if it exists."""
    host, path = values.backup_host, values.path
    ended = _sftp(folder, f"-cd {path}\npwd\n-ls -lan {path}\n-df {path}\n")
    if not ended.ok:
        raise Failure(
            f"the backup's target {values.backup_user}@{host} refuses access: {_last_line(ended)}",
            f"check that {host} answers SSH at port {values.backup_port}; check host_key and private_key in "
            "tailrack:backup; run up again",
        )
    real = _REAL_PATH.search(ended.output)
    if real and f"{real[1]}/".startswith((f"{values.share_mount}/", f"{values.share_path}/")):
        raise Failure(
            f"the backup's target {path} is {shown(real[1])} there, which is on the share",
            f"set tailrack:backup.target to a folder on {host}'s own disk",
        )
    mode = _MODE.search(ended.output)
    if mode and not _CLOSED.fullmatch(mode[1]):
        raise Failure(
            f"the backup's target {path} on {host} is open to other accounts there ({shown(mode[1])})",
            f"run 'chmod 700 {path}' on {host}, or set a folder that does not exist yet; then run up again",
        )
    free = _free(ended.output)
    if free is not None and free < _ROOM_NEEDED:
        raise Failure(
            f"the backup's target {path} on {host} is full: {free} KB are free",
            "make room there (at least 256 MB), then run up again",
        )


def _free(output: str) -> int | None:
    """Return the number in the column `Avail` of sftp's `df`."""
    column = None
    for words in map(str.split, output.splitlines()):
        if "Avail" in words:
            column = words.index("Avail")
        elif column is not None and column < len(words) and re.fullmatch("[0-9]{1,18}", words[column]):
            return int(words[column])
    return None


def try_target(folder: str) -> None:
    """Raise Failure if the target can be read but not written. `snapshots` writes a lock there."""
    ended = restic(folder, "snapshots", "--latest", "1", "--json", limit=CHECK_SECONDS)
    if not ended.ok:
        raise Failure(
            f"cannot write to the backup's target: {last_reason(ended.errors)}",
            "make room there, or check that the key in tailrack:backup may write and delete; then run up again",
        )


def _sftp(folder: str, batch: str) -> Ended:
    config = f"{files.on_disk(folder)}/ssh_config"
    return attempt_bounded("sftp", "-F", config, "-b", "-", TARGET, stdin=batch, limit=_SFTP_SECONDS, most=_MOST_SFTP)


def _last_line(ended: Ended) -> str:
    return shown(ended.errors.rstrip("\n").rpartition("\n")[2])
