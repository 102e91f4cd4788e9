"""A step's label in front of its command."""

from __future__ import annotations

import shlex

import pytest

from components.steps.label import StepLabel


@pytest.mark.parametrize(
    "word", ["b1", "", "it's", "''", "a b", 'say "hi"', "x; y", "\\", "#", "é", "one\ntwo", "$(id)"]
)
def test_a_label_is_read_as_it_was_written(word: str) -> None:
    for label in (
        StepLabel(word, "b1", "text"),
        StepLabel("b1-check", word, "text"),
        StepLabel("b1-check", "b1", word),
    ):
        assert StepLabel.of(label.on("bash -c 'true'; false")) == label


@pytest.mark.parametrize("command", ["", ":", ": a b c", ": a b c d; x", "true; x", ": 'a b c; x", ": a b c && x"])
def test_a_command_without_a_label_has_none(command: str) -> None:
    assert StepLabel.of(command) is None


def test_labels_of_a_thousand_hosts_are_read_without_going_through_each_character(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(*_: object, **__: object) -> None:
        raise AssertionError("a label as it is written is read at once")

    command = StepLabel("b1-node", "b1", "b1: it's users, share, slurmd").on("x" * 1000)
    monkeypatch.setattr(shlex, "shlex", slow)
    assert StepLabel.of(command) == StepLabel("b1-node", "b1", "b1: it's users, share, slurmd")
