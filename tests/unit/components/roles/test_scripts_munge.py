"""The munge key is changed at one moment, against stubs of members and slurmctld; real ones are in test_rotation."""

import contextlib
import hashlib
import subprocess
from collections.abc import Callable

import pytest

from components.node import files
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.access.ssh_trust import ask
from components.roles.slurm.munge import held_jobs, host, switch_key
from components.roles.slurm.munge.host import JoinValues, join, register, services
from components.roles.slurm.munge.host import node as compare_keys
from components.roles.slurm.munge.switch_key import digest_of
from tests.unit.killed import killed_before
from tests.unit.shell import HurriedTime, Shell, assert_ok

OLD, NEW = "b" * 64, "n" * 64
KEY, NEXT = "/etc/munge/munge.key", "/etc/munge/munge.key.next"
LATE, HELD = "/var/lib/tailrack/munge.late", "/var/lib/tailrack/munge.held"
HOLD, LET = "scontrol update partitionname=all state=down", "scontrol update partitionname=all state=up"


SSH = """words="$*"; words=${words#*HostKeyAlias=}; node=${words%% *}; words=${words#* * }
exec tailrack-ask $node $words"""


@pytest.fixture
def head(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A head node with two members, all of which have the old key; `dead` names one that does not answer."""
    shell.write(KEY, f"{OLD}\n")
    for node in ("a1", "b1", "head"):
        shell.write(f"/var/lib/tailrack/members/{node}/address", "100.64.0.1\n")
    shell.write("/run/tailrack-private/x", "")
    # Prints what stands for a credential: the name of the key that the member has now.
    shell.stub(
        "tailrack-ask",
        f'''
        [ "$1" != "$(cat {shell.root}/dead 2>/dev/null)" ] || {{ echo "no route" >&2; exit 255; }}
        [ "$2" = munge-next ] && cat >/dev/null || echo "credential of $3"''',
    )
    shell.stub("unmunge", f'grep -q "credential of $(sha256sum <{shell.path(KEY)} | cut -d " " -f 1)"')
    shell.stub("sinfo", "echo 'all up'; echo 'mine down'")
    shell.stub("sdiag", "echo 'Agent count:    0'")
    # Hands the request to the stub above, as sshd of the member would.
    shell.stub("ssh", SSH)
    monkeypatch.setattr(ask, "asking_key", lambda *_: contextlib.nullcontext("key"))
    shell.stubs("squeue", "scontrol", "systemd-run", "pkill")
    shell.hurry()
    monkeypatch.setattr(host, "_PATIENCE", 15)
    return shell


def change(head: Shell) -> str:
    """Run the phase and return why it failed; empty if it did not."""
    step = Step("head", "head-services")
    with head.here():
        try:
            services(step, "2")
            for finish in step.later:
                finish()
        except Failure as failure:
            return failure.reason
        finally:
            for cleanup in step.at_end:
                cleanup()
    return ""


def late(head: Shell) -> str:
    """Who has not proved the key."""
    path = head.path(LATE)
    return path.read_text() if path.exists() else ""


NODES = """case "$*" in *%T*) cat <<'END'
a1 idle none
b1 {state}
head idle none
END
;; *) echo 'all up'; echo 'mine down' ;; esac"""
WHY = "tailrack: has another munge key"
DRAIN = "scontrol update nodename={} state=drain reason=" + WHY


def test_a_node_without_the_key_is_drained_before_jobs_start_again_and_taken_back_when_it_has_it(head: Shell) -> None:
    head.write(NEXT, f"{NEW}\n")
    head.write("/dead", "b1")
    head.stub("sinfo", NODES.format(state="idle none"))
    assert change(head) != ""
    assert head.calls.index(DRAIN.format("b1")) < head.calls.index(LET)
    assert DRAIN.format("a1") not in head.calls
    head.path("/dead").unlink()
    head.stub("sinfo", NODES.format(state=f"drained* {WHY}"))
    assert change(head) == ""
    assert "scontrol update nodename=b1 state=undrain" in head.calls
    assert "scontrol update nodename=a1 state=undrain" not in head.calls


def test_a_node_that_is_out_already_stays_out_for_its_own_reason(head: Shell) -> None:
    head.write("/dead", "b1")
    for state in ("drained new disk", "draining new disk", "down* Not responding", "drained* x"):
        head.write(NEXT, f"{NEW}\n")
        head.stub("sinfo", NODES.format(state=state))
        change(head)
        assert not any("nodename=b1" in call for call in head.calls), state


def killed(head: Shell) -> subprocess.CompletedProcess[str]:
    """A change that was killed while jobs were held; the timer's program runs."""
    head.stub("sinfo", NODES.format(state="idle none"))
    head.write(HELD, "all\n")
    head.write(LATE, "a1\nb1\n")
    return head.command("munge-release")


