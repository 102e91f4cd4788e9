"""The monthly budget: what counts, messages, jobs that wait, and the config."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.node.step.step import Step
from components.roles.budget import hold, spending, watch
from components.roles.budget.leave import leave
from components.roles.budget.mark import MARK, has_mark, with_mark, without_mark
from components.roles.budget.paths import BUDGET, HOLDING, NOTIFY, PROGRAM, SPENT, TOLD
from components.roles.budget.role import role
from components.roles.budget.spending import Budget, line, message, read_budget
from components.roles.job_reports.daemon import Service
from components.roles.job_reports.outbox import Outbox
from components.roles.job_reports.paths import SPOOL
from components.roles.monitoring.budget_figures import budget_figures
from components.roles.order import roles
from components.roles.role import template
from components.roles.slurm.files import controller_files
from components.roles.tailrack_command.book import Stay
from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.slurm import SlurmError
from components.roles.tailrack_command.wait_reason import why_it_waits
from components.settings.serialize import to_plain
from stacks.config import ConfigError, parse
from stacks.config.model import StackConfig
from tests.unit.configs import LAB
from tests.unit.shell import Shell, role_header, script_of

# 2026-11-11 00:00 UTC: ten days into the month.
NOW = 1_794_355_200
BEGIN = NOW - 10 * 86400
BUDGET_2000 = Budget(2000, "EUR", 80)
HOLDS = Budget(2000, "EUR", 80, hold=True, exempt=frozenset({"urgent"}), measures=6001)


def book(price: float, *, begin: int = BEGIN, currency: str = "EUR") -> Mapping[str, Sequence[Stay]]:
    """The ledger of one node that is in the cluster."""
    return {"a1": [Stay(begin, None, price, currency)]}


def seen(amount: float, budget: Budget = BUDGET_2000) -> spending.Spending:
    return spending.spending(budget, book(amount / 240), NOW)


def config(**sections: Any) -> StackConfig:
    return parse({**LAB, **sections}, base_dir=Path())


# What counts.


def test_hours_of_machines_that_are_up_count_from_the_first_of_the_month_in_utc() -> None:
    whole = spending.spending(BUDGET_2000, book(2.0, begin=BEGIN - 30 * 86400), NOW)
    assert (whole.month, whole.amount, whole.hourly, whole.percent) == ("2026-11", 480.0, 2.0, 24)
    first_second = spending.spending(BUDGET_2000, book(2.0, begin=0), BEGIN)
    assert (first_second.month, first_second.amount) == ("2026-11", 0.0)
    last_second = spending.spending(BUDGET_2000, book(3.0, begin=0), BEGIN - 1)
    assert last_second.month == "2026-10"
    assert last_second.over


def test_amounts_in_another_currency_are_named_and_do_not_count() -> None:
    both = {**book(1.0), **{"p1": [Stay(BEGIN, NOW, 5.0, "USD"), Stay(NOW, None)]}}
    result = spending.spending(BUDGET_2000, both, NOW)
    assert result.amount == 240.0
    assert line(result) == "Budget: 240.00 of 2,000.00 EUR spent in 2026-11 (12 %), without 1,200.00 USD."


def test_a_line_says_where_nothing_counts_and_where_jobs_wait() -> None:
    assert "no node has a price_per_hour in EUR" in line(spending.spending(BUDGET_2000, {}, NOW))
    assert "New jobs wait" not in line(seen(2000))
    assert "(100 %). New jobs wait until the month ends" in line(seen(2000, HOLDS))
    # Rounded down: it is not spent yet.
    assert "(99 %)" in line(seen(1999.9, HOLDS))


def test_a_message_says_when_the_budget_will_be_spent_in_this_month() -> None:
    title, text = message(seen(1680), 80, NOW)
    assert title == "80 % of this month's budget is spent"
    assert "The machines cost 7.00 EUR an hour now" in text
    assert "the budget is spent on 2026-11-12 21:42 UTC." in text
    _, text = message(spending.spending(BUDGET_2000, book(0.5), NOW), 80, NOW)
    assert "the budget is spent on" not in text
    assert "Running jobs go on." in message(seen(2001, HOLDS), 100, NOW)[1]


def test_without_a_budget_there_is_none_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spending, "BUDGET", str(tmp_path / "budget"))
    assert read_budget() is None
    settings = config(
        budget={"per_month": 2000, "hold": True, "exempt_qos": ["urgent"]},
        accounting={"qos": [{"name": "urgent"}]},
        currency="EUR",
    )
    (tmp_path / "budget").write_text(str(role(settings).values["BUDGET_SETTINGS"]), encoding="utf-8")
    assert read_budget() == Budget(2000, "EUR", 80, True, frozenset({"urgent"}), settings.users[0].uid)


# Messages.


@pytest.fixture
def told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let the program look at an amount; return the titles that it handed over."""
    sent: list[str] = []

    def send(_to: Sequence[str], _name: str, title: str, _text: str) -> bool:
        sent.append(title)
        return True

    monkeypatch.setattr(watch, "send", send)
    shell.write(NOTIFY, "ops\n")

    def look(amount: float, budget: Budget = BUDGET_2000, now: int = NOW) -> list[str]:
        sent.clear()
        with shell.here():
            watch.tell(spending.spending(budget, {"a1": [Stay(now - 3600, None, amount, "EUR")]}, now), now)
        return [*sent]

    return look


