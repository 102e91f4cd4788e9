"""The command `tailrack` of the head node: whose a node's being out is, and what has to hold before it is back."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.node.install import FOLDER as INSTALLED
from components.roles.commands.tailrack import main, nodes, out_reason, resume
from components.roles.commands.tailrack.out_reason import NO_ANSWER, NO_CHECKS, TAILRACK, Answer, failure, why_out
from components.roles.role import FOLDER, folder_of
from components.roles.slurm.slurm.node_state import OUR_DRAINS
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.drain import HEALTH_PREFIX
from tests.unit.shell import ROLES

NOW = 1_790_000_000
SCRIPTS = "Prolog error: prolog.d/50-mine: ended with status 3: no room for job 7; next: make room in /scratch"
FAILED = out_reason.Failure("30-health", "12", "Xid 79 on GPU 3", "reset the GPU", NOW)


def node(*flags: str, reason: str = "", by: str = "root", since: int = NOW) -> Node:
    return Node("a1", frozenset(flags), reason, by if reason else "", since if reason else 0)


def test_the_node_list_names_the_owner_and_remedy_of_a_drain() -> None:
    for given, whose, next_ in (
        (node("IDLE", "DRAIN", reason="new disk", by="ada"), "person ada", "tailrack resume a1 (when ada is done)"),
        (node("IDLE", "DRAIN", reason="tailrack: my own words"), "person root", "tailrack resume a1"),
        (node("IDLE", "DRAIN", reason="health: Xid 79 GPU 3"), "health", "tailrack resume a1 (it runs the checks"),
        (node("MIXED", "DRAIN", reason="tailrack: leaves the cluster"), "tailrack", "make up"),
        (node("DOWN", reason="tailrack: shuts down"), "tailrack", "switch a1 on"),
        (node("DOWN", reason="tailrack: the pod started again"), "tailrack", "slurmd/current"),
        (node("DOWN", "NOT_RESPONDING", reason="Not responding", by="slurm"), "Slurm", "systemctl status slurmd"),
        (node("IDLE", "NOT_RESPONDING"), "Slurm", "systemctl status slurmd"),
        (node("IDLE", "DRAIN", reason="Prolog error", by="slurm"), "prolog", "journalctl -u slurmd"),
        (node("IDLE", "DRAIN", reason="Epilog error", by="slurm"), "epilog", "journalctl -u slurmd"),
        (node("IDLE", "DRAIN", reason=SCRIPTS), "prolog", "make room in /scratch, then tailrack resume a1"),
        (node("IDLE", "DRAIN", reason="Prolog error: ask ada", by="root"), "person root", "tailrack resume a1"),
        # Slurm keeps the reason of a node that is back, and adds its own to it when the node goes down.
        (node("IDLE", "NOT_RESPONDING", reason="health: Xid 79 GPU 3"), "Slurm", "systemctl status slurmd"),
        (node("MIXED", "NOT_RESPONDING", reason="new disk", by="ada"), "Slurm", "systemctl status slurmd"),
        (node("DOWN", reason="health: Xid 79 : Not responding", by="slurm"), "Slurm", "systemctl status slurmd"),
        (node("IDLE", "DRAIN", reason="Kill task failed", by="slurm"), "Slurm", "systemctl reboot"),
        (node("IDLE", "DRAIN", reason="something new", by="slurm"), "Slurm", "then tailrack resume a1"),
    ):  # fmt: skip
        out = why_out(given)
        assert out is not None, given
        assert f"{out.whose} {out.who}".strip() == whose, given
        assert next_ in out.next, given


def test_the_node_list_names_a_failed_prolog_unless_it_precedes_the_drain() -> None:
    given = node("IDLE", "DRAIN", reason="Prolog error", by="slurm")
    out = why_out(given, FAILED)
    assert out is not None
    assert out.reason == "Prolog error: 30-health, job 12: Xid 79 on GPU 3"
    assert out.next == "reset the GPU, then tailrack resume a1"
    # As the node's root writes it into the reason; and a failure of another script is none of this drain.
    for reason, said in ((SCRIPTS, SCRIPTS.partition("; next: ")[0]), (SCRIPTS.replace("50-mine", "60-x"), "60-x")):
        out = why_out(node("IDLE", "DRAIN", reason=reason), FAILED)
        assert out is not None
        assert said in out.reason
        assert out.next == "make room in /scratch, then tailrack resume a1"
    old = why_out(node("IDLE", "DRAIN", reason="Prolog error", by="slurm", since=NOW + 3600), FAILED)
    assert old is not None
    assert "Xid" not in old.reason


def test_every_reason_that_the_scripts_write_is_known_as_tailracks() -> None:
    scripts = [*FOLDER.glob("*/*/*.sh"), *FOLDER.glob("*/*/templates/*")]
    text = "".join(path.read_text() for path in scripts if path.is_file())
    phases = "".join(path.read_text() for path in folder_of("slurm").glob("*.py"))
    written = set(re.findall(r"""reason=["']?(tailrack: [^"'$]*)["']""", text))
    written |= set(re.findall(r'clear_jobs "\$\w+" "(tailrack: [^"$]*)"', text))
    written |= set(re.findall(r'"(?:reason=)?(tailrack: [^"({]*)"', phases))
    assert {"tailrack: shuts down", "tailrack: leaves the cluster", "tailrack: does not answer"} <= written
    assert "tailrack: registers anew" in written
    assert {reason for reason in written if not TAILRACK.fullmatch(reason)} == set()
    # And all that steps bring back by themselves.
    words = set(OUR_DRAINS.pattern.removeprefix("tailrack: (").removesuffix(")").split("|"))
    assert words <= set(TAILRACK.pattern.removeprefix("tailrack: (").removesuffix(")").split("|"))


def test_the_node_list_describes_a_state_in_words() -> None:
    for flags, said in (
        (("IDLE",), "idle"),
        (("IDLE", "DRAIN"), "drained"),
        (("MIXED", "DRAIN"), "draining"),
        (("IDLE", "DYNAMIC_NORM"), "idle"),
        (("DOWN", "NOT_RESPONDING"), "down, not responding"),
        (("DOWN", "DRAIN", "INVALID_REG"), "down, invalid reg"),
        (("ALLOCATED", "REBOOT_REQUESTED"), "allocated, reboot requested"),
    ):
        assert node(*flags).state == said, flags


def told(**changes: Any) -> str:
    whole = {"name": "a1", "state": ["IDLE", "DRAIN"], "reason": "x", "reason_set_by_user": "ada"}
    return json.dumps({"nodes": [{**whole, "reason_changed_at": {"set": True, "number": NOW}, **changes}]})


def test_the_note_of_a_pod_names_its_limits_and_its_recovery() -> None:
    pod = replace(node("IDLE"), features=frozenset({"pod", "site-pods"}))
    assert "note for a1: a pod does not confine jobs" in nodes.as_text([pod], {"a1": None}, NOW)
    assert json.loads(nodes.as_json([pod], {"a1": None}))["nodes"][0]["note"].startswith("a pod does not")
    silent = why_out(replace(pod, flags=frozenset({"DOWN", "NOT_RESPONDING"})))
    assert silent is not None
    assert "start a1 at its provider" in silent.next
    assert "systemctl" not in silent.next


def test_the_node_list_names_unconfined_nodes_if_other_nodes_confine_jobs() -> None:
    for feature, expected in (("unconfined", ["b1"]), ("nvlink", [])):
        found = [
            Node("a1", frozenset({"IDLE"})),
            Node("b1", frozenset({"IDLE"}), features=frozenset({"site-b", feature})),
        ]
        why = {each.name: None for each in found}
        lines = [line for line in nodes.as_text(found, why, NOW).splitlines() if "jobs are not confined" in line]
        assert [line.partition(":")[0] for line in lines] == expected, feature
        rows = json.loads(nodes.as_json(found, why))["nodes"]
        assert [row["name"] for row in rows if row.get("confined") is False] == expected, feature


def test_another_answer_of_slurm_or_an_endless_one_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "[]", "{}", '{"nodes": [1]}', '{"nodes": [{"name": "a"}]}', "null"):
        monkeypatch.setattr(slurm, "scontrol", lambda *_, text=text: text)
        with pytest.raises(SlurmError, match="does not print nodes as JSON"):
            slurm.nodes()
    monkeypatch.setattr(slurm, "MOST_BYTES", 1 << 20)
    with pytest.raises(SlurmError, match="head -c 9000000: more than 1 MiB"):
        slurm._run("head", "-c", "9000000", "/dev/zero")


def test_the_table_has_a_line_a_node_and_reason_and_next_command_of_those_that_are_out() -> None:
    found = [node("IDLE", "DRAIN", reason="disk\x1b[2J", by="ada", since=NOW - 7200), Node("b22", frozenset({"IDLE"}))]
    shown = nodes.as_text(found, {each.name: why_out(each) for each in found}, NOW).splitlines()
    assert shown[0] == "a1   drained"
    assert re.fullmatch(r"     person ada, since 20\d\d-\d\d-\d\d \d\d:\d\d UTC \(2 h 0 min\): disk \[2J", shown[1])
    assert shown[2:] == ["     next: tailrack resume a1 (when ada is done)", "b22  idle", "1 of 2 nodes out"]
    (out, idle) = json.loads(nodes.as_json(found, {each.name: why_out(each) for each in found}))["nodes"]
    assert (out["whose"], out["who"], out["since"], out["out"]) == ("person", "ada", NOW - 7200, True)
    assert (idle["whose"], idle["since"], idle["out"]) == (None, None, False)


FINDINGS = [{"severity": "error", "check": "disk", "seen": "/ is 99 % full", "remedy": "make room"}]


def test_checks_that_did_not_run_are_no_all_clear() -> None:
    for answer, why in (
        (Answer(NO_CHECKS, ""), "the node has no checks installed"),
        (Answer(NO_ANSWER, "Connection timed out"), "its checks did not run (Connection timed out)"),
        (Answer(0, "hello"), "its checks printed no findings"),
        (Answer(124, ""), "its checks printed no findings (exit status 124)"),
        (Answer(0, '[{"severity": "worst", "check": "x", "seen": "y"}]'), "its checks printed no findings"),
    ):
        assert out_reason.checked(answer) == out_reason.Checked(None, why, broken=answer.status != NO_CHECKS), answer


def test_the_command_returns_the_output_of_a_node_for_any_status(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for program, status, said in (
        ("echo '{\"findings\": []}'; exit 1", 1, '{"findings": []}'),
        ("echo 'no way' >&2; exit 255", 255, "no way"),
        ("exit 127", 127, ""),
    ):
        ended = real(["bash", "-c", program], capture_output=True, text=True)
        monkeypatch.setattr("subprocess.run", lambda *_, ended=ended, **__: ended)
        answer = out_reason.ask("a1", "checks", "head")
        assert (answer.status, answer.output.strip()) == (status, said), program


@pytest.mark.parametrize("said", ["", "{", "[]", '{"time": "soon"}', '{"time": [1]}'])
def test_a_last_failure_that_is_none_is_left_out(said: str) -> None:
    assert failure(Answer(0, said)) is None


class World:
    """Fakes of slurmctld and of a node that answers, for tests alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: Node, answer: Answer) -> None:
        self.node, self.updates = there, list[str]()
        monkeypatch.setattr(slurm, "nodes", lambda *_: [self.node])
        monkeypatch.setattr(slurm, "scontrol", self.scontrol)
        monkeypatch.setattr(resume, "ask", lambda *_: answer)
        monkeypatch.setattr(nodes, "ask", lambda *_: Answer(NO_ANSWER, ""))
        monkeypatch.setattr("os.geteuid", lambda: 0)
        monkeypatch.setattr(resume, "BACK_SECONDS", 0)

    def scontrol(self, *words: str) -> str:
        self.updates.append(" ".join(words))
        self.node = Node("a1", frozenset({"IDLE"}))
        return ""


