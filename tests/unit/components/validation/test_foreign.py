"""Whoever uses a GPU that a measurement should have alone is named."""

from __future__ import annotations

import pytest

from components.validation.preflight import foreign

TWO = "00000000:18:00.0, 97, 41230\n00000000:2A:00.0, 0, 4\n"


def asked(gpus: str, apps: str) -> foreign.Ask:
    return lambda *words: apps if "compute-apps" in words[0] else gpus


def test_a_foreign_process_is_named_with_its_memory_and_how_busy_the_gpu_is() -> None:
    (found,) = foreign.check_foreign(foreign.used(asked(TWO, "00000000:18:00.0, 4711, python3, train.py, 40500\n")))
    assert (found["severity"], found["check"]) == ("warning", "GPU in use")
    assert found["seen"] == (
        "GPU 00000000:18:00.0 is 97 % busy with 41230 MiB in use by 4711 python3, train.py (40500 MiB)"
    )
    assert "ps -o user,pid" in found["remedy"]


def test_a_process_outside_of_this_container_is_told_by_what_it_takes() -> None:
    (found,) = foreign.used(asked(TWO, ""))
    assert str(found).endswith("is 97 % busy with 41230 MiB in use by processes that are not seen from here")


def test_a_small_process_on_a_gpu_that_rests_is_one_all_the_same() -> None:
    (found,) = foreign.used(asked("0:1, 0, 4\n", "0:1, 12, a.out, 300\n"))
    assert found.processes == ("12 a.out (300 MiB)",)


@pytest.mark.parametrize("gpus", ["", "0:1, 0, 623\n", "No devices were found\n", "0:1, [N/A], [N/A]\n", ",,\n"])
def test_gpus_that_nobody_uses_and_a_driver_that_says_nothing_are_no_finding(gpus: str) -> None:
    assert foreign.used(asked(gpus, "")) == []


def test_what_a_process_calls_itself_stays_one_printable_line() -> None:
    (found,) = foreign.used(asked("0:1, 9, 4\n", "0:1, 12, \x1b[2Jevil, 300\n"))
    assert str(found).isprintable()
