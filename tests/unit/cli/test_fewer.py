"""An `up` whose cloud had no machine for some nodes is done again without these, if the site may have fewer."""

import os
from collections import Counter
from pathlib import Path

import pytest

from cli.pulumi.deployment import with_fewer
from cli.run_events import Failure, Summary
from stacks.config import PoolConfig, parse
from stacks.rental_requests import LEFT_OUT, left_out
from tests.unit.stacks.test_config_rented import SECRET, raw

_REASON = "no machine for g2 at Lambda: a in b: no capacity; nothing is rented for it"
_NONE = Failure("urn::tailrack:rented:RentedMachine$command:local:Command::g2-machine", f"exit status 1\n{_REASON}\n")
_RUN_AS_A_WHOLE = Failure("", "update failed")
_COMPONENT = Failure("urn::tailrack:rented:RentedMachine::g2", "")


class Run:
    """A second run, with these failures; `without`: the nodes that it left out."""

    def __init__(self, *failures: Failure) -> None:
        self.failures, self.without, self.said = failures, set[str](), list[str]()

    def __call__(self) -> Summary:
        self.without = left_out()
        return Summary(Counter(create=3, same=11), list(self.failures), 2.0)


def ended(folder: Path, run: Run, *failures: Failure, fewer: str = "warn") -> Summary:
    def config() -> PoolConfig:
        return parse(raw(fewer=fewer), PoolConfig, base_dir=folder, secret_keys=SECRET)

    summary = with_fewer(Summary(Counter(create=10, same=1), list(failures), 5.0), config, run, run.said.append)
    assert LEFT_OUT not in os.environ
    return summary


@pytest.mark.parametrize("failures", [[_NONE], [_NONE, _COMPONENT, _RUN_AS_A_WHOLE]])
def test_a_node_without_a_machine_is_a_warning_with_all_that_was_tried(folder: Path, failures: list[Failure]) -> None:
    run = Run()
    summary = ended(folder, run, *failures)
    assert summary.ok
    assert run.without == {"g2"}
    assert run.said == [f"g2 is left out (fewer: warn): {_REASON}"]
    assert summary.counts == Counter(create=13, same=1)
    assert summary.seconds == 7.0


def test_a_site_that_must_have_all_its_nodes_fails(folder: Path) -> None:
    run = Run()
    assert ended(folder, run, _NONE, fewer="fail").failures == [_NONE]
    assert (run.without, run.said) == (set(), [])


@pytest.mark.parametrize(
    "other",
    [
        Failure("urn::command:remote:Command::g1-prepare", "no machine for g1 at Lambda", "up"),
        Failure("urn::command:local:Command::g1-machine", "Lambda does not accept the API key for this call", "up"),
        Failure("urn::command:local:Command::burst-account", "Lambda's API failed", "up"),
    ],
)
def test_another_failure_is_no_want_of_a_machine(folder: Path, other: Failure) -> None:
    run = Run()
    assert ended(folder, run, _NONE, other).failures == [_NONE, other]
    assert run.said == []


def test_the_reasons_stay_when_the_run_without_the_nodes_fails(folder: Path) -> None:
    stopped = Failure("", "no cloud has a machine for any node now")
    assert ended(folder, Run(stopped), _NONE).failures == [_NONE, stopped]
