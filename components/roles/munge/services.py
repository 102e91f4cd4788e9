"""Switch all machines to the next munge key at once, while jobs run and none starts (docs/decisions/0017).

The head node's join step has prepared the key; this step sends it to the members and makes them switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import Ended, run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.munge.held_jobs import RELEASE, hold_jobs, release_jobs, undrain_except, without_key
from components.roles.munge.keys import KEY, NEXT, digest_of, keep_late, late_nodes, take_folder
from components.roles.munge.pause_steps import pause_steps, resume_steps
from components.roles.ssh_trust.members import ask_all, last_error, members_except

# Seconds in which a late node may still get the key in this run.
_PATIENCE = 180
# Seconds between two questions to all late nodes, each a connection.
_PAUSE = 5


@dataclass(frozen=True)
class ServicesValues:
    """A text of the config; a change of it rotates the key."""

    munge_generation: str


def services(step: Step, values: ServicesValues) -> None:
    """Continue a change of the key."""
    note(f"munge key of generation '{values.munge_generation}'")
    take_folder()
    switching = files.exists(NEXT)
    if not switching and not late_nodes():
        return
    change = _Change(files.read(NEXT if switching else KEY) or "")
    step.at_end.append(change.release)
    nodes = members_except(step.host)
    keep_late(nodes)
    answers = ask_all(nodes, "munge-next", text=change.key)
    if switching:
        hold_jobs()
    ready = [node for node, answer in answers.items() if answer.ok]
    answers |= ask_all(ready, "munge-switch", digest_of(change.key))
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
        late = without_key(answers)
        for node in late:
            note(f"{node}: {last_error(answers[node])}")
        keep_late(late)
        self.asked = True
        undrain_except(late)
        return not late

    def release(self) -> None:
        """Let jobs start again. Raises Failure."""
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
        given = ask_all(late, "munge-next", text=self.key)
        return self.update_late({**given, **ask_all(late, "munge-switch", digest_of(self.key))})
