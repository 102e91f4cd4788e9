"""slurmdbd, the only client of the database. slurmctld works without it and queues its records meanwhile.

sacctmgr starts with a slurm.conf that has accounting, before slurmctld has taken those lines.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import get_data

from components.node import files, systemd
from components.node.failure import Failure
from components.node.files import File
from components.node.log import note
from components.node.run import Ended, attempt, run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.slurm.accounting.database import DATABASE, STATE
from components.roles.slurm.slurm.folders import BASE, CONF, DBD_CONF, is_foreign, set_files_aside
from components.slurm_commands import slurm

SACCTMGR_CONF = f"{STATE}/slurm.conf"
# Seconds for one command, and for a session.
_COMMAND_LIMIT = 60
_SESSION_LIMIT = 600
_IN_PLACE = re.compile("nothing new added|nothing deleted|has not changed", re.IGNORECASE)
UNIT_ADDITIONS = f"{systemd.UNITS}/slurmdbd.service.d/tailrack.conf"
CONTROLLER_ADDITIONS = f"{systemd.UNITS}/slurmctld.service.d/tailrack-accounting.conf"
# Seconds for slurmdbd to answer: it first creates its tables, or converts those of an older release.
_START_LIMIT = 300
_ENFORCE = "AccountingStorageEnforce=associations,limits,qos"
_CONF = """# Written by tailrack.
AuthType=auth/munge
SlurmUser=slurm
DbdHost={host}
# Listen only on the address of this machine's name, which is its tailnet address.
CommunicationParameters=NoInAddrAny
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
# Connect by the socket as the server's own account: there is no password.
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db"""
_CONTROLLER_UNIT = """[Unit]
# No After=: slurmctld starts from its saved state, however long the database takes.
Wants=slurmdbd.service"""


def show(*words: str) -> list[list[str]]:
    """Return rows of slurmdbd. Raises Failure if it does not answer."""
    ended = _sacctmgr("-nP", "show", *words)
    if not ended.ok:
        sys.stderr.write(ended.errors)
        raise Failure(f"slurmdbd does not answer 'show {' '.join(words)}'")
    return [line.split("|") for line in ended.output.splitlines()]


def answers() -> bool:
    """Return whether slurmdbd answers."""
    return _sacctmgr("-nP", "show", "cluster", "format=Cluster").ok


def cluster_registered() -> bool:
    """Return whether slurmctld has registered with slurmdbd."""
    ended = _sacctmgr("-nP", "show", "cluster", "format=Cluster,ControlHost")
    return re.search(r"^[^|]+\|[0-9]", ended.output, re.MULTILINE) is not None


def change_all(commands: Sequence[str]) -> bool:
    """Change slurmdbd by commands, whose words have no spaces, in one session.

    Return whether it accepts all. It goes on after an error, and does not say which command failed.
    """
    for command in commands:
        note(f"sacctmgr {command}")
    session = "".join(f"{command}\n" for command in commands)
    return not commands or _sacctmgr("-i", stdin=session, limit=_SESSION_LIMIT).ok


def change(step: Step, command: str) -> None:
    """Change slurmdbd by one command. A change that is already in place is no failure."""
    ended = _sacctmgr("-i", *command.split())
    message = ended.output + ended.errors
    if ended.ok or _IN_PLACE.search(message):
        return
    lines = [line for line in message.splitlines() if line.strip(" ")]
    raise Failure(
        f"slurmdbd refuses '{command}': {' '.join(lines[:3])}",
        f"correct tailrack:accounting or tailrack:users; 'journalctl -u slurmdbd' on {step.host} has more",
    )


def delete(*words: str) -> bool:
    """Delete an entry of slurmdbd, and return whether that succeeded. Its message is written to the log."""
    ended = _sacctmgr("-i", "delete", *words)
    sys.stderr.write(ended.output + ended.errors)
    return ended.ok


def _sacctmgr(*words: str, stdin: str = "", limit: float = _COMMAND_LIMIT) -> Ended:
    return slurm.sacctmgr(*words, stdin=stdin, limit=limit, configuration=files.on_disk(SACCTMGR_CONF))


@dataclass(frozen=True)
class DaemonValues:
    """This machine's tailnet address, lines of slurm.conf, and lines of slurmdbd.conf about the records to purge."""

    head_address: str
    accounting_conf: list[str]
    accounting_purge: list[str]


def accounting_lines(values: DaemonValues, *, enforced: bool) -> list[str]:
    """Return the lines of slurm.conf for accounting. `enforced`: jobs need an account.

    A key that the cluster's slurm.conf contains keeps its value.
    """
    lines = [f"AccountingStorageHost={values.head_address}", *values.accounting_conf, *([_ENFORCE] if enforced else [])]
    there = {line.partition("=")[0].lower() for line in files.lines(f"{BASE}/slurm.conf") if "=" in line}
    return [line for line in lines if line.partition("=")[0].lower() not in there]


def set_foreign_slurmdbd_aside() -> None:
    """Stop another cluster's slurmdbd and move its configuration away."""
    if is_foreign(DBD_CONF):
        if not attempt("systemctl", "stop", "slurmdbd").ok:
            note("slurmdbd is not running")
        set_files_aside(DBD_CONF)


def start(step: Step, values: DaemonValues) -> None:
    """Run slurmdbd, and wait until it answers."""
    purge = "".join(f"\n{line}" for line in values.accounting_purge)
    changed = files.write_all(
        [
            File(DBD_CONF, f"{_CONF.format(host=step.host)}{purge}", 0o600, "slurm", "slurm"),
            File(
                UNIT_ADDITIONS,
                (get_data("components.roles", "slurm/accounting/templates/slurmdbd.conf") or b"").decode(),
            ),
            File(CONTROLLER_ADDITIONS, _CONTROLLER_UNIT),
        ]
    )
    systemd.reload("slurmdbd.service")
    systemd.enable("slurmdbd.service")
    restart(changed=changed)
    own = [line for line in files.lines(f"{CONF}/slurm.conf") if not line.lower().startswith("accountingstorage")]
    lines = [line for line in accounting_lines(values, enforced=False) if line.startswith("AccountingStorage")]
    files.write(SACCTMGR_CONF, "\n".join([*own, *lines]))
    if not wait_until(answers, _START_LIMIT):
        raise Failure(
            "slurmdbd does not answer",
            f"see 'journalctl -u slurmdbd -u {DATABASE}' on {step.host} (it may still be converting its tables), then "
            "run up again",
        )


def restart(*, changed: bool) -> None:
    """Restart slurmdbd if its files changed, or if it has no seccomp filter.

    A step that was cut off may have left it running so.
    """
    process = run("systemctl", "show", "-P", "MainPID", "slurmdbd").strip()
    if changed or not re.search(r"^Seccomp:\s+2$", files.read_process(process, "status"), re.MULTILINE):
        run("systemctl", "restart", "slurmdbd")
