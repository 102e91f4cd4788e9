"""What the config's accounting becomes: lines of slurm.conf, rows for sacctmgr, and what its step does with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.node.step.step import Step
from components.node.step.values import read_values
from components.roles.program import program
from components.roles.role import Role
from components.roles.slurm.accounting import slurmdbd
from components.roles.slurm.accounting.associations import apply_associations
from components.roles.slurm.accounting.database import memory_mb
from components.roles.slurm.accounting.host import AccountingValues, take_accounting
from components.roles.slurm.accounting.role import conf, role
from components.roles.slurm.accounting.settings import Accounting, Qos
from components.roles.slurm.slurm.host import foreign_configurations
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


def test_no_file_whose_change_restarts_the_database_changes_with_the_program() -> None:
    texts = [file.text for file in made().files["services"]]
    assert texts
    assert not any(program().digest in text for text in texts)


def test_limits_are_in_minutes_and_missing_limits_are_explicit() -> None:
    accounts = [{"name": "vision", "parent": "research", "max_jobs": 4}, {"name": "research", "gpu_hours": 500}]
    users = [{"name": "ada", "uid": 6001, "account": "vision", "gpu_hours": 10, "qos": ["high"]}]
    users.append({"name": "bob", "uid": 6002})
    qos = [{"name": "high", "priority": 7, "preempts": ["low"]}, {"name": "low"}]
    values = made(users=users, accounting={"accounts": accounts, "qos": qos}).values
    assert values["accounting_users"] == [("ada", "vision", 600, -1, "normal,high"), ("bob", "users", -1, -1, "normal")]
    assert values["accounting_accounts"] == [
        ("users", "root", 1, -1, -1), ("research", "root", 1, 30000, -1), ("vision", "research", 1, -1, 4)
    ]  # fmt: skip
    assert values["accounting_qos"] == [("high", 7, -1, -1, "low"), ("low", 0, -1, -1, "")]
    assert "PreemptType=preempt/qos" in conf(Accounting(qos=(Qos(name="high", preempts=("low",)),)))
    assert "PreemptType=preempt/qos" not in conf(Accounting())
    assert values["accounting_enforce"] is True


def settings(**sections: Any) -> AccountingValues:
    """What the phase gets."""
    values = {**made(**sections).values, "head_address": "100.64.0.1", "slurm_release": ""}
    found: AccountingValues = read_values(AccountingValues, json.loads(json.dumps(values)))
    return found


def take(shell: Shell) -> str:
    """Have slurmctld take accounting; return why it does not, empty if it does."""
    return shell.failure_of(take_accounting, Step("head", "head-services"), settings(), enforced=False)


def test_keys_that_the_clusters_own_slurm_conf_has_stay_as_they_are(shell: Shell) -> None:
    shell.write("var/lib/tailrack/slurm/base/slurm.conf", CONF)
    with shell.here():
        lines = slurmdbd.accounting_lines(settings(), enforced=True)
        others = slurmdbd.accounting_lines(settings(), enforced=False)
    assert "AccountingStorageHost=100.64.0.1" in lines
    assert "AccountingStorageEnforce=associations,limits,qos" in lines
    assert not [line for line in lines if line.startswith(("PriorityWeightAge", "JobAcctGatherType"))]
    assert "Enforce" not in "".join(others)


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
    shell.stubs("systemctl", "journalctl")
    shell.stub("sacctmgr", "echo 'lab|100.64.0.1'")
    at_reconfigure(shell, f"[ ! -e {shell.root}/refuses ] || exit 1")
    return shell


def test_a_controller_is_reconfigured_without_the_number_that_it_gave_itself(controller: Shell) -> None:
    controller.hurry()
    assert take(controller) == ""
    assert controller.path("seen").read_text() == "lab\n"
    assert "accounting_storage/slurmdbd" in controller.path("etc/slurm/slurm.conf").read_text()
    # slurmdbd was away when it began, and knows it after another reconfiguration.
    known = f"[ $(wc -l <{controller.path('seen')}) -gt 1 ] && echo 'lab|100.64.0.1' || echo 'lab|'"
    controller.stub("sacctmgr", known)
    assert take(controller) == ""
    assert controller.path("seen").read_text() == "lab\n" * 2


def test_a_rejected_configuration_restores_the_cluster_number_and_the_files(controller: Shell) -> None:
    def unchanged(number: str) -> bool:
        conf = controller.path("etc/slurm/slurm.conf").read_text().strip()
        return (controller.path(CLUSTER_NAME).read_text(), conf) == (number, CONF) and not controller.path(
            LINES
        ).exists()

    controller.write("refuses", "")
    assert "rejects the new configuration" in take(controller)
    assert unchanged("lab|1234\n")
    # One that changes its number each time is tried three times.
    controller.path("seen").unlink()
    at_reconfigure(controller, f"echo 'lab|99' >{controller.path(CLUSTER_NAME)}; exit 1")
    assert take(controller) != ""
    assert controller.path("seen").read_text() == "lab\n" * 3
    assert unchanged("lab|99\n")


def test_slurmdbd_restarts_without_its_limits(shell: Shell) -> None:
    shell.stub("systemctl", "[ $1 != show ] || echo 7")
    for changed, seccomp, restarts in ((False, "2", 0), (True, "2", 1), (False, "0", 2), (False, "", 3)):
        shell.write("proc/7/status", f"Name:\tslurmdbd\nSeccomp:\t{seccomp}\nSeccomp_filters:\t1\n")
        if not seccomp:
            shell.path("proc/7/status").unlink()
        shell.call(slurmdbd.restart, changed=changed)
        assert shell.calls.count("systemctl restart slurmdbd") == restarts, (changed, seccomp)


@pytest.mark.parametrize(("gib", "mb"), [(0.25, 128), (4, 1024), (24, 4096), (2048, 4096)])
def test_the_database_fills_a_quarter_of_the_memory_within_bounds(shell: Shell, gib: float, mb: int) -> None:
    shell.write("proc/meminfo", f"MemTotal:       {int(gib * 2**20)} kB\nMemFree: 1 kB\n")
    assert shell.call(memory_mb) == mb


ACCOUNTS = [{"name": "vision", "gpu_hours": 10}]
USERS = [
    {"name": "ada", "uid": 6001, "account": "vision", "max_jobs": 2, "qos": ["high"]},
    {"name": "bob", "uid": 6002},
    {"name": "cyd", "uid": 6003},
]
BOOKS = "/var/lib/tailrack/accounting"
# `show assoc` and the others as of a cluster that is as the config above has it.
ROOT = "root|root||1||||normal"
ASSOC = [ROOT, "|users|root|1||||normal", "|vision|root|1|gres/gpu=600|||normal"]
ASSOC += ["ada|vision||1|||2|high,normal", "bob|users||1||||normal", "cyd|users||1||||normal"]
QOS = ["normal|0|||", "high|0|||low", "low|0|||"]
DEFAULTS = ["root|root", "ada|vision", "bob|users", "cyd|users"]


def show(shell: Shell, assoc: list[str], qos: list[str], user: list[str]) -> None:
    """Give slurmdbd entries."""
    for name, lines in (("assoc", assoc), ("qos", qos), ("user", user)):
        shell.write(name, "".join(f"{line}\n" for line in lines))


@pytest.fixture
def books(shell: Shell) -> Shell:
    """A slurmdbd that has no entries yet, and takes every change unless a file `refuses` has its words."""
    shell.write("var/lib/tailrack/slurm/base/slurm.conf", CONF)
    show(shell, [ROOT], QOS[:1], DEFAULTS[:1])
    shell.write("refuses", "no such command\n")
    shell.write("session", "")
    refused = f"grep -qf {shell.path('refuses')}"
    shell.stub(
        "sacctmgr",
        f"""case "$*" in
    *show*account=*) cut -d '|' -f 1 {shell.root}/$3 ;;
    *show*) cat {shell.root}/$3 ;;
    -i) tee -a {shell.path("session")} | {refused} && exit 1; exit 0 ;;
    *) if {refused} <<<"$*"; then printf ' Not\\n\\n so\\n'; exit 1; fi ;;
