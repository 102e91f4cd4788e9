"""A machine's munge keys, and its part of a change: it receives the next key, and switches when the head node asks.

    munge-next            reads the next key from stdin
    munge-switch DIGEST   switches to the key with this digest, and proves it with a credential
    munge-switch resume   lets slurmstepd continue once slurmctld accepts this machine again

slurmstepd pauses while the keys differ: slurmctld rejects a step's end that is signed with another key, and slurmstepd
does not repeat it, so the job would stay in Slurm's records and run again. The jobs themselves continue.
"""

import hashlib
import re
import sys
from collections.abc import Sequence

from components.node import files, folders, services
from components.node.failure import Failure, run_program
from components.node.log import STATE_DIR
from components.node.run import attempt, run
from components.node.waiting import wait_until
from components.roles.access.ssh_trust.ask import ANSWERS

FOLDER = "/etc/munge"
KEY = f"{FOLDER}/munge.key"
# The key that all machines switch to at once (host.py). It exists until munged has read it as the present key.
NEXT = f"{KEY}.next"
# On the head node: members that have not proved the key yet, one per line.
LATE = f"{STATE_DIR}/munge.late"
# Only root can read it: `digest cluster`, one per line, of all keys that were written here. A cluster's next key is its
# own too; a key of another tailrack cluster is not.
DIGESTS = f"{STATE_DIR}/munge.digests"
# The generation of the last key that a join brought (tailrack:cluster.munge_generation).
GENERATION = f"{STATE_DIR}/munge.generation"
# Seconds after which slurmstepd continues, even if the key change is not finished.
_LIMIT = 30
# An argument of munge-switch, which the head node cannot send.
RESUME = "resume"
_CONTINUE = ("pkill", "-CONT", "-x", "slurmstepd")
_MOST = 2048
_KEY = re.compile("[A-Za-z0-9+/=]{32,1024}")
# Seconds for slurmctld to accept this machine, and for one question.
_ACCEPT_SECONDS = 20
_ANSWER_SECONDS = 5


# The remedy for a key that another state of the stack has made.
OTHER_STATE = (
    "set PULUMI_BACKEND_URL, STACK and ENGINE as in the run that set the cluster up (without PULUMI_BACKEND_URL, "
    "`make` uses the state in .tailrack/), and do not run `make down` with this state; or, to take the cluster over on "
    "purpose, set tailrack:cluster.munge_generation to another text"
)


def take_folder() -> None:
    """Give the keys' folder to root before root works there.

    munge's package gives it to munge's account, which could replace a key by a link that root would follow.
    """
    folders.take(FOLDER, 0o711)
    for path in (KEY, NEXT):
        if files.exists(path) and not files.is_plain(path):
            raise Failure(
                f"{path} is not a regular file; nothing was read or written through it",
                f"find out which account created it ('ls -l {path}'), remove it, then run up again",
            )


def digest_of(text: str) -> str:
    """Return the digest of a key's file with this text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_foreign(text: str, cluster: str) -> bool:
    """Return whether a key is of another cluster. A blank file has no key."""
    return bool(text.strip()) and not has_had(digest_of(text), cluster)


def has_had(digest: str, cluster: str) -> bool:
    """Return whether a cluster's key with this digest was written here."""
    return f"{digest} {cluster}" in files.lines(DIGESTS)


def late_nodes() -> list[str]:
    """Return the members that have not proved the key yet."""
    return [node for node in files.lines(LATE) if node]


def keep_late(nodes: list[str]) -> None:
    """Record these members. tailrack-munge-release reads the file."""
    if nodes:
        files.write(LATE, "\n".join(nodes))
    else:
        files.remove(LATE)


def pause_steps() -> None:
    """Pause them. Set the timer first: it works even if this program is killed."""
    services.begin_later(_LIMIT, *_CONTINUE)
    attempt("pkill", "-STOP", "-x", "slurmstepd")


def resume_steps() -> None:
    """Let them continue."""
    attempt(*_CONTINUE)


def receive_next(arguments: Sequence[str]) -> int:
    """Receive the key and return the exit status."""
    return run_program("", lambda: receive(sys.stdin.read(_MOST).rstrip("\n")))


def receive(key: str) -> None:
    """Write the next key. Raises Failure."""
    if not _KEY.fullmatch(key):
        raise Failure("stdin is not a munge key")
    folders.take(FOLDER, 0o711)
    # Note the key's cluster before writing the key, for a later check by another cluster (host.py).
    known = files.lines(DIGESTS)
    if not known:
        raise Failure(f"{DIGESTS} does not name this machine's cluster")
    digest, cluster = digest_of(f"{key}\n"), known[0].partition(" ")[2]
    files.add_line(DIGESTS, f"{digest} {cluster}", 0o600)
    files.write(NEXT, key, 0o600)


def switch_key(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    from components.roles.pods.pod.library import use_library

    word = arguments[0] if arguments else ""
    use_library()
    return run_program("", _resume if word == RESUME else lambda: switch(word))


def switch(digest: str) -> None:
    """Switch and print the credential. Raises Failure."""
    from components.roles.pods.pod.saved import save_again

    take_folder()
    key = files.read(NEXT)
    if key is not None and digest_of(key) == digest:
        pause_steps()
        files.write(KEY, key, 0o400, "munge")
        services.restart("munge")
        # Steps continue once slurmctld accepts this machine again. Do not wait for that here.
        services.begin_later(0, f"{ANSWERS}/munge-switch", RESUME)
    elif digest_of(files.read(KEY) or "") != digest:
        raise Failure("this machine does not have the key with this digest")
    files.remove(NEXT)
    sys.stdout.write(run("munge", "-n"))
    sys.stdout.flush()
    save_again()


def _resume() -> None:
    from components.slurm_commands import slurm

    wait_until(lambda: slurm.sinfo("%N", limit=_ANSWER_SECONDS) is not None, _ACCEPT_SECONDS)
    resume_steps()
