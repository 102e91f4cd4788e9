"""`tailrack costs`: the book, what a month came to, and who idles; and the steps that write the book."""

import json
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from components.roles.commands.tailrack import costs
from components.roles.commands.tailrack.costs import as_rows, as_text, totals
from components.roles.commands.tailrack.main import main
from components.roles.monitoring.budget.spending import Budget, Stay, read_book, read_stays
from components.roles.monitoring.costs import host as costs_host
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node
from tests.unit.shell import Shell, script_of

NOW = 1_790_000_000  # 2026-09-21 14:13:20 UTC
MONTH = 1_788_220_800
HOUR = 3600


def test_a_book_has_files_of_nodes_alone(tmp_path: Path) -> None:
    for name in ("a1", "a1.x7Gh2k", "..b"):
        (tmp_path / name).write_text("100 - 2 USD\n")
    assert read_book(tmp_path) == {"a1": [Stay(100, None, 2.0, "USD")]}
    assert read_book(tmp_path / "none") == {}


def test_a_log_in_node_names_the_head_node_for_its_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("components.roles.commands.tailrack.main.LINK", __file__)
    assert main(["costs"]) == 1
    assert "run 'tailrack costs' on the head node" in capsys.readouterr().err


BOOK = {
    "head": [Stay(MONTH - 9 * HOUR, None)],
    "r1": [Stay(NOW - 10 * HOUR, None, 2.0, "USD")],
    "r2": [Stay(NOW - 10 * HOUR, None, 2.0, "USD")],
    "gone": [Stay(NOW - 20 * HOUR, NOW - 10 * HOUR, 1.0, "USD")],
    "old": [Stay(MONTH - 9 * HOUR, MONTH - HOUR, 1.0, "USD")],
    "e1": [Stay(NOW - 10 * HOUR, NOW - 5 * HOUR, 1.0, "USD"), Stay(NOW - 5 * HOUR, None, 4.0, "EUR")],
}
NODES = {
    "r1": Node("r1", frozenset({"IDLE"}), last_busy=NOW - 3 * HOUR),
    "r2": Node("r2", frozenset({"MIXED"}), last_busy=NOW - 3 * HOUR),
    "e1": Node("e1", frozenset({"IDLE"}), last_busy=NOW - HOUR),
}


def test_totals_are_per_currency_and_include_nodes_that_left() -> None:
    found = costs.costs(BOOK, NODES, None, NOW)
    assert {each.name for each in found} == {"r1", "r2", "gone", "e1"}
    assert totals(found) == {"EUR": (4.0, pytest.approx(20.0)), "USD": (4.0, pytest.approx(55.0))}
    assert [(each.name, each.idle_seconds) for each in found if each.idle_seconds is not None] == [
        ("r1", 3 * HOUR),
        ("e1", HOUR),
    ]


def test_the_cost_text_names_idle_nodes_and_calls_itself_an_estimate() -> None:
    used = [("r[1-2]", NOW - 10 * HOUR, NOW - 5 * HOUR)]
    text = as_text(costs.costs({"r1": BOOK["r1"], "r2": BOOK["r2"]}, NODES, used, NOW), NOW - 10 * HOUR, NOW)
    assert text.splitlines()[:2] == [
        "4.00 USD an hour now; 40.00 USD since 2026-09-21 04:13 UTC; jobs used 50% of these node hours",
        "r1 idle for 3 h 0 min: 6.00 USD (2.00 an hour)",
    ]
    assert text.endswith(costs.ESTIMATE)


def test_programs_can_read_the_printed_costs(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(costs, "read_book", lambda: BOOK)
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(slurm, "used", lambda *_: None)
    monkeypatch.setattr(slurm, "nodes", lambda *names: [NODES[name] for name in names or NODES])
    assert main(["costs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert as_rows(told) == costs.costs(BOOK, NODES, None, NOW)
    assert told["since"] == MONTH
    with pytest.raises(ValueError, match="missing"):
        as_rows({"costs": [{"name": "x"}]})


def test_the_line_about_the_budget_is_the_last_one_and_not_in_json(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(costs, "read_book", lambda: {"a1": [Stay(NOW - HOUR, None, 3.0, "EUR")]})
    monkeypatch.setattr(costs, "read_budget", lambda: Budget(2, "EUR"))
    monkeypatch.setattr(slurm, "used", lambda begin, end: None)
    monkeypatch.setattr(slurm, "nodes", lambda *_: [])
    monkeypatch.setattr(time, "time", lambda: NOW)
    assert main(["costs"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Budget: 3.00 of 2.00 EUR spent in 2026-09 (150 %).")
    assert main(["costs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"][0]["month"] == 3.0
    # One without a price is not silent.
    monkeypatch.setattr(costs, "read_book", lambda: {"head": [Stay(1, None)]})
    none = "Budget: 0.00 of 2.00 EUR spent in 2026-09 (0 %); no node has a price_per_hour in EUR.\n"
    for arguments, expected in ((["--or-nothing"], none), (["--json", "--or-nothing"], "")):
        assert main(["costs", *arguments]) == 0
        assert capsys.readouterr().out == expected, arguments


# On the head node.


def write(shell: Shell, phase: str, action: str, price: str, at: int) -> str:
    shell.stub("date", f"echo {at}")
    with mock.patch.object(costs_host, "time", mock.Mock(time=lambda: at)):
        done = shell.step(script_of("costs", phase), {"node_name": "a1", "node_price": price}, action)
    assert done.returncode == 0, done.stderr
    return shell.path("/var/lib/tailrack/costs/a1").read_text()


def test_the_book_has_a_line_a_price_and_the_same_again_changes_nothing(shell: Shell) -> None:
    assert write(shell, "register", "up", "", 100) == "100 - - -\n"
    assert write(shell, "register", "up", "", 150) == "100 - - -\n"
    assert write(shell, "register", "up", "2.05 USD", 200) == "100 200 - -\n200 - 2.05 USD\n"
    assert write(shell, "register", "up", "2.05 USD", 250) == "100 200 - -\n200 - 2.05 USD\n"
    assert write(shell, "register", "down", "2.05 USD", 300) == "100 200 - -\n200 300 2.05 USD\n"
    assert write(shell, "register", "down", "2.05 USD", 400) == "100 200 - -\n200 300 2.05 USD\n"
    text = write(shell, "register", "up", "3 EUR", 500)
    assert text == "100 200 - -\n200 300 2.05 USD\n500 - 3 EUR\n"
    assert read_stays(text)[-1] == Stay(500, None, 3.0, "EUR")


def test_the_book_of_a_node_does_not_grow_for_ever_and_old_ones_go(shell: Shell) -> None:
    file = shell.write("/var/lib/tailrack/costs/a1", "".join(f"{at} {at + 1} 1 USD\n" for at in range(500)))
    write(shell, "register", "up", "2 USD", 900)
    assert len(file.read_text().splitlines()) == 200
    assert file.read_text().endswith("900 - 2 USD\n")
    gone = shell.write("/var/lib/tailrack/costs/gone", "100 200 1 USD\n")
    stays = shell.write("/var/lib/tailrack/costs/stays", "100 - 1 USD\n")
    past = time.time() - 402 * 86400
    for path in (gone, stays):
        os.utime(path, (past, past))
    write(shell, "services", "up", "", int(time.time()))
    assert (gone.exists(), stays.exists()) == (False, True)
