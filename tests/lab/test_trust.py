"""What users, nodes and strangers try against the cluster. Each test goes on from the one before."""

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from components.roles.role import Value
from lab.identity import network_name
from tests.lab.cluster import ClusterUnderTest, as_user, eventually, own_machine
from tests.lab.leaks import Story
from tests.lab.run_step import run_python, run_step
from tests.lab.scan import open_tcp_ports, udp_ports
from tests.unit.shell import script_of

# In the place of each file of a home that the head node's steps work on: what a user may put there.
TRAPS = {
    "a link to a file of root": "ln -s /etc/shadow {path}",
    "a hard link": "echo mine >~/mine && ln ~/mine {path}",
    "a FIFO": "mkfifo {path}",
    "a directory": "mkdir {path}",
    "a link to nothing": "ln -s /etc/made-by-root {path}",
}
FILES = (".ssh/authorized_keys", ".ssh/id_ed25519.pub")


@pytest.fixture(scope="module")
def cluster(story: Story) -> ClusterUnderTest:
    """A head node that computes and a1."""
    return story.cluster


def again(cluster: ClusterUnderTest) -> None:
    """Run the head node's steps once more, as any change of theirs would."""
    assert cluster.repair("head").ok
    assert "head-head" in cluster.touched()


def shadow(cluster: ClusterUnderTest) -> str:
    return cluster.run("head", "stat -c '%U:%G %a %Y %s' /etc/shadow; sha256sum /etc/shadow")


@pytest.mark.parametrize(
    "trap",
    # Each runs the head node's steps once more.
    [pytest.param(trap, id=trap, marks=[pytest.mark.proof] if number else []) for number, trap in enumerate(TRAPS)],
)
def test_root_does_nothing_in_a_home_despite_its_users_traps(cluster: ClusterUnderTest, trap: str) -> None:
    before = shadow(cluster)
    cluster.run_as("ada", "head", "cp -a .ssh kept")
    for path in FILES:
        cluster.run_as("ada", "head", f"rm -rf {path}; {TRAPS[trap].format(path=path)}")
    again(cluster)
    assert shadow(cluster) == before
    assert cluster.attempt("head", "test -e /etc/made-by-root").returncode == 1
    assert cluster.run("head", "find /export/shared/home/ada -not -user ada") == ""
    cluster.run_as("ada", "head", "rm -rf .ssh && mv kept .ssh")


# Of a plain user on the head node: lock all that can be opened, stop each program of the same uid that comes, note what
# it has open, take it and write a step's answer into it, and keep it.
ATTACK = """
import contextlib, ctypes, fcntl, os, pathlib, signal
system = ctypes.CDLL(None).syscall
kept, seen, mine = [], set(), os.getpid()
for place in ("/run/lock", "/run/tailrack-private", "/usr/local/sbin", "/var/lib/tailrack", "/var/log/tailrack"):
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                kept.append(open(os.path.join(folder, name)))
                fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pass
forged = b'{"authority":"x","leave_key":"ssh-ed25519 AAAA x\\\\nssh-ed25519 EVIL","own_file_system":true}\\n'
print("ready", flush=True)
while True:
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        process = int(path.name)
        try:
            if process in seen or process == mine or path.stat().st_uid != os.getuid():
                continue
            names = sorted(os.listdir(path / "fd"), key=int)  # not of one that is about to become the user's program
            os.kill(process, signal.SIGSTOP)
            seen.add(process)
            print(*(name + ":" + os.readlink(path / "fd" / name) for name in names), flush=True)
            kept += [system(438, os.pidfd_open(process), int(name), 0) for name in names]
            for taken in kept[-len(names):]:
                with contextlib.suppress(OSError):
                    os.write(taken, forged)
        except OSError:
            pass
"""