esac""",
    )
    return shell


def apply(shell: Shell, accounts: Any = ACCOUNTS, users: Any = USERS) -> str:
    """Bring slurmdbd to a config; return the failure, empty without one."""
    accounting = {"accounts": accounts, "qos": [{"name": "high", "preempts": ["low"]}, {"name": "low"}]}
    given = settings(accounting=accounting, users=users)
    return shell.failure_of(apply_associations, Step("head", "head-services"), given)


def session(shell: Shell) -> list[str]:
    """The commands on sacctmgr's stdin."""
    return shell.path("session").read_text().splitlines()


def test_all_entries_are_made_in_two_sessions_and_recorded(books: Shell) -> None:
    assert apply(books) == ""
    limits = "set priority=0 GrpTRESMins=gres/gpu=-1 MaxJobsPerUser=-1"
    assert session(books) == [
        "add qos high",
        "add qos low",
        f"modify qos where name=high {limits} preempt=low",
        f"modify qos where name=low {limits}",
        "add account users cluster=lab parent=root description=users organization=tailrack",
        "modify account where name=users cluster=lab set fairshare=1 GrpTRESMins=gres/gpu=-1 GrpJobs=-1",
        "add account vision cluster=lab parent=root description=vision organization=tailrack",
        "modify account where name=vision cluster=lab set fairshare=1 GrpTRESMins=gres/gpu=600 GrpJobs=-1",
        "add user name=ada account=vision cluster=lab",
        "add user name=bob,cyd account=users cluster=lab",
        "modify user where name=ada account=vision cluster=lab set GrpTRESMins=gres/gpu=-1 MaxJobs=2 "
        "qoslevel=normal,high",
        "modify user where name=bob,cyd account=users cluster=lab set GrpTRESMins=gres/gpu=-1 MaxJobs=-1 "
        "qoslevel=normal",
        "modify user where name=ada cluster=lab set DefaultAccount=vision",
        "modify user where name=bob,cyd cluster=lab set DefaultAccount=users",
    ]
    assert len(books.calls) == 5
    assert books.path(f"{BOOKS}/users").read_text() == "ada vision\nbob users\ncyd users\n"
    assert books.path(f"{BOOKS}/accounts").read_text() == "users\nvision\n"
    assert books.path(f"{BOOKS}/qos").read_text() == "high\nlow\n"


