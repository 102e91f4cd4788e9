"""How often slurmctld is told to read its files for nodes that join, and when. All have one simulated slurmctld."""

import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from components.node import waiting
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.role import Value
from components.roles.slurm.slurm import node_state
from components.roles.slurm.slurm.node_state import wait_for_place
from components.roles.slurm.slurm.nodes import forget, release
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of

REGISTER = script_of("slurm", "register")
SLURM = "/var/lib/tailrack/slurm"
FILES = {
    "slurm.conf": "ClusterName=lab\nPartitionName=rack Nodes=site-rack",
    "gres.conf": "Include /etc/tailrack/gres.conf",
    "topology.conf": "# Written by tailrack.",
}
HEAD_ADDRESS = "100.64.0.1"
Place = Callable[[str], float]


class StoppedClock:
    """A clock on which a second passes only when somebody sleeps."""

    def __init__(self) -> None:
        self._now = 0.0

    def sleep(self, seconds: float) -> None:
        self._now += max(seconds, 1)

    def monotonic(self) -> float:
        return self._now


@pytest.fixture(autouse=True)
def slurmctld(shell: Shell) -> None:
    """A cluster without nodes. `scontrol reconfigure` reads topology.conf and places whom it knows by then."""
    for name, text in FILES.items():
        for where in (f"{SLURM}/base", f"{SLURM}/taken", "/etc/slurm"):
            shell.write(f"{where}/{name}", f"{text}\n")
    for name in ("known", "placed"):
        shell.write(name, "")
    shell.stub("sinfo", f'cat "{shell.root}/known"')
    shell.stub("systemctl")
    shell.stub(
        "scontrol",
        f"""root={shell.root}
case "$*" in
ping) echo "Slurmctld(primary) at head is UP" ;;
"show topology")
    [ ! -s "$root/placed" ] || echo "SwitchName=tailnet Level=1 Nodes=$(tr '\\n' , <"$root/placed") Switches=rack" ;;
"show hostnames "*) tr , '\\n' <<<"$3" ;;
"show node "*) grep -qx "$3" "$root/known" && echo '{{"nodes": [{{"name": "x", "state": ["IDLE"]}}]}}' ;;
reconfigure)
    grep -o 'Nodes=.*' "$root/etc/slurm/topology.conf" | cut -d= -f2 | tr , '\\n' >"$root/named"
    grep -xFf "$root/known" "$root/named" >"$root/fresh" || :
    mv "$root/fresh" "$root/placed" ;;
esac""",
    )


@pytest.fixture
def place(shell: Shell) -> Place:
    """Do what a node's step does until it has its place, and return the seconds of that."""

    def run(node: str) -> float:
        with shell.here(), mock.patch.object(waiting, "time", StoppedClock()):
            wait_for_place(node, HEAD_ADDRESS)
            return waiting.now()

    return run


def register_node(shell: Shell, node: str) -> subprocess.CompletedProcess[str]:
    """Run a node's step on the head node."""
    values: Mapping[str, Value] = {
        "node_name": node, "node_site": "rack", "node_memory": "site-rack 1920", "node_gpu_cpus": "",
        "node_slurm_conf": "NodeSet=gpu-h200 Feature=gpu-h200\nPartitionName=h200 Nodes=gpu-h200",
        "node_job_submit_lua": "", "node_profile": "processes", "node_login": "",
        "node_address": "100.64.0.2", "pool_owner": "", "pool_forget_after_minutes": 0, "slurm_job_limit_seconds": 1,
    }  # fmt: skip
    return shell.step(REGISTER, values, name=f"{node}-register", lock="")


def member(shell: Shell, node: str) -> None:
    """Run it, and expect that it ends well."""
    assert_ok(register_node(shell, node))


def registers(shell: Shell, *nodes: str) -> None:
    known = shell.root / "known"
    known.write_text(known.read_text() + "".join(f"{node}\n" for node in nodes))


def came(shell: Shell, *nodes: str, to: str = "var/lib/tailrack/names") -> None:
    """The head node's list of who has come, itself first."""
    lines = [f"{HEAD_ADDRESS} head", *(f"100.64.0.{number} {node}" for number, node in enumerate(nodes, 2))]
    shell.write(to, "".join(f"{line}\n" for line in lines))


def calls(shell: Shell) -> int:
    return shell.calls.count("scontrol reconfigure")


def placed(shell: Shell) -> list[str]:
    return (shell.root / "placed").read_text().split()


@pytest.mark.parametrize("where", ["on the share", "on the head node"])
def test_a_node_does_not_wait_if_slurmctld_knows_all_arrived_nodes(shell: Shell, place: Place, where: str) -> None:
    for node in ("n1", "n2"):
        member(shell, node)
    if where == "on the share":
        shell.write("var/lib/tailrack/names-from", f"{shell.root}/shared/names\n")
        came(shell, "n1", "n2", to="shared/names")
    else:
        came(shell, "n1", "n2")
    registers(shell, "n1", "n2")
    before = calls(shell)
    assert place("n1") == 0
    assert (calls(shell) - before, placed(shell)) == (1, ["n1", "n2"])


@pytest.mark.parametrize("listed", [("n1", "n2"), None], ids=["one is on its way", "the list is not there"])
def test_a_node_waits_for_nodes_that_may_arrive(shell: Shell, place: Place, listed: tuple[str, ...] | None) -> None:
    member(shell, "n1")
    registers(shell, "n1")
    if listed:
        came(shell, *listed)
    assert 2 <= place("n1") < 20