@pytest.mark.proof
def test_users_cannot_answer_or_delay_a_step_through_its_open_files(cluster: ClusterUnderTest) -> None:
    cluster.run("head", f"cat >/tmp/attack.py <<'END'\n{ATTACK}\nEND")
    # What the step runs in the home waits at it for long enough to be met.
    cluster.run_as("ada", "head", "rm -f .ssh/id_ed25519.pub; mkdir -p .ssh; mkfifo .ssh/id_ed25519.pub")
    key = cluster.run("a1", "cat /etc/ssh/tailrack_leave_key")
    cluster.run("head", "cd / && setsid runuser -u ada -- python3 /tmp/attack.py </dev/null >/tmp/seen 2>&1 &")
    eventually(lambda: cluster.run("head", "grep -c ready /tmp/seen || :").strip() == "1", 60, "somebody attacks")
    begun = time.monotonic()
    try:
        again(cluster)
    finally:
        cluster.run("head", "pkill -KILL -f -u ada /tmp/attack.py")
        cluster.run_as("ada", "head", "rm -f .ssh/id_ed25519.pub")
    # The limit of a home, and an ordinary up of the head node's steps.
    assert time.monotonic() - begun < 240
    seen = [word.split(":")[:2] for word in cluster.run("head", "grep ^0: /tmp/seen").split()]
    # Beyond its three streams it may have opened something itself.
    assert {what for name, what in seen if name in {"0", "1", "2"}} <= {"/dev/null", "pipe"}
    assert [what for _, what in seen if what.startswith(("/var/l", "/run"))] == []
    assert cluster.run("a1", "cat /etc/ssh/tailrack_leave_key") == key
    assert cluster.attempt("a1", "grep -r EVIL /etc/ssh /root/.ssh").returncode == 1
    # The user's keys, in whose places traps were, as they were.
    again(cluster)


def test_slurmctld_starts_no_job_of_root(cluster: ClusterUnderTest) -> None:
    tried = cluster.attempt("a1", "srun -w head cat /var/lib/tailrack/ssh_authority")
    assert tried.returncode != 0
    assert "PRIVATE KEY" not in tried.stdout


def test_root_of_a_node_has_slurmctld_run_no_program_either(cluster: ClusterUnderTest) -> None:
    # Whoever has the key calls himself slurmctld's own account, whose triggers slurmctld runs on the head node.
    cluster.run_as("ada", "head", "printf '#!/bin/sh\nid -un >/tmp/triggered\n' >trigger && chmod 755 . trigger")
    slurm = cluster.run("head", "id -u slurm").strip()
    program = "strigger --set --reconfig --program=/shared/home/ada/trigger"
    asked = cluster.attempt("a1", f"setpriv --reuid {slurm} --clear-groups {program}")
    assert asked.returncode != 0, "the program would run on the head node"
    assert cluster.run("head", "strigger --get -h").split() == []


# Of the test's own, where slurmdbd may see it: what a request for an archive names to be run.
ARCHIVER = "#!/bin/sh\nid -un >/var/lib/slurm/archived\nexec sleep 60\n"
PURGES = " ".join(f"Purge{what}After=1hours" for what in ("Event", "Job", "Resv", "Step", "Suspend", "TXN", "Usage"))


def slurmdbd(cluster: ClusterUnderTest) -> list[str]:
    """Return the number of slurmdbd's process and the program that it is."""
    asked = "pid=$(systemctl show -P MainPID slurmdbd); echo $pid $(readlink /proc/$pid/exe)"
    return cluster.run("head", asked).split()


def test_root_of_a_node_has_slurmdbd_run_no_program(cluster: ClusterUnderTest) -> None:
    before = slurmdbd(cluster)
    assert before[1] == "/usr/sbin/slurmdbd"
    # sacctmgr looks for it where it is called.
    for node in ("head", "a1"):
        cluster.run(node, f"printf %s {shlex.quote(ARCHIVER)} >/srv/archiver; chmod 755 /srv/archiver")
    for path in ("/srv/archiver", "/usr/bin/yes"):
        cluster.attempt("a1", f"timeout 20 sacctmgr -i archive dump Script={path}", limit=30)
        assert slurmdbd(cluster) == before, path
    assert cluster.attempt("head", "ls /var/lib/slurm/archived").returncode == 2
    # It saw both, and would have run them.
    assert "archive_run_script" not in cluster.run("head", "journalctl -u slurmdbd -o cat --no-pager")


def test_root_of_a_node_has_slurmdbd_write_nowhere(cluster: ClusterUnderTest) -> None:
    # Nothing is put into an archive that is not old.
    old = "update txn_table set timestamp = timestamp - 864000"
    cluster.run("head", f"mariadb --no-defaults -S /run/tailrack-database/socket slurm_acct_db -e '{old}'")
    for folder in ("/var/lib/slurm", "/var/lib/slurm/slurmctld", "/var/log/slurm", "/run/lock", "/dev/shm"):  # noqa: S108
        asked = f"sacctmgr -i archive dump Directory={folder} Events Jobs Steps Suspend TXN Usage {PURGES}"
        cluster.attempt("a1", f"timeout 20 {asked}", limit=30)
        said = cluster.run("head", "journalctl -u slurmdbd -o cat --no-pager")
        assert re.search(f"Can't save archive, create file {folder}/[^/]* error", said), folder
    made = "find /var/lib/slurm /var/log /run /dev/shm -name '*_archive_*'"
    assert cluster.run("head", made).split() == []
    # It works as ever.
    assert cluster.run("a1", "sacctmgr -nP show cluster format=Cluster").split() == ["lab"]