DRAINED = node("IDLE", "DRAIN", reason="x", by="ada")
RESUMED = ["update nodename=a1 state=resume"]


def test_resume_resumes_a_node_without_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, answer, words, status, updates in (
        (DRAINED, Answer(0, "[]"), [], 0, RESUMED),
        (DRAINED, Answer(0, json.dumps([{**FINDINGS[0], "severity": "warning"}])), [], 0, RESUMED),
        (DRAINED, Answer(1, json.dumps(FINDINGS)), [], 1, []),
        (DRAINED, Answer(1, json.dumps(FINDINGS)), ["--force"], 0, RESUMED),
        # Checks that should have run and did not.
        (DRAINED, Answer(NO_ANSWER, "connect to host a1 port 22: Connection refused"), [], 1, []),
        (DRAINED, Answer(NO_ANSWER, "connect to host a1 port 22: Connection refused"), ["--force"], 0, RESUMED),
        (DRAINED, Answer(124, ""), [], 1, []),
        # Without checks it goes by what Slurm tells.
        (DRAINED, Answer(NO_CHECKS, ""), [], 0, RESUMED),
        (node("DOWN", reason="Node unexpectedly rebooted", by="slurm"), Answer(NO_CHECKS, ""), [], 0, RESUMED),
        (node("DOWN", "NOT_RESPONDING", reason="Not responding", by="slurm"), Answer(0, "[]"), [], 1, []),
        (node("IDLE", "DRAIN", reason="tailrack: leaves the cluster"), Answer(0, "[]"), [], 1, []),
        (Node("a1", frozenset({"IDLE"})), Answer(0, "[]"), [], 0, []),
    ):
        world = World(monkeypatch, there, answer)
        assert main.main(["resume", "a1", *words]) == status, (there, answer, words)
        assert world.updates == updates, (there, answer, words)


