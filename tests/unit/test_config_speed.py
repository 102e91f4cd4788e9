"""Configs of any size are read in linear time, and their problems told in a page.

Without a clock: the work is counted. bench/config_growth.py has the seconds, with what C does in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.settings.draft import Draft
from components.settings.problems import MOST_KEPT, MOST_TOLD
from components.settings.section import Section
from stacks.config import ConfigError, parse, reader
from stacks.yaml_file import read_yaml
from tests.unit.large_configs import SIZES, pools, read, yaml_of
from tests.unit.work import Name, assert_linear, lines, named


@pytest.fixture
def names_compared_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of a config, with Names: pydantic makes plain texts of all others."""

    def draft(path: str, model: type[Section], raw: Mapping[str, object] | None = None, values: Any = None) -> Draft:
        return Draft(path, model, raw or {}, {key: named(value) for key, value in (values or {}).items()})

    monkeypatch.setattr(reader, "Draft", draft)


@pytest.mark.usefixtures("names_compared_in_python")
@pytest.mark.parametrize("what", SIZES)
def test_twice_as_much_takes_twice_the_work(what: str, key_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each problem that is kept takes long, as each has a remedy: they would be nearly all of the work.
    monkeypatch.setattr("components.settings.problems.MOST_KEPT", 50)
    count, config = SIZES[what]

    def work(number: int) -> int:
        raw = config(number)
        return lines(lambda: read(raw, key_folder))

    assert_linear(work, count)


def test_the_first_problems_are_told_and_the_number_of_the_rest(key_folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(SIZES["bad users"][1](MOST_KEPT), base_dir=key_folder)
    title, *told, last = str(caught.value).splitlines()
    count = int(title.split()[0])
    assert count >= 2 * MOST_KEPT
    assert len(told) == MOST_TOLD
    assert last.strip().startswith(f"and {count - MOST_TOLD} more")
    assert len(caught.value.problems) == MOST_KEPT


def test_more_nodes_than_slurm_knows_are_refused_without_counting_them_all(key_folder: Path) -> None:
    with pytest.raises(ConfigError, match="more than 65536 nodes"):
        parse(pools(5000, count=1000), base_dir=key_folder)


def test_yaml_is_read_in_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = yaml.parse

    def with_names(*what: Any, **how: Any) -> Iterator[yaml.Event]:
        for event in events(*what, **how):
            if isinstance(event, yaml.ScalarEvent):
                event.value = Name(event.value)
            yield event

    monkeypatch.setattr(yaml, "parse", with_names)

    def work(number: int) -> int:
        path = tmp_path / "Pulumi.trial.yaml"
        path.write_text(yaml_of(number))
        return lines(lambda: read_yaml(path))

    assert_linear(work, 2000)
