"""Reports about jobs: events that MailProg leaves, the text of a report, receivers, limits, and sending."""

import base64
import errno
import http.server
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

from components.roles.jobs.job_reports import daemon, report
from components.roles.jobs.job_reports.daemon import Service
from components.roles.jobs.job_reports.host import MAIL_PASSWORD, MAIL_PROGRAM, SPOOL
from components.roles.jobs.job_reports.outbox import DIGEST_SECONDS, MOST_OF_A_USER, SINGLE_AN_HOUR, Outbox, Waiting
from components.roles.jobs.job_reports.report import Event, Report, event_files, read_event, receivers_of, write_report
from components.roles.jobs.job_reports.send import Message, NotSent, post, send_mail
from components.roles.order import roles
from components.roles.role import template
from components.roles.slurm.slurm.slurm_conf import controller_files, slurm_conf
from components.slurm_commands.jobs import Job
from components.slurm_commands.slurm import SlurmError
from stacks.config import parse
from stacks.config.model import StackConfig
from tests.faults.mail_server import MailServer
from tests.unit.configs import LAB, RawConfig, refusal
from tests.unit.shell import Shell

MakeService = Callable[..., Service]
TOKEN = "hook-token-nobody-may-see"
SUBJECT = "Slurm Job_id=7 Name=%s Failed, Run time 00:00:01, FAILED, ExitCode 3"
MAIL = {"sender": "cluster@example.org", "smarthost": "smtp.example.org:587"}
SLACK = {"name": "vision", "kind": "slack", "url": f"https://hooks.slack.com/{TOKEN}"}


# The config.


def sections(reports: Mapping[str, Any] | None, notify: Sequence[str] = ()) -> RawConfig:
    users = [{"name": "ada", "uid": 6001, **({"notify": list(notify)} if notify else {})}]
    return {"users": users, **({} if reports is None else {"job_reports": reports})}


def config(reports: Mapping[str, Any], notify: Sequence[str] = ()) -> StackConfig:
    return parse({**LAB, **sections(reports, notify)}, base_dir=Path(), secret_keys=frozenset({"job_reports"}))


def test_with_the_section_slurm_runs_the_program_that_leaves_events() -> None:
    settings = config({"mail": MAIL, "channels": [SLACK]}, ["ada@example.org", "vision"])
    place = (["cloud-a"], "100.64.0.1")
    text = slurm_conf(settings, roles(settings), *place, cgroups=True)
    assert [line for line in text.splitlines() if line.startswith("MailProg")] == [f"MailProg={MAIL_PROGRAM}"]
    files = controller_files(settings, roles(settings), *place, cgroups=True)
    assert "local notified = { [6001] = true }" in files["slurm_job_submit_lua"]


def test_secrets_are_in_no_value_or_text_of_the_role() -> None:
    settings = config({"mail": {**MAIL, "user": "lab", "password": "mail password"}, "channels": [SLACK]})
    role = next(role for role in roles(settings) if role.name == "job_reports")
    channel = f"channel-vision https://hooks.slack.com/{TOKEN}"
    assert role.secrets["job_reports_secrets"] == f"{channel}\n{MAIL_PASSWORD} mail password"
    plain = json.dumps([dict(role.values), dict(role.texts)])
    assert TOKEN not in plain
    assert "mail password" not in plain


