"""The real secrets of a running stack are nowhere but where they belong: not in state, output, errors, argv or logs.

The tests share one cluster and run in the order of this file.
"""

from __future__ import annotations

import base64
import io
import secrets
import subprocess
import tarfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli import lab_commands
from cli.pulumi.workspace import PROJECT
from cli.run_events import Summary
from tests.lab.cluster import ClusterUnderTest, eventually
from tests.lab.sealer import sealer_of

# The lab's control server on this port asks for this key (lab/control/main.go).
KEYED_URL, RIGHT_KEY = "http://control.lab:8081", "tskey-lab-right"
WRONG_KEY = "tskey-lab-" + secrets.token_hex(12)
NODES = ("head", "a1")


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


@pytest.fixture(scope="module")
def story(make_cluster: Callable[[str], ClusterUnderTest]) -> Story:
    """A cluster of two nodes that was refused for a wrong auth key and joined with the right one."""
    cluster = make_cluster("s1")
    cluster.config["tailrack:head"]["compute"] = False
    del cluster.config["tailrack:sites"][1]
    cluster.config["tailrack:validation"]["floors_gb_per_s"] = {}
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


def test_a_wrong_auth_key_is_refused_with_the_hosts_name_and_the_remedy(story: Story) -> None:
    (failure,) = story.refused.failures
    assert failure.urn.endswith("::head-join")
    assert "tailrack: head: step head-join failed: the tailnet did not accept this machine" in failure.message
    assert "next: make a new auth key for the tag tag:cluster" in failure.message


def test_every_node_contains_the_same_munge_key_and_only_munge_reads_it(story: Story) -> None:
    for node in NODES:
        assert story.cluster.run(node, "cat /etc/munge/munge.key") == story.secret["the munge key"]
        assert story.cluster.run(node, "stat -c '%a %U' /etc/munge/munge.key").split() == ["400", "munge"]


@pytest.mark.parametrize("place", ["state", "logs", "journal"])
def test_the_scan_finds_a_planted_secret_in_files(story: Story, place: str) -> None:
    cluster, planted = story.cluster, secrets.token_hex(16)
    inside = base64.b64encode(f"{{'key': '{planted}'}}".encode()).decode()
    if place == "state":
        (cluster.deployment().workspace.folder / "planted").write_text(inside, encoding="utf-8")
    elif place == "logs":
        cluster.run("a1", f"echo {inside} >/var/log/planted")
    else:
        cluster.run("a1", f"logger {planted}")
    assert leaks(state_of(cluster) if place == "state" else logs_of(cluster, "a1"), {"it": planted})


@pytest.mark.parametrize("place", ["arguments", "environments"])
def test_the_scan_finds_a_planted_secret_in_processes(story: Story, place: str) -> None:
    cluster, planted = story.cluster, secrets.token_hex(16)
    setting, argument = ("", planted) if place == "arguments" else (planted, "")
    command = ["docker", "exec", "-d", "-e", f"KEY={setting}", cluster.container("a1"), "tail", "-f", "/dev/null"]
    subprocess.run([*command, argument], check=True)
    with Processes(cluster) as seen:
        eventually(lambda: leaks(seen.found(), {"it": planted}) == [f"it in process {place}"], 10, "it is seen")


def test_joining_nodes_and_the_output_of_up_show_no_secret(story: Story) -> None:
    assert all(story.found.values())
    assert story.leaks() == []


def test_preview_and_outputs_print_no_secret(story: Story) -> None:
    story.found |= driver(story.cluster, "preview") | driver(story.cluster, "outputs")
    assert b"tailnet_ip" in story.found["output of outputs"]
    assert story.leaks() == []


def test_no_secret_is_in_the_archive_of_a_bug_report_which_has_every_machines_logs(story: Story) -> None:
    story.cluster.run(
        "a1", f"echo 'key {story.secret['the munge key'].strip()} of a user' >/var/log/tailrack/planted.log"
    )
    done = driver(story.cluster, "diagnose")["output of diagnose"].decode()
    story.cluster.run("a1", "rm /var/log/tailrack/planted.log")
    path = Path(done.rpartition("Written: ")[2].strip())
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        members = ((member.name.partition("/")[2], archive.extractfile(member)) for member in archive)
        found = {f"{name} of the archive": file.read() for name, file in members if file}
    path.unlink()
    for node in NODES:
        said = found[f"machines/{node}.txt of the archive"]
        for part in (b"tailscale up: joined", b"munge", b"===== journal of tailscaled", b"===== addresses"):
            assert part in said, (node, part)
    assert b"===== step planted.log\nkey [hidden] of a user" in found["machines/a1.txt of the archive"]
    assert b"NodeName=a1" in found["machines/head.txt of the archive"]
    story.found |= found
    assert story.leaks() == []


FULL = "mount -t tmpfs -o size=4k,mode=700 tmpfs /etc/munge && ! cat /dev/zero >/etc/munge/filled"


def test_no_secret_is_in_the_failure_of_the_step_that_writes_the_munge_key(story: Story) -> None:
    cluster = story.cluster
    cluster.run("a1", FULL)
    cluster.config["tailrack:cluster"]["repair"] = {"a1": "no room"}
    summary = cluster.up()
    cluster.run("a1", "umount /etc/munge")
    (failure,) = summary.failures
    assert "tailrack: a1: step a1-join failed: cannot write /etc/munge/munge.key" in failure.message
    story.found["events of a failed up"] = told(cluster, summary)
    assert story.leaks() == []


@pytest.mark.proof
def test_no_secret_is_in_the_failure_of_a_change_of_the_munge_key(story: Story) -> None:
    cluster = story.cluster
    cluster.run("a1", FULL)
    cluster.config["tailrack:cluster"]["munge_generation"] = "2"
    summary = cluster.up()
    services, join = sorted((failure.message for failure in summary.failures), key=lambda text: "a1-join" in text)
    assert "tailrack: a1: step a1-join failed: cannot write /etc/munge/munge.key" in join
    assert "the munge key was changed, and a1 did not get it" in services
    story.secret["the new munge key"] = cluster.run("head", "cat /etc/munge/munge.key")
    assert story.secret["the new munge key"] != story.secret["the munge key"]
    story.found["events of a failed change"] = told(cluster, summary)
    assert story.leaks() == []


def test_no_secret_is_in_any_file_of_the_state_or_any_log_of_a_node(story: Story) -> None:
    story.found |= state_of(story.cluster)
    for node in NODES:
        story.found |= logs_of(story.cluster, node)
    assert b"wrote /etc/munge/munge.key" in story.found["files of head"]
    assert story.leaks() == []


@pytest.mark.proof
def test_no_secret_is_in_any_file_of_a_node_but_its_own(story: Story) -> None:
    own = dict.fromkeys(("the munge key", "the new munge key"), "/etc/munge/munge.key")
    own["the authority's key"] = "/var/lib/tailrack/ssh_authority"
    kept = {f"{name} in file {place} of {node}" for name, place in own.items() for node in NODES}
    files = {place: text for node in NODES for place, text in files_of(story.cluster, node).items()}
    print(f"{len(files)} files, {sum(map(len, files.values())) >> 20} MiB")
    assert len(files) > 200
    found = set(leaks(files, story.secret))
    assert "the authority's key in file /var/lib/tailrack/ssh_authority of head" in found, "it would be seen"
    assert found <= kept


def test_down_prints_no_secret(story: Story) -> None:
    story.found |= driver(story.cluster, "down")
    # What could open the sealed key is gone with the stack.
    del story.cluster.config["tailrack:tailnet"]["auth_key"]
    assert story.leaks() == []