@pytest.mark.parametrize(("then", "status"), [(Node("a1", frozenset({"IDLE"})), 0), (DRAINED, 1)])
def test_a_node_that_is_back_meanwhile_is_no_failure(monkeypatch: pytest.MonkeyPatch, then: Node, status: int) -> None:
    world = World(monkeypatch, node("DOWN", reason="gone"), Answer(NO_CHECKS, ""))

    def refuse(*_: str) -> str:
        world.node = then
        raise SlurmError("slurm_update error: Invalid node state specified")

    monkeypatch.setattr(slurm, "scontrol", refuse)
    assert main.main(["resume", "a1"]) == status


def test_resume_needs_root_and_a_node_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(monkeypatch, DRAINED, Answer(0, "[]"))
    for name in ("a1,b1", "-x", "ALL", "a[1-9]", ""):
        assert main.main(["resume", "--", name]) == 1, name
        assert "is not the name of a node" in capsys.readouterr().err
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main.main(["resume", "a1"]) == 1
    assert "sudo tailrack resume a1" in capsys.readouterr().err
    assert world.updates == []


def test_a_node_that_the_cluster_does_not_have_is_said_to_be_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, missing in (
        (["resume", "nosuch"], "nosuch"),
        (["nodes", "nosuch"], "nosuch"),
        (["nodes", "a1", "b[7-8]"], "b7, b8"),
    ):

        def scontrol(*asked: str) -> str:
            if asked[1] == "hostnames":
                return "\n".join(["b7", "b8"] if asked[2] == "b[7-8]" else asked[2].split(","))
            return told() if "a1" in asked[2].split(",") else '{"nodes": []}'

        monkeypatch.setattr(slurm, "scontrol", scontrol)
        monkeypatch.setattr("os.geteuid", lambda: 0)
        assert main.main(words) == 1, words
        said = capsys.readouterr()
        assert said.err == f"tailrack: there is no node {missing}; 'tailrack nodes' shows all nodes\n", words
        assert said.out == "", words