def test_a_bad_config_names_its_key() -> None:
    for reports, notify, path, part in (
        ({}, [], "job_reports", "has neither mail nor channels"),
        ({"mail": {"sender": "a@b.c"}}, [], "job_reports.mail.smarthost", "missing"),
        ({"mail": {**MAIL, "smarthost": "b.c"}}, [], "job_reports.mail.smarthost", "is not HOST:PORT"),
        ({"mail": {**MAIL, "sender": "a@b.c\nBcc: x@y"}}, [], "job_reports.mail.sender", "mail address"),
        ({"mail": {**MAIL, "user": "lab"}}, [], "job_reports.mail.user", "is set without password"),
        ({"mail": {**MAIL, "user": "lab", "password": "x", "encrypted": False}}, [], "job_reports.mail.encrypted",
         "is false with a password"),
        ({"channels": [{**SLACK, "url": "http://hooks.slack.com/x"}]}, [], "job_reports.channels[0].url", "https://"),
        ({"channels": [{**SLACK, "name": "a/b"}]}, [], "job_reports.channels[0].name", "is not a name"),
        ({"channels": [SLACK, SLACK]}, [], "job_reports.channels[1].name", "is also the name of"),
        ({"channels": [{**SLACK, "kind": "mail"}]}, [], "job_reports.channels[0].kind", "webhook or slack"),
        (None, ["vision"], "users[0].notify", "is set without tailrack:job_reports"),
        ({"mail": MAIL}, ["vision"], "users[0].notify", "is no channel of tailrack:job_reports"),
        ({"channels": [SLACK]}, ["visoin"], "users[0].notify", "did you mean"),
        ({"channels": [SLACK]}, ["ada@example.org"], "users[0].notify", "has no mail server"),
        ({"mail": MAIL}, ["--exec=id"], "users[0].notify[0]", "is neither a mail address nor the name of a channel"),
        ({"mail": MAIL}, ["a@b.c\n"], "users[0].notify[0]", "is neither a mail address nor the name of a channel"),
    ):  # fmt: skip
        said = refusal(sections(reports, notify), "job_reports")
        assert re.search(rf"tailrack:{re.escape(path)}: .*{re.escape(part)}", said), (reports, notify)


def test_a_mailprog_of_the_user_is_refused() -> None:
    said = refusal({"job_reports": {"mail": MAIL}, "slurm": {"settings": {"MailProg": "/bin/true"}}})
    assert "tailrack:job_reports would send nothing" in said


# Events.


