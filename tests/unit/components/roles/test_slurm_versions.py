"""Which Slurm releases may be in one cluster."""

import pytest

from components.roles.slurm.slurm.versions import NEEDED, oldest_accepted, release, upstream_of


def test_a_controller_accepts_nodes_of_a_few_releases_before_its_own() -> None:
    for controller, oldest in (
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
    ):
        assert oldest_accepted(controller) == oldest, controller


def test_the_release_of_a_version() -> None:
    for text, expected in (
        ("24.11.5-4", "24.11"),
        ("1:23.11.4-1", "23.11"),
        ("25.05", "25.05"),
        ("24.11.5-4+deb13u1", "24.11"),
    ):
        assert release(text) == expected, text


@pytest.mark.parametrize("text", ["", "slurm 24.11", "24", "24.1.3", "24.115", "(none)", "v24.11"])
def test_the_parser_rejects_and_quotes_an_invalid_slurm_version(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Slurm version like") as refused:
        release(text)
    assert repr(text) in str(refused.value)


def test_the_upstream_version_of_a_package() -> None:
    for package, version in (("24.11.5-4", "24.11.5"), ("1:23.11.4-1.2ubuntu5", "23.11.4"), ("24.11.5", "24.11.5")):
        assert upstream_of(package) == version, package


# Every pair of releases.


# Each distribution's version of Slurm, and for it as a head node the answer for each node, in the same order.
PAIRS = {
    "Debian 12": ("22.05.8", "25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h"),
    "Debian 13": ("24.11.5", "24.11.5 b | works | 26.05.5 n | 24.11.5 b | works | 25.11.2 n"),
    "Debian forky": ("26.05.5", "26.05.5 b | 26.05.5 s | works | 26.05.5 b | 26.05.5 s | 26.05.5 s"),
    "Ubuntu 22.04": ("21.08.5", "25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h"),
    "Ubuntu 24.04": ("23.11.4", "23.11.4 b | 24.11.5 n | 26.05.5 n | 23.11.4 b | works | 25.11.2 n"),
    "Ubuntu 26.04": ("25.11.2", "25.11.2 b | 25.11.2 s | 26.05.5 n | 25.11.2 b | 25.11.2 s | works"),
}
EXPECTED = {
    (head, node): answer
    for head, (_, answers) in PAIRS.items()
    for node, answer in zip(PAIRS, answers.split(" | "), strict=True)
}


def test_a_release_that_a_check_tells_to_write_is_one_for_both() -> None:
    releases = {answer.partition(" ")[0] for answer in EXPECTED.values()} - {"works"}
    assert releases
    assert [text for text in releases if release(text) < NEEDED] == []