def test_resume_shows_the_remedy_of_a_finding_and_of_a_failed_prolog(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    World(monkeypatch, DRAINED, Answer(1, json.dumps(FINDINGS)))
    assert main.main(["resume", "a1"]) == 1
    said = capsys.readouterr()
    assert "error: disk: / is 99 % full; make room" in said.out
    assert "a1 stays out: disk: / is 99 % full" in said.err
    assert "next: repair that, or run 'tailrack resume --force a1'" in said.err
    World(monkeypatch, node("IDLE", "DRAIN", reason=SCRIPTS), Answer(0, "[]"))
    assert main.main(["resume", "a1"]) == 0
    out = capsys.readouterr().out
    assert "by prolog: Prolog error: prolog.d/50-mine: ended with status 3: no room for job 7\n" in out
    assert "next: make room in /scratch" in out


def test_the_program_runs_on_a_machine_that_has_nothing_else_of_ours(tmp_path: Path, installed: Path) -> None:
    (text,) = [file.text for role in ROLES if role.name == "tailrack" for file in role.files["services"]]
    program = tmp_path / "tailrack"
    program.write_text(text.replace(INSTALLED, str(installed)))
    program.chmod(0o755)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\ncat <<'EOF'\n{told()}\nEOF\n")
    scontrol.chmod(0o755)
    done = subprocess.run([program, "nodes"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "next: tailrack resume a1" in done.stdout
    assert HEALTH_PREFIX not in done.stdout
