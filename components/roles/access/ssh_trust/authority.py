"""The cluster's SSH authority: make it, trust it, and turn to the next one.

It has two keys, which are replaced together: one signs the nodes' SSH host keys, and with the other the head node asks
a node to leave the cluster.

First all machines trust both authorities, then all present certificates of the next one, then all stop trusting the
last one. Each stage begins when all members have completed the one before, so no machine ever refuses another. Files
record the progress. A step on each node would not know that all others are done, and sshd presents one host
certificate for each type of key.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from components.node import files
from components.node.failure import Failure
from components.node.locks import PRIVATE, Lock
from components.node.log import STATE_DIR, note
from components.node.run import run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.access.ssh_trust import certificate as ssh_trust_certificate
from components.roles.access.ssh_trust.ask import MEMBERS, ask_members, last_error, members_except
from components.roles.access.ssh_trust.certificate import LEAVE, public_key, trust_authorities
from components.roles.access.ssh_trust.sign import certificate, publish

AUTHORITY_KEY = f"{STATE_DIR}/ssh_authority"
LEAVE_KEY = f"{STATE_DIR}/leave_key"
# The list that all machines must trust, in their format (certificate.py).
TRUSTED = f"{STATE_DIR}/ssh_authority.trusted"
# The authority's generation. Blank for a new authority, which takes the generation of the config.
GENERATION = f"{STATE_DIR}/ssh_authority.generation"
# A text that the role `restore` writes.
RESTORED = f"{STATE_DIR}/restored"
SIGN = "/usr/local/sbin/tailrack-sign"
# The generation that the change leads to; exists during a change.
TURNING = f"{STATE_DIR}/ssh_authority.turning"
# Seconds to wait for late members in this run: one that joins again has another address.
_PATIENCE = 180
# Seconds between two questions to all late members, each a connection.
_PAUSE = 5
_LOCK_SECONDS = 60
_KNOWN_HOSTS = f"{PRIVATE}/authority.known"


def ensure_authority() -> None:
    """Create the keys that do not exist."""
    files.make_folder(STATE_DIR, 0o711)
    for key in (AUTHORITY_KEY, LEAVE_KEY):
        # ssh-keygen writes the public key last, so a key without it is incomplete.
        if not public_key(key):
            files.remove(key)
            if key == AUTHORITY_KEY:
                files.write(GENERATION, "")
            make_key(key, key)


def make_key(path: str, key: str) -> None:
    """Create a key pair. `key`: the path that it is for"""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"tailrack {PurePosixPath(key).name}", "-f", path)
    note(f"created {path}")


def trust_own() -> str:
    """Write the list, trust it on the head node, and return it.

    It gets a new number if its keys have changed, or after a restore from a backup: nodes may already have a newer list
    than the backup.
    """
    keys = _public_keys(AUTHORITY_KEY, ".next", ".last")
    keys += [f"{LEAVE}{key}" for key in _public_keys(LEAVE_KEY, ".next")]
    first, *present = files.lines(TRUSTED) or [""]
    if present != keys or files.is_newer(RESTORED, TRUSTED):
        number = first.removeprefix("# ")
        after = int(number) + 1 if number.isdecimal() else 0
        files.write(TRUSTED, "\n".join([f"# {max(int(time.time()), after)}", *keys]))
    text = trusted()
    trust_authorities(text)
    return text


def trusted() -> str:
    """Return the list that all machines must trust."""
    return (files.read(TRUSTED) or "").rstrip("\n")


def _public_keys(key: str, *ends: str) -> list[str]:
    return sorted({found for end in ("", *ends) if (found := public_key(f"{key}{end}"))})


def certificate_for(node: str, address: str, host_key: str) -> str:
    """Return the certificate of a machine's host key, for its name and address."""
    return certificate(node, f"{node},{address}", host_key).rstrip("\n")