def test_text_that_is_no_mail_address_reaches_no_mail_program(cluster: ClusterUnderTest) -> None:
    fake = "#!/bin/sh\nprintf '%s|' \"$@\" | paste >>/tmp/mailed\n"
    cluster.run("head", f"printf %s {shlex.quote(fake)} >/usr/local/bin/mail; chmod 755 /usr/local/bin/mail")
    submit = "sbatch --parsable -n1 --output=/dev/null --mail-type=END --wrap true"
    try:
        for text in ("--exec=touch /tmp/owned", "-f", "|id", "/etc/x", "+x", "ada@example.org,-x", "ada@-x", "a,,b"):
            refused = cluster.attempt("head", f"su - ada -c {shlex.quote(f'{submit} --mail-user={shlex.quote(text)}')}")
            assert refused.returncode != 0, text
            assert "takes mail addresses such as" in refused.stderr, text
        held = cluster.run_as("ada", "head", f"{submit} --hold").strip()
        for who in ("ada", "root"):
            changed = cluster.attempt("head", f"su {who} -c 'scontrol update jobid={held} MailUser=--exec=id'")
            assert "takes mail addresses such as" in changed.stderr, who
        assert "MailUser=ada " in cluster.run("head", f"scontrol show job {held}")
        cluster.run("head", f"scancel {held}")
        cluster.run_as("ada", "head", f"{submit} --mail-user=ada@example.org,bob --job-name=--exec=id")
        eventually(lambda: "bob" in cluster.attempt("head", "cat /tmp/mailed").stdout, 60, "a mail is sent")
        mails = cluster.run("head", "cat /tmp/mailed")
        assert re.search(
            r"^-s\|Slurm [^|]* Name=--exec=id Ended[^|]*\|--\|ada@example.org\|bob\|$", mails, re.MULTILINE
        )
        # The job that was cancelled may have had its mail too, to the address that it kept.
        assert "|--exec" not in mails
    finally:
        cluster.run("head", "rm -f /usr/local/bin/mail /tmp/mailed")


def test_a_login_that_is_no_user_of_the_cluster_gets_no_job_there_or_by_a_forged_uid(cluster: ClusterUnderTest) -> None:
    cluster.run("a1", "id -u ops >/dev/null 2>&1 || useradd -u 1234 ops")
    cluster.run("head", "id -u ops >/dev/null 2>&1 || useradd -u 1234 ops")
    for node in ("a1", "head"):
        tried = cluster.attempt(node, "runuser -u ops -- srun -w head id", limit=20)
        assert tried.returncode != 0
        assert "is not a user of this cluster" in tried.stderr, tried.stderr


# Somebody's daemon: on ports that the cluster uses, and on one that it does not, on all interfaces but where slurmdbd
# has the port on the tailnet. The last one that it opens is that one, so where it answers the others are there too.
LISTENER = """
from socket import *
import sys, threading
tcp = [create_server(("", 60500)), create_server((sys.argv[1], 6819))]
udp = [socket(AF_INET, SOCK_DGRAM) for port in (20048, 60500, 9999)]
for one, port in zip(udp, (20048, 60500, 9999)):
    one.bind(("", port))
def echo(one):
    while True:
        data, sender = one.recvfrom(100)
        one.sendto(data, sender)
for one in udp:
    threading.Thread(target=echo, args=[one]).start()
tcp.append(create_server(("", 9999)))
"""
CLUSTERS_PORTS = (111, 2049, 6817, 6818, 6819, 20048, 60001, 60500, 60999)
# Slurm takes no datagrams: at ports of its range they are somebody's, such as mosh's.
SOMEBODYS_UDP = {60500, 9999}


@pytest.fixture
def listener(cluster: ClusterUnderTest) -> Iterator[None]:
    # Begun again while one of its ports is taken: srun and clients are given some of the same range.
    unit = "systemd-run -q --collect --unit=listener -p Restart=on-failure -p RestartSec=3"
    cluster.run("head", f"{unit} python3 -c {shlex.quote(LISTENER)} {site_address(cluster, 'head')}")
    eventually(lambda: ":9999 " in cluster.run("head", "ss -Hltn"), 90, "somebody's daemon listens")
    yield
    cluster.run("head", "systemctl stop listener")


