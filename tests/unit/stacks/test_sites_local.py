"""Sites of kind local: the head node is the machine that the program runs on."""

import base64
import bz2
import copy
import io
import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pulumi
import pytest

from cli.output.failures import with_remedies
from cli.run_events import Failure, Summary
from components.steps.command_line import END_OF_STEP, whole_command
from components.steps.label import StepLabel
from stacks.config import parse
from tests.unit.configs import AUTH_KEY, HOSTS, MUNGE_KEY, RawConfig, refused
from tests.unit.recorded import Build, Recorded, record_cluster

STEPS = {f"door-{step}" for step in ("prepare", "head", "services")}
STEPS |= {"dgx1-register", "dgx2-register", "validate-cross-site"}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RawConfig:
    """The cluster of hosts, its head node this machine, which computes and has a GPU. Root runs the program."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    raw = copy.deepcopy(HOSTS)
    raw["head"] = {"name": "door", "site": "home", "compute": True, "accept_root_risk": True}
    (rack,) = raw["sites"]
    rack["hosts"] = rack["hosts"][1:3]
    raw["sites"] = [{"name": "home", "kind": "local", "gpu": "rtx4090:1", "features": ["desk"]}, rack]
    return raw


@pytest.fixture
def stack(build: Build, config: RawConfig) -> Recorded:
    return build(config)


def test_all_steps_on_the_head_node_are_local_commands_and_those_on_others_go_by_ssh(stack: Recorded) -> None:
    assert {step.name for step in stack.local} == STEPS | {"validate-rack", "munge-key"}
    remote = {f"dgx{n}-{step}" for n in (1, 2) for step in ("prepare", "node")}
    assert {step.name for step in stack.remote} == remote


def test_no_way_to_the_head_node_is_in_the_state(stack: Recorded) -> None:
    assert stack.local
    for step in stack.local:
        assert step.inputs.keys().isdisjoint({"connection", "environment", "interpreter"})
        assert "PRIVATE KEY" not in json.dumps(step.inputs)


def _without_functions(command: str) -> str:
    """Return a command without the functions that end a step."""
    return command.replace(f"{END_OF_STEP}\n", "")


def test_a_local_step_has_the_same_script_on_stdin_and_a_constant_command(stack: Recorded) -> None:
    for name in STEPS:
        step = stack[name]
        assert StepLabel.of(step.inputs["create"]) is not None
        assert re.fullmatch(
            r": [a-z0-9-]+ door '[^']+'; case \$\(id -u\) in 0\) ;; \*\) set -- sudo -n ;; esac; "
            r"answer=\$\(env -i HOME=/root PATH=[a-z:/]+ \"\$@\" timeout -k 30 \d+ python3 -I -S -c '.*' up here\)"
            r" \|\| explain_status; print_answer",
            _without_functions(step.inputs["create"]),
        )
        assert stack.called(name) or name.startswith("validate")
        assert (step.inputs["logging"], step.inputs["addPreviousOutputInEnv"]) == ("none", False)
        assert step.inputs["dir"] == "/"
    ends = ("door-head", "delete", "down"), ("dgx1-register", "delete", "down"), ("validate-rack", "update", "recall")
    for name, key, action in ends:
        assert stack[name].inputs[key].endswith(f"' {action} here) || explain_status; print_answer")


def test_a_local_join_hides_its_stdin_and_no_secret_is_in_plain_state(stack: Recorded) -> None:
    assert "stdin" in stack["door-prepare"].secret_paths
    for text in (MUNGE_KEY, AUTH_KEY):
        assert text in stack["door-prepare"].inputs["stdin"]
        assert all(text not in resource.in_plain_state for resource in stack.resources)
    # The munge key, for stacks of kind pool.
    assert stack.secret_outputs == {"head_link"}


def test_there_is_one_local_site_at_most_and_the_head_node_stands_there(config: RawConfig, key_folder: Path) -> None:
    how: dict[str, Any] = {"base_dir": key_folder, "secret_keys": frozenset({"tailnet"})}
    elsewhere = str(refused(parse, {**config, "head": {"name": "dgx1", "site": "rack"}}, **how))
    assert "sites[0].kind: is local, but the head node is at another site" in elsewhere
    assert "write site: home in tailrack:head, or list this machine at a site of kind hosts" in elsewhere
    attic = {"name": "attic", "kind": "local"}
    two = str(refused(parse, {**config, "sites": [*config["sites"], attic]}, **how))
    assert "sites[2].kind: is local, like sites[0]; this machine would be at two sites" in two


def tools(folder: Path, uid: int, sudo: str = "") -> dict[str, str]:
    """An environment whose commands are those of this machine, with another `id` and `sudo`."""
    for name, body in (("id", f"echo {uid}"), ("sudo", sudo)):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def run_here(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command of a local step, with the stubs in front of the step's own PATH too.

    The program that it brings is not the real one: Python code.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("components/node/install.py", f"{code}; sys.exit()")
    script = f"{json.dumps(['version', base64.b64encode(bz2.compress(archive.getvalue())).decode()])}\nplan\nrequest"
    command = whole_command(None, "up", 10).replace(" PATH=", f" PATH={environment['PATH'].partition(':')[0]}:")
    words = ["/bin/sh", "-c", command]
    return subprocess.run(words, input=script, env=environment, capture_output=True, text=True, check=False)


def test_a_local_step_sees_nothing_of_the_callers_environment(tmp_path: Path) -> None:
    code = "import os; print(json.dumps({'names': [*os.environ], 'arguments': sys.argv[1:]}))"
    callers = {"PULUMI_CONFIG_PASSPHRASE": "hush", "BASH_ENV": "/x"}
    seen = json.loads(run_here(code, {**tools(tmp_path, 0), **callers}).stdout)
    assert {*seen["names"]} <= {"HOME", "PATH", "PWD", "SHLVL", "_", "LC_CTYPE"}
    assert seen["arguments"] == ["up", "here"]


def test_a_local_step_uses_sudo_unless_the_caller_is_root(tmp_path: Path) -> None:
    as_root = tools(tmp_path, 1000, sudo='shift; echo "by sudo" >&2; exec "$@"')
    done = run_here("print('{}')", as_root)
    assert (done.stdout, done.stderr) == ("{}\n", "by sudo\n")


def test_up_rejects_a_caller_without_root_before_any_step_and_previews_do_not(
    config: RawConfig, key_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tools(tmp_path, 1000, sudo='echo "sudo: a password is required" >&2; exit 1')
    monkeypatch.setenv("PATH", said["PATH"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    stack = parse(config, base_dir=key_folder, secret_keys=frozenset({"tailnet"}))
    with pytest.raises(pulumi.RunError, match=r"fails here \(sudo: a password is required\); give \S+ password-less"):
        record_cluster(stack)
    assert "door-prepare" in record_cluster(stack, unknown=True).names
    tools(tmp_path, 1000, sudo="exit 0")
    assert "door-prepare" in record_cluster(stack).names


def test_a_sudo_that_wants_a_password_is_reported_with_a_remedy(tmp_path: Path) -> None:
    told = run_here("print()", tools(tmp_path, 1000, sudo='echo "sudo: a password is required" >&2; exit 1'))
    assert (told.returncode, told.stdout) == (1, "")
    command = StepLabel("door-prepare", "door", "door: check the machine").on("exec ...")
    failure = Failure("urn::door-prepare", f"Process exited with status 1: running ...:\n{told.stderr}", command)
    (explained,) = with_remedies(Summary(failures=[failure])).failures
    remedy = explained.message.splitlines()[-1]
    assert remedy.startswith("next: give the login account on door password-less sudo (a line `NAME ALL=(ALL)")


def test_previews_explain_an_adopted_machine(config: RawConfig, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda text, *_: said.append(text))
    build(config)
    assert not [text for text in said if "adopt" in text]
    config["sites"][0]["adopt"] = True
    build(config)
    (text,) = [text for text in said if "adopt" in text]
    assert text.startswith("door: already in a tailnet")
    assert "takes a device from its owner" in text