def test_a_change_that_was_killed_lets_jobs_start_on_no_node_with_another_key(head: Shell) -> None:
    # A node that missed the moment gets the key then.
    assert killed(head).returncode == 0
    assert not any("state=drain" in call for call in head.calls)
    assert late(head) == ""
    # The head node has the old key still, and a1 has changed to the next one.
    head.path("/calls").unlink()
    head.stub("tailrack-ask", '[ "$1" != a1 ] || exit 1; echo "credential of $3"')
    assert_ok(killed(head))
    assert head.calls.index(DRAIN.format("a1")) < head.calls.index(LET)
    assert DRAIN.format("b1") not in head.calls
    assert (late(head), head.path(HELD).exists()) == ("a1\n", False)


def test_jobs_stay_held_until_slurmctld_accepts_the_drain(head: Shell) -> None:
    head.write("/dead", "b1")
    head.stub("scontrol", "exit 1")
    assert killed(head).returncode == 1
    assert LET not in head.calls
    assert head.path(HELD).exists()
    head.stub("scontrol")
    assert head.command("munge-release").returncode == 0
    assert not head.path(HELD).exists()


def test_a_silent_node_is_named_and_gets_the_key_later(head: Shell) -> None:
    head.write(NEXT, f"{NEW}\n")
    head.write("/dead", "b1")
    assert change(head) == "the munge key was changed, and b1 did not get it: no job starts there"
    assert head.path(KEY).read_text() == f"{NEW}\n", "the others go on"
    assert head.calls[-1] != HOLD
    assert LET in head.calls
    assert late(head) == "b1\n"
    head.path("/dead").unlink()
    head.path("/calls").unlink()
    assert change(head) == ""
    assert HOLD not in head.calls
    assert late(head) == ""


# Of slurmstepd, while a machine's key is not slurmctld's.
STOPPED, GOES_ON = "pkill -STOP -x slurmstepd", "pkill -CONT -x slurmstepd"


