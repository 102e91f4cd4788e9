"""The same sequence of programs under the real CLI and under the engine: same commands, outputs and state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.rpc import UNKNOWN

from tests.engine.conftest import needs_cli
from tests.engine.ssh_host import Asked
from tests.engine.stack_under_test import Stack

pytestmark = needs_cli

# Each command of the main sequence needs the one before it, so its order on the host is certain.
LONG = """
base = step("base", "echo base {base}", delete="cat >/dev/null; echo bye base")
head = step("head", base.stdout.apply(lambda text: f"echo head of {{text}}"), delete="echo bye head",
            depends_on=[base])
node = step("node", head.stdout.apply(lambda text: f"echo node of {{text}}"), delete="echo bye node",
            update="bash -s # update", depends_on=[head])
pulumi.export("node", node.stdout)
"""
MEASURE = """
first = step("first", "echo first {trigger}", triggers=[{trigger}], delete="echo bye first",
             options=dict(delete_before_replace={before}))
second = step("second", "echo second", triggers=[first.stdout], delete="echo bye second", depends_on=[first])
third = step("third", "echo third", delete="echo bye third", depends_on=[second],
             options=dict(deleted_with=second))
pulumi.export("first", first.stdout)
"""
SECRET = """
key = step("key", pulumi.Output.secret("echo k-{word}; echo e-{word} >&2"),
           options=dict(additional_secret_outputs=["stdout", "stderr"]))
user = step("user", key.stdout.apply(lambda text: f"echo got {{text}}"))
half = local.Command("half", create="cat; echo $WORD; pwd >&2", dir="/", stdin="in ", environment=dict(WORD="{word}"),
                     opts=Options(depends_on=[user], additional_secret_outputs=["stderr"]))
