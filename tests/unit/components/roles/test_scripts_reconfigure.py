"""How often slurmctld is told to read its files for nodes that join, and when. All have one simulated slurmctld."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from components.roles.role import Value
from tests.unit.shell import Shell

SLURM = "/var/lib/tailrack/slurm"
FILES = {
    "slurm.conf": "ClusterName=lab\nPartitionName=rack Nodes=site-rack",
    "gres.conf": "Include /etc/tailrack/gres.conf",
    "topology.conf": "# Written by tailrack.",
}
Result = subprocess.CompletedProcess[str]
Place = Callable[..., Result]

# Without what is special about it, it counts these seconds alone.
HURRY = "sleep() { SECONDS=$((SECONDS + 1)); };"
COMPUTE: Mapping[str, Value] = {
    "NODE_FEATURES": "site-rack", "NODE_GRES": "gpu:h200:8", "NODE_REGISTERED_MB": 64000,
    "NODE_RESERVED_MB": 4096, "HEAD_ADDRESS": "100.64.0.1",
    "SLURM_JOB_LIMIT_SECONDS": 1,
}  # fmt: skip


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
"show node "*) grep -qx "$3" "$root/known" && echo '{{"nodes": [{{"state": ["IDLE"]}}]}}' ;;
reconfigure)
    grep -o 'Nodes=.*' "$root/etc/slurm/topology.conf" | cut -d= -f2 | tr , '\\n' >"$root/named"
    grep -xFf "$root/known" "$root/named" >"$root/fresh" || :
    mv "$root/fresh" "$root/placed" ;;
esac""",
    )


@pytest.fixture
def place(shell: Shell) -> Place:
    """Run what a node's step does until it has its place. A second passes when it sleeps, unless `first` says other."""

    def run(node: str, first: str = f"{HURRY} unset SECONDS; SECONDS=0") -> Result:
        commands = f"{first}\nwait_for_place; echo after $SECONDS"
        return shell.call(commands, {"HOST_NAME": node, **COMPUTE}, "slurm/compute")

    return run


def member(shell: Shell, node: str) -> None:
    """Run what a node's member step does on the head node."""
    values: Mapping[str, Value] = {
        "HOST_NAME": "head", "NODE_NAME": node, "NODE_SITE": "rack", "NODE_MEMORY": "site-rack 1920",
        "NODE_SLURM_CONF": "NodeSet=gpu-h200 Feature=gpu-h200\nPartitionName=h200 Nodes=gpu-h200",
        "NODE_GRES_CONF": f"NodeName={node} Name=gpu Type=h200 File=/dev/nvidia[0-7]", "NODE_JOB_SUBMIT_LUA": "",
        "POOL_OWNER": "", "POOL_FORGET_AFTER_MINUTES": 0, "SLURM_JOB_LIMIT_SECONDS": 1,
    }  # fmt: skip
    done = shell.call("slurm_register", values, "slurm/register")
    assert done.returncode == 0, done.stderr


def registers(shell: Shell, *nodes: str) -> None:
    known = shell.root / "known"
    known.write_text(known.read_text() + "".join(f"{node}\n" for node in nodes))


def came(shell: Shell, *nodes: str, to: str = "var/lib/tailrack/names") -> None:
    """The head node's list of who has come, itself first."""
    lines = [f"{COMPUTE['HEAD_ADDRESS']} head", *(f"100.64.0.{number} {node}" for number, node in enumerate(nodes, 2))]
    shell.write(to, "".join(f"{line}\n" for line in lines))


def calls(shell: Shell) -> int:
    return shell.calls.count("scontrol reconfigure")


def placed(shell: Shell) -> list[str]:
    return (shell.root / "placed").read_text().split()


def test_a_head_node_that_computes_waits_for_nobody_to_come_before_it_has_its_place(shell: Shell, place: Place) -> None:
    member(shell, "head")
    registers(shell, "head")
    assert int(place("head").stdout.split()[-1]) >= 2
    (shell.root / "placed").write_text("")
    came(shell)
    assert place("head").stdout == "after 0\n"


@pytest.mark.parametrize("where", ["on the share", "on the head node"])
def test_nobody_is_waited_for_where_slurmctld_knows_all_who_have_come(shell: Shell, place: Place, where: str) -> None:
    for node in ("n1", "n2"):
        member(shell, node)
    if where == "on the share":
        shell.write("var/lib/tailrack/names-from", f"{shell.root}/shared/names\n")
        came(shell, "n1", "n2", to="shared/names")
    else:
        came(shell, "n1", "n2")
    registers(shell, "n1", "n2")
    before = calls(shell)
    assert place("n1").stdout == "after 0\n"
    assert (calls(shell) - before, placed(shell)) == (1, ["n1", "n2"])