def test_members_have_the_key_before_jobs_are_held_and_jobs_start_again_after(head: Shell) -> None:
    head.write(NEXT, f"{NEW}\n")
    assert change(head) == ""
    assert head.path(KEY).read_text() == f"{NEW}\n"
    assert not head.path(NEXT).exists()
    # No job on the head node tells its end while the key changes.
    for words in (
        ("a1 munge-next", "systemd-run", HOLD, "a1 munge-switch", "systemctl restart munge", "unmunge", LET),
        (f"--on-active=30 {GOES_ON}", STOPPED, "systemctl restart munge"),
    ):
        order = [next(i for i, call in enumerate(head.calls) if word in call) for word in words]
        assert order == sorted(order)
    assert head.calls.index(GOES_ON) > head.calls.index("systemctl restart munge")
    # A partition that somebody has closed stays so.
    assert not any("partitionname=mine" in call for call in head.calls)
    asked = [call.split() for call in head.calls if call.startswith("tailrack-ask")]
    assert {node for _, node, request, *_ in asked if request == "munge-switch"} == {"a1", "b1"}
    assert not head.path(HELD).exists()
    assert late(head) == ""


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with the old key that runs the answer to munge-switch."""
    shell.write(KEY, f"{OLD}\n")
    shell.stubs("pkill", "systemd-run", "chown")
    shell.stub("munge", "echo credential")
    return shell


def digest(node: Shell, path: str) -> str:
    """What the head node calls a key by."""
    return hashlib.sha256(node.path(path).read_bytes()).hexdigest()


def test_no_job_on_a_node_tells_its_end_between_its_key_and_slurmctlds(node: Shell) -> None:
    node.write(NEXT, f"{NEW}\n")
    node.stub("systemctl", "exit 1")
    assert node.command("munge-switch", digest(node, NEXT)).returncode == 1
    # The key is there, and munged has not read it: the head node asks again.
    node.stub("systemctl")
    (node.root / "calls").unlink()
    switched = node.command("munge-switch", digest(node, NEXT))
    assert (switched.returncode, switched.stdout) == (0, "credential\n"), switched.stderr
    assert node.path(KEY).read_text() == f"{NEW}\n"
    calls = [call for call in node.calls if {"slurmstepd", "restart", "resume"} & {*call.split()}]
    # By the clock at the latest; else as soon as slurmctld understands this node.
    assert f"--on-active=30 {GOES_ON}" in calls[0]
    assert calls[1:3] == [STOPPED, "systemctl restart munge"]
    assert calls[3].startswith("systemd-run -q --collect ")
    assert calls[3].endswith("/usr/local/lib/tailrack/answers/munge-switch resume")
    node.stub("sinfo", f'echo x >>{node.root}/asked; [ "$(wc -l <{node.root}/asked)" -ge 3 ]')
    before = len(node.calls)
    assert node.command("munge-switch", "resume").returncode == 0
    assert node.calls[before:] == [*["sinfo -h -o %N"] * 3, GOES_ON]


def test_a_pod_keeps_the_new_key_for_its_next_container(node: Shell) -> None:
    node.write("/workspace/.tailrack/saved/var/lib/tailrack/node-name", "p1\n")
    node.write(NEXT, f"{NEW}\n")
    node.stub("rsync")
    switched = node.command("munge-switch", digest(node, NEXT))
    assert (switched.returncode, switched.stdout) == (0, "credential\n"), switched.stderr
    assert any(call.startswith("rsync ") and "munge.key" in call for call in node.calls)


@pytest.fixture
def place(head: Shell, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Run the phase on the head node and return its log."""

    def run() -> str:
        capsys.readouterr()
        head.call(register, Step("head", "b1-register"), "b1", "100.64.0.9")
        return capsys.readouterr().err

    return run


