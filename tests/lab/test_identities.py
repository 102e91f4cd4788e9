"""Logins with an identity: sshd, a real opkssh (OPKSSH=FILE) and a fake provider. Each test goes on from the last."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from components.roles.access.user_keys.host import PROGRAM
from tests.lab.cluster import ClusterUnderTest

ISSUER = "https://login.lab:8443"
MACHINES = ("head", "a1", "b1")
PROVIDER = f"""openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=login.lab \\
    -addext subjectAltName=DNS:login.lab -keyout key.pem -out cert.pem 2>/dev/null
openssl genrsa -out signer.pem 2048 2>/dev/null
systemd-run -q --unit lab-provider --working-directory=/root python3 provider.py {ISSUER} tailrack
chmod 600 laptop && cat cert.pem"""
# The refused logins of these tests would make sshd 9.8 and newer refuse the next ones for a while.
TRUST = """update-ca-certificates >/dev/null 2>&1
if sshd -T | grep -qi ^persourcepenalties; then
    echo PerSourcePenalties no >/etc/ssh/sshd_config.d/00-test.conf; systemctl reload ssh
fi"""
# curl stands for the browser: it follows the provider's redirects.
LOG_IN = f"""rm -f id id-cert.pub cookies
timeout 60 {PROGRAM} login --provider={ISSUER},tailrack --disable-browser-open -i id >login.log 2>&1 &
curl -sSfL --retry 30 --retry-delay 1 --retry-connrefused -b cookies -c cookies http://localhost:3000/login >page &&
    wait $! || {{ cat login.log; exit 1; }}"""
REFUSED = "Permission denied (publickey"


@pytest.fixture(scope="module")
def cluster(full: ClusterUnderTest, tmp_path_factory: pytest.TempPathFactory) -> ClusterUnderTest:
    """ada has an identity and a key. Each machine has opkssh in a folder and trusts the provider on the head node."""
    if not (program := os.environ.get("OPKSSH")):
        pytest.skip("OPKSSH does not name a file with opkssh")
    key = tmp_path_factory.mktemp("keys") / "laptop"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    full.config["tailrack:slurm"]["ssh_needs_job"] = False
    full.up_ok()
    full.write("head", "/root/provider.py", (Path(__file__).parent / "identity_provider.py").read_text())
    full.write("head", "/root/laptop", key.read_text())
    certificate = full.run("head", f"cd; {PROVIDER}")
    address = full.run("b1", "getent ahostsv4 head").split()[0]
    for machine in MACHINES:
        full.write(machine, "/usr/local/share/ca-certificates/login-lab.crt", certificate)
        full.run(machine, f"echo {address} login.lab >>/etc/hosts; {TRUST}")
        copy = ["docker", "cp", program, f"{full.container(machine)}:/srv/opkssh-linux-amd64"]
        subprocess.run(copy, check=True, capture_output=True)
    checksums = {"opkssh-linux-amd64": hashlib.sha256(Path(program).read_bytes()).hexdigest()}
    provider = {"issuer": ISSUER, "client_id": "tailrack"}
    full.config["tailrack:oidc"] = {**provider, "artifacts": "/srv", "checksums": checksums}
    public = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    full.config["tailrack:users"][0] |= {"oidc": "ada@lab.example", "keys": [public]}
    full.up_ok()
    return full


def log_in(cluster: ClusterUnderTest, email: str) -> None:
    """Log in at the provider as a person, on the head node."""
    cluster.write("head", "/root/who", json.dumps({"sub": "1", "email": email, "email_verified": True}))
    cluster.run("head", f"cd; {LOG_IN}")


def ssh(cluster: ClusterUnderTest, login: str, key: str = "id") -> str:
    """Log in to a machine with a key alone; what `whoami` and `hostname` print, or ssh's error."""
    options = "-oBatchMode=yes -oIdentitiesOnly=yes -oIdentityAgent=none -oPreferredAuthentications=publickey"
    done = cluster.attempt("head", f"ssh {options} -i /root/{key} {login} 'echo $(whoami) on $(hostname)'")
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_user_logs_in_with_an_identity_everywhere_and_as_no_one_else(cluster: ClusterUnderTest) -> None:
    log_in(cluster, "ada@lab.example")
    assert [ssh(cluster, f"ada@{machine}") for machine in MACHINES] == [f"ada on {machine}" for machine in MACHINES]
    assert all(REFUSED in ssh(cluster, login) for login in ("bob@head", "root@head"))
    assert cluster.run("a1", "stat -c '%U:%G %a' /etc/opk/auth_id") == "root:opksshuser 640\n"


def test_other_identities_and_tokens_with_a_withdrawn_key_are_refused(cluster: ClusterUnderTest) -> None:
    log_in(cluster, "eve@lab.example")
    row = f"ada eve@lab.example {ISSUER}"
    cluster.run_as("ada", "head", f"mkdir -p ~/.opk; echo {row} >~/.opk/auth_id; chmod 600 ~/.opk/auth_id")
    assert REFUSED in ssh(cluster, "ada@head"), "a user cannot let another identity in"
    log_in(cluster, "ada@lab.example")
    cluster.run("head", "mv /root/signer.pem /root/kept; openssl genrsa -out /root/signer.pem 2048 2>/dev/null")
    assert REFUSED in ssh(cluster, "ada@head")
    cluster.run("head", "mv /root/kept /root/signer.pem")
    assert ssh(cluster, "ada@head") == "ada on head"


def test_without_the_provider_in_the_config_its_logins_end_and_keys_go_on(cluster: ClusterUnderTest) -> None:
    cluster.run("head", "systemctl stop lab-provider")
    assert ssh(cluster, "ada@a1", key="laptop") == "ada on a1", "keys need no provider"
    del cluster.config["tailrack:oidc"], cluster.config["tailrack:users"][0]["oidc"]
    cluster.up_ok()
    for machine in MACHINES:
        assert REFUSED in ssh(cluster, f"ada@{machine}")
        assert cluster.run(machine, f"ls -d /etc/opk {PROGRAM} 2>/dev/null || getent passwd opksshuser || true") == ""
        assert ssh(cluster, f"ada@{machine}", key="laptop") == f"ada on {machine}"
        assert "authorizedkeyscommand none" in cluster.run(machine, "sshd -T -C user=ada,host=x,addr=192.0.2.1")