FIRST, LAST = "80 % of this month's budget is spent", "this month's budget is spent"


def test_each_share_is_told_once_and_again_in_another_month_or_for_another_amount(
    told: Callable[..., list[str]], shell: Shell
) -> None:
    assert told(1599) == []
    assert told(1600) == [FIRST]
    assert told(1700) == []
    assert told(2000) == [LAST]
    assert told(2100) == []
    assert told(2100, Budget(2500, "EUR", 80)) == [FIRST]
    assert told(1700, now=NOW + 30 * 86400) == [FIRST]
    # A clock that jumps back.
    assert told(2100) == []
    assert stat.S_IMODE(shell.path(TOLD).stat().st_mode) == 0o600


def test_one_message_is_enough_when_both_shares_are_passed_at_once(told: Callable[..., list[str]]) -> None:
    assert told(2500) == [LAST]
    assert told(1700) == []


def test_a_message_that_the_service_does_not_take_is_tried_again(
    told: Callable[..., list[str]], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "send", lambda *_: False)
    assert told(1700) == []
    monkeypatch.undo()
    assert not shell.path(TOLD).exists()


def test_a_message_is_written_by_the_account_of_the_service(shell: Shell) -> None:
    shell.stub("runuser", 'shift 3; exec "$@"')
    shell.path(SPOOL).mkdir(parents=True)
    with shell.here():
        assert watch.send(["ops"], "budget-2026-11", "title", "text")
    (path,) = shell.path(SPOOL).iterdir()
    assert path.name == "budget-2026-11.notice"
    assert json.loads(path.read_text()) == {"to": ["ops"], "title": "title", "text": "text"}
    assert all(call.startswith("runuser -u tailrack-reports -- ") for call in shell.calls if "runuser" in call)
    shell.stub("runuser", "exit 1")
    with shell.here():
        assert not watch.send(["ops"], "other", "title", "text")


