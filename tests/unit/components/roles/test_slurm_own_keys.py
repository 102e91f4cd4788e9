"""Machines with and without cgroups in one cluster: each has its own keys of slurm.conf and cgroup.conf."""

from dataclasses import replace

import pytest

from components.roles.slurm.slurm.controller import merged
from components.roles.slurm.slurm.machine_keys import machine_keys, needs_cgroups
from components.roles.slurm.slurm.profiles import CGROUPS, PROCESSES
from tests.unit.components.roles.test_slurm import LARGE, SMALL, Model, header_of_join, join, on_the_head
from tests.unit.configs import RawConfig
from tests.unit.shell import Shell, script_of

INCLUDE = "Include /etc/tailrack/slurm.conf"
OWN = ("ProctrackType", "TaskPlugin", "JobAcctGather", "# Nothing confines a job")


def mixed(shell: Shell, model: Model, *, other: int = 1) -> dict[str, str]:
    """All files of a cluster whose last nodes have the other profile than its head node."""
    alike, differing = model.nodes[:-other], model.nodes[-other:]
    on_the_head(shell, replace(model, nodes=alike))
    join(shell, *differing, profile="processes" if model.cgroups else "cgroups")
    return again(shell)


def again(shell: Shell) -> dict[str, str]:
    return shell.call(merged, "/base")


def own_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(OWN)]


@pytest.mark.parametrize("model", [SMALL, LARGE], ids=["without", "with"])
def test_slurm_conf_includes_a_file_per_machine_if_machines_differ(shell: Shell, model: Model) -> None:
    files = mixed(shell, model)
    lines = files["slurm.conf"].splitlines()
    for line in (INCLUDE, "PrologFlags=Contain", "DebugFlags=GLOB_SILENCE,NO_CONF_HASH"):
        assert lines.count(line) == 1, line
    assert not own_lines(files["slurm.conf"])
    assert files["cgroup.conf"].splitlines()[1:] == ["Include /etc/tailrack/cgroup.conf"]
    # Nodes keep their own keys until they follow a head node that has changed.
    assert INCLUDE in mixed(shell, model, other=len(model.nodes))["slurm.conf"]


def test_slurm_conf_is_as_before_once_the_last_differing_node_has_gone(shell: Shell) -> None:
    uniform = on_the_head(shell, replace(LARGE, nodes=LARGE.nodes[:-1]))["slurm.conf"]
    assert INCLUDE in mixed(shell, LARGE)["slurm.conf"]
    folder = shell.path(f"/var/lib/tailrack/slurm/nodes/{LARGE.nodes[-1].name}")
    # Its slurmd runs until it has left.
    (folder / "site").unlink()
    assert INCLUDE in again(shell)["slurm.conf"]
    folder.rename(shell.path("/gone"))
    assert again(shell)["slurm.conf"] == uniform.rstrip("\n")


def test_keys_of_the_user_are_the_same_on_all_machines_and_in_no_own_file(shell: Shell) -> None:
    slurm: RawConfig = {"settings": {"JobAcctGatherFrequency": "task=15", "PrologFlags": "Contain,Serial"}}
    model = replace(LARGE, config={**LARGE.config, "slurm": slurm})
    files = mixed(shell, model)
    assert own_lines(files["slurm.conf"]) == ["JobAcctGatherFrequency=task=15"]
    flags = [line for line in files["slurm.conf"].splitlines() if line.startswith("PrologFlags")]
    assert flags == ["PrologFlags=Contain,Serial"]
    assert "Frequency" not in machine_keys({"cgroups": False}, model.settings, head_cgroups=True)["node_slurm_keys"]


def test_a_cluster_without_cgroups_gives_no_job_such_a_step(shell: Shell) -> None:
    on_the_head(shell, SMALL)
    join(shell, SMALL.nodes[-1], profile="another")
    text = again(shell)["slurm.conf"]
    assert INCLUDE in text
    assert "PrologFlags" not in text


def test_accounting_measures_jobs_as_each_machine_can(shell: Shell) -> None:
    without = replace(LARGE, config={**LARGE.config, "accounting": {"enabled": False}})
    gather = "JobAcctGatherType=jobacct_gather/cgroup"
    shell.write("var/lib/tailrack/slurm/services/accounting/slurm.conf", f"{gather}\nPriorityWeightAge=1000\n")
    text = mixed(shell, LARGE)["slurm.conf"]
    assert gather not in text
    assert "PriorityWeightAge=1000" in text
    assert gather in machine_keys({"cgroups": True}, LARGE.settings, head_cgroups=True)["node_slurm_keys"].splitlines()
    assert gather not in machine_keys({"cgroups": True}, without.settings, head_cgroups=True)["node_slurm_keys"]
    assert gather not in machine_keys({"cgroups": False}, LARGE.settings, head_cgroups=True)["node_slurm_keys"]


def test_a_machines_keys_follow_the_config_the_head_node_and_its_own_check() -> None:
    for head, wanted, offered, profile in (
        (True, None, True, CGROUPS),
        (True, None, False, PROCESSES),
        # The config has made the head node's.
        (False, False, True, PROCESSES),
        (True, True, False, CGROUPS),
        # As before: a head node without cgroups keeps the whole cluster without.
        (False, None, True, PROCESSES),
    ):
        model = replace(SMALL, config={"slurm": {"cgroups": wanted}})
        keys = machine_keys({"cgroups": offered}, model.settings, head)
        assert (keys["node_profile"], keys["node_confined"]) == (profile.name, profile is CGROUPS), (
            head,
            wanted,
            offered,
        )
        assert keys["node_cgroup_keys"].splitlines() == [*profile.cgroup], (head, wanted, offered)


def test_every_machine_has_its_files_before_its_slurmd_starts(shell: Shell) -> None:
    assert shell.step(script_of("slurm", "machine"), header_of_join(SMALL.nodes[1])).returncode == 0
    written = ["# Written by tailrack.", *CGROUPS.slurm, *CGROUPS.accounted]
    path = shell.path("/etc/tailrack/slurm.conf")
    assert path.read_text().splitlines() == written
    # srun of any user reads it.
    assert path.stat().st_mode & 0o444 == 0o444
    assert shell.path("/etc/tailrack/cgroup.conf").read_text().splitlines()[1:] == [*CGROUPS.cgroup]


def test_keys_that_need_cgroups_on_every_machine_are_named() -> None:
    for slurm, expected in (
        ({}, ""),
        ({"cgroups": False}, ""),
        ({"cgroups": True}, "tailrack:slurm.cgroups is true"),
        ({"settings": {"PrologFlags": "Contain"}}, ""),
        ({"settings": {"prologflags": '"Alloc,X11"'}}, 'tailrack:slurm.settings has prologflags: "Alloc,X11"'),
        ({"settings": {"TaskPluginParam": "OOMKillStep"}}, "tailrack:slurm.settings has TaskPluginParam: OOMKillStep"),
        (
            {"settings": {"JobAcctGatherType": "jobacct_gather/cgroup"}},
            "tailrack:slurm.settings has JobAcctGatherType: jobacct_gather/cgroup",
        ),
    ):
        assert needs_cgroups(replace(SMALL, config={"slurm": slurm}).settings) == expected, slurm
