"""Keys in the config, and the printed lines for ssh: real clients on this machine. Each test goes on from the last."""

import shlex
import subprocess
from pathlib import Path

import pytest

from components.roles.access.user_keys.host import CONF, FOLDER
from components.roles.role import Value
from tests.lab.cluster import ClusterUnderTest, as_user, eventually
from tests.lab.run_step import run_step
from tests.unit.shell import script_of

NAMES = ("laptop", "desk", "bob", "own")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with key pairs: two of ada's and one of bob's for the config, and one that ada adds herself."""
    folder = tmp_path_factory.mktemp("keys")
    for name in NAMES:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name} of a user", "-f", folder / name], check=True
        )
    return folder


def public(keys: Path, name: str) -> str:
    return (keys / f"{name}.pub").read_text(encoding="utf-8").strip()


@pytest.fixture(scope="module")
def cluster(full: ClusterUnderTest, keys: Path) -> ClusterUnderTest:
    """ada has two keys in the config and bob has one."""
    full.config["tailrack:users"] = [
        {"name": "ada", "uid": 6001, "keys": [public(keys, "laptop"), public(keys, "desk")]},
        {"name": "bob", "uid": 6002, "keys": [public(keys, "bob")]},
    ]
    full.up_ok()
    # The refused logins of these tests would make sshd 9.8 and newer refuse this machine's next logins for a while.
    quiet = "if sshd -T | grep -qi ^persourcepenalties; then echo PerSourcePenalties no >{}; systemctl reload ssh; fi"
    for machine in ("head", "a1"):
        full.run(machine, quiet.format("/etc/ssh/sshd_config.d/00-test.conf"))
    return full


@pytest.fixture(scope="module")
def admins(cluster: ClusterUnderTest, keys: Path) -> Path:
    """The file that `make ssh-config` prints."""
    printed = subprocess.run(cluster.driver("ssh-config"), capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    path = keys / "admins"
    path.write_text(printed.stdout, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def adas(cluster: ClusterUnderTest, admins: Path, keys: Path) -> Path:
    """The file that `tailrack ssh-config` prints for ada, who reaches the head node where the administrator does."""
    words = admins.read_text(encoding="utf-8").split()
    place = f"--head {words[words.index('HostName') + 1]}"
    if "Port" in words:
        place += f" --port {words[words.index('Port') + 1]}"
    path = keys / "adas"
    path.write_text(cluster.run_as("ada", "head", f"tailrack ssh-config {place}"), encoding="utf-8")
    return path


def ssh(config: Path, machine: str, *options: str, command: str = "hostname") -> subprocess.CompletedProcess[str]:
    """Log in without a terminal, with nothing that this machine's own ssh knows."""
    known = [f"-o{kind}KnownHostsFile=/dev/null" for kind in ("User", "Global")]
    strict = ["-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oIdentityAgent=none", *known]
    words = ["ssh", "-F", str(config), *strict, *options, machine, command]
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


def with_key(config: Path, keys: Path, name: str, user: str = "ada") -> Path:
    """A config like another one, for one key and user. The ssh that ProxyJump starts gets no options, only the file."""
    lines = config.read_text(encoding="utf-8").replace("User ada", f"User {user}")
    path = keys / f"config-{user}-{name}"
    path.write_text(f"{lines}\nHost *\n  IdentityFile {keys / name}\n  IdentitiesOnly yes\n", encoding="utf-8")
    return path


def test_the_administrator_logs_in_to_every_machine_with_the_printed_lines(admins: Path) -> None:
    for name in ("head", "a1"):
        done = ssh(admins, name)
        assert (done.stdout, done.returncode) == (f"{name}\n", 0), done.stderr


def test_a_user_logs_in_to_the_head_node_with_a_key_of_the_config_and_no_question(adas: Path, keys: Path) -> None:
    for name in ("laptop", "desk"):
        done = ssh(with_key(adas, keys, name), "head", command="hostname; whoami")
        assert done.stdout == "head\nada\n", done.stderr
    refused = ssh(with_key(adas, keys, "bob"), "head")
    assert "Permission denied (publickey" in refused.stderr