def test_the_service_sends_a_notice_of_its_own_account_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in ("spool", "state"):
        (tmp_path / folder).mkdir()
    settings = {"cluster": "lab", "mail": None, "channels": {"ops": "slack"}, "notify": {}}
    service = Service(settings, {}, tmp_path / "spool", Outbox(tmp_path / "state"))
    notice = json.dumps({"to": ["ops", "unknown"], "title": "spent", "text": "text"})
    (tmp_path / "spool" / "budget-1.notice").write_text(notice)
    service.collect()
    assert [(waiting.to, waiting.title) for waiting in service.outbox.waiting.values()] == [("ops", "spent")]
    assert list((tmp_path / "spool").iterdir()) == []
    for text in ("", "[]", '{"to": 1}', '{"to": ["ops"], "title": "x"}'):
        (tmp_path / "spool" / "bad.notice").write_text(text)
        service.collect()
    (tmp_path / "spool" / "link.notice").symlink_to("/etc/hostname")
    service.collect()
    monkeypatch.setattr("os.getuid", lambda: 99)
    (tmp_path / "spool" / "other.notice").write_text(notice)
    service.collect()
    assert list((tmp_path / "spool").iterdir()) == []
    assert len(service.outbox.waiting) == 1
    assert capfd.readouterr().err.count("ignoring a notice") == 6


# Jobs.


def job(number: int, reason: str = "Resources", comment: str = "", **fields: Any) -> Job:
    given = {"user_number": 6002, "flags": ("PENDING",), **fields}
    return Job(number, "train", "bob", given.pop("user_number"), given.pop("flags"), reason=reason,
               admin_comment=comment, **given)  # fmt: skip


