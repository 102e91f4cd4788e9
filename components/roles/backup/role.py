"""Backup: what the head node alone knows, hourly and encrypted, to a second machine or S3. By restic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from components.roles.backup.settings import S3, SFTP, Backup
from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import whole
from components.roles.role import File, Role, Value, template

PROGRAM = "tailrack-backup"
# What talks to the target: backups are made with it, and a new head node reads them with it.
PACKAGES = ("restic", "openssh-client", "jq")
# What writes the accounting's database down (accounting/templates/dump).
DUMP = ("mariadb-client",)
# What scripts are told of the target, each empty where its kind has none.
NAMES = ("host", "user", "port", "host_key", "s3_host", "s3_port", "bucket", "access_key")

MOMENT = whole(0, 2**40)  # seconds since 1970


def role(settings: ClusterSettings) -> Role:
    """Where the stack asks for none, what an earlier config has brought goes."""
    backup = settings.backup
    values: dict[str, Value] = {**dict.fromkeys(NAMES, "")}
    values |= {"repository": repository(backup) if backup else "", "cluster": settings.cluster.name, "state": ""}
    role = Role("backup", after=("slurm", "nfs_exports", "accounting"), values=values)
    if backup is None:
        return replace(role, values={**values, **dict.fromkeys(SECRETS, "")})
    if found := SFTP.fullmatch(backup.target):
        values |= {"host": found["host"], "user": found["user"], "port": backup.port, "host_key": backup.host_key}
    elif found := S3.fullmatch(backup.target):
        values |= {"s3_host": found["host"], "s3_port": int(found["port"] or 443), "bucket": found["bucket"]}
    values["access_key"] = backup.access_key or ""
    unit = f"/etc/systemd/system/{PROGRAM}"
    return replace(
        role,
        values=values,
        secrets={name: _text(backup, name) for name in SECRETS},
        facts={"services": {"backup_made": MOMENT}},
        packages={"services": (*PACKAGES, *(DUMP if settings.accounting.enabled else ()))},
        files={
            "services": (
                File(f"/usr/local/sbin/{PROGRAM}", template("backup", PROGRAM), mode="0755"),
                *(File(f"{unit}.{kind}", template("backup", f"{PROGRAM}.{kind}")) for kind in ("service", "timer")),
            )
        },
    )


SECRETS = ("private_key", "password", "secret_key")


def repository(backup: Backup) -> str:
    """The target as restic has it: of a machine, the folder there, as ssh_config says who and where that is."""
    found = SFTP.fullmatch(backup.target)
    return f"sftp:tailrack-backup-target:{found['folder']}" if found else backup.target


def with_state(roles: Iterable[Role]) -> tuple[Role, ...]:
    """Return roles of which `backup` knows what all of them have to be saved."""
    found = tuple(roles)
    state = list(dict.fromkeys(path for role in found for path in role.state))
    return tuple(replace(one, values={**one.values, "state": state}) if one.name == "backup" else one for one in found)


def _text(backup: Backup, name: str) -> str:
    secret = getattr(backup, name)
    return secret.get_secret_value() if secret else ""
