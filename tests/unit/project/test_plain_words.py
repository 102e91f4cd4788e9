"""codespell finds each phrase of .codespell.txt, and nothing else (pyproject.toml, tool.codespell)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.pulumi.workspace import PROJECT

RULES = dict(line.split("->") for line in (PROJECT / ".codespell.txt").read_text(encoding="utf-8").splitlines())
AT_THE_START = {"of", "one that", "that which", "what", "whatever", "who", "whose"}


def findings(text: str, tmp_path: Path) -> list[str]:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "codespell_lib", str(tmp_path / "page.md")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [line.partition(": ")[2].partition(" ==> ")[0] for line in done.stdout.splitlines()]


def test_each_phrase_is_found_where_it_must_not_be(tmp_path: Path) -> None:
    text = ""
    for phrase in RULES:
        text += f"A node. {phrase.capitalize()} x.\n" if phrase in AT_THE_START else f"A node {phrase}.\n"
    assert [found.lower() for found in findings(text, tmp_path)] == list(RULES)


@pytest.mark.parametrize("opening", ["", "# ", "    # ", '    """', "Node a1: "])
def test_a_sentence_or_a_comment_does_not_start_with_what(opening: str, tmp_path: Path) -> None:
    assert findings(f"{opening}What a node answers.\n", tmp_path) == ["What"]


@pytest.mark.parametrize(
    "line",
    [
        "Ask the node what it knows, and who of them waits.",
        "## What a page shows",
        "The account `nobody` and the option `--anew`.",
        "[Pools](pools.md#what-nobody-uses)",
        "A cluster of your own machines, and nodes of its own release.",
        "nobody has this uid <!-- codespell:ignore -->",
    ],
)
def test_ordinary_words_headings_code_links_and_marked_lines_stay(line: str, tmp_path: Path) -> None:
    assert findings(f"{line}\n", tmp_path) == []
