"""The comment on a pull request: machines, steps and lines, and nothing in it that could be taken for markup."""

from __future__ import annotations

import re
from html import unescape

import pytest

from driver.checks import Checks
from driver.comment import LONGEST
from driver.comment import comment as written
from engine.events import Event, Failure, Summary

COMMAND = "command:remote:Command"


def comment(stack: str, events: list[Event], summary: Summary) -> str:
    """The comment on a preview in which nothing was found."""
    return written(stack, events, summary, Checks(()))


def start(name: str, operation: str = "update", kind: str = COMMAND, **inputs: dict[str, str]) -> Event:
    return Event("start", operation, f"urn::{name}", name, kind, **inputs)  # type: ignore[arg-type]


def test_it_says_which_machines_come_and_go_what_runs_again_and_the_lines_that_change() -> None:
    summary = Summary()
    summary.counts |= {"create": 2, "update": 1, "same": 7}
    before, after = (
        {"stdin": "SLURM='KillWait=30\na'\n#!/bin/bash\n"},
        {"stdin": "SLURM='KillWait=45\na'\n#!/bin/bash\n"},
    )
    text = comment(
        "prod",
        [
            start("n3", "create", "tailrack:cluster:ComputeNode"),
            start("n2", "delete", "tailrack:cluster:ComputeNode"),
            start("n3-join", "create"),
            start("door-head", before=before, after=after),
            Event("done", "update", "urn::door-head", "door-head", COMMAND),
        ],
        summary,
    )
    assert text.startswith("<!-- tailrack preview of stack prod -->\n")
    assert "2 to create, 1 to update, 7 unchanged." in text
    assert "**Machines:** `n3` comes, `n2` goes." in text
    assert "\n```diff\n# slurm\n- KillWait=30\n+ KillWait=45\n```\n" in text
    assert "- n3-join runs\n" in text
    assert text.count("door-head") == 1


def test_nothing_that_a_config_says_is_markup() -> None:
    lines = {"stdin": "A='x\n```\n</details> @everybody'\n#!/bin/bash\n"}
    text = comment("a`b", [start("<img src=x> @all", before={"stdin": "#!/bin/bash\n"}, after=lines)], Summary())
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
    (line,) = [line for line in text.splitlines() if line.endswith(" runs")]
    assert unescape(line).replace("\u200b", "") == f"- {word} runs"
    assert not re.search(r"@\w|#\d|GH-\d|://e|www\.e", unescape(line)), "they are looked for after entities are read"
    assert not re.match(r"- (\d+\.|[-+=])", line), "and these before"


def test_a_failure_with_blank_lines_leaves_no_fence_open() -> None:
    text = comment("prod", [], Summary(failures=[Failure("", "a\n\n" * LONGEST)] * 20))
    assert text.count("```") % 2 == 0


def test_one_that_is_too_long_ends_with_a_whole_part() -> None:
    huge = {"stdin": "A='" + "\n".join("x" * 150 for _ in range(30)) + "'\n#!/bin/bash\n"}
    text = comment("prod", [start(f"n{number}", before={"stdin": ""}, after=huge) for number in range(100)], Summary())
    assert len(text) < LONGEST + 100
    assert text.count("```diff") * 2 == text.count("```")
    assert text.endswith("see the log of the preview.\n")


def test_a_preview_that_failed_says_why() -> None:
    text = comment("prod", [], Summary(failures=[Failure("", "1 problem in the stack config")]))
    assert "**The preview failed.**" in text
    assert "1 problem in the stack config" in text