def test_entries_that_differ_are_changed(books: Shell) -> None:
    assoc = [*ASSOC[:2], "|vision|users|2|gres/gpu=600|3||normal", ASSOC[3], "bob|users||1|gres/gpu=60|||normal"]
    show(books, [*assoc, ASSOC[5]], [QOS[0], "high|5|||low", "low|0|||normal"], [*DEFAULTS[:3], "cyd|vision"])
    assert apply(books) == ""
    limits = "set priority=0 GrpTRESMins=gres/gpu=-1 MaxJobsPerUser=-1"
    assert session(books) == [
        # The list that it has must not be given to Slurm 22.05 again.
        f"modify qos where name=high {limits}",
        f"modify qos where name=low {limits} preempt=",
        "modify account where name=vision cluster=lab set parent=root",
        "modify account where name=vision cluster=lab set fairshare=1 GrpTRESMins=gres/gpu=600 GrpJobs=-1",
        "modify user where name=bob account=users cluster=lab set GrpTRESMins=gres/gpu=-1 MaxJobs=-1 qoslevel=normal",
        "modify user where name=cyd cluster=lab set DefaultAccount=users",
    ]


def test_an_entry_that_left_the_config_goes_if_this_step_made_it_and_no_one_uses_it(books: Shell) -> None:
    apply(books)
    show(books, [*ASSOC, "cid|vision||1||||normal"], QOS, DEFAULTS)
    assert apply(books, [], USERS[1:]) == ""
    deleted = [call for call in books.calls if " delete " in call]
    assert deleted == ["sacctmgr -i delete user name=ada account=vision cluster=lab"]
    assert books.path(f"{BOOKS}/users").read_text() == "bob users\ncyd users\n"
    assert "vision" in books.path(f"{BOOKS}/accounts").read_text(), "cid is in it, who was added by hand"
    show(books, [ROOT, "|vision|root|1||||normal"][1:], QOS, DEFAULTS)
    apply(books, [], USERS[1:])
    assert "sacctmgr -i delete account name=vision" in books.calls
    assert books.path(f"{BOOKS}/accounts").read_text() == "users\n"


def test_a_change_that_slurmdbd_refuses_is_named_and_a_user_with_ending_jobs_stays(books: Shell) -> None:
    books.write("refuses", "cyd account\n")
    problem = apply(books)
    assert problem.startswith("slurmdbd refuses 'add user name=cyd account=users cluster=lab':  Not  so; correct")
    # The others are in place.
    assert "sacctmgr -i add user name=bob account=users cluster=lab" in books.calls
    show(books, ASSOC, QOS, DEFAULTS)
    books.write("refuses", "delete user\n")
    assert apply(books, ACCOUNTS, USERS[1:]) == ""
    assert "ada vision" in books.path(f"{BOOKS}/users").read_text()


@pytest.mark.parametrize(("text", "foreign"), [("DbdHost=other\n", True), ("# Written by tailrack.\n", False)])
def test_the_slurmdbd_of_another_cluster_is_found_and_set_aside(shell: Shell, text: str, foreign: bool) -> None:
    shell.write("etc/slurm/slurmdbd.conf", text)
    with shell.here():
        assert [*foreign_configurations()] == (["/etc/slurm/slurmdbd.conf"] if foreign else [])
        slurmdbd.set_foreign_slurmdbd_aside()
    assert shell.path("/etc/slurm/slurmdbd.conf").exists() != foreign
    assert shell.path("/var/lib/tailrack/backup/etc/slurm/slurmdbd.conf").exists() == foreign
    assert ("systemctl stop slurmdbd" in shell.calls) == foreign
