"""The comment on a pull request: machines, steps and lines, and nothing in it that could be taken for markup."""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from pulumi.runtime.rpc import UNKNOWN

from cli.changes_to_allow import Checks
from cli.preview.comment import LONGEST
from cli.preview.comment import comment as written
from cli.preview.plan import Plan
from cli.run_events import Event, Failure, Made, Summary
from components.steps.command_line import render_request, whole_command
from components.steps.label import StepLabel
from tests.unit.recorded import public_key

COMMAND = "command:remote:Command"


def comment(stack: str, events: list[Event], summary: Summary) -> str:
    """The comment on a preview in which nothing was found."""
    return written(stack, Plan.of(events, [], summary), summary.failures, Checks(()))


def step(name: str, machine: str, words: str, operation: str = "update", **inputs: Any) -> Event:
    """A step that says what it does, and about which machine."""
    return replace(start(name, operation, **inputs), command=StepLabel(name, machine, f"{machine}: {words}").on("true"))


def header(**values: str) -> dict[str, str]:
    return {"stdin": render_request("h-step", "h", "", "", values)}


def start(name: str, operation: str = "update", kind: str = COMMAND, **inputs: Mapping[str, Any]) -> Event:
    return Event("start", operation, f"urn::{name}", name, kind, **inputs)  # type: ignore[arg-type]


def test_the_comment_lists_added_and_removed_machines_repeated_steps_and_changed_lines() -> None:
    summary = Summary()
    summary.counts["same"] = 7
    before, after = header(SLURM="KillWait=30\na"), header(SLURM="KillWait=45\na")
    events = [
        start("n3", "create", "tailrack:cluster:ComputeNode"),
        start("n2", "delete", "tailrack:cluster:ComputeNode"),
        start("n3-prepare", "create"),
        start("door-head", before=before, after=after),
        Event("done", "update", "urn::door-head", "door-head", COMMAND),
    ]
    text = comment("prod", events, summary)
    assert text.startswith("<!-- tailrack preview of stack prod -->\n")
    assert "2 to create, 1 to update, 1 to delete, 7 unchanged." in text
    assert "**Machines:** `n2` removed, `n3` added." in text
    assert "\n```diff\n# slurm\n- KillWait=30\n+ KillWait=45\n```\n" in text
    assert "- n3-prepare: runs\n" in text
    assert text.count("door-head") == 1


def test_nothing_that_a_config_says_is_markup() -> None:
    lines = header(A="x\n```\n</details> @everybody")
    text = comment("a`b", [start("<img src=x> @all", before=header(), after=lines)], Summary())
    assert "<img" not in text
    assert "@all" not in text.replace("&#64;", "")
    assert "&#64;all" not in text, "GitHub looks for mentions where entities are characters again"
    assert "````diff" in text
    assert "`a?b`" in text


@pytest.mark.parametrize(
    "word", ["@ada", "#12", "GH-12", "https://e.example", "www.e.example", "1. x", "- x", "+ x", "= x"]
)
def test_no_words_of_a_title_are_a_mention_a_reference_a_link_or_a_list(word: str) -> None:
    text = comment("prod", [start(word, "create")], Summary())
    (line,) = [line for line in text.splitlines() if line.endswith(": runs")]
    assert unescape(line).replace("\u200b", "") == f"- {word}: runs"
    assert not re.search(r"@\w|#\d|GH-\d|://e|www\.e", unescape(line)), "they are looked for after entities are read"
    assert not re.match(r"- (\d+\.|[-+=])", line), "and these before"


def test_a_failure_with_blank_lines_leaves_no_fence_open() -> None:
    text = comment("prod", [], Summary(failures=[Failure("", "a\n\n" * LONGEST)] * 20))
    assert text.count("```") % 2 == 0


def test_one_that_is_too_long_ends_with_a_whole_part() -> None:
    huge = header(A="\n".join("x" * 150 for _ in range(30)))
    events = [start(f"n{number}", before=header(), after=huge) for number in range(100)]
    text = comment("prod", events, Summary())
    assert len(text) < LONGEST + 100
    assert text.count("```diff") * 2 == text.count("```")
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith("see the log of the preview.\n")


def test_the_comment_names_gained_and_lost_keys_by_fingerprint() -> None:
    laptop, desk, bobs = (f"{public_key(name)} {name}" for name in ("laptop", "desk", "bobs pc"))
    before = header(user_keys_lines=f"ada {laptop}\nbob {bobs}")
    after = header(user_keys_lines=f"ada {desk}\nbob {bobs}")
    events = [step(f"{node}-node", node, "users", before=before, after=after) for node in ("a1", "a2")]
    text = comment("prod", events, Summary())
    key = desk.split()[1]
    print_ = base64.b64encode(hashlib.sha256(base64.b64decode(key)).digest()).decode().rstrip("=")
    shown = text[text.index("**SSH keys:**") :].split("```")[1]
    assert f"+ ada: ssh-ed25519 SHA256:{print_} (desk) can log in\n" in shown
    assert "(laptop) can no longer log in" in shown
    assert "bob" not in shown
    assert shown.count("\n") == 3, "each key once, however many machines it is on"


def test_the_comment_names_identities_that_open_machines_and_their_provider() -> None:
    row = "https://a.org"
    before = header(user_keys_provider="", user_keys_identities="")
    after = header(user_keys_provider=f"{row} lab 24h", user_keys_identities=f"ada ada@a.org {row}")
    text = comment("prod", [step("a1-node", "a1", "users", before=before, after=after)], Summary())
    shown = text[text.index("**SSH keys:**") :].split("```")[1].removeprefix("diff")
    assert shown.split("\n")[1:-1] == [f"+ {row} lab 24h", f"+ ada ada@a.org {row}"]


