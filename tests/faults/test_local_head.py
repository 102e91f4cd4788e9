"""A head node of kind local: the program runs on somebody's desktop, which is the head node, and joins another machine.

Nothing of it runs on the machine that runs the tests. The tests run in the order of this file.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.roles.network.tailnet.settings import Tailnet
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, dev_config, eventually, own_machine
from tests.lab.inside import PLACE, PROGRAM, bring_program
from tests.lab.test_hosts_site import CLEAN_NODE, left_over

OWNER = "maria"
URL = "http://control.lab:8080"


class Desktop:
    """The machine with the program, which its owner works at; `config` is what the next run gets."""

    def __init__(self, lab: ClusterUnderTest, config: dict[str, Any], by_ssh: dict[str, Any]) -> None:
        self.lab, self.config, self.by_ssh = lab, config, by_ssh

    def driver(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the driver as its owner does, whatever comes of it."""
        text = json.dumps({"config": self.config})  # which is YAML
        self.lab.run("desk", as_user(OWNER, f"cat >{PLACE}/Pulumi.desk.yaml <<'END'\n{text}\nEND"))
        command = f"cd {PLACE} && {PROGRAM} -m cli --engine inprocess --stack desk {' '.join(words)}"
        return self.lab.attempt("desk", as_user(OWNER, command), 900)

    def ok(self, *words: str) -> str:
        """Run a command of the driver that succeeds, and return all it said."""
        done = self.driver(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def logins(self) -> int:
        """How often somebody has logged in by SSH here."""
        return int(self.lab.run("desk", "journalctl -u ssh -o cat | grep -c '^Accepted' || :"))


@pytest.fixture(scope="module")
def desktop(make_cluster: MakeCluster) -> Desktop:
    """A desktop in its owner's tailnet with the program on it, and a machine that it can reach by SSH."""
    # The stack of this name here makes nothing: it is where the machines' names come from.
    lab = make_cluster("d1")
    by_ssh = own_machine(lab.lab, "desk", like="desktop")
    other = own_machine(lab.lab, "n1")
    bring_program(lab.container("desk"), OWNER)
    key = Path(other["private_key_file"]).read_text()
    lab.run("desk", as_user(OWNER, f"umask 077; cat >{PLACE}/key <<'END'\n{key}END"))
    # Nobody has logged in since the last boot: it does not run, and its folder is not there.
    lab.run("desk", "systemctl stop ssh.service && systemctl is-active ssh.socket && test ! -e /run/sshd")
    config = dev_config()
    # With the cluster's tag, by which other machines know it by its name.
    options = f"--advertise-tags={Tailnet.model_fields['tag'].default} --auth-key=tskey-none --hostname=desk"
    lab.run("desk", f"tailscale up --force-reauth --login-server={URL} {options}")
    config["tailrack:head"] = {"name": "desk", "site": "home", "compute": True, "accept_root_risk": True}
    config["tailrack:tailnet"]["control_url"] = URL
    config["tailrack:sites"] = [
        {"name": "home", "kind": "local", "adopt": True, "fabric": "tailnet"},
        {"name": "rack", "kind": "hosts", "fabric": "tailnet", "hosts": [{**other, "private_key_file": "key"}]},
    ]
    return Desktop(lab, config, {**by_ssh, "private_key_file": "key", "adopt": True})


def test_a_sudo_that_asks_for_a_password_is_reported_before_any_change(desktop: Desktop) -> None:
    rule = f"/etc/sudoers.d/{OWNER}"
    desktop.lab.run("desk", f"sed -i 's/NOPASSWD: //' {rule}")
    done = desktop.driver("up")
    desktop.lab.run("desk", f"sed -i 's/) ALL/) NOPASSWD: ALL/' {rule}")
    assert done.returncode == 1
    assert "fails here (sudo: a password is required); give maria password-less sudo" in " ".join(done.stderr.split())
    assert "No step was started." in done.stderr
    assert desktop.lab.attempt("desk", "test -e /var/log/tailrack").returncode == 1


def test_up_on_the_desktop_makes_it_the_head_node_of_a_cluster_without_a_log_in_to_itself(desktop: Desktop) -> None:
    desktop.ok("up")
    assert desktop.logins() == 0
    assert sorted(desktop.lab.run("desk", "sinfo -h -p all -N -o '%N %T'").splitlines()) == ["desk idle", "n1 idle"]
    desktop.lab.run_as("ada", "n1", "echo precious >/shared/home/ada/results")
    both = desktop.lab.run_as("ada", "desk", "srun -N2 --switches=2 cat results")
    assert both.split() == ["precious", "precious"]
    desktop.lab.run("desk", "systemctl is-active ssh.socket")
    assert desktop.lab.run("desk", "ls -l /proc/$(pidof slurmctld)/cwd | grep -c srv || :").strip() == "0"


def test_a_second_up_changes_nothing_and_the_other_commands_work(desktop: Desktop) -> None:
    assert "Nothing to change" in desktop.ok("up")
    assert "PARTITION" in desktop.ok("status")
    assert "to create" not in desktop.ok("preview")
    assert json.loads(desktop.driver("outputs").stdout)["cluster"]["name"] == desktop.config["tailrack:cluster"]["name"]
    assert "Every host has a host key" in desktop.ok("trust")
    assert "use a shell on this machine" in desktop.driver("shell", "--node", "desk").stderr


@pytest.mark.parametrize("way", ["by SSH", "local"])
def test_jobs_continue_when_the_stack_reaches_its_head_node_another_way(desktop: Desktop, way: str) -> None:
    job = desktop.lab.run_as("ada", "desk", "sbatch --parsable -w n1 --wrap 'tail -f /dev/null'").strip()
    home = desktop.config["tailrack:sites"][0]
    if way == "local":
        home |= {"kind": "local", "adopt": True}
        del home["hosts"]
    else:
        home |= {"kind": "hosts", "hosts": [desktop.by_ssh]}
        del home["adopt"]
    before = desktop.logins()
    refused = desktop.driver("up")
    assert refused.returncode == 1
    assert "head-replaced: the head node desk would be removed" in " ".join(refused.stderr.split())
    desktop.config["tailrack:allow"] = ["head-replaced"]
    said = desktop.driver("up")
    del desktop.config["tailrack:allow"]
    assert "failed" not in said.stderr, said.stderr
    # Steps of the old way that undo something are asked once more, over one connection as all of a run, and do nothing.
    assert desktop.logins() - before == 1
    state = desktop.lab.run("desk", f"squeue -h -j {job} -o %T").strip()
    desktop.lab.run("desk", f"scancel {job}")
    assert state == "RUNNING"
    eventually(lambda: desktop.lab.run("desk", "squeue -h") == "", 20, "the job has ended")
    desktop.ok("up")
    assert desktop.lab.run_as("ada", "desk", "srun -N2 --switches=2 cat results").split() == ["precious", "precious"]


def test_down_leaves_both_machines_clean_and_the_desktop_in_its_tailnet(desktop: Desktop) -> None:
    said = desktop.ok("down")
    assert "Stack desk is destroyed." in said
    assert "/var/log/tailrack/left on each machine lists everything" in said
    clean = "! test -e /etc/munge/munge.key\n! systemctl -q is-active slurmctld\n! systemctl -q is-active slurmd"
    eventually(lambda: left_over(desktop.lab, "desk", clean) == [], 20, "the desktop is clean")
    eventually(lambda: left_over(desktop.lab, "n1", CLEAN_NODE) == [], 20, "n1 is clean")
    assert "desk.lab.ts.net" in desktop.lab.run("desk", "tailscale status --json --peers=false")
    assert desktop.lab.run("desk", "hostname").strip() == "desk-desktop"
    assert desktop.lab.run("desk", "cat /export/shared/home/ada/results").strip() == "precious"
