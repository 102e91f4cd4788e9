"""What docs name is there: logs, units, programs, files on machines, files of the project, keys of the config.

Names are looked for where they are made: the steps in the program's calls of `Step`, units and programs in the roles'
bash and templates, keys in the models of the config. So a page that keeps an old name fails here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.roles.nfs_exports.settings import Storage
from components.settings.section import keys_of
from stacks.config import reference
from tests.unit.test_docs import LINK, PAGES, PROJECT, anchors, page_name, tracked

each_page = pytest.mark.parametrize("page", PAGES, ids=page_name)
# What is nobody's log or unit but the system's.
OF_THE_SYSTEM = frozenset({"ssh", "multi-user.target"})
# Words that begin like a program of the cluster's and are what a user calls files of his own.
OF_THE_USER = frozenset({"tailrack-state", "tailrack-passphrase"})


def of_the_product(*endings: str) -> list[str]:
    """Paths of what a stack is made by, and of what runs on machines: no test, no page."""
    outside = ("tests/", "docs/", "bench/", "examples/")
    return [path for path in tracked() if path.endswith(endings) and not path.startswith(outside)]


@cache
def product() -> str:
    """Bash, templates and Python of the product in one text, the two folders of base.sh written out."""
    texts = [(PROJECT / path).read_bytes() for path in of_the_product("") if not path.endswith(".md")]
    text = "\n".join(one.decode("utf-8") for one in texts if b"\0" not in one)
    return text.replace("$STATE_DIR", "/var/lib/tailrack").replace("$LOG_DIR", "/var/log/tailrack")


def code_of(page: Path) -> list[str]:
    """What is set as code on a page: fenced and indented blocks, and words between backticks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [*fenced, *re.findall(r"(?:^ {4,}\S.*\n?)+", rest, re.MULTILINE), *re.findall(r"`([^`]+)`", rest)]


def named(page: Path, pattern: str) -> set[str]:
    """What of a page's code a pattern's group finds."""
    return {name for code in code_of(page) for name in re.findall(pattern, code)}


