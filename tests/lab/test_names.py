"""Names on machines as they are rented or stand about: other host names, cloud-init, with and without resolved.

The tests share three machines and run in the order of this file: two in the cluster, a third joins, restarts, leaves.
"""

import shlex
import subprocess

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine

NODES = ("head", "s1", "late")


@pytest.fixture(scope="module")
def machines(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A stack of a cloud machine and a server, nothing set up yet; the cloud machine `late` is there, and not in it."""
    made = make_cluster("n1")
    head = own_machine(made.lab, "head", like="cloud")
    server = own_machine(made.lab, "s1", like="server")
    own_machine(made.lab, "late", like="cloud")
    # The cloud machines of the rack have a second network, which the server has not.
    made.use_machines({"name": "rack", "hosts": [head]}, {"name": "office", "hosts": [server]}, computes=True)
    # The server's carol has the uid that the dev stack gives to ada.
    for user in made.config["tailrack:users"]:
        user["uid"] += 100
    # As on a machine; Docker keeps all of /proc/sys from changes.
    for node in NODES:
        made.run(node, "mount --bind /proc/sys/net /proc/sys/net && mount -o remount,bind,rw /proc/sys/net")
    # What the server does for another cluster is not what is tried here.
    made.run("s1", "systemctl disable --now munge; rm -rf /etc/munge/munge.key /etc/slurm/slurm.conf /etc/exports")
    for node in ("head", "late"):
        eventually(lambda: rested(made, node), 90, f"{node}'s first start is over, and apt is free")  # noqa: B023
    return made


@pytest.fixture(scope="module")
def cluster(machines: ClusterUnderTest) -> ClusterUnderTest:
    """The head node and the server as a cluster."""
    machines.up_ok()
    return machines


@pytest.fixture(scope="module")
def three(cluster: ClusterUnderTest) -> ClusterUnderTest:
    """The cluster with the third machine in it, which nobody expected when the others joined."""
    cluster.config["tailrack:sites"][0]["hosts"].append(own_machine(cluster.lab, "late", like="cloud"))
    cluster.up_ok()
    return cluster


def rested(cluster: ClusterUnderTest, node: str) -> bool:
    """Whether cloud-init and the day's first `apt-get update` of a machine are done."""
    cloud = cluster.attempt(node, "cloud-init status").stdout.strip() == "status: done"
    return cloud and cluster.attempt(node, "systemctl is-active apt-daily.timer apt-daily.service").stdout.split() == [
        "active",
        "inactive",
    ]


def addresses(cluster: ClusterUnderTest) -> dict[str, str]:
    """Return the tailnet address of each node of the cluster by its name."""
    return {node["name"]: node["tailnet_ip"] for node in cluster.deployment().outputs()["cluster"]["nodes"]}


def known_names(cluster: ClusterUnderTest, node: str) -> dict[str, list[str]]:
    """Return all addresses that a node finds for each name of the cluster, in the order in which they are tried."""
    found = {}
    for name in NODES:
        lines = cluster.attempt(node, f"getent ahostsv4 {name}").stdout.splitlines()
        found[name] = list(dict.fromkeys(line.split()[0] for line in lines))
    return found


def knows_all(cluster: ClusterUnderTest, node: str) -> bool:
    """Whether every name of the cluster means its tailnet address on a node, and nothing else."""
    return known_names(cluster, node) == {name: [address] for name, address in addresses(cluster).items()}


def restart(cluster: ClusterUnderTest, node: str) -> None:
    """Restart a machine and wait until cloud-init has written its /etc/hosts anew."""
    cluster.run(node, "echo 192.0.2.1 written-by-hand >>/etc/hosts")
    subprocess.run(["docker", "restart", cluster.container(node)], check=True, capture_output=True)
    eventually(lambda: cluster.attempt(node, "grep written-by-hand /etc/hosts").returncode == 1, 60, "a new /etc/hosts")


def old_name(cluster: ClusterUnderTest, node: str) -> str:
    """Return what a cloud machine was called when it was handed over."""
    return cluster.run(node, "cloud-init query local_hostname").strip()


@pytest.mark.proof
def test_slurm_works_on_machines_that_were_called_otherwise(cluster: ClusterUnderTest) -> None:
    assert old_name(cluster, "head").startswith("ip-")
    assert [cluster.run(node, "hostname; cat /etc/hostname").split() for node in ("head", "s1")] == [
        ["head", "head"],
        ["s1", "s1"],
    ]
    assert sorted(cluster.run_as("ada", "head", "srun -N2 --switches=2 hostname").split()) == ["head", "s1"]


def test_every_machine_knows_all_names_when_another_has_joined(three: ClusterUnderTest) -> None:
    assert set(addresses(three)) == set(NODES)
    for node in NODES:
        eventually(lambda: knows_all(three, node), 60, f"all names on {node}")  # noqa: B023
    assert sorted(three.run_as("ada", "head", "srun -N3 --switches=2 hostname").split()) == sorted(NODES)


def test_a_machine_without_resolved_keeps_its_resolver_and_its_answers(three: ClusterUnderTest) -> None:
    assert three.run("s1", "readlink -f /etc/resolv.conf").strip() == "/etc/resolv.conf"
    assert "nameserver 127.0.0.11" in three.run("s1", "cat /etc/resolv.conf").splitlines()
    assert three.attempt("s1", "dpkg-query -W systemd-resolved libnss-resolve").returncode == 1
    three.run("s1", "getent hosts control.lab")


def test_a_machine_with_resolved_keeps_its_resolver_and_its_answers(three: ClusterUnderTest) -> None:
    for node in ("head", "late"):
        stub = "/run/systemd/resolve/stub-resolv.conf"
        assert three.run(node, "readlink -f /etc/resolv.conf").strip() == stub
        three.run(node, "getent hosts control.lab && resolvectl query control.lab")
        # Nobody around is asked, nor answered.
        assert three.run(node, "resolvectl llmnr").splitlines()[0] == "Global: no"
        assert three.run(node, "ss -Hlun 'sport = :5355'") == ""
        # Whom it asked for names from elsewhere it asks still.
        three.run(node, "getent hosts $(awk -F/ '/^deb/ { print $3; exit }' /etc/apt/sources.list)")


def settings(cluster: ClusterUnderTest, words: str) -> dict[str, dict[str, str]]:
    """What each node of a job is told of the network, by node."""
    show = "for name in $(compgen -v); do echo $SLURMD_NODENAME $name ${!name}; done"
    said = cluster.run_as("ada", "head", f"srun {words} /bin/bash -c '{show}'").splitlines()
    found: dict[str, dict[str, str]] = {}
    for node, name, value in (line.split(" ", 2) for line in said if line.count(" ") >= 2):
        found.setdefault(node, {})[name] = value
    return found


def sent(cluster: ClusterUnderTest, node: str, interface: str) -> int:
    """Bytes that an interface of a node has sent."""
    return int(cluster.run(node, f"cat /sys/class/net/{interface}/statistics/tx_bytes"))


def test_the_second_network_of_a_site_is_its_fabric_and_carries_the_measurement(three: ClusterUnderTest) -> None:
    found = three.deployment().outputs()["validation"]
    assert {scope: result["interface"] for scope, result in found.items()} == {
        "rack": "eth1",
        "cross-site": "tailscale0",
    }
    assert three.deployment().outputs()["cluster"]["fabric"] == {
        "rack": {"interfaces": {"head": ["eth1", "eth0"], "late": ["eth1", "eth0"]}, "notes": []},
        "office": {"interfaces": {}, "notes": []},
    }


def test_a_site_job_uses_its_fabric_and_a_cross_site_job_uses_the_tailnet(three: ClusterUnderTest) -> None:
    network = three.run("late", "ip -json route show dev eth1 | jq -r .[0].dst").strip()
    inside = settings(three, "-w head,late -N2")
    assert inside.keys() == {"head", "late"}
    for told in inside.values():
        assert told["NCCL_SOCKET_IFNAME"] == "=eth1"
        assert told["GLOO_SOCKET_IFNAME"] == told["UCX_NET_DEVICES"] == told["TAILRACK_INTERFACE"] == "eth1"
        assert told["PRTE_MCA_prte_if_include"] == "eth1"
        assert told["OMPI_MCA_btl_tcp_if_include"] == network
        assert "NCCL_NET" not in told
    across = settings(three, "-N3 --switches=2")
    assert across.keys() == set(NODES)
    for told in across.values():
        assert told["NCCL_SOCKET_IFNAME"] == "=tailscale0"
        assert told["OMPI_MCA_btl_tcp_if_include"] == told["UCX_NET_DEVICES"] == "tailscale0"
        assert told["NCCL_NET"] == "Socket"


def test_a_users_own_settings_stay_in_all_steps_of_a_job(three: ClusterUnderTest) -> None:
    told = settings(three, "-w head,late -N2 --export=ALL,NCCL_SOCKET_IFNAME=eth0")
    assert {each["NCCL_SOCKET_IFNAME"] for each in told.values()} == {"eth0"}
    told = settings(three, "-w head,late -N2 --export=NONE")
    assert {each["NCCL_SOCKET_IFNAME"] for each in told.values()} == {"=eth1"}
    show = "srun bash -c 'echo $UCX_NET_DEVICES,$GLOO_SOCKET_IFNAME,$NCCL_SOCKET_IFNAME'"
    script = f"unset UCX_NET_DEVICES; export GLOO_SOCKET_IFNAME=eth0; {show}"
    three.run_as("ada", "head", f"sbatch -W -w head,late -N2 -o told --wrap {shlex.quote(script)}")
    assert sorted(three.run_as("ada", "head", "cat told").split()) == [",eth0,=eth1"] * 2


def test_mpirun_in_a_batch_job_sends_its_data_over_the_fabric(three: ClusterUnderTest) -> None:
    sums = "MPI.COMM_WORLD.Allreduce(array, np.empty_like(array))"
    program = (
        f"from mpi4py import MPI; import numpy as np, time; time.sleep(1); array = np.ones(2**22); {sums}; print(1)"
    )
    three.run_as("ada", "head", f"echo {shlex.quote(program)} >sum.py")
    script = "mpirun --mca pml ob1 --mca btl tcp,self -n 2 --map-by ppr:1:node python3 sum.py"
    before = {card: sent(three, "late", card) for card in ("eth0", "eth1", "tailscale0")}
    three.run_as("ada", "head", f"sbatch -W -w head,late -N2 --ntasks-per-node=1 -o sums --wrap {shlex.quote(script)}")
    assert three.run_as("ada", "head", "cat sums").split() == ["1", "1"]
    carried = {card: sent(three, "late", card) - count for card, count in before.items()}
    assert carried["eth1"] > 2**25
    assert carried["eth0"] + carried["tailscale0"] < 2**23


def test_ports_that_the_kernel_gives_to_jobs_are_none_that_are_closed(three: ClusterUnderTest) -> None:
    choose = "/proc/sys/net/ipv4/ip_local_port_range"
    show = "python3 -c 'import socket; door = socket.socket(); door.bind((str(), 0)); print(door.getsockname()[1])'"
    # Of srun's ports and one on each side of them only the latter two are left.
    ask = f"cp {choose} /tmp/range; echo 60000 61000 >{choose}; {show}; cat /tmp/range >{choose}"
    given: list[str] = []

    def one_is_given() -> bool:
        """Not so while other programs have both of them."""
        given.extend(three.run("late", ask).split())
        return bool(given)

    eventually(one_is_given, 60, "the kernel gives a port")
    assert given[0] in ("60000", "61000")


def calls_itself(cluster: ClusterUnderTest, node: str, name: str) -> None:
    """Have a node's root call it something else in the tailnet, and wait until the head node's tailscaled tells so."""
    cluster.run(node, f"tailscale set --hostname={name}")
    address = cluster.run(node, "tailscale ip -4").strip()
    told = f'.Peer[] | select(.TailscaleIPs[] == "{address}") | .DNSName'
    look = f"tailscale status --json | jq -r {shlex.quote(told)}"
    eventually(lambda: cluster.run("head", look).startswith(f"{name}."), 60, f"the tailnet calls {node} {name}")


@pytest.mark.parametrize("name", ["localhost", "control", "head"])
def test_a_tailnet_name_set_by_a_nodes_root_changes_no_machines_names(three: ClusterUnderTest, name: str) -> None:
    before = {node: three.run(node, "cat /etc/hosts") for node in NODES}
    if name == "head":
        # It is taken, and the machine gets another one for it.
        three.run("late", "tailscale set --hostname=head")
    else:
        calls_itself(three, "late", name)
    try:
        for node in NODES:
            three.run(node, "tailrack-names")
            assert three.run(node, "cat /etc/hosts") == before[node], node
            assert three.run(node, "getent ahostsv4 localhost | head -n 1").split()[0] == "127.0.0.1"
        assert all(knows_all(three, node) for node in NODES)
        assert sorted(three.run_as("ada", "head", "srun -N3 --switches=2 hostname").split()) == sorted(NODES)
    finally:
        calls_itself(three, "late", "late")


def test_only_root_of_the_head_node_writes_the_shared_names(three: ClusterUnderTest) -> None:
    published = three.run("late", "cat /var/lib/tailrack/names-from").strip()
    before = three.run("head", f"cat {published}")
    for change in (f"echo 100.64.0.3 localhost >>{published}", f"mv {published} {published}.old", f"rm -f {published}"):
        assert three.attempt("late", change).returncode != 0
        assert three.attempt("late", f"setpriv --reuid=1 --regid=1 --clear-groups sh -c '{change}'").returncode != 0
    folder = published.rpartition("/.tailrack/")[0]
    assert three.attempt("late", f"mv {folder}/.tailrack {folder}/.before && mkdir {folder}/.tailrack").returncode != 0
    assert three.run("head", f"cat {published}") == before


def test_an_owners_line_for_a_nodes_name_keeps_its_meaning_on_that_machine(three: ClusterUnderTest) -> None:
    three.run(
        "s1", "cp /etc/hosts /tmp/hosts; echo '10.0.0.77  late   # the rack network' >>/etc/hosts; tailrack-names"
    )
    try:
        assert known_names(three, "s1")["late"] == ["10.0.0.77"]
        assert "10.0.0.77  late   # the rack network" in three.run("s1", "cat /etc/hosts").splitlines()
        # Slurm goes by addresses.
        assert sorted(three.run_as("ada", "head", "srun -N3 --switches=2 hostname").split()) == sorted(NODES)
    finally:
        three.run("s1", "cat /tmp/hosts >/etc/hosts; tailrack-names")
    eventually(lambda: knows_all(three, "s1"), 60, "all names on s1")


# What root of a node would have another machine do, in the words of the head node's own requests.
ASK = """
import json, socket, subprocess, sys
request = {"do": "connect", "to": sys.argv[2], "nonce": "1" * 32, "token": "a" * 64, "rdma": [],
           "server": sys.argv[1], "pairs": [["lo", "127.0.0.1", "127.0.0.1", 61000]]}
sealed = subprocess.run(["munge"], input=json.dumps(request), capture_output=True, text=True, check=True).stdout
connections = [socket.create_connection((sys.argv[1], 6816)) for _ in range(int(sys.argv[3]))]
for connection in connections:
    try:
        connection.sendall(sealed.strip().encode() + b"\\n")
        sys.stdout.write(connection.makefile().read())
    except ConnectionError:
        pass
"""


def test_root_of_a_node_has_no_other_machine_connect_and_leaves_no_failed_unit(cluster: ClusterUnderTest) -> None:
    address = cluster.run("head", "tailscale ip -4").strip()
    # More than systemd takes within two seconds by itself; then it closes a socket for good.
    assert cluster.run("s1", f"python3 -c {shlex.quote(ASK)} {address} head 250") == ""
    journal = "journalctl -u 'tailrack-fabric@*' -o cat --no-pager"
    eventually(lambda: "which is not the head node" in cluster.run("head", journal), 60, "the refusal in the journal")
    units = "systemctl list-units --all --no-legend 'tailrack-fabric@*'"
    eventually(lambda: cluster.run("head", units).strip() == "", 60, "no unit is left")
    assert cluster.run("head", "systemctl is-active tailrack-fabric.socket").strip() == "active"
    # The head node itself may ask, and asks for no such thing.
    assert cluster.run("head", f"python3 -c {shlex.quote(ASK)} {address} head 1") == ""
    eventually(lambda: "an address or a port" in cluster.run("head", journal), 60, "the refusal in the journal")


def test_an_unknown_name_fails_fast(three: ClusterUnderTest) -> None:
    for node in NODES:
        assert three.attempt(node, "getent hosts nobody-has-this-name", limit=2).returncode == 2, node


def test_names_come_back_when_cloud_init_writes_its_file_on_a_running_machine(three: ClusterUnderTest) -> None:
    write = "cloud-init single --name update_etc_hosts --frequency always"
    three.run("late", f"echo '192.0.2.9 written-over' >>/etc/hosts; {write}")
    assert three.attempt("late", "grep written-over /etc/hosts").returncode == 1, "nothing was written anew"
    eventually(lambda: knows_all(three, "late"), 75, "all names on late")


@pytest.mark.parametrize("node", ["late", pytest.param("head", marks=pytest.mark.proof)])
def test_names_outlive_a_restart_in_which_cloud_init_writes_its_own(three: ClusterUnderTest, node: str) -> None:
    restart(three, node)
    eventually(lambda: three.attempt(node, "systemctl is-active slurmd").returncode == 0, 60, "slurmd is back")
    assert knows_all(three, node), "slurmd started before the names were there"
    assert three.run(node, "hostname; cat /etc/hostname").split() == [node, node]
    own = addresses(three)[node]
    assert f"{own}:6818" in three.run(node, "ss -Hltn sport = 6818"), "slurmd listens elsewhere"
    eventually(lambda: three.run("head", f"sinfo -h -p rack -n {node} -o %T").strip() == "idle", 60, f"{node} is idle")
    assert three.run_as("ada", "head", f"srun -w {node} hostname").strip() == node


def test_a_removed_machine_regains_its_old_hostname_and_its_name_becomes_free(three: ClusterUnderTest) -> None:
    three.config["tailrack:sites"][0]["hosts"].pop()
    three.up_ok()
    before = old_name(three, "late")
    assert three.run("late", "hostname; cat /etc/hostname").split() == [before, before]
    assert three.attempt("late", "grep tailrack /etc/hosts /etc/cloud/cloud.cfg.d/*").returncode == 1
    three.run("late", f"getent hosts {before} control.lab")
    for node in ("head", "s1"):
        eventually(lambda: known_names(three, node)["late"] == [], 60, f"{node} has forgotten it")  # noqa: B023