@pytest.fixture
def held(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let the program hold or release jobs; return its commands."""
    shell.stub("scontrol")

    def act(what: Callable[[], object], *answers: list[Job]) -> list[str]:
        lists = iter([*answers, answers[-1], answers[-1]])
        monkeypatch.setattr(hold, "waiting_jobs", lambda: next(lists))
        before = len(shell.calls)
        with shell.here():
            what()
        return shell.calls[before:]

    return act


def test_jobs_that_wait_are_held_and_marked_in_one_request(held: Callable[..., list[str]], shell: Shell) -> None:
    jobs = [
        job(1),
        job(2, "BeginTime"),
        job(3, comment="of root"),
        # Held already: by its user, by an administrator, by the budget.
        job(4, "JobHeldUser"),
        job(5, "JobHeldAdmin"),
        job(6, "JobHeldUser", MARK),
        # Released by an administrator.
        job(7, "Resources", MARK),
        job(8, qos="urgent"),
        job(9, user_number=6001, output="/export/home/ada/.tailrack/nccl/output"),
        job(10, user_number=6002, output="/export/home/bob/.tailrack/nccl/output"),
    ]
    assert held(lambda: hold.hold_jobs(HOLDS), jobs) == [
        f"scontrol update jobid=1,2,10 admincomment={MARK} priority=0",
        f"scontrol update jobid=3 admincomment={MARK}; of root priority=0",
    ]
    assert shell.path(SPENT).exists()
    assert shell.path(HOLDING).exists()


def test_a_held_job_that_gets_an_exempt_qos_starts(held: Callable[..., list[str]]) -> None:
    changed = job(1, "JobHeldUser", MARK, qos="urgent")
    assert held(lambda: hold.hold_jobs(HOLDS), [changed], [job(1, "None", MARK, qos="urgent")]) == [
        "scontrol release 1",
        "scontrol update jobid=1 admincomment=",
    ]


def test_only_jobs_with_the_mark_are_released_until_a_look_finds_none(
    held: Callable[..., list[str]], shell: Shell
) -> None:
    with shell.here():
        assert hold.release_jobs()
    for path in (SPENT, HOLDING):
        shell.write(path, "\n")
    jobs = [job(1, "JobHeldUser", MARK), job(2, "JobHeldAdmin", f"{MARK}; of root"), job(3, "JobHeldAdmin")]
    assert held(hold.release_jobs, jobs, jobs[2:]) == [
        "scontrol release 1,2",
        "scontrol update jobid=1 admincomment=",
        "scontrol update jobid=2 admincomment=of root",
    ]
    assert not shell.path(SPENT).exists()
    assert shell.path(HOLDING).exists()
    assert held(hold.release_jobs, jobs[2:]) == []
    assert not shell.path(HOLDING).exists()


def test_a_job_that_slurmctld_does_not_release_keeps_its_mark(held: Callable[..., list[str]], shell: Shell) -> None:
    shell.write(HOLDING, "\n")
    stays = [job(1, "JobHeldUser", MARK)]
    assert held(hold.release_jobs, stays, stays) == ["scontrol release 1"]
    assert shell.path(HOLDING).exists()


def test_many_jobs_need_few_commands(held: Callable[..., list[str]]) -> None:
    assert len(held(lambda: hold.hold_jobs(HOLDS), [job(number) for number in range(1, 251)])) == 3


@pytest.mark.parametrize("comment", ["", "of root", "tailrack so far: gpus=1 gpu_hours=0.10", "a; b"])
def test_a_mark_leaves_the_comment_as_it_was(comment: str) -> None:
    assert not has_mark(comment)
    assert has_mark(with_mark(comment))
    assert without_mark(with_mark(comment)) == comment


def test_why_names_the_budget_only_for_a_job_that_it_holds() -> None:
    why = why_it_waits(job(1, "JobHeldUser", MARK), [], lambda short: [])
    assert why.sentences[0] == "This month's budget of the cluster is spent, and new jobs wait."
    assert "tailrack:budget.per_month" in why.sentences[1]
    for other in (job(1, "JobHeldUser"), job(1, "Resources", MARK), job(1, "JobHeldAdmin", f"not {MARK}")):
        assert "budget" not in " ".join(why_it_waits(other, [], lambda short: []).sentences)


@pytest.mark.parametrize(
    ("budget", "amount", "expected"),
    [(HOLDS, 2000, "hold"), (HOLDS, 1999, "release"), (BUDGET_2000, 2000, "release")],
)
def test_jobs_are_held_only_if_the_config_says_so_and_the_budget_is_spent(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, budget: Budget, amount: float, expected: str
) -> None:
    done: list[str] = []
    monkeypatch.setattr(watch, "read_budget", lambda: budget)
    monkeypatch.setattr(watch, "read_book", lambda: book(amount / 240))
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(watch, "hold_jobs", lambda _: done.append("hold"))
    monkeypatch.setattr(watch, "release_jobs", lambda: done.append("release"))
    assert shell.command("budget").returncode == 0
    assert done == [expected]


def test_a_silent_slurmctld_is_named_and_the_timer_tries_again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise SlurmError("slurmctld does not answer")

    monkeypatch.setattr(watch, "read_budget", lambda: BUDGET_2000)
    monkeypatch.setattr(watch, "read_book", dict)
    monkeypatch.setattr(watch, "release_jobs", fail)
    done = shell.command("budget")
    assert (done.returncode, done.stderr) == (1, "slurmctld does not answer\n")


# Monitoring.


def test_monitoring_has_the_spent_share_and_the_share_that_is_told() -> None:
    assert budget_figures(None) == []
    assert [(metric.name, metric.samples) for metric in budget_figures(seen(1500))] == [
        ("tailrack_budget_spent_ratio", [({}, 0.75)]),
        ("tailrack_budget_tell_ratio", [({}, 0.8)]),
    ]


def test_alertmanager_sends_an_alert_about_the_budget_once_a_month() -> None:
    hook = {"kind": "webhook", "url": "https://example.org/x"}
    sections = {**LAB, "monitoring": {"receivers": [hook]}}
    texts: list[tuple[str, str]] = []
    for more in ({}, {"budget": {"per_month": 5}}):
        settings = parse({**sections, **more}, base_dir=Path(), secret_keys=frozenset({"monitoring"}))
        made = next(one for one in roles(settings) if one.name == "monitoring")
        texts.append((str(made.values["MONITORING_ALERTMANAGER"]), made.texts["MONITORING_ALERTMANAGER_UNIT"]))
    (plain_config, plain_unit), (text, unit) = texts
    assert "routes" not in plain_config
    assert "retention" not in plain_unit
    (route,) = json.loads(text)["route"]["routes"]
    alerts = route["matchers"][0].removeprefix('alertname=~"').removesuffix('"').split("|")
    assert all(f"- alert: {alert}\n" in template("monitoring", "rules.yml") for alert in alerts)
    assert int(route["repeat_interval"].removesuffix("h")) > 31 * 24
    assert f" --data.retention={route['repeat_interval']} " in unit


# The config, and the head node.


def lua(settings: StackConfig) -> str:
    return controller_files(settings, roles(settings), ["cloud-a"], "100.64.0.1", cgroups=True)["SLURM_JOB_SUBMIT_LUA"]


def test_slurm_asks_for_the_budget_only_where_it_holds_jobs() -> None:
    assert lua(config(budget={"per_month": 5})) == lua(config())
    text = lua(
        config(budget={"per_month": 5, "hold": True, "exempt_qos": ["high"]}, accounting={"qos": [{"name": "high"}]})
    )
    assert 'local exempt = { ["high"] = true }' in text
    assert f'io.open("{SPENT}")' in text
    assert f'job_desc.admin_comment = "{MARK}"' in text


@pytest.mark.parametrize(
    ("receiver", "problem"),
    [("opz", "no channel of tailrack:job_reports"), ("ops@example.org", "tailrack:job_reports has no mail server")],
)
def test_a_receiver_that_job_reports_does_not_have_is_refused(receiver: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        with_channel({"per_month": 5, "notify": [receiver]})


def with_channel(budget: Mapping[str, Any]) -> StackConfig:
    channel = {"name": "ops", "kind": "webhook", "url": "https://example.org/x"}
    sections = {"budget": budget, "job_reports": {"channels": [channel]}}
    return parse({**LAB, **sections}, base_dir=Path(), secret_keys=frozenset({"job_reports"}))


def test_another_stack_gets_no_receivers() -> None:
    settings = with_channel({"per_month": 5, "notify": ["ops"]})
    assert role(settings).values["BUDGET_NOTIFY"] == ("ops",)
    assert to_plain(settings, StackConfig)["budget"]["notify"] == []


def test_without_a_budget_the_head_node_has_none_and_held_jobs_are_released(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.stub("systemctl", '[ "$1" != is-enabled ] || echo enabled')
    shell.stub("scontrol")
    services, header = script_of("budget", "services"), role_header("budget")
    assert shell.step(services, header).returncode == 0
    made = role(config(budget={"per_month": 2000}))
    assert shell.step(services, {**header, **made.values, **made.texts}).returncode == 0
    assert "systemctl start tailrack-budget.service" in shell.calls
    assert json.loads(shell.path(BUDGET).read_text()) == [2000.0, "USD", 80, False, [], 6001]
    assert stat.S_IMODE(shell.path(NOTIFY).stat().st_mode) == 0o600
    assert shell.path(PROGRAM).exists()
    for path in (SPENT, HOLDING, TOLD):
        shell.write(path, "\n")
    answers = [[job(1, "JobHeldUser", MARK)], []]
    monkeypatch.setattr(hold, "waiting_jobs", lambda: answers.pop(0) if answers else [])
    shell.hurry()
    assert shell.step(services, header).returncode == 0
    assert "scontrol release 1" in shell.calls
    assert not any(shell.path(path).exists() for path in (BUDGET, NOTIFY, PROGRAM, SPENT, HOLDING, TOLD))
    assert not list(shell.path("/etc/systemd/system").glob("*budget*"))


def test_a_slurmctld_that_cannot_release_stops_the_step_with_a_remedy(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[Job]:
        raise SlurmError("slurmctld does not answer")

    shell.stub("systemctl", '[ "$1" != is-enabled ] || echo enabled')
    shell.write(HOLDING, "\n")
    monkeypatch.setattr(hold, "waiting_jobs", fail)
    done = shell.step(script_of("budget", "services"), role_header("budget"))
    assert done.returncode == 1
    assert "jobs that the budget held cannot be released: slurmctld does not answer" in done.stderr
    with shell.here():
        leave(Step("head", "tailrack-leave"))
    assert not shell.path(HOLDING).exists()
