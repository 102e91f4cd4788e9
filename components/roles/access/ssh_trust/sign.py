"""The command `sign`, on the head node: certificates for the SSH host keys of the cluster's machines.

    tailrack-sign NODE PRINCIPALS KEY   print the node's certificate; sign it again for other principals, another key or
                                        another authority
    tailrack-sign publish FOLDER        publish every machine's certificate in the folder

Either way, a certificate older than a third of its life is signed again, so a machine has two months to fetch the next
one. tailrack-sign.timer publishes daily.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from components.node import files
from components.node.failure import Failure, run_program
from components.node.locks import Lock, lock_of_program
from components.node.log import STATE_DIR, note
from components.node.run import run
from components.roles.access.ssh_trust.ask import MEMBERS, ask_members, last_error

_AUTHORITY = f"{STATE_DIR}/ssh_authority"
_VALID_DAYS = 90
_RENEWED_AFTER_DAYS = 30
_DAY = 86400
# A file in the record of a member that has no share: this program sends it its certificate.
WITHOUT_SHARE = "without_share"


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    return run_program("tailrack-sign", lambda: _run(*arguments))


def _run(first: str, *words: str) -> int:
    if first == "publish":
        return 0 if publish(*words) else 1
    sys.stdout.write(certificate(first, *words))
    return 0


def certificate(node: str, principals: str, key: str) -> str:
    """Return a machine's certificate. Raises Failure."""
    with _lock():
        return _signed(node, principals, key)


def publish(folder: str) -> bool:
    """Publish every machine's certificate in a folder, and return whether all could be signed."""
    complete = _publish(folder)
    texts = {node: files.read(f"{folder}/{node}") or "" for node in files.read_in_folders(MEMBERS, WITHOUT_SHARE)}
    for node, answer in ask_members(texts, "certificate").items():
        # It may be stopped. There is time until tomorrow.
        if not answer.ok:
            note(f"{node} did not take its certificate: {last_error(answer)}")
    return complete


def _publish(folder: str) -> bool:
    with _lock():
        files.make_folder(str(PurePosixPath(folder).parent))
        files.make_folder(folder)
        complete = True
        for node, record in files.read_in_folders(MEMBERS, "signed").items():
            # A failure for one node must not stop the others.
            try:
                principals, kind, key, *_ = record.split()
                files.write(f"{folder}/{node}", _signed(node, principals, f"{kind} {key}"))
            except (Failure, OSError, ValueError) as error:
                note(f"{node}: {error}")
                complete = False
        for name in files.names_in(folder):
            if not name.startswith(".") and not files.is_folder(f"{MEMBERS}/{name}"):
                files.remove(f"{folder}/{name}")
        return complete


def _lock() -> Lock:
    return lock_of_program("sign", ", then try again")


def _signed(node: str, principals: str, key: str) -> str:
    folder = f"{MEMBERS}/{node}"
    authority = (files.read(f"{_AUTHORITY}.pub") or "").split()[1]
    wanted = f"{principals} {key} {_VALID_DAYS} {authority}"
    if (files.read(f"{folder}/signed") or "").rstrip("\n") != wanted or not _is_fresh(f"{folder}/signed"):
        files.write(f"{folder}/key.pub", key)
        # Valid from a day ago, because clocks differ. The serial in nanoseconds tells which of two is newer, even
        # within a second.
        names = ("-h", "-I", node, "-n", principals, "-z", str(time.time_ns()), "-V", f"-1d:+{_VALID_DAYS}d")
        run("ssh-keygen", "-q", "-s", _AUTHORITY, *names, f"{folder}/key.pub")
        # The record of what was signed is written last.
        files.write(f"{folder}/signed", wanted)
    return files.read(f"{folder}/key-cert.pub") or ""


def _is_fresh(path: str) -> bool:
    """Return whether a record is recent. A wrong clock gives it a date in the future, like the certificate's dates."""
    age = files.age_of(path)
    return age is not None and age < _RENEWED_AFTER_DAYS * _DAY
