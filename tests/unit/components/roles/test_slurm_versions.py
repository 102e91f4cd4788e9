"""Which Slurm releases may be in one cluster."""

from __future__ import annotations

import pytest

from components.roles.slurm.versions import RELEASES, oldest_accepted, oldest_reached, release, upstream


@pytest.mark.parametrize(
    ("controller", "oldest"),
    [
        ("23.02.7", "21.08"),
        ("23.11.4-1.2ubuntu5", "22.05"),
        ("24.05.8", "23.02"),  # two releases back
        ("24.11.5-4", "23.02"),  # three, from here on
        ("25.05.1", "23.11"),
        ("25.11.2-1", "24.05"),
        ("26.11.0", "25.05"),
        ("27.05.1", "25.11"),  # newer than the table: the three newest in it, and no more
        ("21.08.8", "21.08"),
        ("20.11.4", "20.11"),  # older than the table: its own release only
        ("24.08.1", "24.08"),  # never was
    ],
)
def test_a_controller_accepts_nodes_of_a_few_releases_before_its_own(controller: str, oldest: str) -> None:
    assert oldest_accepted(controller) == oldest


@pytest.mark.parametrize(
    ("controller", "node", "accepted"),
    [
        ("25.11.2", "23.11.4", False),  # Ubuntu 26.04 and 24.04
        ("25.11.2", "24.11.5", False),  # Ubuntu 26.04 and Debian 13
        ("26.05.5", "25.11.2", False),
        ("26.05.5", "26.05.2", True),
        ("25.05.3", "24.11.5", True),
        ("24.11.5", "23.11.4", True),  # Debian 13 and Ubuntu 24.04
        ("24.11.5", "23.02.7", True),
        ("24.11.5", "22.05.8", False),
        ("24.05.8", "22.05.8", False),
    ],
)
def test_distributions_that_meet_in_a_cluster(controller: str, node: str, accepted: bool) -> None:
    assert (release(node) >= oldest_reached(controller)) is accepted


def test_the_table_is_in_order_and_a_controller_accepts_its_own_release() -> None:
    assert sorted(RELEASES) == list(RELEASES)
    for each in RELEASES:
        assert oldest_accepted(f"{each}.1") <= each


@pytest.mark.parametrize(
    ("text", "expected"),
    [("24.11.5-4", "24.11"), ("1:23.11.4-1", "23.11"), ("25.05", "25.05"), ("24.11.5-4+deb13u1", "24.11")],
)
def test_the_release_of_a_version(text: str, expected: str) -> None:
    assert release(text) == expected


@pytest.mark.parametrize("text", ["", "slurm 24.11", "24", "24.1.3", "24.115", "(none)", "v24.11"])
def test_the_parser_rejects_and_quotes_an_invalid_slurm_version(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Slurm version like") as refused:
        release(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("package", "version"), [("24.11.5-4", "24.11.5"), ("1:23.11.4-1.2ubuntu5", "23.11.4"), ("24.11.5", "24.11.5")]
)
def test_the_upstream_version_of_a_package(package: str, version: str) -> None:
    assert upstream(package) == version
