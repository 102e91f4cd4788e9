"""Whether nodes are used by nobody: what keeps them, and from when on they are idle."""

import json
import os
import time
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from components.roles.commands.tailrack import idle
from components.roles.commands.tailrack.idle import Use, could_run, use
from components.roles.commands.tailrack.main import main
from components.roles.monitoring.budget.spending import Stay
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node, node_names
from components.slurm_commands.slurm import SlurmError

NOW = 1_790_000_000
HOUR = 3600
CAME = (Stay(NOW - 9 * HOUR, None, 2.0, "USD"),)


def node(name: str, *flags: str, last_busy: int = NOW - 2 * HOUR, **more: Any) -> Node:
    how = {"partitions": frozenset({"all", "rented"}), "features": frozenset({"site-rented", "nvme"}), **more}
    return Node(name, frozenset(flags or {"IDLE"}), gpus=how.pop("gpus", "h100:8"), last_busy=last_busy, **how)


def job(*flags: str, **more: Any) -> Job:
    how: dict[str, Any] = {"partition": "all", "reason": "Resources", "begin": NOW - 60, **more}
    return Job(7, "train", "ada", 6001, flags or ("PENDING",), **how)


def asked(*nodes: Node, jobs: list[Job] | None = None, book: Any = None, minutes: int = 30) -> Use:
    names = [each.name for each in nodes]
    told = dict.fromkeys(names, CAME) if book is None else book
    by_name = {each.name: each for each in nodes}
    return use(names, by_name, jobs or [], told, minutes=minutes, now=NOW, expand=node_names)


def test_nodes_without_a_job_since_the_limit_are_unused() -> None:
    limit = "has been idle for at least 120 min; the limit is 30 min"
    assert asked(node("r1"), node("r2")) == Use(True, f"all 2 nodes {limit.replace('has', 'have')}")
    assert asked(node("r1")).why == f"r1 {limit}"
    for seconds, unused in ((29 * 60, False), (30 * 60 + 59, False), (31 * 60, True)):
        found = asked(node("r1"), node("r2", last_busy=NOW - seconds))
        assert found.unused == unused, seconds
        assert unused or found.why == f"r2 has been idle for {seconds // 60} min; the limit is 30 min"


def test_nodes_with_jobs_or_reservations_keep_all_and_nodes_that_are_out_do_not() -> None:
    for flags in (("ALLOCATED",), ("MIXED",), ("IDLE", "COMPLETING"), ("DOWN", "COMPLETING")):
        assert asked(node("r1"), node("r2", *flags)) == Use(False, "r2 has jobs"), flags
    for flags in (("DRAIN", "IDLE"), ("DOWN",), ("DOWN", "NOT_RESPONDING")):
        assert asked(node("r1", *flags)).unused, flags
    for flag in ("RESERVED", "MAINTENANCE"):
        assert asked(node("r1", "IDLE", flag)).why == "r1 is reserved", flag
    # The node's state need not show a job of it.
    for state in ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED"):
        found = asked(node("r1"), node("r2"), jobs=[job(state, nodes="a1,r[2-3]")])
        assert found == Use(False, "job 7 of ada is on r2"), state
        assert asked(node("r1"), jobs=[job(state, nodes="a[1-9]")]).unused, state
    assert asked(node("r1"), jobs=[job()]) == Use(False, "job 7 of ada waits (Resources) and could run there")


def test_which_jobs_could_run_there() -> None:
    for more, could in (
        ({}, True),
        ({"partition": "cloud-a"}, False),
        ({"partition": "cloud-a,rented"}, True),
        ({"reason": "JobHeldUser"}, False),
        ({"reason": "JobHeldAdmin"}, False),
        ({"reason": "DependencyNeverSatisfied"}, False),
        ({"reason": "Dependency"}, True),
        ({"begin": NOW + 10 * 60}, True),
        ({"begin": NOW + 31 * 60}, False),
        ({"needs": "a[1-4]"}, False),
        ({"needs": "a1,r1"}, True),
        ({"features": "nvme&site-rented"}, True),
        ({"features": "site-cloud-a"}, False),
        ({"features": "site-cloud-a|nvme"}, True),
        ({"features": "[site-cloud-a*2]"}, True),
        ({"resources": "cpu=8,gres/gpu=8"}, True),
        ({"resources": "cpu=8,gres/gpu=8,gres/gpu:h100=8"}, True),
        ({"resources": "cpu=8,gres/gpu=8,gres/gpu:a100=8"}, False),
    ):
        found = could_run(job(**more), [node("r1")], minutes=30, now=NOW, expand=node_names)
        assert found == could, more
        assert not could_run(
            job(resources="gres/gpu=1"), [node("r1", gpus="")], minutes=30, now=NOW, expand=node_names
        ), more


