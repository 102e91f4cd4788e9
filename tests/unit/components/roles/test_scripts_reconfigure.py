"""The one program that has slurmctld take what members have written: how often it does, when, and from which states.

A second passes with each `sleep` of the program, and brings what the test says of that second.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from components.steps.command_line import render_program
from components.steps.composition import reconfigure_program
from tests.unit.shell import Shell

SLURM = "/var/lib/tailrack/slurm"
PROGRAM = "/usr/local/sbin/tailrack-reconfigure"
FILES = {
    "slurm.conf": "ClusterName=lab\nPartitionName=all Nodes=ALL",
    "gres.conf": "Include /etc/tailrack/gres.conf",
    "topology.conf": "# Written by tailrack.",
}
# What `scontrol reconfigure` does: it reads the file, and places those nodes of it that it knows.
READS = 'cp "$root/etc/slurm/topology.conf" "$root/read"; grep -oE "Nodes=.*" "$root/read" | cut -d= -f2 | tr , "\\n" |'
READS += ' grep -xFf "$root/known" >"$root/placed"; echo $(($(cat "$root/pid") + 1)) >"$root/pid"'
# Of 23.11 and 24.11; of 25.05 and later, where a bare word is the name of a topology, and ours has none.
TOPOLOGY_WORD = {
    "24.11": '"show topology tailnet") show | grep tailnet ;;',
    "25.05": '"show topology "*) echo "slurm_load_topo error: Requested topology is not available" >&2 ;;',
}


@dataclass
class Head:
    """A head node with a cluster; `known`, what slurmctld does when it is told, and what happens in which second."""

    shell: Shell

    def member(self, *nodes: str, site: str = "rack") -> str:
        """Commands by which a member step ends, as fragment.sh has them."""
        at = f"$root{SLURM}"
        return "; ".join(
            f"mkdir -p {at}/nodes/{node} {at}/expected; echo {site} >{at}/nodes/{node}/site;"
            f" : >{at}/expected/{node}; : >{at}/asked"
            for node in nodes
        )

    def registers(self, *nodes: str) -> str:
        """Commands by which slurmd has made itself known."""
        return "; ".join(f'grep -qx {node} "$root/known" || echo {node} >>"$root/known"' for node in nodes)

    def leaves(self, node: str) -> str:
        """Commands by which a member's down ends."""
        at = f"$root{SLURM}"
        return f"rm -r {at}/nodes/{node}; sed -i /^{node}$/d $root/known $root/placed; : >{at}/asked"

    def expects(self, nodes: Sequence[str]) -> str:
        at = f"$root{SLURM}/expected"
        return f"mkdir -p {at}; cd {at}; touch {' '.join(nodes)}; cd -"

    def now(self, *commands: str) -> None:
        """Have it happen before the program runs."""
        text = f"root={self.shell.root}\n" + "\n".join(commands)
        subprocess.run(["bash", "-euc", text], check=True, stdout=subprocess.DEVNULL)

    def run(self, seconds: Mapping[int, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the program; `seconds`: what happens in which of them."""
        (self.shell.root / "second").write_text("0\n")
        for second, commands in (seconds or {}).items():
            self.shell.write(f"second-{second}", f"root={self.shell.root}\n{commands}\n")
        return self.shell.program(PROGRAM)

    @property
    def calls(self) -> int:
        return self.shell.calls.count("scontrol reconfigure")

    @property
    def placed(self) -> list[str]:
        return sorted((self.shell.root / "placed").read_text().split())

    @property
    def second(self) -> int:
        return int((self.shell.root / "second").read_text())


@pytest.fixture
def head(shell: Shell) -> Head:
    """A head node without members, whose slurmctld has its own files."""
    for name, text in FILES.items():
        for where in ("base", "taken"):
            shell.write(f"{SLURM}/{where}/{name}", f"{text}\n")
    for name in ("known", "placed", "read"):
        shell.write(name, "")
    shell.write("pid", "100\n")
    controller(shell)
    shell.stub("sinfo", f'cat "{shell.root}/known"')
    shell.stub("squeue")
    shell.stub("journalctl", "echo fatal: no such node")
    shell.stub("systemctl", f'[ "$1" != show ] || cat "{shell.root}/pid"')
    values = {"HOST_NAME": "head", "STEP_NAME": "tailrack-reconfigure", "STEP_LOCK": "", "STEP_REPAIR": ""}
    lines = render_program(reconfigure_program(), values).split("\n")
    lines.insert(
        1,
        # Without what is special about it, it counts the test's seconds alone.
        f"""unset SECONDS
SECONDS=0
sleep() {{
    SECONDS=$((SECONDS + 1))
    local second=$(($(cat {shell.root}/second) + 1))
    echo $second >{shell.root}/second
    [ ! -e {shell.root}/second-$second ] || . {shell.root}/second-$second
    [ "$second" -lt 3000 ] || exit 99
}}
timeout() {{ shift 3; "$@"; }}""",
    )
    text = "\n".join(lines)
    shell.write(PROGRAM, shell.inside(text).replace(f"{shell.root}{shell.root}", str(shell.root))).chmod(0o755)
    return Head(shell)


def controller(shell: Shell, release: str = "24.11", reconfigure: str = READS) -> None:
    shell.stub(
        "scontrol",
        f"""root={shell.root}
show() {{
    [ -s "$root/placed" ] || return 0
    echo "SwitchName=rack Level=0 LinkSpeed=1 Nodes=$(grep -oE 'SwitchName=rack Nodes=.*' "$root/read" | cut -d= -f3)"
    echo "SwitchName=tailnet Level=1 LinkSpeed=1 Nodes=$(tr '\\n' , <"$root/placed" | sed 's/,$//') Switches=rack"
}}
case "$*" in
ping)
    # What slurmctld refuses scontrol does not read either.
    if [ -e "$root/refused" ] && [ -z "${{SLURM_CONF:-}}" ]; then exit 1; fi
    [ -e "$root/dead" ] || echo "Slurmctld(primary) at head is UP" ;;
"show topology") show ;;
{TOPOLOGY_WORD[release]}
"show hostnames "*) tr , '\\n' <<<"$3" ;;
reconfigure) {reconfigure} ;;
esac""",
    )


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize(("count", "release"), [(1, "24.11"), (8, "24.11"), (8, "25.05"), (32, "24.11")])
def test_however_many_nodes_come_slurmctld_is_told_once(head: Head, count: int, release: str) -> None:
    controller(head.shell, release)
    nodes = names(count)
    head.now(head.expects(nodes))
    # A node a second on the head node, each known six seconds later.
    seconds = {number: head.member(node) for number, node in enumerate(nodes, 1)}
    for number, node in enumerate(nodes, 7):
        seconds[number] = "; ".join([*([seconds[number]] if number in seconds else []), head.registers(node)])
    done = head.run(seconds)
    assert done.returncode == 0, done.stderr
    assert head.calls == 1
    assert head.placed == sorted(nodes)
    # And at once, when the last one is there.
    assert head.second == count + 6


def test_the_thirty_third_node_waits_as_long_as_the_third(head: Head) -> None:
    waited = []
    for there in (2, 32):
        last = f"n{there + 1}"
        head.now(head.member(*names(there)), head.registers(*names(there)))
        assert head.run().returncode == 0
        before = head.calls
        head.now(head.expects([last]), head.member(last))
        assert head.run({6: head.registers(last)}).returncode == 0
        waited.append(head.second)
        assert head.calls == before + 1
        for path in head.shell.root.glob("second-*"):
            path.unlink()
    assert waited == [6, 6]


def test_one_that_does_not_come_holds_the_others_up_for_some_seconds_alone(head: Head) -> None:
    head.now(head.expects(["n1", "n2", "dead"]))
    done = head.run(
        {
            1: head.member("n1", "n2"),
            5: head.registers("n1"),
            8: head.registers("n2"),
            60: "rm -r $root" + SLURM + "/expected",
        }
    )
    assert done.returncode == 0, done.stderr
    assert (head.calls, head.placed) == (1, ["n1", "n2"])


def test_a_head_node_that_runs_jobs_has_its_place_with_the_first_that_come(head: Head) -> None:
    head.now(head.expects(["n1"]), head.member("head"), head.registers("head"))
    assert head.run({40: f"{head.member('n1')}; {head.registers('n1')}"}).returncode == 0
    assert (head.calls, head.second, head.placed) == (1, 40, ["head", "n1"])


def test_one_that_comes_late_has_a_call_of_its_own(head: Head) -> None:
    head.now(head.expects(["n1", "n2"]), head.member("n1"), head.registers("n1"))
    done = head.run({30: head.member("n2"), 40: head.registers("n2")})
    assert done.returncode == 0, done.stderr
    assert (head.calls, head.placed) == (2, ["n1", "n2"])


def test_nobody_waits_for_ever_where_others_come_all_the_time(head: Head) -> None:
    nodes = names(24)
    head.now(head.expects(nodes))
    done = head.run({9 * at: f"{head.member(node)}; {head.registers(node)}" for at, node in enumerate(nodes, 1)})
    assert done.returncode == 0, done.stderr
    assert head.calls == 2  # in 216 seconds
    assert head.placed == sorted(nodes)


def test_nodes_of_two_stacks_that_come_side_by_side_are_one_call(head: Head) -> None:
    head.now(head.expects(["n1"]), head.expects(["p1"]))
    done = head.run(
        {2: head.member("n1"), 3: head.member("p1", site="far"), 7: head.registers("p1"), 9: head.registers("n1")}
    )
    assert done.returncode == 0, done.stderr
    assert (head.calls, head.placed) == (1, ["n1", "p1"])


def test_nodes_that_leave_one_after_the_other_are_one_call(head: Head) -> None:
    nodes = names(8)
    head.now(head.member(*nodes), head.registers(*nodes))
    assert head.run().returncode == 0
    head.now(head.leaves("n1"))
    done = head.run({at: head.leaves(node) for at, node in enumerate(nodes[1:], 1)})
    assert done.returncode == 0, done.stderr
    assert head.calls == 2
    assert "Nodes" not in head.shell.path("/etc/slurm/topology.conf").read_text()


def test_what_was_written_before_a_crash_is_taken_by_whoever_looks_next(head: Head) -> None:
    head.now(head.member("n1"), head.registers("n1"), f"rm $root{SLURM}/asked")
    done = head.run()
    assert done.returncode == 0, done.stderr
    assert (head.calls, head.placed) == (1, ["n1"])
    assert head.run().returncode == 0
    assert head.calls == 1


def test_a_head_node_that_was_never_finished_has_nothing_to_take(head: Head) -> None:
    head.now(head.member("n1"), f"rm -r $root{SLURM}/base")
    assert head.run().returncode == 0
    assert head.calls == 0


def test_files_that_slurmctld_refuses_are_taken_back_and_not_offered_again(head: Head) -> None:
    controller(head.shell, reconfigure=': >"$root/refused"; exit 1')
    head.now(head.member("n1"), head.registers("n1"))
    done = head.run()
    assert done.returncode == 1
    assert "systemctl restart slurmctld" not in head.shell.calls
    head.shell.path("refused").unlink()
    assert "refuses the new configuration and goes on with the old one" in done.stderr
    assert head.shell.path("/etc/slurm/topology.conf").read_text() == FILES["topology.conf"] + "\n"
    for _ in range(2):
        assert head.run().returncode == 0
    assert head.calls == 1
    controller(head.shell)
    head.now(head.member("n2"), head.registers("n2"))
    assert head.run().returncode == 0
    assert head.placed == ["n1", "n2"]


def test_a_node_that_slurmctld_will_not_place_is_named_and_asked_about_once(head: Head) -> None:
    controller(head.shell, reconfigure=READS + '; : >"$root/placed"')
    head.now(head.member("n1"), head.registers("n1"))
    done = head.run()
    assert done.returncode == 1
    assert "slurmctld has no place for n1" in done.stderr
    assert head.run().returncode == 0
    assert head.calls == 1


def test_a_slurmctld_that_hangs_in_it_is_started_again(head: Head) -> None:
    root = head.shell.root
    controller(head.shell, reconfigure=': >"$root/dead"; exit 124')
    head.shell.stub(
        "systemctl",
        f'root={root}; case "$*" in show*) cat {root}/pid ;; "restart slurmctld") rm {root}/dead; {READS} ;; esac',
    )
    head.now(head.member("n1"), head.registers("n1"))
    done = head.run()
    assert done.returncode == 0, done.stderr
    assert head.shell.calls.count("systemctl restart slurmctld") == 1
    assert (head.calls, head.placed) == (1, ["n1"])


def test_a_slurmctld_that_crashes_in_it_and_is_there_again_has_taken_the_files(head: Head) -> None:
    controller(head.shell, reconfigure=READS + "; exit 1")
    head.now(head.member("n1"), head.registers("n1"))
    done = head.run()
    assert done.returncode == 0, done.stderr
    assert (head.calls, head.placed) == (1, ["n1"])


def test_a_job_that_is_about_to_begin_is_let_begin_first(head: Head) -> None:
    head.shell.stub("squeue", f'[ -e {head.shell.root}/begun ] || echo "CONFIGURING 0:00"')
    head.now(head.member("n1"), head.registers("n1"))
    assert head.run({8: ": >$root/begun"}).returncode == 0
    assert (head.calls, head.second) == (1, 8)
    # Where they begin all the time nobody waits for a moment without.
    head.shell.stub("squeue", 'echo "RUNNING 0:02"')
    head.now(head.member("n2"), head.registers("n2"))
    assert head.run().returncode == 0
    assert (head.calls, head.placed) == (2, ["n1", "n2"])