def test_another_authority_than_the_clusters_is_refused(adas: Path, keys: Path) -> None:
    path = with_key(adas, keys, "laptop")
    words = [word for word in path.read_text(encoding="utf-8").split() if word.startswith("AAAA")]
    other = public(keys, "own").split()[1]
    path.write_text(path.read_text(encoding="utf-8").replace(words[0], other), encoding="utf-8")
    assert "Host key verification failed" in ssh(path, "head").stderr


def test_a_user_reaches_a_node_through_the_head_node_while_a_job_runs_there(
    cluster: ClusterUnderTest, adas: Path, keys: Path
) -> None:
    # `up` requires a job only where cgroups confine jobs.
    values: dict[str, Value] = {
        "pam_slurm_adopt_wanted": True, "node_confined": True, "node_login": "", "slurm_release": "",
        "users_lines": ["ada 6001 6001", "bob 6002 6002"],
    }  # fmt: skip
    asked = run_step(cluster, "a1", script_of("pam_slurm_adopt", "node"), values, sudo_user="admin")
    assert asked.returncode == 0, asked.stderr
    config = with_key(adas, keys, "laptop")
    refused = ssh(config, "a1")
    assert "you have no active jobs on this node" in refused.stderr
    job = cluster.run_as("ada", "head", "sbatch --parsable -w a1 --wrap 'echo up; exec sleep 300'").strip()
    eventually(lambda: "up" in cluster.attempt("head", as_user("ada", f"cat slurm-{job}.out")).stdout, 60, "it runs")
    done = ssh(config, "a1", command="hostname; whoami")
    assert done.stdout == "a1\nada\n", done.stderr
    cluster.run("head", f"scancel {job}")
    eventually(lambda: ssh(config, "a1").returncode == 255, 60, "no login after the job")
    cluster.config["tailrack:slurm"]["ssh_needs_job"] = False


def test_keys_in_the_home_and_machine_settings_still_count(cluster: ClusterUnderTest, adas: Path, keys: Path) -> None:
    cluster.run_as("ada", "head", f"echo {shlex.quote(public(keys, 'own'))} >>.ssh/authorized_keys")
    assert ssh(with_key(adas, keys, "own"), "head").stdout == "head\n"
    asked = "sshd -T -C user={},host=x,addr=192.0.2.1 | grep -i authorizedkeysfile"
    root, ada = (cluster.run("head", asked.format(user)).split()[1:] for user in ("root", "ada"))
    assert root == [".ssh/authorized_keys", ".ssh/authorized_keys2"]
    assert ada == [*root, f"{FOLDER}/%u"]
    assert cluster.run("head", f"stat -c '%U:%G %a' {FOLDER}/ada") == "root:ada 640\n"
    assert cluster.attempt("head", as_user("bob", f"cat {FOLDER}/ada")).returncode != 0


def test_removed_keys_and_users_are_refused_after_up(cluster: ClusterUnderTest, adas: Path, keys: Path) -> None:
    assert ssh(with_key(adas, keys, "bob", "bob"), "head").stdout == "head\n"
    cluster.config["tailrack:users"] = [{"name": "ada", "uid": 6001, "keys": [public(keys, "desk")]}]
    text = cluster.preview()
    for name, user in (("laptop", "ada"), ("bob", "bob")):
        print_ = subprocess.run(["ssh-keygen", "-l", "-f", keys / name], capture_output=True, text=True, check=True)
        line = f"- {user}: ssh-ed25519 {print_.stdout.split()[1]} ({name} of a user) can no longer log in"
        assert line in text, text
    cluster.up_ok()
    for machine in ("head", "a1"):
        for name, user in (("laptop", "ada"), ("bob", "bob")):
            refused = ssh(with_key(adas, keys, name, user), machine)
            assert "Permission denied (publickey" in refused.stderr
        done = ssh(with_key(adas, keys, "desk"), machine)
        assert done.stdout == f"{machine}\n", done.stderr
        assert cluster.run(machine, f"ls {FOLDER}") == "ada\n"