def test_a_node_that_left_the_cluster_is_idle_since_then_and_one_that_never_came_keeps_all() -> None:
    gone = {"r1": CAME, "r2": (Stay(NOW - 9000, NOW - 4000),)}
    names, nodes = ["r1", "r2"], {"r1": node("r1")}
    assert use(names, nodes, [], gone, minutes=30, now=NOW, expand=node_names).unused
    never = use(names, nodes, [], {"r1": CAME}, minutes=30, now=NOW, expand=node_names)
    assert never == Use(False, "r2: slurmctld does not know it, and it was never in the cluster")
    unsure = asked(node("r1", last_busy=0), book={})
    assert unsure == Use(False, "r1: slurmctld does not know how long it has been idle")


class Controller:
    """A fake of slurmctld for one node and its jobs; `calls` has what it was told to change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node, self.calls, self.on_drain = node("r1"), list[str](), lambda: None
        self.jobs = list[dict[str, Any]]()
        monkeypatch.setattr(slurm, "nodes", lambda *_: [self.node])
        monkeypatch.setattr(slurm, "scontrol", self.scontrol)
        monkeypatch.setattr(idle, "read_book", lambda: {"r1": CAME})
        monkeypatch.setattr(time, "time", lambda: NOW)
        monkeypatch.setattr(os, "geteuid", lambda: 0)

    def scontrol(self, *words: str) -> str:
        if words[0] == "show":
            return json.dumps({"jobs": self.jobs})
        self.calls.append(" ".join(words))
        if "state=drain" in words:
            self.node = replace(self.node, flags=self.node.flags | {"DRAIN"})
            self.on_drain()
        return ""


DRAIN = "update nodename=r1 state=drain reason=tailrack: leaves the cluster"
BACK = "update nodename=r1 state=resume"


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["idle", "--json", "--minutes", "30", *words, "r1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return told


def test_the_command_drains_unused_nodes_before_it_reports_them(monkeypatch: Any, capsys: Any) -> None:
    fake = Controller(monkeypatch)
    assert ask(capsys)["unused"] is True
    assert fake.calls == []
    assert ask(capsys, "--take-out")["unused"] is True
    assert fake.calls == [DRAIN]


def test_the_command_resumes_nodes_for_a_job_that_begins_or_a_silent_slurmctld(monkeypatch: Any, capsys: Any) -> None:
    fake = Controller(monkeypatch)
    begun = {"job_id": 8, "user_name": "ada", "job_state": ["RUNNING"], "nodes": "r1"}
    fake.on_drain = lambda: fake.jobs.append(begun)
    assert ask(capsys, "--take-out") == {"unused": False, "why": "job 8 of ada is on r1"}
    assert fake.calls == [DRAIN, BACK]
    fake = Controller(monkeypatch)
    fake.on_drain = lambda: fake.jobs.append({"no": "job"})
    assert main(["idle", "--take-out", "--minutes", "30", "r1"]) == 1
    assert fake.calls == [DRAIN, BACK]
    assert "jobs as JSON" in capsys.readouterr().err


def test_drained_and_used_nodes_are_left_alone_and_only_root_takes_any_out(monkeypatch: Any, capsys: Any) -> None:
    fake = Controller(monkeypatch)
    fake.node = node("r1", "IDLE", "DRAIN")
    assert ask(capsys, "--take-out")["unused"] is True
    fake.node = node("r1", "MIXED")
    assert ask(capsys, "--take-out") == {"unused": False, "why": "r1 has jobs"}
    assert fake.calls == []
    monkeypatch.setattr(os, "geteuid", lambda: 6001)
    assert main(["idle", "--take-out", "r1"]) == 1
    assert "only root" in capsys.readouterr().err
    monkeypatch.setattr(slurm, "nodes", mock.Mock(side_effect=SlurmError("slurmctld has not answered for 30 s")))
    assert main(["idle", "r1"]) == 1
    assert "has not answered" in capsys.readouterr().err