@pytest.mark.parametrize("listed", [("n1", "n2"), None], ids=["one is on its way", "the list is not there"])
def test_who_may_be_on_the_way_is_waited_for(shell: Shell, place: Place, listed: tuple[str, ...] | None) -> None:
    member(shell, "n1")
    registers(shell, "n1")
    if listed:
        came(shell, *listed)
    assert 2 <= int(place("n1").stdout.split()[-1]) < 20


def test_a_node_that_comes_ends_the_wait_for_it(shell: Shell, place: Place) -> None:
    for node in ("n1", "n2"):
        member(shell, node)
    came(shell, "n1", "n2")
    registers(shell, "n1")
    known = shell.root / "known"
    # The other one is there when this one looks for the second time.
    shell.stub("sinfo", f'cat "{known}"; grep -q n2 "{known}" || echo n2 >>"{known}"')
    before = calls(shell)
    assert place("n1").stdout == "after 1\n"
    assert (calls(shell) - before, placed(shell)) == (1, ["n1", "n2"])


@pytest.mark.parametrize("count", [1, 8, 32])
def test_slurmctld_reads_its_files_once_for_a_new_kind_of_node_and_once_for_all_who_come(
    shell: Shell, place: Place, count: int
) -> None:
    nodes = [f"n{number:02}" for number in range(count)]
    for node in nodes:
        member(shell, node)
    # The first one's memory and GPUs are new to the partitions.
    assert calls(shell) == 1
    registers(shell, *nodes)
    with ThreadPoolExecutor(count) as pool:
        done = [*pool.map(lambda node: place(node, "PLACE_WAIT=600 PLACE_LIMIT=600"), nodes)]
    assert {one.returncode for one in done} == {0}, done[0].stderr
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
        done = place(node)
        assert done.returncode == 0, done.stderr
        assert (calls(shell), len(placed(shell))) == (before + 1, number)
        # All there were before have their place.
        took[number] = done.stdout
    assert took[3] == took[33]


def test_who_comes_while_the_first_waits_for_others_is_placed_by_the_same_call(shell: Shell, place: Place) -> None:
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
    assert place("n1").returncode == 0
    assert placed(shell) == nodes
    assert calls(shell) == before + 1
    for node in nodes:
        assert place(node).returncode == 0
    assert calls(shell) == before + 1


def test_a_node_before_it_that_has_no_place_holds_it_up_for_seconds(shell: Shell, place: Place) -> None:
    member(shell, "n1")
    registers(shell, "intruder", "n1")
    before = calls(shell)
    done = place("n1")
    assert done.returncode == 0, done.stderr
    assert (calls(shell) - before, placed(shell)) == (1, ["n1"])
    assert 20 <= int(done.stdout.split()[1]) < 30


def test_a_node_that_slurmctld_forgot_while_it_read_its_files_makes_itself_known_again(
    shell: Shell, place: Place
) -> None:
    member(shell, "n1")
    shell.stub("systemctl", f'[ "$*" != "restart --no-block slurmd" ] || echo n1 >>"{shell.root}/known"')
    done = place("n1")
    assert done.returncode == 0, done.stderr
    assert shell.calls.count("systemctl restart --no-block slurmd") == 1
    assert placed(shell) == ["n1"]


def test_a_node_that_slurmctld_does_not_place_ends_with_an_error(shell: Shell, place: Place) -> None:
    registers(shell, "n1")
    assert place("n1").returncode == 1
    assert calls(shell) <= 10


def test_all_who_leave_together_are_out_of_the_files_by_one_call(shell: Shell) -> None:
    nodes = [f"n{number}" for number in range(1, 9)]
    for node in nodes:
        member(shell, node)
    # Jobs are seen off side by side; nodes are asked to leave, and forgotten, one after the other.
    before = calls(shell)
    for phase in ("slurm_register_release", "slurm_register_forget"):
        for node in nodes[1:]:
            values: dict[str, str | int] = {"HOST_NAME": "head", "NODE_NAME": node, "SLURM_JOB_LIMIT_SECONDS": 1}
            done = shell.call(phase, values, "slurm/register")
            assert done.returncode == 0, done.stderr
    assert shell.path("/etc/slurm/topology.conf").read_text().splitlines()[1:] == [
        "SwitchName=rack Nodes=n1",
        "SwitchName=tailnet Switches=rack",
    ]
    assert calls(shell) == before + 1
