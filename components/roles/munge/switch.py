"""The answer `munge-switch`: switch to the munge key with a digest, and prove it with a credential.

munge-switch DIGEST
munge-switch resume   lets slurmstepd continue once slurmctld accepts this machine again (pause_steps.py)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from components.node import files, folders, services
from components.node.failure import Failure
from components.node.program import run_program
from components.node.run import run, succeeds
from components.node.waiting import wait_until
from components.roles.munge.keys import FOLDER, KEY, NEXT, digest_of
from components.roles.munge.pause_steps import RESUME, pause_steps, resume_steps, resume_steps_later
from components.roles.pod.library import use_library
from components.roles.pod.saved import save_again

# Seconds for slurmctld to accept this machine, and for one question.
_ACCEPT_SECONDS = 20
_ANSWER_SECONDS = 5


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    word = arguments[0] if arguments else ""
    use_library()
    return run_program("", _resume if word == RESUME else lambda: switch(word))


def switch(digest: str) -> None:
    """Switch and print the credential. Raises Failure."""
    folders.take(FOLDER, 0o711)
    for path in (KEY, NEXT):
        if files.exists(path) and not files.is_plain(path):
            raise Failure(f"{path} is no plain file")
    if digest_of(files.read(KEY) or "") != digest:
        key = files.read(NEXT)
        if key is None or digest_of(key) != digest:
            raise Failure("this machine does not have the key with this digest")
        files.write(NEXT, key, 0o400, "munge")
        pause_steps()
        files.rename(NEXT, KEY)
        services.restart("munge")
        resume_steps_later()
    files.remove(NEXT)
    sys.stdout.write(run("munge", "-n"))
    sys.stdout.flush()
    save_again()


def _resume() -> None:
    wait_until(lambda: succeeds("sinfo", "-h", "-o", "%N", limit=_ANSWER_SECONDS), _ACCEPT_SECONDS)
    resume_steps()
