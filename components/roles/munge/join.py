"""Install the cluster's munge key, which a machine needs before any other can trust it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from components.node import files, packages, services, systemd
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.log import note
from components.node.passwd import user_named
from components.node.run import attempt, succeeds
from components.node.step.step import STATE_DIR, Step
from components.node.waiting import wait_until
from components.roles.foreign_cluster.foreign import set_aside
from components.roles.munge.keys import DIGESTS, GENERATION, KEY, NEXT, digest_of, is_foreign, take_folder
from components.roles.ssh_trust.answers import ANSWERS

_MOST_ERROR = 300
_ERROR = re.compile(r"munged(\[[0-9]+\])?: Error|^[0-9: -]+(Error|Warning):")


@dataclass(frozen=True)
class JoinValues:
    """The cluster's name, and the generation and text of its munge key, a secret."""

    munge_cluster: str
    munge_generation: str
    munge_key: str = field(repr=False)


def join(step: Step, values: JoinValues) -> None:
    """Install the key, the package and the daemon."""
    key = f"{values.munge_key}\n"
    if _is_head():
        _refuse_other_state(values, digest_of(key))
    changed = install_key(step, values)
    files.write(GENERATION, values.munge_generation, 0o600)
    if changed is None:
        return
    _start(step.host, restart=changed)
    finish_key(step.host)


def _refuse_other_state(values: JoinValues, digest: str) -> None:
    """Refuse a key that another stack state has made: it would replace the key of all machines.

    A state makes its keys once for each generation, so a new key of the same generation is of another state.
    """
    take_folder()
    known = f"{digest} {values.munge_cluster}" in files.lines(DIGESTS)
    present = files.read(KEY) or ""
    recorded = (files.read(GENERATION) or "").rstrip("\n") == values.munge_generation
    if present.strip() and recorded and not known and not is_foreign(present, values.munge_cluster):
        raise Failure(
            f"cluster {values.munge_cluster} on this head node belongs to another state: that state's munge key is "
            f"here, and this run has another one of the same generation ({values.munge_generation!r}); nothing was "
            "changed",
            "set PULUMI_BACKEND_URL, STACK and ENGINE as in the run that set the cluster up (without "
            "PULUMI_BACKEND_URL, `make` uses the state in .tailrack/), and do not run `make down` with this state; or, "
            "to take the cluster over on purpose, set tailrack:cluster.munge_generation to another text",
        )


def install_key(step: Step, values: JoinValues) -> bool | None:
    """Install the key and the package; return whether the key changed, None if it must wait."""
    take_folder()
    key = f"{values.munge_key}\n"
    if is_foreign(files.read(KEY) or "", values.munge_cluster):
        set_aside(KEY)
    # Note the digest before writing the key, so that an interrupted step leaves no key of unknown origin.
    files.add_line(DIGESTS, f"{digest_of(key)} {values.munge_cluster}", 0o600)
    present = files.read(KEY)
    if present not in (None, key) and _must_wait():
        if _is_head():
            files.write(NEXT, key, 0o400)
        note("the next key waits until all machines switch to it at once")
        return None
    changed = present != key or files.exists(NEXT)
    if changed:
        # If this step is cut off, the next one restarts munged.
        files.write(NEXT, key, 0o400)
    if not user_named("munge"):
        # Without a key the package would create one.
        files.write(KEY, key, 0o400)
    # From now on, install everything else in the same transaction.
    packages.ensure(step.host, "munge", *packages.AHEAD.names)
    # The package has changed the folder's owner.
    take_folder()
    files.write(KEY, key, 0o400, "munge")
    return changed


def finish_key(host: str, seconds: float = 0) -> None:
    """Note that munged has the key. Raises Failure if it has not within a number of seconds."""
    files.remove(NEXT)
    if not wait_until(lambda: succeeds("unmunge", stdin=attempt("munge", "-n").output), seconds):
        raise _failure("munge cannot read its own credential", host)


def _must_wait() -> bool:
    """Return whether the key must wait until all machines switch to it at once (services.py).

    That is so on the head node of a running cluster, and on a node whose present key slurmctld accepts. A node that
    slurmctld rejects has missed the switch.
    """
    if not services.is_active("munge"):
        return False
    if _is_head():
        return systemd.is_active("slurmctld")
    return files.exists(f"{ANSWERS}/munge-switch") and succeeds("sinfo", "-h", "-o", "%N", limit=15)


def _is_head() -> bool:
    return files.is_folder(f"{STATE_DIR}/slurm/base")


def _start(host: str, *, restart: bool) -> None:
    systemd.keep_running("munge.service")
    systemd.enable("munge.service")
    if (restart or not systemd.is_active("munge")) and not attempt("systemctl", "restart", "munge").ok:
        raise _failure("munged does not start", host)


def _failure(reason: str, host: str) -> Failure:
    error = _last_error()
    if "writable" in error or "insecure" in error:
        remedy = (
            f"remove that permission on {host} ('chmod go-w' on the folder in the message; '/' must be 0755 and belong "
            "to root), then run up again"
        )
    else:
        remedy = f"see {services.log_of('munge', host)}"
    return Failure(f"{reason}{f' ({error})' if error else ''}", remedy)


def _last_error() -> str:
    """Return munged's last error, which is mostly about write permission on a folder above its files."""
    journal = attempt("journalctl", "-u", "munge", "-n", "20", "-o", "cat", "--no-pager", quiet=True).output
    log = as_user("munge", "tail", "-n", "20", "/var/log/munge/munged.log", limit=10).output
    errors = [line for line in f"{journal}\n{log}".splitlines() if _ERROR.search(line)]
    return re.sub("[^ -~]", "", errors[-1])[:_MOST_ERROR] if errors else ""
