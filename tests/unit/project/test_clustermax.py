"""The page on ClusterMAX's audit has each check that warns or fails in the lab, once, in a group with its reason."""

import re

from cli.pulumi.workspace import PROJECT
from tests.lab.clustermax_expected import EXPECTED, OF_THE_HOST, expected

PAGE = (PROJECT / "docs" / "clustermax.md").read_text(encoding="utf-8")


def test_the_page_groups_each_check_that_warns_or_fails_once() -> None:
    groups = PAGE.partition("## Checks that do not pass")[2].partition("\n## ")[0]
    listed = [name for name in re.findall(r"`([\w.-]+)`", groups) if name in expected() or "." in name]
    assert sorted(listed) == sorted(key for key, status in expected().items() if status in ("warning", "fail"))


def test_the_checks_that_the_machine_under_the_lab_decides_exist() -> None:
    assert set(OF_THE_HOST) <= expected().keys()


def test_the_page_counts_the_results_as_they_are() -> None:
    count = {status: len(keys) for status, keys in EXPECTED.items()}
    words = f"{count['pass']} pass, {count['fail']} fail, {count['warning']} warnings, {count['skipped']} skipped"
    assert words in PAGE
