"""Scripts that are put on a machine for its steps, under either engine: what goes wrong on the way, and comes right."""

import json
from pathlib import Path

import pytest

from cli.head.answer import sudo_password
from cli.output.failures import with_remedies
from components.steps.label import StepLabel
from tests.engine.conftest import Deploy, needs_cli
from tests.engine.ssh_host import SshHost, serve
from tests.engine.stack_under_test import STEPS, Stack

PROGRAM = """
machine, node = Machine("a1", way), Node("a1")
script = Script({{"up": ()}}, phases=frozenset({{"WORD"}}))
there = deliver("a1-scripts", machine, [script], label="a1: scripts", parent=node, repair={repair!r})
made = Step("a1-node", machine, script, {{"WORD": {word!r}}}, label="a1: a step", parent=node, depends_on=there,
            answer=Answer({{"said": str}}))
pulumi.export("said", made.result["said"])
"""


def write(stack: Stack, word: str = "one", repair: str = "") -> None:
    stack.write(STEPS + PROGRAM.format(word=word, repair=repair), {"unused": 1})


def test_lost_scripts_are_named_and_a_repair_text_copies_them(deploy: Deploy, stack: Stack, host: SshHost) -> None:
    write(stack)
    deployment = deploy("dev", [])
    assert deployment.up().ok
    assert deployment.outputs() == {"said": "one 1"}
    # A step sends only its values.
    assert all(len(asked.stdin) < 200 for asked in host.take())
    # start.sh, the program and the plan.
    folder = host.folder / ".tailrack" / "scripts"
    assert len([*folder.iterdir()]) == 3
    repair = ""
    for number, script in enumerate((*folder.glob("plans-*"), *folder.glob("*.sh"))):
        script.unlink()
        write(stack, word=f"two {number}", repair=repair)
        (failure,) = (one for one in with_remedies(deployment.up()).failures if one.urn)
        for part in (": not there, or not whole", "next: setup scripts in the home folder of the login account on a1"):
            assert part in failure.message
        repair = f"home is back {number}"
        write(stack, word=f"two {number}", repair=repair)
        assert deployment.up().ok
        assert deployment.outputs() == {"said": f"two {number} 1"}


# The in-process engine needs none.
@pytest.mark.parametrize("deploy", [pytest.param("cli", marks=needs_cli)], indirect=True)
def test_a_delivery_names_a_host_without_sftp_and_the_remedy(deploy: Deploy, stack: Stack, tmp_path: Path) -> None:
    with serve(tmp_path, sftp=False) as bare:
        write(stack)
        (stack.folder / "host.json").write_text(json.dumps(bare.connection()))
        (failure,) = (one for one in with_remedies(deploy("dev", []).up()).failures if one.urn)
        assert failure.urn.endswith("::a1-scripts")
        assert StepLabel.of(failure.command) == StepLabel("a1-scripts", "a1", "a1: scripts")
        assert "next: enable SFTP in the sshd of a1" in failure.message, failure.message
        assert bare.take() == []


def test_a_password_for_sudo_is_the_first_line_of_stdin_under_either_engine(
    deploy: Deploy, stack: Stack, host: SshHost
) -> None:
    way = 'import dataclasses; way = dataclasses.replace(way, sudo_password=pulumi.Output.secret("nobody may see"))'
    stack.write(STEPS + way + PROGRAM.format(word="one", repair=""), {"unused": 1})
    deployment = deploy("dev", [])
    assert deployment.up().ok
    assert deployment.outputs() == {"said": "one 1"}
    assert [asked.stdin.split("\n")[0] for asked in host.take() if asked.stdin] == ["nobody may see"]
    assert sudo_password(deployment.made(), "a1") == "nobody may see\n"
    files = [path for path in stack.folder.rglob("*") if path.is_file() and path.suffix != ".py"]
    assert not [path for path in files if b"nobody may see" in path.read_bytes()]