def site_address(cluster: ClusterUnderTest, node: str) -> str:
    return cluster.run(node, "ip -4 -o address show dev eth0").split()[3].partition("/")[0]


@pytest.mark.usefixtures("listener")
def test_the_ports_of_slurm_and_nfs_are_closed_on_a_sites_own_network(cluster: ClusterUnderTest) -> None:
    address = site_address(cluster, "head")
    assert open_tcp_ports(cluster, "a1", address, (22, *CLUSTERS_PORTS, 9999), expected=(22, 9999)) == {22, 9999}
    udp = udp_ports(cluster, "a1", address, (*CLUSTERS_PORTS, 9999), expected=SOMEBODYS_UDP)
    assert {port for port, does in udp.items() if does == "answers"} == SOMEBODYS_UDP


@pytest.fixture(scope="module")
def outside(cluster: ClusterUnderTest) -> str:
    """A machine of another site, in nobody's cluster, and a router between it and the cluster's site: to each other
    Docker's networks are closed."""
    own_machine(cluster.lab, "outside", bare=True, site="elsewhere")
    router = own_machine(cluster.lab, "router", bare=True, site="elsewhere")["address"]
    words = ["docker", "network", "connect", network_name(cluster.lab, "cloud-a"), cluster.container("router")]
    subprocess.run(words, check=True, capture_output=True)
    assert cluster.run("router", "cat /proc/sys/net/ipv4/ip_forward") == "1\n"
    cluster.run("router", "iptables -t nat -A POSTROUTING -j MASQUERADE")
    site = cluster.run("head", "ip -4 route show dev eth0 scope link").split()[0]
    cluster.run("outside", f"ip route add {site} via {router}")
    return "outside"


@pytest.mark.usefixtures("listener")
@pytest.mark.parametrize("node", ["head", "a1"])
def test_other_networks_reach_only_ssh_and_wireguard(cluster: ClusterUnderTest, outside: str, node: str) -> None:
    # What somebody else's daemon listens on is not ours to close; it shows that the scan sees what is open.
    somebodys = {9999} if node == "head" else set()
    listening = {int(port) for port in re.findall(r":(\d+)\s", cluster.run(node, "ss -Hltnu | awk '{print $5, $1}'"))}
    asked = {*range(1, 1025), *CLUSTERS_PORTS, *listening}
    address = site_address(cluster, node)
    assert open_tcp_ports(cluster, outside, address, asked, expected={22, *somebodys}) == {22, *somebodys}
    udp_there = SOMEBODYS_UDP if node == "head" else set()
    udp = udp_ports(cluster, outside, address, {*CLUSTERS_PORTS, *listening, *udp_there, 9998}, expected=udp_there)
    assert {port for port, does in udp.items() if does == "answers"} == udp_there
    # Nobody is at 9998, and the machine says so; at WireGuard's port somebody is, who says nothing to strangers.
    assert (udp[9998], udp[41641]) == ("refuses", "is silent")
    if node == "a1":
        nodes = {found["name"]: found for found in cluster.deployment().outputs()["cluster"]["nodes"]}
        assert nodes["a1"]["path"] == "direct"


def test_nothing_but_ssh_and_the_tailnet_listens_on_all_interfaces_of_a_node(cluster: ClusterUnderTest) -> None:
    for node in ("head", "a1"):
        listening = cluster.run(node, "ss -Hltnp")
        found = set(re.findall(r"(?:0\.0\.0\.0|\*|\[::\]):(\d+)\s+\S+\s+users:\(\(\"([^\"]+)\"", listening))
        assert {name for port, name in found if port != "2049"} <= {"sshd", "tailscaled", "systemd-resolve"}, listening


