"""Ask members for answers, by SSH from the head node.

    tailrack-ask NODE QUESTION [WORD]   passes stdin on; prints the answer and exits with its status
    255                                 the node did not answer, or has no such answer for this head node

Nodes already trust the cluster's authority. The key is created for this request, or for the same request to all nodes,
and signed for minutes, so no key can be stolen.
"""

import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from components.node import files
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import STATE_DIR
from components.node.run import Ended, attempt_bounded, pass_on, run

ANSWERS = "/usr/local/lib/tailrack/answers"
MEMBERS = f"{STATE_DIR}/members"
NO_ANSWER = 255
_LIMIT_SECONDS = 20
# Bytes of an answer, which the head node keeps in memory.
_MOST_BYTES = 2**20
# Minutes.
_VALID = 10
_ASKED_AT_ONCE = 64
# The key must be valid until the last member is asked, even if all others are silent.
_MINUTES = 10


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    node, request = " ".join(arguments[:1]), " ".join(arguments[1:])
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", node) or not re.fullmatch(r"[a-z-]+( [0-9a-f]{64})?", request):
        sys.stderr.write("usage: tailrack-ask NODE QUESTION [WORD]\n")
        return 2
    # Remove the key then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(NO_ANSWER))
    try:
        with asking_key() as key:
            return pass_on(*ssh_command(key, node, request))
    except Failure as failure:
        sys.stderr.write(f"tailrack-ask: {failure.reason}\n")
        return NO_ANSWER


@contextmanager
def asking_key(minutes: int = _VALID) -> Iterator[str]:
    """Create a key with which nodes answer, and remove it at the end."""
    folder = f"{PRIVATE}/ask.{files.random_name()}"
    files.make_folder(PRIVATE, 0o700)
    files.make_folder(folder, 0o700)
    try:
        key = f"{folder}/key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tailrack-ask", "-f", key)
        identity = (files.read(f"{STATE_DIR}/node-name") or "").strip()
        for_requests = ("-I", identity, "-n", "tailrack-ask", "-V", f"-1h:+{minutes}m")
        run("ssh-keygen", "-q", "-s", f"{STATE_DIR}/ssh_authority", *for_requests, f"{key}.pub")
        yield key
    finally:
        files.remove_folder(folder)


def ask(key: str, node: str, *request: str, text: str = "", known_hosts: str = "") -> Ended:
    """Send a request to a node, and return its answer.

    text          the request's stdin
    known_hosts   during a change of the authority, a file with the only authority that may vouch for the node
    """
    try:
        command = ssh_command(key, node, " ".join(request), known_hosts)
    except Failure as failure:
        return Ended(NO_ANSWER, "", failure.reason)
    ended = attempt_bounded(*command, stdin=text, limit=_LIMIT_SECONDS, most=_MOST_BYTES + 1, merged=False)
    if len(ended.output) > _MOST_BYTES:
        # Root of a node may answer with any amount; half of an answer is none.
        return Ended(NO_ANSWER, "", f"{node}: its answer is longer than {_MOST_BYTES} bytes")
    return ended


def ssh_command(key: str, node: str, request: str, known_hosts: str = "") -> list[str]:
    """Return the command that sends a request to a node. Raise Failure if it is no member."""
    address = (files.read(f"{MEMBERS}/{node}/address") or "").strip()
    if not address:
        raise Failure(f"{node} is not a member of this cluster")
    port = (files.read(f"{MEMBERS}/{node}/sshd_port") or "22").strip()
    options = [f"CertificateFile={key}-cert.pub", "ConnectTimeout=5", "LogLevel=ERROR"]
    if known_hosts:
        options += ["KnownHostsCommand=none", "UserKnownHostsFile=/dev/null", f"GlobalKnownHostsFile={known_hosts}"]
    return [*ssh_as_root(key, node, address, port, *options), request]


def ssh_as_root(key: str, node: str, address: str, port: str, *options: str) -> list[str]:
    """Return the command that logs in to a node with a key. It ignores the caller's own ssh configuration and agent."""
    options += ("IdentitiesOnly=yes", "IdentityAgent=none", "BatchMode=yes", "StrictHostKeyChecking=yes")
    options += ("ServerAliveInterval=5", "ServerAliveCountMax=3", f"HostKeyAlias={node}")
    words = [word for option in options for word in ("-o", option)]
    return ["ssh", "-i", key, "-p", port, *words, f"root@{address}"]


def members_except(host: str) -> list[str]:
    """Return the names of all members but one."""
    return [node for node in files.read_in_folders(MEMBERS, "address") if node != host]


def ask_members(texts: Mapping[str, str], *request: str, known_hosts: str = "") -> dict[str, Ended]:
    """Send a request to members, and return their answers by name.

    texts         the stdin of each member's request
    request       the words of the request
    known_hosts   see `ask`
    """
    if not texts:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    try:
        with (
            asking_key(_MINUTES + len(texts) // _ASKED_AT_ONCE) as key,
            ThreadPoolExecutor(_ASKED_AT_ONCE) as pool,
        ):
            requests = {
                node: pool.submit(ask, key, node, *request, text=text, known_hosts=known_hosts)
                for node, text in texts.items()
            }
            return {node: answer.result() for node, answer in requests.items()}
    except Failure as failure:
        return dict.fromkeys(texts, Ended(NO_ANSWER, "", failure.reason))


def ask_all(nodes: Iterable[str], *request: str, text: str = "") -> dict[str, Ended]:
    """Send a request with the same stdin to members."""
    return ask_members(dict.fromkeys(nodes, text), *request)


def last_error(answer: Ended | None) -> str:
    """Return the last line of a member's errors."""
    lines = answer.errors.splitlines() if answer else []
    return lines[-1] if lines else ""