def leave_event(
    shell: Shell, *words: str, job: str = "7", user: str = "ada", uid: int = 64030
) -> subprocess.CompletedProcess[str]:
    """Run MailProg as slurmctld does."""
    shell.stub("id", f"echo {uid}")
    shell.stubs("logger", "sync")
    text = template("job_reports", "report-job").replace("export PATH=", f"export PATH={shell.root / 'stubs'}:")
    path = shell.write("/usr/local/lib/tailrack/report-job", text.replace(SPOOL, str(shell.path(SPOOL))))
    environment = {"SLURM_JOB_ID": job, "SLURM_JOB_USER": user}
    return subprocess.run(
        ["bash", str(path), *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_mailprog_leaves_one_event_which_only_its_group_can_read(shell: Shell) -> None:
    spool = shell.path(SPOOL)
    spool.mkdir(parents=True)
    assert leave_event(shell, "-s", SUBJECT % "x\r\nBcc: eve@example.org", "ada@example.org").returncode == 0
    (path,) = event_files(spool)
    assert [*spool.iterdir()] == [path]
    assert path.stat().st_mode & 0o777 == 0o640
    assert read_event(path) == Event("7", "ada", "ada@example.org", SUBJECT % "x  Bcc: eve@example.org")


def test_mailprog_never_fails_and_logs_dropped_events(shell: Shell) -> None:
    assert leave_event(shell, "-s", "x", "ada").returncode == 0
    assert "there is no folder" in shell.calls[-1]
    spool = shell.path(SPOOL)
    spool.mkdir(parents=True)
    assert leave_event(shell, "-s", "x", "ada@example.org", uid=0).returncode == 0
    assert "must not run as root" in shell.calls[-1]
    assert leave_event(shell, "--exec=id", "x", "ada").returncode == 0
    assert "unexpected arguments" in shell.calls[-1]
    assert [*spool.iterdir()] == []
    for number in range(10_000):
        (spool / f"{number}.event").touch()
    assert leave_event(shell, "-s", "x", "ada").returncode == 0
    assert "10000 others wait already" in shell.calls[-1]
    assert len([*spool.iterdir()]) == 10_000


def write_event(spool: Path, text: str, name: str = "1-x.event") -> Path:
    path = spool / name
    path.write_text(text)
    return path


def test_a_file_of_another_form_a_link_or_a_folder_is_no_event(tmp_path: Path) -> None:
    for text in ("", "7\nada\n", "x\nada\na@b.c\nno job\n", "7\nada\na@b.c\nx\nmore\n", "\0" * 20000):
        assert read_event(write_event(tmp_path, text)) is None, text[:20]
    target = write_event(tmp_path, f"7\nada\na@b.c\n{SUBJECT}\n", "target")
    (tmp_path / "1-x.event").unlink()
    (tmp_path / "1.event").symlink_to(target)
    (tmp_path / "2.event").mkdir()
    assert [read_event(path) for path in event_files(tmp_path)] == [None]


def test_the_job_comes_from_the_beginning_of_slurms_sentence(tmp_path: Path) -> None:
    for job, subject, expected in (
        ("15", "Slurm Array Summary Job_id=12_* (12) Name=x Ended, Mixed, ExitCode [0-1]", ("12", True)),
        ("", "Slurm Array Task Job_id=12_3 (15) Name=x Failed", ("15", False)),
        ("", "Slurm Job_id=9 Name=Array Summary Job_id=1 Failed", ("9", False)),
    ):
        event = read_event(write_event(tmp_path, f"{job}\n\nada\n{subject}\n"))
        assert event is not None, subject
        assert (event.job, event.summary) == expected, subject


def test_another_text_than_an_address_is_no_receiver() -> None:
    for address in (
        "--exec=id",
        "a@b c",
        "a@b>c",
        "a@b\r\nRCPT TO:<x@y>",
        "<a@b.c>",
        "a@b@c",
        "@b",
        "a@",
        "a@b.c.",
        "root",
        "ä@b.c",
    ):
        assert [*receivers_of(address, "ada", {"root": ["secret-channel"]})] == [], address


def test_only_a_users_own_name_stands_for_the_receivers_in_the_config() -> None:
    notify = {"ada": ["ada@example.org", "vision"], "bob": ["bobs-channel"]}
    assert [*receivers_of("ada", "ada", notify)] == ["ada@example.org", "vision"]
    assert [*receivers_of("bob", "ada", notify)] == []
    assert [*receivers_of("x@b.c,ada,x@b.c", "ada", notify)] == ["x@b.c", "ada@example.org", "vision"]
    many = ",".join(f"a{number}@b.c" for number in range(50))
    assert len([*receivers_of(many, "ada", notify)]) == report.MOST_RECEIVERS


# The text.


def job(**more: Any) -> Job:
    fields: dict[str, Any] = {
        "number": 7, "name": "train", "user": "ada", "user_number": 6001, "flags": ("FAILED",), "nodes": "a1",
        "start": 1000, "end": 8200, "resources": "cpu=8,mem=64G,node=1,gres/gpu=8", "status": 3, "output": "/shared/x",
    }  # fmt: skip
    return Job(**{**fields, **more})


def of(*jobs: Job, event: Event | None = None) -> Report:
    return write_report(event or Event("7", "ada", "a@b.c", SUBJECT % "train"), lambda _: jobs)


def test_a_report_has_the_state_the_cause_the_run_time_and_the_gpu_hours() -> None:
    made = of(job())
    assert made.title == "job 7 (train) failed"
    assert made.text.splitlines() == [
        "job 7 (train) of ada: failed",
        "  Its script ended with exit status 3.",
        "  next: see its output, /shared/x",
        "  Run time: 2:00:00 on a1.",
        "  GPU hours: 16.00 (8 GPUs).",
    ]
    assert "Run time: 0:00:00" in of(job(end=1000)).text
    assert "Run time" not in of(job(flags=("CANCELLED",), start=0, end=1000)).text


def test_an_array_is_one_report_with_the_causes_of_its_first_failed_tasks() -> None:
    tasks = [job(number=20 + n, array=12, task=n, flags=("FAILED" if n else "COMPLETED",)) for n in range(9)]
    made = of(*tasks, event=Event("12", "ada", "a@b.c", "Slurm Array Summary Job_id=12_* (12)", summary=True))
    assert made.title == "array 12 (train): 1 completed, 8 failed"
    assert made.text.count("exit status 3") == 5
    assert "and 3 more tasks; to see them: tailrack why 12" in made.text


def test_if_slurm_does_not_answer_the_report_has_slurms_own_sentence() -> None:
    def silent(_: str) -> Sequence[Job]:
        raise SlurmError("slurmctld has not answered")

    made = write_report(Event("7", "ada", "a@b.c", SUBJECT % "train"), silent)
    assert made.title == SUBJECT % "train"
    assert "tailrack why 7" in made.text
    assert of(job(number=8)).title == SUBJECT % "train"


def test_a_jobs_name_makes_no_line_of_its_own() -> None:
    made = of(job(name=f"x\r\nBcc: eve@example.org\x1b[2J\u2028{'y' * 500}"))
    assert made.title.isprintable()
    assert len(made.title) <= 150
    assert all(line.isprintable() for line in made.text.splitlines())
    assert not any(line.startswith("Bcc") for line in made.text.splitlines())


# The outbox.

NOW = 1_000_000.0


def item(number: int = 0, to: str = "a@b.c", user: str = "ada", since: float = NOW) -> Waiting:
    return Waiting(f"k{number:05}", to, user, f"title {number}", "text", since)


def test_a_report_survives_a_restart_and_an_event_that_is_read_twice_is_sent_once(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    assert outbox.add(item())
    assert outbox.add(item())
    (tmp_path / "cut-off.new").write_text("{")
    (tmp_path / "odd.report").write_text("no JSON")
    again = Outbox(tmp_path)
    assert again.due(NOW) == [[item()]]
    again.sent([item()], NOW)
    assert Outbox(tmp_path).waiting == {}


def test_a_flood_becomes_digests(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for number in range(SINGLE_AN_HOUR - 1):
        outbox.add(item(number))
    singles = outbox.due(NOW)
    assert [len(message) for message in singles] == [1] * (SINGLE_AN_HOUR - 1)
    for message in singles:
        outbox.sent(message, NOW)
    for number in range(100, 600):
        outbox.add(item(number))
    (digest,) = outbox.due(NOW + 1)
    assert len(digest) == 500
    outbox.sent(digest, NOW + 1)
    outbox.add(item(700))
    assert outbox.due(NOW + 2) == []
    assert len(outbox.due(NOW + 1 + DIGEST_SECONDS)) == 1


def test_one_users_jobs_cannot_flood_many_addresses_and_another_users_report_goes_out(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for number in range(500):
        outbox.add(item(number, to=f"victim{number}@example.org"))
    outbox.add(item(900, user="bob", to="bob@example.org"))
    messages = outbox.due(NOW)
    assert len(messages) == MOST_OF_A_USER + 1
    for message in messages:
        outbox.sent(message, NOW)
    assert outbox.due(NOW + 60) == []
    assert len(outbox.due(NOW + 3601)) == MOST_OF_A_USER


def test_waits_between_tries_grow_and_after_a_day_a_report_is_dropped(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.add(item())
    (message,) = outbox.due(NOW)
    waits = []
    for _ in range(12):
        assert outbox.failed(message, NOW)
        waits.append(message[0].due - NOW)
    assert waits[:4] == [30, 60, 120, 240]
    assert max(waits) == 1800
    assert outbox.due(NOW + 1) == []
    while outbox.failed(message, NOW):
        waits.append(message[0].due - NOW)
    assert 24 <= sum(waits) / 3600 <= 26
    assert Outbox(tmp_path).waiting == {}


# Sending.


@pytest.fixture
def smtp(tmp_path: Path) -> Iterator[MailServer]:
    with MailServer(("127.0.0.1", 0), tmp_path / "mails") as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def mail_settings(server: MailServer, **more: Any) -> dict[str, Any]:
    address = f"127.0.0.1:{server.server_address[1]}"
    return {"sender": "cluster@example.org", "smarthost": address, "user": None, "encrypted": False, **more}


MESSAGE = Message("k1", "ada@example.org", "job 7 (Größe) failed", "Its script ended.\n.\nRSET\n")


def mails(server: MailServer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.file.read_text().splitlines()] if server.file.exists() else []


def test_a_mail_arrives_with_its_text_and_one_recipient(smtp: MailServer) -> None:
    send_mail(mail_settings(smtp), "", "lab", MESSAGE)
    (found,) = mails(smtp)
    assert (found["from"], found["to"]) == ("<cluster@example.org>", ["<ada@example.org>"])
    mail = message_from_string(found["text"], policy=default)
    assert mail["Subject"] == "[lab] job 7 (Größe) failed"
    assert mail["Message-ID"] == "<k1@example.org>"
    assert mail["Auto-Submitted"] == "auto-generated"


def test_a_server_without_encryption_gets_no_mail_and_no_password(smtp: MailServer) -> None:
    settings = mail_settings(smtp, encrypted=True, user="lab")
    with pytest.raises(NotSent) as caught:
        send_mail(settings, "pass-word", "lab", MESSAGE)
    assert caught.value.server
    assert "pass-word" not in str(caught.value)
    assert mails(smtp) == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost` and its key, signed by itself."""
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    request = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1")
    command = (*request, *names, "-keyout", "key.pem", "-out", "certificate.pem")
    subprocess.run(command, cwd=file.parent, capture_output=True, check=True)
    return file


def test_passwords_need_a_valid_certificate(
    smtp: MailServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smtp.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    smtp.context.load_cert_chain(certificate, certificate.parent / "key.pem")
    settings = mail_settings(smtp, encrypted=True, user="lab", smarthost=f"localhost:{smtp.server_address[1]}")
    with pytest.raises(NotSent) as caught:
        send_mail(settings, "pass-word", "lab", MESSAGE)
    assert "SSLCertVerificationError" in str(caught.value)
    assert mails(smtp) == []
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr("ssl.create_default_context", lambda: trusting)
    send_mail(settings, "pass-word", "lab", MESSAGE)
    (mail,) = mails(smtp)
    assert mail["encrypted"]
    assert base64.b64decode(mail["login"]) == b"\0lab\0pass-word"


def test_a_recipient_refused_for_good_is_not_tried_again(smtp: MailServer) -> None:
    for code, final in ((550, True), (450, False)):
        smtp.refuse["<ada@example.org>"] = code
        with pytest.raises(NotSent) as caught:
            send_mail(mail_settings(smtp), "", "lab", MESSAGE)
        assert (caught.value.final, caught.value.server) == (final, False), code


class Hook(http.server.BaseHTTPRequestHandler):
    """Records what is posted, and answers with the status in its path."""

    posted: ClassVar[list[tuple[str, str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Hook.posted.append((self.path, self.headers.get("Authorization", ""), body))
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Location", "/200/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.posted = []
    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_webhook_gets_json_with_the_log_in_of_its_address_and_slack_no_mention(hook: str) -> None:
    post("webhook", f"http://me:secret@{hook}/200/x", "lab", MESSAGE)
    body = {"cluster": "lab", "id": "k1", "title": MESSAGE.title, "text": MESSAGE.text}
    assert Hook.posted == [("/200/x", "Basic bWU6c2VjcmV0", body)]
    post("slack", f"http://{hook}/200/x", "lab", Message("k", "vision", "job 7 (<!channel>)", "a & b"))
    assert Hook.posted[1][2]["text"] == "[lab] job 7 (&lt;!channel&gt;)\n\na &amp; b"


def test_an_error_of_a_webhook_contains_nothing_of_its_address(hook: str) -> None:
    for posted, (status, final) in enumerate(((404, True), (429, False), (500, False), (302, False)), 1):
        with pytest.raises(NotSent) as caught:
            post("webhook", f"http://{hook}/{status}/{TOKEN}", "lab", MESSAGE)
        assert (caught.value.final, TOKEN in str(caught.value)) == (final, False), status
        # A redirection is not followed.
        assert len(Hook.posted) == posted


# The service.


@pytest.fixture
def make_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeService:
    for folder in ("spool", "state"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(daemon, "write_report", lambda event: of(job(number=int(event.job)), event=event))

    def make(**settings: Any) -> Service:
        whole = {"cluster": "lab", "mail": None, "channels": {}, "notify": {}, **settings}
        secrets = {f"channel-{name}": f"http://127.0.0.1:9/{TOKEN}" for name in whole["channels"]}
        return Service(whole, secrets, tmp_path / "spool", Outbox(tmp_path / "state"))

    return make


def test_an_event_becomes_a_mail_and_users_without_receiver_are_logged(
    make_service: MakeService, smtp: MailServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    service = make_service(mail=mail_settings(smtp))
    write_event(service.spool, f"7\nada\nada@example.org\n{SUBJECT}\n")
    write_event(service.spool, "garbage", "2-x.event")
    write_event(service.spool, f"8\nada\nada\n{SUBJECT}\n", "3-x.event")
    service.collect()
    service.deliver()
    assert [mail["to"] for mail in mails(smtp)] == [["<ada@example.org>"]]
    assert [*service.spool.iterdir(), *(tmp_path / "state").iterdir()] == []
    assert "no report about job 8: it names no mail address, and user ada has no notify" in capfd.readouterr().err


def test_a_file_that_cannot_be_read_or_removed_stops_no_other_and_is_logged_once(
    make_service: MakeService,
    smtp: MailServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("7-x-0.report", "cut-off"):
        (tmp_path / "state" / name).mkdir()
    service = make_service(mail=mail_settings(smtp))

    def refuse(path: Path) -> None:
        if path.name.startswith("1-"):
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        report.remove_event(path)

    monkeypatch.setattr(daemon, "remove_event", refuse)
    for number in (1, 2):
        write_event(service.spool, f"{number}\nada\nada@example.org\n{SUBJECT}\n", f"{number}-x.event")
    for _ in range(5):
        service.turn()
    texts = [mail["text"] for mail in mails(smtp)]
    assert [sum(f"job {number} " in text for text in texts) for number in (1, 2)] == [1, 1]
    assert capfd.readouterr().err.count("1-x.event: Operation not permitted") == 1


def test_a_silent_server_is_tried_once_and_nothing_is_lost(
    make_service: MakeService, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    post = mock.Mock(side_effect=NotSent("it does not answer", server=True))
    monkeypatch.setattr(daemon, "post", post)
    service = make_service(channels={"vision": "slack"}, notify={"ada": ["vision"]})
    for number in range(5):
        write_event(service.spool, f"{number + 1}\nada\nada\n{SUBJECT}\n", f"{number}-x.event")
    service.collect()
    service.deliver()
    assert post.call_count == 1
    assert len(make_service().outbox.waiting) == 5
    assert TOKEN not in capfd.readouterr().err


def test_a_flood_asks_slurm_little(
    make_service: MakeService, monkeypatch: pytest.MonkeyPatch, smtp: MailServer
) -> None:
    asked = []

    def write(event: Event) -> Report:
        asked.append(event.job)
        return of(job(number=int(event.job)), event=event)

    monkeypatch.setattr(daemon, "write_report", write)
    service = make_service(mail=mail_settings(smtp))
    for number in range(100):
        write_event(service.spool, f"{number + 1}\nada\nada@example.org\n{SUBJECT}\n", f"{number:03}.event")
    service.collect()
    assert len(asked) == 20
    service.deliver()
    (mail,) = mails(smtp)
    parsed = message_from_string(mail["text"], policy=default)
    assert parsed["Subject"] == "[lab] 100 reports about jobs of ada"
    assert "and 80 more" in parsed.get_content()
