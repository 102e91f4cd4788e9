"""The real secrets of a running stack are nowhere but where they belong: not in state, output, errors, argv or logs.

The tests share one cluster with test_trust.py and run in the order of this file, before those.
"""

import base64
import secrets
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.lab.cluster import eventually
from tests.lab.leaks import NODES, Processes, Story, driver, files_of, leaks, logs_of, state_of, told


def test_a_wrong_auth_key_is_refused_with_the_hosts_name_and_the_remedy(story: Story) -> None:
    (failure,) = story.refused.failures
    assert failure.urn.endswith("::head-prepare")
    assert "tailrack: head: step head-prepare failed: the tailnet did not accept this machine" in failure.message
    assert "next: make a new auth key for the tag tag:cluster" in failure.message


def test_every_node_contains_the_same_munge_key_and_only_munge_reads_it(story: Story) -> None:
    for node in NODES:
        assert story.cluster.run(node, "cat /etc/munge/munge.key") == story.secret["the munge key"]
        assert story.cluster.run(node, "stat -c '%a %U' /etc/munge/munge.key").split() == ["400", "munge"]


def test_the_scan_finds_a_planted_secret_in_files(story: Story) -> None:
    cluster, planted = story.cluster, {place: secrets.token_hex(16) for place in ("state", "logs", "journal")}
    inside = {place: base64.b64encode(f"{{'key': '{text}'}}".encode()).decode() for place, text in planted.items()}
    (cluster.deployment().workspace.folder / "planted").write_text(inside["state"], encoding="utf-8")
    cluster.run("a1", f"echo {inside['logs']} >/var/log/planted; logger {planted['journal']}")
    found = leaks(state_of(cluster) | logs_of(cluster, "a1"), planted)
    assert {leak.partition(" in ")[0] for leak in found} == planted.keys()


def test_the_scan_finds_a_planted_secret_in_processes(story: Story) -> None:
    cluster, planted = story.cluster, {place: secrets.token_hex(16) for place in ("arguments", "environments")}
    setting = f"KEY={planted['environments']}"
    command = ["docker", "exec", "-d", "-e", setting, cluster.container("a1"), "tail", "-f", "/dev/null"]
    subprocess.run([*command, planted["arguments"]], check=True)
    with Processes(cluster) as seen:
        expected = [f"{place} in process {place}" for place in planted]
        eventually(lambda: leaks(seen.found(), planted) == expected, 60, "they are seen")


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
    assert b"===== step planted.log\nkey [secret] of a user" in found["machines/a1.txt of the archive"]
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
    assert "tailrack: a1: step a1-prepare failed: cannot write /etc/munge/munge.key" in failure.message
    story.found["events of a failed up"] = told(cluster, summary)
    assert story.leaks() == []


@pytest.mark.proof
def test_no_secret_is_in_the_failure_of_a_change_of_the_munge_key(story: Story) -> None:
    cluster = story.cluster
    cluster.run("a1", FULL)
    cluster.config["tailrack:cluster"]["munge_generation"] = "2"
    summary = cluster.up()
    services, join = sorted((failure.message for failure in summary.failures), key=lambda text: "a1-prepare" in text)
    assert "tailrack: a1: step a1-prepare failed: cannot write /etc/munge/munge.key" in join
    assert "the munge key was changed, and a1 did not get it" in services
    story.secret["the new munge key"] = cluster.run("head", "cat /etc/munge/munge.key")
    assert story.secret["the new munge key"] != story.secret["the munge key"]
    cluster.run("a1", "umount /etc/munge")
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
