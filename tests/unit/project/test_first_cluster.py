"""docs/first-cluster.md: what can be known of its commands without a cluster.

tests/faults/test_first_cluster.py runs those of its user.
"""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.settings.problems import ROOT, Report
from components.settings.types import word_set
from stacks.config import parse
from stacks.sites.hosts.inventory import complete
from stacks.sites.hosts.presets import PRESETS
from tests.page import FIRST_CLUSTER, USER, USER_ON_GPUS, YOU, YOU_ON_HEAD, Block, blocks
from tests.unit.configs import AUTH_KEY, HOST_KEY, PRIVATE_KEY

PROJECT = Path(__file__).parents[3]
EXAMPLE = PROJECT / "examples" / "stacks" / "desktop-and-lambda.yaml"
HOME = "~/examples/"
BLOCKS = blocks(FIRST_CLUSTER)
COMMANDS = [block for block in BLOCKS if block.language == "bash"]
# What lines of the page may begin with: each is run in the lab, or has a test here.
PROGRAMS = word_set(
    "cat cd cp echo export for job ls make mkdir pulumi sbatch scancel sinfo sll squeue srun tailrack until"
)
PYTHON = "PYTHON=~/torch/bin/python "


def lines(*by: str) -> list[str]:
    """The lines of the blocks that these run."""
    return [line for block in COMMANDS for line in block.text.splitlines() if block.by in by]


def words_after(program: str) -> Iterator[Sequence[str]]:
    """What each call of a program on the page is given."""
    for line in lines(YOU, YOU_ON_HEAD, USER, USER_ON_GPUS):
        for found in re.finditer(rf"(?:^|[(;&|=] ?|bin/python )(?:PYTHON=\S+ )?{program} ([^();&|]*)", line):
            yield shlex.split(found[1])


def test_every_block_of_the_page_is_of_a_kind_that_a_test_takes() -> None:
    assert {block.language for block in BLOCKS} == {"bash", "yaml"}
    assert {block.by for block in COMMANDS} == {YOU, YOU_ON_HEAD, USER, USER_ON_GPUS}
    text = FIRST_CLUSTER.read_text(encoding="utf-8")
    assert len(re.findall("^```", text, re.MULTILINE)) == 2 * len(BLOCKS)
    assert not re.findall(r"^ {4,}\S", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    begun = {re.split(r"[ =]", line.removeprefix(PYTHON))[0] for line in lines(USER, YOU)}
    assert begun <= PROGRAMS, "a command that no test here knows"


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.text.split("\n")[0])
def test_bash_can_read_a_block(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_make_has_the_targets_and_the_stack_is_that_of_the_file_that_is_copied() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    called = list(words_after("make"))
    assert len(called) > 6
    for target, *rest in called:
        assert re.search(rf"^{target}:.* ## ", makefile, re.MULTILINE), target
        assert rest == ([] if target == "setup" else ["STACK=desk"])
    assert list(words_after("cp")) == [[str(EXAMPLE.relative_to(PROJECT)), "Pulumi.desk.yaml"]]


def test_state_and_secret_are_made_as_the_readme_has_it() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8").replace("prod", "desk").splitlines()
    here = [line for line in lines(YOU) if line.startswith(("export", "make init"))]
    assert len(here) == 2
    assert not set(here) - {line.strip() for line in readme}


@pytest.mark.parametrize("third", [False, True])
def test_the_config_is_good_with_two_or_three(third: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    key = PRIVATE_KEY
    (tmp_path / ".ssh/id_ed25519").write_text(key)
    raw = {key.removeprefix(ROOT): value for key, value in yaml.safe_load(EXAMPLE.read_text())["config"].items()}
    raw["tailnet"]["auth_key"] = AUTH_KEY
    (rented,) = [site for site in raw["sites"] if site["name"] == "lambda"]
    if third:
        (shown,) = [block for block in BLOCKS if block.language == "yaml"]
        more = yaml.safe_load(shown.text)
        # The machines that are there keep what is said of them.
        (before,), (after,) = rented["hosts"], more["hosts"]
        assert after["address"][:2] == before["address"]
        assert after.keys() == before.keys()
        rented.update(more)
    whole: Any = complete(rented, "", tmp_path, Report(frozenset()))
    (tmp_path / "known_hosts").write_text("".join(f"{host['address']} {HOST_KEY}\n" for host in whole["hosts"]))
    config = parse(raw, base_dir=tmp_path, secret_keys=frozenset({"tailnet"}))
    names = ["desk", "l1", "l2", "l3"] if third else ["desk", "l1", "l2"]
    assert sorted(node.name for node in config.nodes()) == names
    assert [user.name for user in config.users] == [USER]
    assert config.head.name == YOU_ON_HEAD.rpartition(" ")[2]


def test_packages_come_to_the_machines_of_the_config_by_its_login() -> None:
    (line,) = [line for line in lines(YOU) if line.startswith("for address")]
    config = yaml.safe_load(EXAMPLE.read_text())["config"]
    (host,) = config["tailrack:sites"][1]["hosts"]
    assert re.findall(r"\d+\.\d+\.\d+\.\d+", line) == host["address"]
    assert f"ssh {PRESETS['lambda']}@$address " in line


def folder_of_each(call: Callable[[str], bool]) -> Iterator[tuple[Path, list[str]]]:
    """The lines of a user's blocks that fit, as words, with the folder of the checkout that they run in."""
    for block in COMMANDS:
        where = ""
        for line in block.text.splitlines() if block.by in (USER, USER_ON_GPUS) else ():
            where = line.removeprefix("cd ") if line.startswith("cd ") else where
            if call(line):
                assert where.startswith(HOME), f"{line}: run in {where or 'the home'}, where no example lies"
                yield PROJECT / "examples" / where.removeprefix(HOME), shlex.split(line)


def test_programs_of_the_examples_have_the_options_that_they_are_given() -> None:
    def known(program: Path) -> set[str]:
        return set(re.findall(r'add_argument\("(--[a-z-]+)"', program.read_text(encoding="utf-8")))

    checked = 0
    for folder, line in folder_of_each(lambda line: "make_shards.py" in line or "train_srun.sh" in line):
        script = next(word for word in line if word.endswith((".py", ".sh")))
        program = folder / ("train.py" if script == "train_srun.sh" else script)
        options = {word for word in line[line.index(script) :] if word.startswith("--")}
        assert options <= known(program)
        checked += len(options)
    assert checked >= 5