class Rack(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("trial:rack:Rack", name)
        child = local.Command("child", create=pulumi.Output.concat("true ", half.stdout), opts=Options(parent=self))
        self.register_outputs({{"child": child.stdout}})
Rack("rack")
pulumi.export("key", key.stdout)
pulumi.export("parts", dict(key=key.stdout, user=user.stdout, half=half.stdout))
pulumi.export("connection", user.connection)
"""
FAILING = """
whole = step("whole", "echo whole")
broken = step("broken", "echo {word}; exit {code}", delete="test ! -e stuck; echo bye", depends_on=[whole],
              triggers={triggers}, options=dict(delete_before_replace={before}))
pulumi.export("whole", whole.stdout)
pulumi.export("broken", broken.stdout)
"""
BASTION = """
far = step("far", "echo {word}", connection=dict(proxy=remote.ProxyConnectionArgs(**HOST)), delete="echo bye far")
pulumi.export("far", far.stdout)
"""
PREVIOUS = """
echo = local.Command("echo", create="echo old=$PULUMI_COMMAND_STDOUT", update="{update}",
                     delete="echo gone=$PULUMI_COMMAND_STDOUT >> {log}")
pulumi.export("echo", echo.stdout)
"""
# What is there is shown by a command that runs each time.
COPIES = """
folder = pathlib.Path("{place}", "scripts").absolute()
folder.mkdir(parents=True, exist_ok=True)
(folder / "first").write_text("first")
(folder / "other").write_text("{word}")
pathlib.Path("../host/a-file").write_text("")
copy = remote.CopyToRemote(
    "copy", connection=remote.ConnectionArgs(**{{**HOST, "user": "{user}"}}), source=pulumi.FileArchive(str(folder)),
    remote_path="{there}", triggers=["{trigger}"],
)
see = step("see", "cat {there}/scripts/*; rm -r {there} # {run}", depends_on=[copy])
pulumi.export("see", see.stdout)
"""

# Ignored inputs stay as they were, until the step is replaced.
IGNORED = """
step("kept", "echo {word}", triggers=[{trigger}], delete="cat >/dev/null; echo bye", update="{update}",
     options=dict(ignore_changes={ignored}))
"""

# A chain, so that its order is certain. `last` is deleted before what the state says that it needs, by its old name.
RENAMED = """
class Rack(pulumi.ComponentResource):
    def __init__(self, name, type_="Rack", **options):
        super().__init__(f"trial:rack:{{type_}}", name, None, Options(**options))
        self.part = step(f"{{name}}-part", "echo part", delete="cat >/dev/null; echo bye part",
                         depends_on=[first], options=dict(parent=self))
first = step("{first}", "echo {word}", delete="cat >/dev/null; echo bye first", triggers=[{trigger}],
             options=dict(aliases=[{aliases}]))
{rack}
last = step("last", first.stdout.apply(lambda text: f"echo {{text}}"), delete="cat >/dev/null; echo bye last",
            depends_on=[first, rack.part], options=dict({last}))
pulumi.export("last", last.stdout)
"""


def renamed(first: str, *aliases: str, rack: str = 'rack = Rack("rack")', **changed: Any) -> str:
    """The program of a step that is called `first` and was called otherwise."""
    how = {"word": "one", "trigger": 1, "last": "", **changed}
    return RENAMED.format(first=first, aliases=", ".join(aliases), rack=rack, **how)


def copies(run: int, **changed: str) -> str:
    """The program of a copy, with what is another one in it. The copy is taken away each time that it is shown."""
    how = {"place": "here", "word": "one", "user": "root", "there": "far/away", "trigger": "a", **changed}
    return COPIES.format(run=run, **how)


SEQUENCES = {
    "create, change stdin, remove, destroy": [
        LONG.format(base=1),
        LONG.format(base=1),
        LONG.format(base=2),
        LONG.format(base=2).replace("node", "other"),
        LONG.format(base=2).partition("head =")[0],
    ],
    "change triggers, with delete before replace and what is deleted with it": [
        MEASURE.format(trigger=1, before=None),
        MEASURE.format(trigger=2, before=None),
        MEASURE.format(trigger=3, before=True),
        MEASURE.format(trigger=3, before=True).partition("third =")[0],
        "",
    ],
    "secrets": [
        SECRET.format(word="one"),
        SECRET.format(word="two"),
        SECRET.format(word="two").replace('pulumi.Output.secret("echo k-two; echo e-two >&2")', '"echo k-two"'),
        SECRET.format(word="two").replace("key.stdout)", "pulumi.Output.unsecret(key.stdout))"),
    ],
    "fail to create and repair": [
        FAILING.format(word="a", code=3, triggers=[1], before=None),
        FAILING.format(word="a", code=0, triggers=[1], before=None),
        FAILING.format(word="b", code=4, triggers=[1], before=None),
        FAILING.format(word="a", code=0, triggers=[1], before=None),
        FAILING.format(word="b", code=0, triggers=[1], before=None),
    ],
    "fail to replace and repair": [
        FAILING.format(word="a", code=0, triggers=[1], before=None),
        FAILING.format(word="a", code=3, triggers=[2], before=None),
        FAILING.format(word="b", code=0, triggers=[3], before=True),
        FAILING.format(word="b", code=3, triggers=[4], before=True),
    ],
    "retain, and drop a connection's default": [
        'a = step("a", "echo a", delete="echo bye a", options=dict(retain_on_delete=True))',
        'a = step("a", "echo a", delete="echo bye a", connection=dict(per_dial_timeout=7))',
        'a = step("a", "echo a", delete="echo bye a", options=dict(retain_on_delete=True))',
        "",
    ],
    "a host behind a bastion": [BASTION.format(word=1), BASTION.format(word=1), BASTION.format(word=2)],
    "copy a folder, and what copies it again": [
        copies(0),
        copies(0),
        copies(0, place="elsewhere") + 'import shutil; shutil.rmtree("here", True)',
        copies(1, word="two"),
        copies(1, word="two", user="ops"),
        copies(2, word="two", user="ops", there="further"),
        copies(3, word="two", user="ops", there="further", trigger="b"),
        'import shutil; shutil.rmtree("here", True)',
    ],
    "rename a step, then change it, then replace it under another name": [
        renamed("old"),
        renamed("new", 'pulumi.Alias(name="other")', 'pulumi.Alias(name="old")'),
        renamed("new", 'pulumi.Alias(name="old")', word="two"),
        renamed("newer", 'pulumi.Alias(name="new")', word="three"),
        renamed("newest", '"urn:pulumi:dev::trial::command:remote:Command::newer"', word="three", trigger=2),
        renamed("last-name", 'pulumi.Alias(name="newest", stack="dev", project="trial")', word="three", trigger=2),
        renamed("another", 'pulumi.Alias(name="last-name", stack="prod")', word="three", trigger=2),
    ],
    "rename what another is deleted with, and replace both": [
        renamed("old", last="deleted_with=first"),
        renamed("new", 'pulumi.Alias(name="old")', last="deleted_with=first"),
        renamed("newer", 'pulumi.Alias(name="new")', last="deleted_with=first", trigger=2),
        renamed("newest", 'pulumi.Alias(name="newer")').partition("last =")[0],
    ],
    "rename a component with what is in it, give it another type, put it elsewhere": [
        renamed("first"),
        renamed("first", rack='rack = Rack("shelf", aliases=[pulumi.Alias(name="rack")])'),
        renamed("first", rack='rack = Rack("shelf", "Shelf", aliases=[pulumi.Alias(type_="trial:rack:Rack")])'),
        renamed("first", rack='rack = Rack("shelf", "Shelf", parent=first, aliases=[pulumi.Alias(parent=None)])'),
        renamed("first", rack='rack = Rack("shelf", "Shelf", aliases=[pulumi.Alias(parent=first)])', word="two"),
        renamed(
            "first",
            rack='rack = Rack("shelf", "Shelf", parent=pulumi.ComponentResource("trial:room:Room", "room"), '
            "aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])",
        ),
    ],
    "fail to change what is renamed, and repair": [
        renamed("old"),
        renamed("new", 'pulumi.Alias(name="old")', word="two; exit 3"),
        renamed("new", 'pulumi.Alias(name="old")', word="two"),
        renamed("newer", 'pulumi.Alias(name="new")', word="two; exit 3", trigger=2),
        renamed("newer", 'pulumi.Alias(name="new")', word="two", trigger=2),
    ],
    "fail to copy and repair": [
        copies(0, there="a-file/away"),
        copies(0),
        copies(1, there="a-file/away", word="two"),
        copies(2),
    ],
    "ignore changes of inputs, then replace the step, then stop ignoring": [
        IGNORED.format(word="one", trigger=1, update="bash -s", ignored=["stdin"]),
        IGNORED.format(word="two", trigger=1, update="bash -s", ignored=["stdin"]),
        IGNORED.format(word="two", trigger=1, update="bash -s # again", ignored=["stdin"]),
        IGNORED.format(word="three", trigger=2, update="bash -s # again", ignored=["stdin"]),
        IGNORED.format(word="four", trigger=2, update="bash -s # again", ignored=["update"]),
    ],
    "the output of the time before": [
        PREVIOUS.format(update="echo new=$PULUMI_COMMAND_STDOUT", log="log"),
        PREVIOUS.format(update="echo newer=$PULUMI_COMMAND_STDOUT", log="log"),
        "",
    ],
}


@dataclass
class Step:
    """What one run of a program did and left."""

    ok: bool
    counts: dict[str, int]
    asked: list[Asked]
    state: dict[str, Any]


def _by_cli(stack: Stack, programs: list[str], tmp_path: Path) -> list[Step]:
    stack.write("")
    cli = stack.cli(tmp_path, SSH_AUTH_SOCK="", PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS="true")
    done: list[Step] = []
    for program in [*programs, None]:
        if program is not None:
            stack.write(program)
        ok, counts = cli.counts("destroy" if program is None else "up")
        done.append(Step(ok, counts, stack.host.take(), cli.picture()))
    return done


def _by_engine(stack: Stack, programs: list[str]) -> list[Step]:
    done = []
    for program in [*programs, None]:
        if program is None:
            summary = stack.engine().destroy()
        else:
            stack.write(program)
            summary = stack.engine().up()
        counts = {operation: count for operation, count in summary.counts.items() if count}
        done.append(Step(summary.ok, counts, stack.host.take(), stack.engine_picture()))
    return done


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_engine_and_the_cli_give_the_same_result(name: str, stack: Stack, tmp_path: Path) -> None:
    programs = SEQUENCES[name]
    expected = _by_cli(stack, programs, tmp_path)
    log = stack.folder / "log"
    by_cli = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    done = _by_engine(stack, programs)
    for number, (theirs, ours) in enumerate(zip(expected, done, strict=True), start=1):
        # An output of what failed: the CLI keeps its own mark of the unknown in the state, the engine the old value.
        for key in [key for key, value in theirs.state["outputs"].items() if value == UNKNOWN]:
            del theirs.state["outputs"][key]
            ours.state["outputs"].pop(key, None)
        assert ours.asked == theirs.asked, f"commands on the host in step {number}"
        assert ours.state == theirs.state, f"state after step {number}"
        assert ours.ok == theirs.ok, f"exit status of step {number}"
        if ours.ok:
            assert ours.counts == theirs.counts, f"summary of step {number}"
    assert (log.read_text() if log.exists() else "") == by_cli
    assert ("fail" in name) == (not all(step.ok for step in done))
