"""A step's label in front of its command."""

import pytest

from components.steps.label import StepLabel


@pytest.mark.parametrize(
    "word", ["b1", "", "it's", "''", "a b", 'say "hi"', "x; y", "\\", "#", "é", "one\ntwo", "$(id)"]
)
def test_a_label_is_read_as_it_was_written(word: str) -> None:
    for label in (
        StepLabel(word, "b1", "text"),
        StepLabel("b1-prepare", word, "text"),
        StepLabel("b1-prepare", "b1", word),
    ):
        assert StepLabel.of(label.on("bash -c 'true'; false")) == label


@pytest.mark.parametrize("command", ["", ":", ": a b c", ": a b c d; x", "true; x", ": 'a b c; x", ": a b c && x"])
def test_a_command_without_a_label_has_none(command: str) -> None:
    assert StepLabel.of(command) is None
