"""What a stack prints and leaves, and which of its secrets are in it."""

from __future__ import annotations

import base64
import io
import secrets
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli import lab_commands
from cli.pulumi.workspace import PROJECT
from cli.run_events import Summary
from tests.lab.cluster import ClusterUnderTest
from tests.lab.sealer import sealer_of

# The lab's control server on this port asks for this key (lab/control/main.go).
KEYED_URL, RIGHT_KEY = "http://control.lab:8081", "tskey-lab-right"
WRONG_KEY = "tskey-lab-" + secrets.token_hex(12)
NODES = ("head", "a1")
# Commands that show what processes and logs of a machine contain.
LOOKS = ("ps -eww -o args", "journalctl --no-pager -o cat", "cat /var/log/tailrack/*", "cat /proc/[0-9]*/environ")


@dataclass
class Story:
    """What a stack said and left: texts by where they were found, and its secrets by name."""

    cluster: ClusterUnderTest
    refused: Summary
    found: dict[str, bytes] = field(default_factory=dict)
    secret: dict[str, str] = field(default_factory=dict)

    def leaks(self) -> list[str]:
        """Which secret is where."""
        return leaks(self.found, self.secret)


class Processes:
    """Arguments of every process of this machine, and environments of those on nodes, seen while a block runs."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self.argv: set[bytes] = set()
        self.environ: set[bytes] = set()
        self._spaces = {namespace(cluster.container(node)) for node in NODES}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Processes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def found(self) -> dict[str, bytes]:
        """What was seen."""
        return {"process arguments": b"\n".join(self.argv), "process environments": b"\n".join(self.environ)}

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    self.argv.add((process / "cmdline").read_bytes())
                    if (process / "ns" / "pid").readlink() in self._spaces:
                        self.environ.add((process / "environ").read_bytes())
                except OSError:
                    continue  # it has ended meanwhile


def namespace(container: str) -> Path:
    """Return a container's process namespace, as links in /proc name it."""
    words = ["docker", "inspect", "--format", "{{.State.Pid}}", container]
    pid = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    return Path(f"/proc/{pid}/ns/pid").readlink()


def leaks(found: Mapping[str, bytes], known: Mapping[str, str]) -> list[str]:
    """Return `NAME in PLACE` for each secret that is in a text as it is, escaped, or in base64."""
    return [
        f"{name} in {place}"
        for name, secret in known.items()
        for place, text in found.items()
        if any(form in text for piece in pieces(secret) for form in forms(piece))
    ]


def pieces(secret: str) -> list[str]:
    """A secret of one line, or the lines of a private key that differ from every other key's and are not public."""
    lines = secret.strip().splitlines()
    return lines if len(lines) == 1 else lines[3:5]


def forms(piece: str) -> list[bytes]:
    """The piece as it is, and in the three ways it looks in the base64 of a longer text."""
    raw = piece.encode()
    # The first and the last characters depend on what stands around the piece.
    return [raw, *(base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3))]


def state_of(cluster: ClusterUnderTest) -> dict[str, bytes]:
    """Every file that the engine and the driver keep for the stack: state, history, backups, config."""
    workspace = cluster.deployment().workspace
    files = [path for folder in (workspace.folder, workspace.backend) for path in folder.rglob("*") if path.is_file()]
    return {f"state file {path}": path.read_bytes() for path in files}


def logs_of(cluster: ClusterUnderTest, node: str) -> dict[str, bytes]:
    """Log files and the journal of a node."""
    collect = {
        "files": "find /var/log /run/log /tmp /var/tmp -type f -exec cat {} +",
        "journal": "journalctl --no-pager -a -o export",
    }
    return {
        f"{name} of {node}": subprocess.run(
            ["docker", "exec", cluster.container(node), "bash", "-c", command], check=True, capture_output=True
        ).stdout
        for name, command in collect.items()
    }


def files_of(cluster: ClusterUnderTest, node: str) -> dict[str, bytes]:
    """Every file of a node that its image has not: of its disk, of the share's, and of those in memory."""
    words = ["docker", "inspect", "--format", "{{.Created}}", cluster.container(node)]
    born = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    pack = f"find / /run /tmp /export -xdev -type f -newerct {born} -print0 | tar -cPf - --null -T -"
    # A file that is gone before it is packed is none.
    tar = subprocess.run(
        ["docker", "exec", cluster.container(node), "bash", "-c", pack], check=False, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(tar.stdout)) as archive:
        members = ((member.name, archive.extractfile(member)) for member in archive)
        return {f"file {name} of {node}": file.read() for name, file in members if file}


def driver(cluster: ClusterUnderTest, command: str) -> dict[str, bytes]:
    """Run a Makefile target's command; return what it printed on both streams."""
    done = subprocess.run(cluster.driver(command), cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()
    return {f"output of {command}": done.stdout}


def told(cluster: ClusterUnderTest, summary: Summary) -> bytes:
    """All that an operation said to its caller, of what failed and otherwise."""
    return "\n".join(map(repr, [*cluster.events, *summary.failures])).encode()


def bring_up(cluster: ClusterUnderTest) -> Story:
    """Bring up a cluster that is refused for a wrong auth key and joins with the right one; return what it printed."""
    cluster.config["tailrack:sites"].pop()
    # Where no cgroups are, jobs have a place for logins all the same, which then confines nothing.
    cluster.config["tailrack:slurm"]["settings"] = {"PrologFlags": "Contain"}
    passphrase, sealer = sealer_of(cluster)
    tailnet = cluster.config["tailrack:tailnet"]
    tailnet |= {"control_url": KEYED_URL, "auth_key": {"secure": sealer.seal(WRONG_KEY)}}
    refused = cluster.up()
    found = {"events of a refused up": told(cluster, refused)}
    tailnet["auth_key"] = {"secure": sealer.seal(RIGHT_KEY)}
    with Processes(cluster) as seen:
        found |= driver(cluster, "up")
    # It was looked at while the key was used.
    assert any(b"--auth-key=file:" in argv for argv in seen.argv)
    # A step's log holds its last run only, so logs are read here and again later.
    found |= {f"{place} after joining": text for node in NODES for place, text in logs_of(cluster, node).items()}
    assert b"tailscale up: joined" in found["files of a1 after joining"]
    return Story(
        cluster,
        refused,
        found | seen.found(),
        {
            "the wrong auth key": WRONG_KEY,
            "the auth key": RIGHT_KEY,
            "the passphrase": passphrase,
            "the lab's private key": (lab_commands.STATE_DIR / cluster.lab / "id_ed25519").read_text(encoding="utf-8"),
            "the munge key": cluster.run("a1", "cat /etc/munge/munge.key"),
            "the authority's key": cluster.run("head", "cat /var/lib/tailrack/ssh_authority"),
        },
    )