@pytest.mark.parametrize("count", [1, 8, 32])
def test_slurmctld_reads_files_once_per_kind_and_group(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for limit in ("WAIT", "LIMIT"):
        monkeypatch.setattr(node_state, limit, 600)
    nodes = [f"n{number:02}" for number in range(count)]
    for node in nodes:
        member(shell, node)
    # The first one's memory and GPUs are new to the partitions.
    assert calls(shell) == 1
    registers(shell, *nodes)
    with shell.here(), ThreadPoolExecutor(count) as pool:
        assert all(pool.map(lambda node: wait_for_place(node, HEAD_ADDRESS), nodes))
    assert placed(shell) == nodes
    assert calls(shell) == 2


def test_the_33rd_node_has_its_place_as_soon_as_the_third(shell: Shell, place: Place) -> None:
    took = {}
    for number in range(1, 34):
        node = f"n{number:02}"
        if number not in (1, 3, 33):
            shell.write(f"{SLURM}/nodes/{node}/site", "rack\n")
            registers(shell, node)
            continue
        member(shell, node)
        registers(shell, node)
        before = calls(shell)
        # All there were before have their place.
        took[number] = place(node)
        assert (calls(shell), len(placed(shell))) == (before + 1, number)
    assert took[3] == took[33]


def test_one_call_registers_nodes_that_arrive_while_the_first_waits(shell: Shell, place: Place) -> None:
    nodes = [f"n{number}" for number in range(1, 7)]
    for node in nodes:
        member(shell, node)
    registers(shell, "n1")
    # One more each time that somebody looks.
    known = shell.root / "known"
    shell.stub(
        "sinfo", f'next=n$(($(wc -l <"{known}") + 1)); [ "$next" = n7 ] || echo "$next" >>"{known}"; cat "{known}"'
    )
    before = calls(shell)
    place("n1")
    assert placed(shell) == nodes
    assert calls(shell) == before + 1
    for node in nodes:
        place(node)
    assert calls(shell) == before + 1


def test_a_waiting_node_asks_two_questions_a_round_and_a_placed_one_asks_once(shell: Shell, place: Place) -> None:
    member(shell, "n2")
    registers(shell, "n1", "n2")
    begin = len(shell.calls)
    seconds = int(place("n2"))
    asked = shell.calls[begin:]
    assert asked.count("sinfo -h -a -N -o %N") == seconds + 1
    assert asked.count("scontrol show topology") == seconds + 2
    assert len(asked) == 2 * seconds + 4
    assert place("n2") == 0
    assert shell.calls[begin + len(asked) :] == ["scontrol show topology"]


def test_a_node_that_slurmctld_forgot_makes_itself_known_again(shell: Shell, place: Place) -> None:
    member(shell, "n1")
    shell.stub("systemctl", f'[ "$*" != "restart --no-block slurmd" ] || echo n1 >>"{shell.root}/known"')
    place("n1")
    assert shell.calls.count("systemctl restart --no-block slurmd") == 1
    assert placed(shell) == ["n1"]


def test_a_node_that_slurmctld_does_not_place_ends_with_an_error(shell: Shell, place: Place) -> None:
    registers(shell, "n1")
    with pytest.raises(Failure, match="the controller does not place this node in its site's switch"):
        place("n1")
    assert calls(shell) <= 10


def test_one_call_removes_all_nodes_that_leave_together(shell: Shell) -> None:
    nodes = [f"n{number}" for number in range(1, 9)]
    for node in nodes:
        member(shell, node)
    # Jobs are seen off side by side; nodes are asked to leave, and forgotten, one after the other.
    before = calls(shell)
    step = Step("head", "register")
    with shell.here():
        for node in nodes[1:]:
            release(step, node, 1)
        for node in nodes[1:]:
            forget(step, node)
    assert shell.path("/etc/slurm/topology.conf").read_text().splitlines()[1:] == [
        "SwitchName=rack Nodes=n1",
        "SwitchName=tailnet Switches=rack",
    ]
    assert calls(shell) == before + 1


def test_a_rejected_node_leaves_no_trace_and_the_next_node_registers(shell: Shell) -> None:
    member(shell, "n1")
    folders = (f"{SLURM}/nodes", f"{SLURM}/taken", "/etc/slurm")

    def texts() -> dict[str, str]:
        paths = [path for folder in folders for path in shell.path(folder).rglob("*") if path.is_file()]
        return {str(path): path.read_text() for path in paths}

    # A site that is new to slurm.conf.
    before, stub = texts(), (shell.root / "stubs/scontrol").read_text()
    shell.write(f"{SLURM}/taken/slurm.conf", "ClusterName=lab\n")
    before[str(shell.path("/etc/slurm/slurm.conf"))] = before[str(shell.path(f"{SLURM}/taken/slurm.conf"))] = (
        "ClusterName=lab\n"
    )
    shell.stub("scontrol", 'case $1 in ping) echo "Slurmctld(primary) at head is UP" ;; *) exit 1 ;; esac')
    shell.stub("journalctl", "echo 'slurmctld: error: a bad line'")
    assert_fails(
        register_node(shell, "n2"),
        "slurmctld rejects the new configuration and keeps the old one",
        "slurmctld: error: a bad line",
    )
    assert texts() == before
    assert_fails(register_node(shell, "n1"), "slurmctld rejects")
    assert texts() == before, "a node that runs jobs stays"
    (shell.root / "stubs/scontrol").write_text(stub)
    member(shell, "n3")
    assert [path.name for path in sorted(shell.path(f"{SLURM}/nodes").iterdir())] == ["n1", "n3"]