@cache
def steps() -> re.Pattern[str]:
    """The names of all steps, which their logs have: `a1-node`, or `<node>-node` where a page means any."""
    patterns = ["tailrack-forget"]
    for path in of_the_product(".py"):
        for call in ast.walk(ast.parse((PROJECT / path).read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Step":
                (name, *_) = call.args
                assert isinstance(name, ast.JoinedStr), f"{path}: a step whose name is no f-string"
                patterns.append(
                    "".join(
                        re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"(?:[a-z0-9-]+|<[a-z]+>)"
                        for part in name.values
                    )
                )
    assert len(patterns) > 5
    return re.compile("|".join(patterns))


@cache
def units() -> frozenset[str]:
    """Units that the product brings along, or speaks of to systemctl and journalctl."""
    brought = {Path(path).name for path in of_the_product(".service", ".timer", ".socket")}
    brought |= set(re.findall(r"/etc/systemd/system/([\w.-]+?\.(?:service|timer|socket))\b", product()))
    spoken = re.findall(r"(?:systemctl (?:-q )?[a-z-]+(?: -q)?(?: --[a-z=-]+)*|journalctl -u) +([a-z][\w.-]+)", product())
    mount = str(keys_of(Storage)["mount"].info.default).strip("/").replace("/", "-")
    found = {*brought, *spoken, f"{mount}.mount", *OF_THE_SYSTEM}
    return frozenset(unit.removesuffix(".service") for unit in found)


@cache
def keys() -> dict[str, bool]:
    """Every key of the config and what it lies in, lists as `[]`, and whether it is a mapping of the user's own words."""
    found: dict[str, bool] = {}
    for written, kind in re.findall(r"^\| `(tailrack:[^`]+)` \| ([^|]*)\|", reference(), re.MULTILINE):
        path = re.sub(r"\[[^]]*\]", "[]", written)
        found[path] = found.get(path, False) or "mapping" in kind
        while "." in path:
            path = path.rpartition(".")[0]
            found.setdefault(path, False)
    return {**{path.removesuffix("[]"): free for path, free in found.items()}, **found}


def is_key(path: str) -> bool:
    """Whether the config has a key, or one of the user's own words below it."""
    path = re.sub(r"\[[^]]*\]", "[]", path)
    return path in keys() or any(keys().get(path[: at.start()]) for at in re.finditer(r"\.", path))


def paths_in(value: Any, at: str) -> Iterator[str]:
    """The paths of all keys in a value."""
    yield at
    if isinstance(value, dict):
        for name, item in value.items():
            yield from paths_in(item, f"{at}.{name}")
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield from paths_in(item, f"{at}[]")


@each_page
def test_a_log_that_a_page_names_is_the_log_of_a_step(page: Path) -> None:
    logs = named(page, r"/var/log/tailrack/([^\s/'`]+)\b") | named(page, r"(?<![\w/.])([\w<>-]+)\.log\b")
    assert [log for log in sorted(logs) if not steps().fullmatch(log.removesuffix(".log")) and log != "STEP.log"] == []


@each_page
def test_a_unit_that_a_page_names_is_one_of_the_product(page: Path) -> None:
    spoken = named(page, r"(?:systemctl [a-z-]+|journalctl -u) +([a-z][\w.@-]+)")
    spoken |= named(page, r"^([a-z][\w-]+\.(?:service|timer|socket))$")
    assert {unit.removesuffix(".service") for unit in spoken} - units() == set()


@each_page
def test_a_program_that_a_page_names_is_one_of_the_product(page: Path) -> None:
    programs = named(page, r"(?<![\w.$/~-])(tailrack-[a-z][a-z-]*[a-z])\b") - OF_THE_USER
    assert {name for name in programs if not re.search(rf"(?<![\w-]){name}(?![\w-])", product())} == set()


@each_page
def test_a_file_on_a_machine_that_a_page_names_is_one_that_the_product_writes(page: Path) -> None:
    # Up to where a name of the user's begins.
    places = named(page, r"(/(?:etc|run|var/lib|usr/local)/[\w./-]*tailrack[\w./-]*)")
    assert {place for place in places if place.rstrip("./-") not in product()} == set()


@each_page
def test_a_file_of_the_project_that_a_page_names_is_there(page: Path) -> None:
    files = named(page, r"(?<![\w/.~<>$-])((?:[\w.-]+/)+[\w.-]+\.(?:py|sh|lua|csv|yaml|json|j2|mod))\b")
    folders = {path.partition("/")[0] for path in tracked() if "/" in path}
    ours = {file for file in files if file.partition("/")[0] in folders}
    assert {file for file in ours if not (PROJECT / file).is_file()} == set()


@each_page
def test_a_key_of_the_config_that_a_page_names_is_one(page: Path) -> None:
    # `tailrack:cluster:HeadNode` is a type of Pulumi's.
    written = named(page, r"tailrack:[a-z_]+(?:\[[^]]*\])?(?:\.[a-z_]+(?:\[[^]]*\])?)*(?![\w:{])(?!: )")
    assert {key for key in written if not is_key(key)} == set()


@each_page
def test_yaml_on_a_page_has_keys_of_the_config_alone(page: Path) -> None:
    unknown, found = set(), 0
    for code in code_of(page):
        lines = [line for line in code.splitlines() if line.strip() and line.strip() != "config:"]
        if not lines or not re.match(r"tailrack:\w+:(?: |$)", lines[0].strip()):
            continue
        edge = len(lines[0]) - len(lines[0].lstrip())
        # A block may go on with a command.
        own = [line[edge:] for line in lines if line[:edge].isspace() or not edge]
        text = "\n".join(line for line in own if line[0] in " #-}" or line.startswith("tailrack:"))
        for name, value in yaml.safe_load(text.replace("...]", "]")).items():
            found += 1
            unknown |= {path for path in paths_in(value, name) if not is_key(path)}
    assert unknown == set()
    assert found or page.name not in ("README.md", "config.md", "pools.md", "containers.md")


@each_page
def test_a_make_command_that_a_page_names_has_a_target_and_variables_of_the_makefile(page: Path) -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    commands = named(page, r"\bmake((?: +[A-Za-z][\w-]*(?:=\S*)?)+)")
    words = [word for command in commands for word in command.split()]
    variables = {word.partition("=")[0] for word in words if re.match(r"[A-Z_]+=", word)}
    assert {word for command in commands if re.match("[a-z]", word := command.split()[0])} - targets == set()
    assert {name for name in variables if name not in makefile} == set()


def test_a_page_that_the_product_or_a_test_names_is_there() -> None:
    broken = []
    for path in tracked():
        text = (PROJECT / path).read_bytes()
        if b"\0" in text or path.startswith("docs/"):
            continue
        for target, anchor in re.findall(r"(?<![\w./-])(docs/[\w/-]+\.md)(?:#([\w-]+))?", text.decode("utf-8")):
            file = PROJECT / target
            if not file.is_file() or (anchor and anchor not in anchors(file)):
                broken.append(f"{path}: {target}")
    assert [find for find in broken if "deepops" not in find] == []


def test_a_page_that_a_model_of_the_config_names_is_there() -> None:
    # Their words are on docs/config.md, so links lead from there.
    targets = [
        target
        for path in of_the_product(".py")
        for target in LINK.findall((PROJECT / path).read_text(encoding="utf-8"))
        if re.fullmatch(r"[\w/-]+\.md(#[\w-]+)?", target)
    ]
    assert targets
    for target in targets:
        name, _, anchor = target.partition("#")
        file = PROJECT / "docs" / name
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), target