def test_the_comment_lists_new_and_removed_group_members() -> None:
    before = header(user_groups_lines="vision 7001", user_groups_members="vision ada\nvision bob")
    after = header(user_groups_lines="nlp 7002\nvision 7001", user_groups_members="nlp bob\nvision ada")
    events = [step(f"{node}-node", node, "users", before=before, after=after) for node in ("a1", "a2")]
    text = comment("prod", events, Summary())
    shown = text[text.index("**Groups:**") :].split("```")[1].removeprefix("diff")
    assert shown.split("\n")[1:-1] == ["+ nlp 7002", "+ bob joins nlp", "- bob leaves vision"]


def test_of_machines_with_lines_of_their_own_some_are_shown_and_all_are_named() -> None:
    def changed(node: int) -> Event:
        return step(f"n{node}-node", f"n{node}", "slurmd", before=header(A=f"{node}"), after=header(A=f"{node + 1}"))

    text = comment("prod", [changed(node) for node in range(400)], Summary())
    assert text.count("<details>") == 1
    assert "# on n0\n# a\n- 0\n+ 1\n# on n1\n" in text
    assert "# on n[3-399]: other lines" in text


@pytest.mark.parametrize("order", [("replace", "delete"), ("delete", "replace")])
def test_the_comment_shows_a_replacement_once(order: tuple[str, str]) -> None:
    """One engine tells of the delete that is a part of it, before or after."""
    before, after = {"triggers": ["one"]}, {"triggers": ["two"]}
    inputs = {"replace": {"before": before, "after": after}, "delete": {"before": before}}
    events = [start("munge-key", operation, **inputs[operation]) for operation in order]  # type: ignore[arg-type]
    text = comment("prod", events, Summary())
    assert "1 to replace, 0 unchanged" in text
    assert text.count("munge-key") == 1
    assert "measures" not in text, "another key is no measurement"


def test_a_step_that_depends_only_on_an_unknown_value_may_run_again() -> None:
    before = header(head_address="100.64.0.1")
    events = [step("n1-node", "n1", "slurmd", before=before, after={"stdin": UNKNOWN})]
    text = comment("prod", events, Summary())
    assert "Nothing to change, 1 unchanged, of which 1 may run again." in text
    assert text.partition("**May run again**")[2].count("- slurmd on n1\n") == 1
    assert "slurmd" not in text.partition("**May run again**")[0]


def test_a_step_that_reads_a_repeated_steps_answers_may_run_again() -> None:
    def made(name: str, machine: str, *values_of: str) -> Made:
        words = StepLabel(name, machine, f"{machine}: {name.rpartition('-')[2]}").on(whole_command("root", "up"))
        return Made(f"urn::{name}", words, values_of=values_of)

    state = [made("h-head", "h"), made("a-node", "a", "urn::a-register"), made("a-register", "a", "urn::h-head")]
    events = [step("h-head", "h", "head", before=header(A="1"), after=header(A="2"))]
    plan = Plan.of(events, state, Summary())
    assert [(work.action, work.subjects) for work in plan.perhaps] == [("node", ["a"]), ("register", ["a"])]


def test_a_line_of_slurm_conf_goes_with_the_last_node_that_brings_it() -> None:
    line = "NodeSet=gpu-h200 Feature=gpu-h200"
    state = [Made(f"urn::{name}-register", stdin=header(node_slurm_conf=line)["stdin"]) for name in ("a", "b")]
    gone = [start(f"{name}-register", "delete", before=header(node_slurm_conf=line)) for name in ("a", "b")]
    assert [*Plan.of(gone, state, Summary()).effects.values()] == [[f"- {line}"]]
    assert Plan.of(gone[:1], state, Summary()).effects == {}


def test_the_lines_of_slurm_conf_that_come_with_a_new_node_are_shown_or_said_to_be_possible() -> None:
    there = [Made("urn::n1-register", "", header(node_slurm_conf="NodeSet=site-rack Feature=site-rack")["stdin"], "{}")]

    def slurm_conf(kind: str, made: list[Made]) -> list[str]:
        after = {"gpuKind": kind} if kind else {}
        nodes = [start(node, "create", "tailrack:cluster:ComputeNode", after=after) for node in ("n2", "n3")]
        member = step("n2-register", "n2", "export", "create", after={"stdin": UNKNOWN})
        plan = Plan.of([*nodes, member], made, Summary())
        return plan.effects.get("slurm.conf", [])

    assert slurm_conf("h200", there) == [
        "+ NodeSet=gpu-h200 Feature=gpu-h200",
        "+ PartitionName=h200 Nodes=gpu-h200 MaxTime=INFINITE State=UP",
    ]
    assert slurm_conf("", there) == ["# also the lines of partition gpu, if GPUs are found on n2, n3"]
    assert slurm_conf("h200", []) == [], "of a cluster that is not there yet all is new"


def test_the_removal_of_a_node_explains_the_fate_of_its_jobs_and_the_duration() -> None:
    gone = step("a1-register", "a1", "register", "delete", before=header(slurm_job_limit_seconds="300"))
    written = comment("prod", [gone], Summary())
    assert "jobs on a1 may continue for 300 s (tailrack:slurm.job_limit_seconds)" in written
    assert "requeued, or cancelled" in written
