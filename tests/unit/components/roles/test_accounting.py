"""What the config's accounting becomes: lines of slurm.conf, rows for sacctmgr, and what its bash does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.roles.accounting.role import conf, purges, role
from components.roles.accounting.settings import Accounting, Qos
from components.roles.role import Role
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell

CONF = "ClusterName=lab\nPriorityWeightAge=5\njobacctgathertype=jobacct_gather/linux"
CLUSTER_NAME = "var/lib/slurm/slurmctld/clustername"
LINES = "/var/lib/tailrack/slurm/services/accounting/slurm.conf"


def made(**sections: Any) -> Role:
    """The role of the lab's config with sections laid over."""
    found = role(parse({**LAB, **sections}, base_dir=Path()))
    assert found
    return found


def test_limits_are_in_minutes_and_what_has_none_is_said_to_have_none() -> None:
    accounts = [{"name": "vision", "parent": "research", "max_jobs": 4}, {"name": "research", "gpu_hours": 500}]
    users = [{"name": "ada", "uid": 6001, "account": "vision", "gpu_hours": 10, "qos": ["high"]}]
    users.append({"name": "bob", "uid": 6002})
    qos = [{"name": "high", "priority": 7, "preempts": ["low"]}, {"name": "low"}]
    values = made(users=users, accounting={"accounts": accounts, "qos": qos}).values
    assert values["ACCOUNTING_USERS"] == [("ada", "vision", 600, -1, "normal,high"), ("bob", "users", -1, -1, "normal")]
    assert values["ACCOUNTING_ACCOUNTS"] == [
        ("users", "root", 1, -1, -1), ("research", "root", 1, 30000, -1), ("vision", "research", 1, -1, 4)
    ]  # fmt: skip
    assert values["ACCOUNTING_QOS"] == [("high", 7, -1, -1, "low"), ("low", 0, -1, -1, "")]
    assert "PreemptType=preempt/qos" in conf(Accounting(qos=(Qos(name="high", preempts=("low",)),)))
    assert "PreemptType=preempt/qos" not in conf(Accounting())
    assert values["ACCOUNTING_ENFORCE"] is True


@pytest.mark.parametrize("own", [{"account": "users"}, {"max_jobs": 1}, {"gpu_hours": 1}])
def test_a_job_is_refused_for_want_of_an_account_only_where_the_config_has_a_limit(own: dict[str, Any]) -> None:
    assert made().values["ACCOUNTING_ENFORCE"] is False
    assert made(users=[{"name": "ada", "uid": 6001, **own}]).values["ACCOUNTING_ENFORCE"] is True


def test_what_is_kept_for_ever_is_not_purged() -> None:
    assert list(purges(Accounting(keep_jobs_months=0))) == [("PurgeStep", 12)]


def values() -> dict[str, Any]:
    return {**made().values, "HEAD_ADDRESS": "100.64.0.1", "SLURM_RELEASE": "", "HOST_NAME": "head"}


def test_keys_that_the_clusters_own_slurm_conf_has_stay_as_they_are(shell: Shell) -> None:
    shell.write("var/lib/tailrack/slurm/base/slurm.conf", CONF)
    done = shell.call("accounting_lines enforced", values(), "accounting/slurmdbd")
    lines = done.stdout.splitlines()
    assert "AccountingStorageHost=100.64.0.1" in lines
    assert "AccountingStorageEnforce=associations,limits,qos" in lines
    assert not [line for line in lines if line.startswith(("PriorityWeightAge", "JobAcctGatherType"))]
    assert "Enforce" not in shell.call("accounting_lines ''", values(), "accounting/slurmdbd").stdout


def at_reconfigure(shell: Shell, does: str) -> None:
    """Play a slurmctld that sees the cluster's name when it is reconfigured, and does something then."""
    shell.stub(
        "scontrol",
        f"""case "$1" in
    reconfigure) cat {shell.path(CLUSTER_NAME)} >>{shell.path("seen")}; {does} ;;
    ping) echo 'Slurmctld(primary) at head is UP' ;;
esac""",
    )


