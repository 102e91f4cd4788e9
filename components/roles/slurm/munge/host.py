"""The cluster's munge key on a machine. The head node switches all at once.

munge has one key at a time, and machines with different keys reject each other. Joins put the next key beside the
current one. The head node's services step sends it to all members over SSH, sets partitions DOWN, waits up to 10 s
until no job starts or completes, signals the members that took it, then changes itself. A timer lets jobs start after
50 s and drains members with another key. A node that missed the change gets the key when it registers. Instead of this,

- an agreed time fails because no one knows how long the engine needs, and the time is an input of every step;
- nodes that watch the share are a minute late, with partitions held that long;
- in a step after all joins, one failed join blocks the change;
- slurmstepds that go on do not repeat a rejected report of a job's end, and the job runs again: they are stopped
  meanwhile, at most 30 s;
- `auth/slurm` with several keys needs 23.11 on every machine.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from components.node import files, folders, packages, systemd
from components.node import services as node_services
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.passwd import user_named
from components.node.run import Ended, attempt, run, succeeds
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.access.ssh_trust.ask import ANSWERS, ask_all, last_error, members_except
from components.roles.base.foreign_cluster.host import put_back, set_aside
from components.roles.slurm.munge.switch_key import (
    DIGESTS,
    FOLDER,
    GENERATION,
    KEY,
    NEXT,
    OTHER_STATE,
    digest_of,
    has_had,
    is_foreign,
    keep_late,
    late_nodes,
    pause_steps,
    resume_steps,
    take_folder,
)
from components.slurm_commands import slurm

_MOST_ERROR = 300
_ERROR = re.compile(r"munged(\[[0-9]+\])?: Error|^[0-9: -]+(Error|Warning):")
# Seconds to wait for silent nodes and for starting jobs. An abandoned change does not hold a node longer.
_CHANGES = 90
# Seconds in which a late node may still get the key in this run.
_PATIENCE = 180
# Seconds between two questions to all late nodes, each a connection.
_PAUSE = 5
SERVICE = "munge"
_ANSWER_SECONDS = 20
_PROGRAM = """#!/bin/sh
# Written by tailrack.
exec 2>&1
install -d -o munge -g munge -m 0755 /run/munge
exec chpst -u munge munged --foreground"""


def check(step: Step, munge_cluster: str) -> None:
    """Report the key, and change nothing."""
    if is_foreign(_present(), munge_cluster):
        step.foreign.append(f"a munge key ({KEY})")


def _present() -> str:
    """Return the key, read as the owner of its folder, which may still be munge. A link is no key."""
    owner = files.owner_of(FOLDER)
    if owner in ("", "root"):
        return files.read(KEY) or ""
    return as_user(owner, "find", KEY, "-maxdepth", "0", "-type", "f", "-exec", "cat", "{}", ";", limit=10).output


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
    _start(step, restart=changed)
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
            OTHER_STATE,
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
    packages.ensure(step.host, "munge", *packages.Ahead.names)
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
    """Return whether the key must wait until all machines switch to it at once.

    That is so on the head node of a running cluster, and on a node whose present key slurmctld accepts. A node that
    slurmctld rejects has missed the switch.
    """
    if not node_services.is_active("munge"):
        return False
    if _is_head():
        return systemd.is_active("slurmctld")
    return files.exists(f"{ANSWERS}/munge-switch") and slurm.sinfo("%N", limit=15) is not None


def _is_head() -> bool:
    return files.is_folder(f"{STATE_DIR}/slurm/base")


def _start(step: Step, *, restart: bool) -> None:
    systemd.write_restart("munge.service")
    systemd.enable("munge.service")
    if (restart or not systemd.is_active("munge")) and not attempt("systemctl", "restart", "munge").ok:
        raise _failure("munged does not start", step.host)


def _failure(reason: str, host: str) -> Failure:
    error = _last_error()
    if "writable" in error or "insecure" in error:
        remedy = (
            f"remove that permission on {host} ('chmod go-w' on the folder in the message; '/' must be 0755 and belong "
            "to root), then run up again"
        )
    else:
        remedy = f"see {node_services.log_of('munge', host)}"
    return Failure(f"{reason}{f' ({error})' if error else ''}", remedy)


def _last_error() -> str:
    """Return munged's last error, which is mostly about write permission on a folder above its files."""
    journal = attempt("journalctl", "-u", "munge", "-n", "20", "-o", "cat", "--no-pager", quiet=True).output
    log = as_user("munge", "tail", "-n", "20", "/var/log/munge/munged.log", limit=10).output
    errors = [line for line in f"{journal}\n{log}".splitlines() if _ERROR.search(line)]
    return re.sub("[^ -~]", "", errors[-1])[:_MOST_ERROR] if errors else ""


def register(step: Step, node_name: str, node_address: str) -> None:
    """Report the next key's digest, wait for a change of the key, then give the node the key that it missed."""
    from components.roles.network.names.host import keep_name
    from components.roles.slurm.munge.held_jobs import without_key

    if files.exists(FOLDER):
        take_folder()
    step.result("munge_digest", digest_of(files.read(NEXT) or files.read(KEY) or ""))
    if files.exists(NEXT):
        note("the munge key is being changed")
        if not wait_until(lambda: not files.exists(NEXT), _CHANGES):
            note(f"the munge key change was not finished in {_CHANGES}s; continuing with the old key")
            return
    if node_name not in late_nodes():
        return
    # A node with a new address was asked at the old one, and slurmctld still talks to it with the old key.
    note(f"{node_name} missed the munge key change; sending the key")
    keep_name(node_name, node_address)
    key = files.read(KEY) or ""
    if not wait_until(lambda: not without_key(_switch_nodes([node_name], key)), _CHANGES):
        note(f"{node_name} does not prove that it has the key")