def test_nodes_join_after_a_key_change(head: Shell, place: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    head.write(NEXT, f"{NEW}\n")
    # What the head node's services do meanwhile.
    monkeypatch.setattr(HurriedTime, "sleep", lambda *_: head.path(NEXT).rename(head.path(KEY)))
    place()
    assert head.path(KEY).read_text() == f"{NEW}\n"


def test_an_abandoned_key_change_does_not_hold_a_node_for_long(head: Shell, place: Callable[[], str]) -> None:
    assert place() == ""
    head.write(NEXT, f"{NEW}\n")
    assert "the munge key change was not finished in 90s; continuing with the old key" in place()


def test_a_node_that_moved_gets_the_key(head: Shell, place: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    head.write(LATE, "a1\nb1\n")
    monkeypatch.setattr(HurriedTime, "sleep", lambda *_: head.write("/var/lib/tailrack/answers", ""))
    head.stub(
        "tailrack-ask",
        f"""
        address=$(cat {head.path("/var/lib/tailrack/members")}/$1/address)
        [ "$address" = 100.64.0.9 ] && [ -e {head.path("/var/lib/tailrack/answers")} ] || exit 255
        [ "$2" = munge-next ] && cat >{head.path("/handed")} || echo "credential of $3"
        """,
    )
    log = place()
    assert head.path("/handed").read_text(encoding="utf-8") == f"{OLD}\n"
    assert "b1 missed the munge key change; sending the key" in log
    assert "does not prove" not in log


def test_the_head_node_names_a_node_that_never_shows_the_key(head: Shell, place: Callable[[], str]) -> None:
    head.write(LATE, "b1\n")
    head.write("dead", "b1")
    assert "b1 does not prove that it has the key" in place()


@pytest.mark.parametrize("number", range(1, 30))
def test_cut_off_anywhere_a_change_ends_with_one_key(head: Shell, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Before a change of a file or the start of a program, by their number."""
    head.write("/etc/passwd", "munge:x:110:110::/:/usr/sbin/nologin\n")
    head.write(NEXT, f"{NEW}\n")
    head.write("/var/lib/tailrack/slurm/base/slurm.conf", "")
    read = head.write("read-by-munged", f"{OLD}\n")
    head.stub("systemctl", f'[ "$*" != "restart munge" ] || cp {head.path(KEY)} {read}')
    head.stub("munge", f"echo credential of $(sha256sum <{read} | cut -d ' ' -f 1)")
    head.stub("unmunge", f'grep -q "credential of $(sha256sum <{read} | cut -d " " -f 1)"')
    monkeypatch.setattr("components.roles.slurm.munge.host.packages.ensure", lambda *_: None)
    with killed_before(number, ("write", "remove"), (held_jobs, switch_key)), head.here():
        services(Step("head", "head-services"), "2")
    head.call(join, Step("head", "head-prepare"), JoinValues("lab", "2", NEW))
    assert change(head) == ""
    if head.path(HELD).exists():  # the timer runs it
        assert head.command("munge-release").returncode == 0
    assert head.path(KEY).read_text() == read.read_text() == f"{NEW}\n"
    assert not head.path(NEXT).exists()
    assert (late(head), head.path(HELD).exists()) == ("", False)


def test_partitions_that_a_killed_change_has_held_are_released_by_the_next(head: Shell) -> None:
    head.write(NEXT, f"{NEW}\n")
    head.write(HELD, "all\n")
    head.stub("sinfo", "echo 'all down'; echo 'new up'")
    assert change(head) == ""
    assert {LET, LET.replace("=all", "=new")} <= set(head.calls)


def test_the_key_of_another_state_is_refused_unless_the_config_asks_for_a_new_generation(head: Shell) -> None:
    head.write("/var/lib/tailrack/slurm/base/slurm.conf", "")
    head.stubs("systemctl", "munge", "unmunge")
    head.write("/etc/passwd", "munge:x:110:110::/:/usr/sbin/nologin\n")
    head.write("/var/lib/tailrack/munge.digests", f"{digest_of(f'{OLD}{chr(10)}')} lab\n")
    step = Step("head", "head-prepare")
    with head.here():
        join(step, JoinValues("lab", "1", OLD))  # as in a run of its own state, which records the generation
        with pytest.raises(Failure, match="belongs to another state") as failed:
            join(step, JoinValues("lab", "1", NEW))
        assert "PULUMI_BACKEND_URL" in failed.value.remedy
        assert not files.exists(NEXT)
        for _ in range(2):
            join(step, JoinValues("lab", "2", NEW))
            assert files.read(NEXT) == f"{NEW}\n", "its turn comes when all machines change"


@pytest.mark.parametrize(("own", "accepted", "fails"), [(OLD, False, False), (NEW, False, True), (NEW, True, False)])
def test_a_node_with_another_key_fails_before_it_waits(head: Shell, *, own: str, accepted: bool, fails: bool) -> None:
    head.stub("sinfo", "" if accepted else "exit 1")
    registered = Step("head", "a1-register")
    with head.here():
        register(registered, "a1", "100.64.0.1")
        files.add_line("/var/lib/tailrack/munge.digests", f"{digest_of(f'{own}{chr(10)}')} lab", 0o600)
        with pytest.raises(Failure, match="to a1 is not the key on the head") if fails else contextlib.nullcontext():
            compare_keys(Step("a1", "a1-node"), "lab", registered.results["munge_digest"])


def test_the_munge_error_has_the_message_of_munged_and_a_remedy(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.roles.slurm.munge.host.packages.ensure", lambda *_: None)
    shell.stub("systemctl", 'case "$*" in *restart*munge*) exit 1 ;; *is-active*) exit 3 ;; esac')
    shell.write("/etc/passwd", "munge:x:110:110::/:/usr/sbin/nologin\n")
    insecure = "munged: Error: PRNG seed dir is insecure: world-writable"
    for said, words, remedy in (
        (f'{insecure} permissions without sticky bit set on "/"', f"({insecure}", "chmod go-w"),
        ("Started munge.service", "munged does not start", "journalctl -u munge"),
    ):
        shell.stub("journalctl", f"cat <<'END'\n{said}\nEND")
        failed = shell.failure_of(join, Step("a1", "a1-prepare"), JoinValues("lab", "1", "new"))
        assert words in failed
        assert remedy in failed
