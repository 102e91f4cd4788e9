"""The page on ClusterMAX's audit has each check that the lab test expects, with its result and the reason."""

from __future__ import annotations

import re

from cli.pulumi.workspace import PROJECT
from tests.lab.clustermax_expected import OF_THE_HOST, expected

PAGE = (PROJECT / "docs" / "clustermax.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \| (\w+) \|(?: (.+))? \|$", PAGE, re.M)
GROUPS = set(re.findall(r"^- \*\*(\w+)\*\*: ", PAGE, re.M))


def test_the_page_has_each_check_once_with_the_result_that_the_lab_test_expects() -> None:
    assert {key: status for key, status, _ in ROWS} == expected()
    assert len(ROWS) == len(expected())


def test_each_check_that_does_not_pass_has_a_group_and_a_reason() -> None:
    for key, status, reason in ROWS:
        if status != "pass":
            assert reason.partition(": ")[0] in GROUPS, key
            assert reason.partition(": ")[2], key


def test_the_checks_that_the_machine_under_the_lab_decides_exist() -> None:
    assert set(OF_THE_HOST.split()) <= expected().keys()


def test_the_page_counts_the_results_as_they_are() -> None:
    count = {status: list(expected().values()).count(status) for status in ("pass", "fail", "warning", "skipped")}
    words = f"{count['pass']} pass, {count['fail']} fail, {count['warning']} warnings, {count['skipped']} skipped"
    assert words in PAGE
