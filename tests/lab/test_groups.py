"""Groups of users and their folders on the share, over NFS. Each test goes on from the last."""

import pytest

from tests.lab.cluster import ClusterUnderTest, as_user, eventually

FOLDER = "/shared/groups/vision"
MACHINES = ("head", "a1", "b1")


@pytest.fixture(scope="module")
def cluster(full: ClusterUnderTest) -> ClusterUnderTest:
    """ada and bob are in the group, eve is not."""
    full.config["tailrack:groups"] = [{"name": "vision", "gid": 7001}]
    full.config["tailrack:users"] = [
        {"name": "ada", "uid": 6001, "groups": ["vision"]},
        {"name": "bob", "uid": 6002, "groups": ["vision"]},
        {"name": "eve", "uid": 6003},
    ]
    full.up_ok()
    return full


def refused(cluster: ClusterUnderTest, user: str, node: str, command: str) -> bool:
    return "Permission denied" in cluster.attempt(node, as_user(user, command)).stderr


def test_every_machine_has_the_group_with_the_same_gid_and_members(cluster: ClusterUnderTest) -> None:
    for machine in MACHINES:
        assert cluster.run(machine, "getent group vision") == "vision:x:7001:ada,bob\n"
    assert cluster.run("head", "stat -c '%U:%G %a' /export/shared/groups/vision") == "root:vision 2770\n"


def test_members_on_two_nodes_change_each_others_files(cluster: ClusterUnderTest) -> None:
    cluster.run_as("ada", "a1", f"cd {FOLDER} && echo ada >notes && mkdir runs && echo ada >runs/log")
    cluster.run_as("bob", "b1", f"cd {FOLDER} && echo bob >>notes && echo bob >>runs/log && echo bob >runs/new")
    assert cluster.run_as("ada", "a1", f"cd {FOLDER} && cat notes runs/log && rm runs/new") == "ada\nbob\nada\nbob\n"
    assert cluster.run("head", f"stat -c %G {FOLDER}/notes {FOLDER}/runs {FOLDER}/runs/log").split() == ["vision"] * 3


@pytest.mark.parametrize("umask", ["022", "077"])
def test_files_belong_to_the_group_with_any_umask(cluster: ClusterUnderTest, umask: str) -> None:
    # The lab's NFS client applies the umask itself, which Linux' own client leaves to the server's kernel.
    made = f"umask {umask}; cd {FOLDER} && mkdir {umask} && echo ada >{umask}/file"
    cluster.run_as("ada", "head", made)
    cluster.run_as("bob", "b1", f"cd {FOLDER}/{umask} && echo bob >>file && touch other")


def test_a_job_of_a_member_can_write_there(cluster: ClusterUnderTest) -> None:
    cluster.run_as("bob", "head", f"srun -w b1 bash -c 'echo job >>{FOLDER}/notes'")
    assert cluster.run_as("ada", "a1", f"tail -n 1 {FOLDER}/notes") == "job\n"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_user_outside_the_group_is_refused(cluster: ClusterUnderTest, machine: str) -> None:
    for command in (f"ls {FOLDER}", f"cat {FOLDER}/notes", f"touch {FOLDER}/eve"):
        assert refused(cluster, "eve", machine, command), command
    assert refused(cluster, "eve", machine, "touch /shared/groups/eve")


def test_up_removes_the_access_of_a_former_group_member(cluster: ClusterUnderTest) -> None:
    del cluster.config["tailrack:users"][1]["groups"]
    text = cluster.preview()
    assert "- bob leaves vision" in text
    assert "ada leaves" not in text
    cluster.up_ok()
    for machine in MACHINES:
        assert cluster.run(machine, "id -Gn bob") == "bob\n"
    for machine in ("head", "b1"):
        assert refused(cluster, "bob", machine, f"cat {FOLDER}/notes")
    cluster.run_as("ada", "a1", f"cat {FOLDER}/notes")
    groups = "srun -w a1 id -Gn"
    eventually(lambda: cluster.run_as("bob", "head", groups) == "bob\n", 45, "jobs of bob are not in the group")


def test_the_folder_of_a_group_that_is_taken_out_stays_and_up_says_so(cluster: ClusterUnderTest) -> None:
    del cluster.config["tailrack:groups"]
    del cluster.config["tailrack:users"][0]["groups"]
    text = cluster.preview()
    assert "- ada leaves vision" in text
    assert "- vision 7001" in text
    cluster.up_ok()
    assert cluster.run("head", "cat /export/shared/groups/vision/notes") == "ada\nbob\njob\n"
    (note,) = [note for note in cluster.deployment().outputs()["cluster"]["notes"] if "tailrack:groups" in note]
    assert "/export/shared/groups/vision on head" in note
    for machine in MACHINES:
        assert cluster.run(machine, "getent group vision") == "vision:x:7001:\n"
    assert refused(cluster, "ada", "head", f"cat {FOLDER}/notes")


def test_a_group_that_is_back_has_its_files(cluster: ClusterUnderTest) -> None:
    cluster.config["tailrack:groups"] = [{"name": "vision", "gid": 7001}]
    cluster.config["tailrack:users"][2]["groups"] = ["vision"]
    cluster.up_ok()
    for machine in MACHINES:  # On each of them eve was refused before.
        assert cluster.run_as("eve", machine, f"cat {FOLDER}/notes") == "ada\nbob\njob\n"
