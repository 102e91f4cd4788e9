"""Hourly encrypted backups of the head node's state to a second machine or S3, with restic."""

from collections.abc import Iterable
from dataclasses import replace

from pydantic import SecretStr

from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import whole
from components.roles.program import launcher
from components.roles.role import File, Role, Value, unit_like
from components.roles.storage.backup.homes import HOMES_SERVICE, PROGRAM
from components.roles.storage.backup.host import HOMES_MADE, MADE, SERVICE, TIMER
from components.roles.storage.backup.settings import S3, SFTP, Backup

# Packages that write backups, and read them on a new head node.
PACKAGES = ("restic", "openssh-client")
# The package that dumps the accounting database (accounting/templates/dump).
DUMP = ("mariadb-client",)
# Header values about the target; empty if its kind does not have them.
NAMES = ("host", "user", "port", "host_key", "bucket", "access_key")

MOMENT = whole(0, 2**40)  # seconds since 1970

_UNITS = {
    SERVICE: ("Backup of the head node's state", "run", "2h", f"ExecStopPost={PROGRAM} ended\nUMask=0077"),
    HOMES_SERVICE: ("Backup of the users' homes", "homes", "20h", "UMask=0077"),
}
BACKUP, _HOMES = (
    unit_like("background", name, description=about, after="", command=f"{PROGRAM} {word}", limit=limit, settings=more)
    for name, (about, word, limit, more) in _UNITS.items()
)
_TIMER = unit_like(
    "calendar", TIMER, description="Hourly backup of the head node's state", every="hourly", delay="5min"
)


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None without backups in the config."""
    if (backup := settings.backup) is None:
        return None
    homes = backup.homes
    values: dict[str, Value] = {**dict.fromkeys(NAMES, "")}
    values |= {
        "repository": repository(backup),
        "cluster": settings.cluster.name,
        "state": "",
        "homes_max_gb": homes.max_gb if homes else 0,
        "homes_exclude": list(homes.exclude) if homes else [],
    }
    if match := SFTP.fullmatch(backup.target):
        values |= {
            "host": match["host"],
            "user": match["user"],
            "port": backup.port,
            "host_key": backup.host_key,
        }
    elif match := S3.fullmatch(backup.target):
        values |= {
            "host": match["host"],
            "port": int((match["port"] or ":443")[1:]),
            "bucket": match["bucket"],
        }
    values["access_key"] = backup.access_key or ""
    return Role(
        "backup",
        after=("slurm", "share", "accounting"),
        values=values,
        secrets={
            "private_key": _text(backup.private_key),
            "password": _text(backup.password),
            "secret_key": _text(backup.secret_key),
        },
        facts={"services": {"backup_made": MOMENT}},
        packages={"services": (*PACKAGES, *(DUMP if settings.accounting.enabled else ()))},
        files={
            "services": (
                File(PROGRAM, launcher("backup"), mode="0755"),
                *(BACKUP, _TIMER, *((_HOMES,) if homes else ())),
            )
        },
        made={"services": (*MADE, *(HOMES_MADE if homes else ()))},
    )


def repository(backup: Backup) -> str:
    """Return the target in restic's format. For a machine, ssh_config has address and account."""
    match = SFTP.fullmatch(backup.target)
    return f"sftp:tailrack-backup-target:{match['folder']}" if match else backup.target


def with_state(roles: Iterable[Role]) -> tuple[Role, ...]:
    """Return the roles, with the state of all of them in the values of `backup`."""
    roles = tuple(roles)
    state = list(dict.fromkeys(path for role in roles for path in role.state))
    return tuple(
        replace(role, values={**role.values, "state": state}) if role.name == "backup" else role for role in roles
    )


def _text(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""