def test_up_names_a_machine_with_an_sshd_that_ignores_keys_and_continues_elsewhere(
    cluster: ClusterUnderTest, adas: Path, keys: Path
) -> None:
    # sshd reads this file before ours.
    cluster.run("a1", "echo 'Match User ada\n AuthorizedKeysFile none' >/etc/ssh/sshd_config.d/00-owner.conf")
    cluster.config["tailrack:users"][0]["keys"] = [public(keys, "laptop")]
    summary = cluster.up()
    (failure,) = [failure.message for failure in summary.failures if "a1" in failure.message]
    assert "sshd on a1 does not read the keys of ada in tailrack:users: it reads none" in failure
    assert ssh(with_key(adas, keys, "laptop"), "head").stdout == "head\n"


def test_without_keys_in_the_config_nothing_of_them_is_left(cluster: ClusterUnderTest, adas: Path, keys: Path) -> None:
    cluster.run("a1", "rm /etc/ssh/sshd_config.d/00-owner.conf")
    del cluster.config["tailrack:users"][0]["keys"]
    cluster.up_ok()
    for machine in ("head", "a1"):
        assert cluster.run(machine, f"ls -d {FOLDER} {CONF} 2>/dev/null || true") == ""
        refused = ssh(with_key(adas, keys, "laptop"), machine)
        assert "Permission denied (publickey" in refused.stderr
    # The key in the home still opens both.
    for machine in ("head", "a1"):
        done = ssh(with_key(adas, keys, "own"), machine)
        assert done.stdout == f"{machine}\n", done.stderr


def test_users_submit_jobs_at_a_log_in_node_that_runs_none(cluster: ClusterUnderTest, adas: Path, keys: Path) -> None:
    pools = cluster.config["tailrack:sites"][0]["pools"]
    pools.append({"name": "login", "login": True})
    cluster.config["tailrack:users"][0]["keys"] = [public(keys, "laptop")]
    cluster.config["tailrack:slurm"]["ssh_needs_job"] = False
    cluster.config["tailrack:head"]["user_limits"] = {"tasks": 500}
    cluster.up_ok()
    printed = keys / "through-login"
    printed.write_text(cluster.run_as("ada", "head", "tailrack ssh-config --head 192.0.2.1"), encoding="utf-8")
    config = with_key(printed, keys, "laptop")
    done = ssh(
        config, "login1", command="hostname; srun -w a1 hostname; sbatch --parsable --wrap 'echo from $HOSTNAME'"
    )
    assert done.returncode == 0, done.stderr
    *names, job = done.stdout.split()
    assert names == ["login1", "a1"]
    eventually(lambda: "from " in ssh(config, "login1", command=f"cat slurm-{job}.out").stdout, 60, "the job's output")
    assert ssh(config, "a1").stdout == "a1\n", "through login1: the head node has another address"
    assert "login1" not in cluster.run("login1", "sinfo -h -a -N -o %N")
    assert cluster.attempt("login1", "pgrep -x slurmd").returncode == 1
    limit = "systemctl show -P TasksMax user-$(id -u).slice"
    lines = ssh(config, "login1", command=f"tailrack nodes; {limit}").stdout.splitlines()
    assert (lines[0].split(), lines[-1]) == (["a1", "idle"], "500")
    assert "on the head node" in ssh(config, "login1", command="tailrack ssh-config").stderr
    (node,) = [node for node in cluster.deployment().outputs()["cluster"]["nodes"] if node["name"] == "login1"]
    assert node["login"] is True
    # Its link to Slurm's files comes back at boot, and a node that joins later is no change there.
    pools.pop()
    cluster.up_ok()
    assert "login1" not in cluster.run("head", "cat /etc/hosts")