def test_the_share_rejects_direct_nfs_requests_of_a_user(cluster: ClusterUnderTest) -> None:
    """From a port that anybody may have, with another's uid; the mount itself comes from a privileged one."""
    cluster.run_as("ada", "head", "echo hers >~/hers && chmod 0600 ~/hers")
    address = cluster.run("head", "tailscale ip -4").strip()
    speak = (
        "import ctypes, glob; n = ctypes.CDLL(*glob.glob('/usr/lib/lab-mount/usr/lib/*/libnfs.so.14')); "
        "n.nfs_init_context.restype = ctypes.c_void_p; "
        "n.nfs_get_error.restype = ctypes.c_char_p; c = ctypes.c_void_p(n.nfs_init_context()); "
        "n.nfs_set_version(c, 4); "
        "n.nfs_set_uid(c, 6001); n.nfs_set_gid(c, 6001); "
        f"r = n.nfs_mount(c, b'{address}', b'/export/shared/home/ada'); print(r, n.nfs_get_error(c))"
    )
    tried = cluster.attempt("a1", f'runuser -u nobody -- python3 -c "{speak}"', limit=30)
    assert not tried.stdout.startswith("0 "), tried.stdout
    assert cluster.run("a1", as_user("ada", "cat ~/hers")) == "hers\n"


def test_ssh_asks_the_authority_for_no_host_beyond_the_tailnet(cluster: ClusterUnderTest) -> None:
    assert cluster.run("a1", "tailrack-known-hosts head").startswith("@cert-authority head ssh-ed25519 ")
    assert cluster.run("a1", "tailrack-known-hosts github.com") == ""


def ask_for_jobs(cluster: ClusterUnderTest) -> subprocess.CompletedProcess[str]:
    """Run on a1 what a node's step does where jobs are confined by cgroups; `up` does it only there."""
    values: dict[str, Value] = {
        "pam_slurm_adopt_wanted": True, "node_confined": True, "node_login": "", "slurm_release": "",
        "users_lines": ["ada 6001 6001"],
    }  # fmt: skip
    return run_step(cluster, "a1", script_of("pam_slurm_adopt", "node"), values, sudo_user="admin")


def login(cluster: ClusterUnderTest, start: str, end: str) -> subprocess.CompletedProcess[str]:
    return cluster.attempt(start, as_user("ada", f"ssh -o BatchMode=yes {end} 'hostname; cat /proc/self/cgroup'"))


def test_a_login_to_a_node_needs_a_job_there_and_ends_up_in_it(cluster: ClusterUnderTest) -> None:
    asked = ask_for_jobs(cluster)
    assert asked.returncode == 0, asked.stderr
    refused = login(cluster, "head", "a1")
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Access denied by pam_slurm_adopt: you have no active jobs on this node" in refused.stderr
    assert login(cluster, "a1", "head").stdout.startswith("head\n")
    job = cluster.run_as("ada", "head", "sbatch --parsable -w a1 --wrap 'echo up; exec sleep 300'").strip()
    eventually(lambda: "up" in cluster.attempt("head", as_user("ada", f"cat slurm-{job}.out")).stdout, 60, "it runs")
    assert login(cluster, "head", "a1").stdout.startswith("a1\n")
    journal = "journalctl -o cat --since -5min"
    eventually(lambda: f"adopted into job {job}" in cluster.run("a1", journal), 60, "the journal names the job")
    cluster.run("head", f"scancel {job}")
    eventually(lambda: login(cluster, "head", "a1").returncode == 255, 60, "no login after the job")


def test_an_administrator_logs_in_without_a_job_and_one_key_disables_the_rule(cluster: ClusterUnderTest) -> None:
    """By SSH, as `up` does; what it finds on is then turned off, and the stack of logins is as it was."""
    assert "pam_slurm_adopt" in cluster.run("a1", "cat /etc/pam.d/sshd")
    cluster.config["tailrack:slurm"]["ssh_needs_job"] = False
    cluster.config["tailrack:cluster"].setdefault("repair", {})["a1"] = "log in"
    cluster.up_ok()
    assert "a1-node" in cluster.touched()
    assert login(cluster, "head", "a1").stdout.startswith("a1\n")
    assert cluster.run("a1", "dpkg --verify libpam-modules openssh-server") == ""
    there = cluster.run("a1", "ls /etc/pam.d").split()
    assert "sshd" in there
    assert [name for name in there if "tailrack" in name] == []


@pytest.mark.proof
def test_a_stack_that_would_lock_the_manager_out_is_tried_and_not_taken(cluster: ClusterUnderTest) -> None:
    # It leads out of common-session where that is included, and nowhere where it is a stack of its own.
    cluster.run(
        "a1",
        "cp /etc/pam.d/common-session /root/kept; echo 'session [default=1] pam_permit.so' >>/etc/pam.d/common-session",
    )
    asked = ask_for_jobs(cluster)
    cluster.run("a1", "cp /root/kept /etc/pam.d/common-session")
    assert asked.returncode == 1
    assert "admin could not log in with the new PAM stack; nothing was changed" in asked.stderr
    assert "pam_slurm_adopt" not in cluster.run("a1", "cat /etc/pam.d/sshd")
    assert login(cluster, "head", "a1").stdout.startswith("a1\n")