def _switch_nodes(nodes: Sequence[str], key: str, before: Callable[[], None] = lambda: None) -> dict[str, Ended]:
    """Send nodes a key, and let those that took it switch to it. Return their answers, which prove the key.

    before   called before any node switches
    """
    answers = ask_all(nodes, "munge-next", text=key)
    before()
    ready = [node for node, answer in answers.items() if answer.ok]
    return {**answers, **ask_all(ready, "munge-switch", digest_of(key))}


def node(step: Step, munge_cluster: str, head_munge_digest: str) -> None:
    """Raise Failure if the head node has another key, before anything waits for a controller that rejects this one.

    head_munge_digest   of the head node's key; empty if its answer is invalid
    """
    if not head_munge_digest or has_had(head_munge_digest, munge_cluster):
        return
    # The digest is from the last registration: this machine may have lost its list of keys since then.
    if slurm.sinfo("%N", limit=15) is None:
        raise Failure(
            f"the munge key that this run brought to {step.host} is not the key on the head node, so slurmctld rejects "
            "this node: another state made the head node's key",
            OTHER_STATE,
        )


def services(step: Step, munge_generation: str) -> None:
    """Continue a change of the key: another text in the config rotates it."""
    from components.roles.slurm.munge.held_jobs import hold_jobs

    note(f"munge key of generation '{munge_generation}'")
    take_folder()
    switching = files.exists(NEXT)
    if not switching and not late_nodes():
        return
    change = _Change(files.read(NEXT if switching else KEY) or "")
    step.at_end.append(change.release)
    nodes = members_except(step.host)
    keep_late(nodes)
    answers = _switch_nodes(nodes, change.key, hold_jobs if switching else lambda: None)
    if switching:
        _switch(change.key)
    if not change.update_late(answers):
        note(f"some nodes do not have the key: {' '.join(late_nodes())}")
    change.release()
    step.later.append(change.finish)


def _switch(key: str) -> None:
    """Switch the head node. The next key goes last: without it munged would not be restarted after a cut."""
    pause_steps()
    files.write(KEY, key, 0o400, "munge")
    run("systemctl", "restart", "munge")
    files.remove(NEXT)
    resume_steps()


@dataclass
class _Change:
    """A change of the key. `asked`: the list of late nodes is exact."""

    key: str = field(repr=False)
    asked: bool = False

    def update_late(self, answers: Mapping[str, Ended]) -> bool:
        """Record the nodes that do not prove the new key; return whether all do."""
        from components.roles.slurm.munge.held_jobs import undrain_except, without_key

        late = without_key(answers)
        for node in late:
            note(f"{node}: {last_error(answers[node])}")
        keep_late(late)
        self.asked = True
        undrain_except(late)
        return not late

    def release(self) -> None:
        """Let jobs start again. Raises Failure."""
        from components.roles.slurm.munge.held_jobs import RELEASE, release_jobs

        if not release_jobs(asked=self.asked):
            raise Failure(f"'{RELEASE}' failed")

    def finish(self) -> None:
        """Wait for late nodes. Raises Failure."""
        if not wait_until(self._retry, _PATIENCE, _PAUSE):
            raise Failure(
                f"the munge key was changed, and {' '.join(late_nodes())} did not get it: no job starts there",
                "make the node answer (tailrack-ask NODE last-failure), or remove it from the config; then run up "
                "again, which sends the key",
            )

    def _retry(self) -> bool:
        """Ask the late nodes again: one that joins in this `up` has the key from its own step, and may have another
        address.
        """
        late = late_nodes()
        if not late:
            return True
        return self.update_late(_switch_nodes(late, self.key))


def leave(step: Step) -> None:
    """Stop munged, remove the cluster's keys, and put back the one that was here before."""
    attempt("systemctl", "disable", "-q", "--now", "munge")
    if not files.exists(FOLDER):
        return
    folders.take(FOLDER, 0o700)
    # A run that was cut off after this may have put the former key back.
    if files.exists(DIGESTS):
        for path in (KEY, NEXT, GENERATION, DIGESTS):
            files.remove(path)
    put_back(KEY)
    if user_named("munge"):
        # The package's owner.
        files.make_folder(FOLDER, 0o700, "munge")


def pod_join(step: Step, values: JoinValues) -> None:
    """Install the key, the package and the service."""
    from components.roles.pods.pod.library import use_library, without_library

    # Slurm's programs tell whether the present key is the controller's.
    use_library()
    try:
        changed = install_key(step, values)
    finally:
        without_library()
    if changed is None:
        return
    node_services.keep(SERVICE, _PROGRAM, step.host, restart_it=changed)
    finish_key(step.host, _ANSWER_SECONDS)


def pod_boot(step: Step) -> None:
    """Set the key's owner."""
    take_folder()
    files.write(KEY, files.read(KEY) or "", 0o400, "munge")