@pytest.fixture
def controller(shell: Shell) -> Shell:
    """A controller that began without slurmdbd, and is told how its reconfiguration goes by a file `refuses`."""
    shell.write("var/lib/tailrack/slurm/base/slurm.conf", CONF)
    shell.write("etc/slurm/slurm.conf", CONF)
    shell.write("var/lib/tailrack/slurm/taken/slurm.conf", CONF)
    shell.write("run/tailrack-private/tailrack.lock", "")
    shell.write(CLUSTER_NAME, "lab|1234\n")
    shell.stub("systemctl")
    shell.stub("journalctl")
    shell.stub("runuser", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    shell.stub("sacctmgr", "echo 'lab|100.64.0.1'")
    at_reconfigure(shell, f"[ ! -e {shell.root}/refuses ] || exit 1")
    return shell


def test_a_controller_is_reconfigured_without_the_number_that_it_gave_itself(controller: Shell) -> None:
    done = controller.call("take_accounting ''", values(), "accounting/switch")
    assert done.returncode == 0, done.stderr
    assert controller.path("seen").read_text() == "lab\n"
    assert "accounting_storage/slurmdbd" in controller.path("etc/slurm/slurm.conf").read_text()


def test_where_it_is_refused_the_number_and_the_files_are_as_they_were(controller: Shell) -> None:
    controller.write("refuses", "")
    done = controller.call("trap 'echo \"$REASON\"' EXIT; take_accounting ''", values(), "accounting/switch")
    assert done.returncode == 1
    assert "rejects the new configuration" in done.stdout
    assert controller.path(CLUSTER_NAME).read_text() == "lab|1234\n"
    assert controller.path("etc/slurm/slurm.conf").read_text().strip() == CONF
    assert not controller.path(LINES).exists()


def test_a_node_that_had_it_begin_anew_in_that_moment_and_so_numbered_again_is_one_more_try(controller: Shell) -> None:
    # As where another one's call came between: slurmdbd has another number for the cluster, and slurmctld ends.
    first = f"[ $(wc -l <{controller.path('seen')}) -eq 1 ]"
    at_reconfigure(controller, f"if {first}; then echo 'lab|99' >{controller.path(CLUSTER_NAME)}; exit 1; fi")
    done = controller.call("take_accounting ''", values(), "accounting/switch")
    assert done.returncode == 0, done.stderr
    assert controller.path("seen").read_text() == "lab\nlab\n"
    assert "accounting_storage/slurmdbd" in controller.path("etc/slurm/slurm.conf").read_text()


def test_a_controller_that_numbers_again_each_time_is_refused_after_three_tries_with_one_number(
    controller: Shell,
) -> None:
    at_reconfigure(controller, f"echo 'lab|99' >{controller.path(CLUSTER_NAME)}; exit 1")
    assert controller.call("take_accounting ''", values(), "accounting/switch").returncode == 1
    assert controller.path("seen").read_text() == "lab\n" * 3
    assert controller.path(CLUSTER_NAME).read_text() == "lab|99\n"
    assert controller.path("etc/slurm/slurm.conf").read_text().strip() == CONF
    assert not controller.path(LINES).exists()


def test_a_controller_that_began_while_slurmdbd_was_away_is_had_to_come_to_it(controller: Shell) -> None:
    controller.hurry()
    assert controller.call("take_accounting ''", values(), "accounting/switch").returncode == 0
    files_taken = controller.path("seen").read_text()
    # Knows it once slurmctld has begun anew.
    controller.stub(
        "sacctmgr", f"[ $(wc -l <{controller.path('seen')}) -gt 1 ] && echo 'lab|100.64.0.1' || echo 'lab|'"
    )
    done = controller.call("take_accounting ''", values(), "accounting/switch")
    assert done.returncode == 0, done.stderr
    assert controller.path("seen").read_text() == files_taken * 2


@pytest.mark.parametrize(
    ("changed", "seccomp", "restarts"), [("", "2", False), ("yes", "2", True), ("", "0", True), ("", None, True)]
)
def test_a_slurmdbd_that_a_step_left_without_its_limits_as_it_was_cut_off_is_restarted(
    shell: Shell, changed: str, seccomp: str | None, restarts: bool
) -> None:
    shell.stub("systemctl", "[ $1 != show ] || echo 7")
    if seccomp is not None:
        shell.write("proc/7/status", f"Name:\tslurmdbd\nSeccomp:\t{seccomp}\nSeccomp_filters:\t1\n")
    done = shell.call(f"CHANGED={changed}; run_slurmdbd", values(), "accounting/slurmdbd")
    assert done.returncode == 0, done.stderr
    assert ("systemctl restart slurmdbd" in shell.calls) == restarts


@pytest.mark.parametrize(("gib", "mb"), [(0.25, 128), (4, 1024), (24, 4096), (2048, 4096)])
def test_the_database_fills_a_quarter_of_the_memory_within_bounds(shell: Shell, gib: float, mb: int) -> None:
    shell.write("proc/meminfo", f"MemTotal:       {int(gib * 2**20)} kB\nMemFree: 1 kB\n")
    assert shell.call("database_memory_mb", values(), "accounting/database").stdout == f"{mb}\n"