@dataclass
class Turn:
    """A change of the authority.

    generation     text of the config
    certificates   the folder on the share
    show_own       presents the head node's own certificate
    late           members that have not completed the present stage
    """

    host: str
    generation: str
    certificates: str
    show_own: Callable[[], None]
    late: list[str] = field(default_factory=list)
    _done: dict[tuple[int, str], set[str]] = field(default_factory=dict)

    def proceed(self) -> bool:
        """Continue as far as members have completed each stage; return whether the change is finished."""
        self.late = []
        try:
            return self._proceed()
        except (Failure, OSError) as error:
            note(str(error))
            return False

    def _proceed(self) -> bool:
        # The config may change again during a change.
        while files.exists(TURNING) or generation() != self.generation:
            if not files.exists(TURNING):
                make_next(LEAVE_KEY)
                make_next(AUTHORITY_KEY)
                files.write(TURNING, self.generation)
            if not self._all_trust():
                return False
            if files.exists(f"{AUTHORITY_KEY}.next.pub"):
                let_next_sign()
                note("all machines trust the next authority: it signs from now on")
            if files.exists(f"{AUTHORITY_KEY}.last.pub"):
                if not self._all_show():
                    return False
                files.remove(f"{AUTHORITY_KEY}.last.pub")
                if not self._all_trust():
                    return False
            files.rename(TURNING, GENERATION)
        return True

    def _all_trust(self) -> bool:
        """Let all trust the present list.

        The head node comes first: machines that join from here on get the same list from their steps.
        """
        text = trust_own()
        return self._all_agree("trust", "authority", lambda _: text)

    def _all_show(self) -> bool:
        """Let all present certificates of the present authority.

        A second request that trusts only this authority proves that a node's sshd presents the certificate.
        """
        self.show_own()
        if not publish(self.certificates):
            note("not all certificates could be signed")
        if not self._all_agree("take", "certificate", _certificate):
            return False
        files.write(_KNOWN_HOSTS, f"@cert-authority * {public_key(AUTHORITY_KEY)}", 0o600)
        try:
            return self._all_agree("show", "certificate", _certificate, _KNOWN_HOSTS)
        finally:
            files.remove(_KNOWN_HOSTS)

    def _all_agree(self, stage: str, request: str, text_for: Callable[[str], str], known_hosts: str = "") -> bool:
        """Send a request to the members that have not completed a stage, and record those that fail."""
        done = self._done.setdefault((ssh_trust_certificate.number(), stage), set())
        texts = {node: text_for(node) for node in members_except(self.host) if node not in done}
        answers = ask_members({node: text for node, text in texts.items() if text}, request, known_hosts=known_hosts)
        done.update(node for node, answer in answers.items() if answer.ok)
        self.late = [node for node in members_except(self.host) if node not in done]
        for node in self.late:
            note(f"{node} does not {stage}: {last_error(answers.get(node))}")
        return not self.late

    def finish(self) -> None:
        """Wait for late members. Raises Failure."""
        if not wait_until(self.proceed, _PATIENCE, _PAUSE):
            raise Failure(
                f"the SSH authority is being changed, and {' '.join(self.late) or 'the head node'} did not take part "
                "yet: until then all machines also trust the last one",
                "make it answer (tailrack-ask NODE last-failure), or remove it from the config; then run up again, "
                "which continues",
            )


def turn_to(step: Step, turn: Turn) -> None:
    """Begin or continue a change to the config's generation. Late members are waited for at the step's end."""
    if not generation():
        files.write(GENERATION, turn.generation)
    if not turn.proceed():
        step.later.append(turn.finish)


def generation() -> str:
    """Return the authority's generation; empty for a new authority."""
    return (files.read(GENERATION) or "").rstrip("\n")


def make_next(key: str) -> None:
    """Create the next key. The public key is renamed last, here and below: if it exists, the private one does too."""
    if files.exists(f"{key}.next.pub"):
        return
    fresh = f"{key}.fresh"
    for path in (f"{key}.next", fresh, f"{fresh}.pub"):
        files.remove(path)
    make_key(fresh, key)
    files.rename(fresh, f"{key}.next")
    files.rename(f"{fresh}.pub", f"{key}.next.pub")


def let_next_sign() -> None:
    """Replace the private keys: from here on the last ones can neither sign nor ask a node to leave.

    All members accept the next leave key already.
    """
    with Lock("sign", seconds=_LOCK_SECONDS):
        for end in ("", ".pub"):
            if files.exists(f"{LEAVE_KEY}.next{end}"):
                files.rename(f"{LEAVE_KEY}.next{end}", f"{LEAVE_KEY}{end}")
        if files.exists(f"{AUTHORITY_KEY}.next"):
            files.write(f"{AUTHORITY_KEY}.last.pub", public_key(AUTHORITY_KEY))
            files.rename(f"{AUTHORITY_KEY}.next", AUTHORITY_KEY)
        files.rename(f"{AUTHORITY_KEY}.next.pub", f"{AUTHORITY_KEY}.pub")


def _certificate(node: str) -> str:
    return files.read(f"{MEMBERS}/{node}/key-cert.pub") or ""