def certificate(cluster: ClusterUnderTest, node: str) -> str:
    return cluster.run(node, "ssh-keygen -L -f /etc/ssh/ssh_host_ed25519_key-cert.pub")


def test_a_certificate_that_is_about_to_end_is_renewed_without_anybody(cluster: ClusterUnderTest) -> None:
    """Its end is moved to yesterday, and its age to that of one that is due; the timers' own units then run."""
    for node in ("head", "a1"):
        begin, end = re.findall(r"Valid: from (\S+) to (\S+)", certificate(cluster, node))[0]
        assert (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).days == 91
    cluster.run(
        "head",
        "cd /var/lib/tailrack/members/a1 && cp key.pub /tmp/old.pub && touch -d '-40 days' signed && "
        "ssh-keygen -q -s ../../ssh_authority -h -I a1 -n \"$(cut -d' ' -f1 signed)\" -z 1 -V -2d:-1d /tmp/old.pub",
    )
    ended = cluster.run("head", "cat /tmp/old-cert.pub").strip()
    cluster.run("a1", f"echo '{ended}' >/etc/ssh/ssh_host_ed25519_key-cert.pub && systemctl reload ssh")
    # While sshd reads its configuration again, nobody listens for a moment.
    no_more = "Host key verification failed"
    eventually(lambda: no_more in login(cluster, "head", "a1").stderr, 60, "the old certificate is refused")
    cluster.run("head", "systemctl start tailrack-sign.service")
    cluster.run("a1", "systemctl start tailrack-certificate.service")
    eventually(lambda: login(cluster, "head", "a1").stdout.startswith("a1\n"), 60, "a1 has a new certificate")
    waiting = {node: cluster.run(node, "systemctl list-timers --no-legend 'tailrack-*'") for node in ("head", "a1")}
    assert "tailrack-sign.service" in waiting["head"]
    assert "tailrack-certificate.service" in waiting["a1"]


@pytest.mark.proof
def test_a_step_that_brings_an_old_certificate_leaves_the_newer_one(cluster: ClusterUnderTest) -> None:
    before = certificate(cluster, "a1")
    cluster.config["tailrack:cluster"].setdefault("repair", {})["a1"] = "bring it again"
    cluster.up_ok()
    assert "a1-node" in cluster.touched()
    assert certificate(cluster, "a1") == before


def test_only_a_share_on_the_root_file_system_gets_a_note(cluster: ClusterUnderTest) -> None:
    assert [note for note in cluster.deployment().outputs()["cluster"]["notes"] if "file system" in note] == []
    for folder, status in (("/export/shared", 0), ("/export", 1), ("/root", 1), ("/export/shared/home", 1)):
        ask = "from components.roles.storage.share.host import share_is_a_file_system as asked"
        asked = run_python(cluster, "head", f"{ask}; sys.exit(not asked('{folder}'))")
        assert (asked.returncode, asked.stderr) == (status, ""), folder


@pytest.mark.proof
def test_root_of_a_node_is_root_of_a_head_node_that_computes_and_of_no_other(cluster: ClusterUnderTest) -> None:
    # Without an allocation slurmctld is asked nothing. Whoever has the key may call himself root or slurmctld.
    forged = "timeout 20 srun --no-allocate --nodelist=head --nodes=1 id -u"
    assert cluster.run("a1", forged).split() == ["0"], "what the words of the config say"
    cluster.config["tailrack:head"]["compute"] = False
    try:
        cluster.up_ok()
        assert cluster.attempt("a1", forged).returncode != 0
        assert cluster.attempt("head", "pgrep -x slurmd").returncode == 1
        assert cluster.attempt("head", "systemctl is-enabled slurmd").returncode != 0
        assert not re.search(r":6818\b", cluster.run("head", "ss -Hltn"))
        assert cluster.run("head", "sinfo -h -N -p all -o %N").split() == ["a1"]
        assert cluster.run_as("ada", "head", "srun hostname").split() == ["a1"]
    finally:
        cluster.config["tailrack:head"] |= {"compute": True, "accept_root_risk": True}
    cluster.up_ok()
    assert sorted(cluster.run_as("ada", "head", "srun -N2 hostname").split()) == ["a1", "head"]
