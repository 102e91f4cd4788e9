"""What docs name is there: logs, units, programs, files on machines, files of the project, keys of the config.

Names are looked for where they are made: the steps in the program's calls of `Step`, units and programs in the roles'
bash and templates, keys in the models of the config. So a page that keeps an old name fails here.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from components.node.step.step import LOG_DIR, STATE_DIR
from components.node.systemd import UNITS
from components.roles.storage.share.settings import Storage
from components.settings.section import keys_of
from stacks.config.reference import reference
from tests.unit.project.test_docs import LINK, PAGES, PROJECT, anchors, page_name, tracked

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
    """Bash, templates and Python of the product in one text, folders and bash's defaults written out."""
    texts = [(PROJECT / path).read_bytes() for path in of_the_product("") if not path.endswith(".md")]
    text = "\n".join(one.decode("utf-8") for one in texts if b"\0" not in one)
    for name, folder in re.findall(r"^([A-Z_]+_DIR)=(/\S+)$", text, re.MULTILINE):
        text = text.replace(f"${name}/", f"{folder}/")
    for name, folder in {"STATE_DIR": STATE_DIR, "LOG_DIR": LOG_DIR, "UNITS": UNITS, "systemd.UNITS": UNITS}.items():
        text = text.replace(f"{{{name}}}/", f"{folder}/")
    # The units of tasks (components/node/minute.py).
    text += "".join(f"\ntailrack-{name}.service" for name in re.findall(r'\bTask\(\s*"([a-z-]+)"', text))
    return re.sub(r"\$\{\d:-([\w-]+)\}", r"\1", text)


@cache
def code_of(page: Path) -> list[str]:
    """What is set as code on a page: fenced and indented blocks, and words between backticks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [*fenced, *re.findall(r"(?:^ {4,}\S.*\n?)+", rest, re.MULTILINE), *re.findall(r"`([^`]+)`", rest)]


def named(*patterns: str) -> set[tuple[str, str]]:
    """What the patterns find in the code of all pages: page and name."""
    return {
        (page_name(page), name)
        for page in PAGES
        for code in code_of(page)
        for pattern in patterns
        for name in re.findall(pattern, code)
    }


@cache
def steps() -> re.Pattern[str]:
    """The names of all steps, which their logs have: `a1-node`, or `<node>-node` where a page means any."""
    patterns, any_name = ["tailrack-expire"], r"(?:[a-z0-9-]+|<[a-z]+>)"
    for path in (path for path in of_the_product(".py") if not path.startswith("components/node/")):
        text = (PROJECT / path).read_text(encoding="utf-8")
        # A node's own steps: their kinds (components/cluster/compute_node.py, Member).
        patterns += [f"{any_name}-{kind}" for kind in re.findall(r'self\._step\(\s*(?:\*\()?"(\w+)"', text)]
        for call in ast.walk(ast.parse(text)) if "Step(" in text else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Step":
                (name, *_) = call.args
                assert isinstance(name, ast.JoinedStr), f"{path}: a step whose name is no f-string"
                parts = (
                    re.escape(str(part.value)) if isinstance(part, ast.Constant) else any_name for part in name.values
                )
                if ast.unparse(name) != "f'{self.host.name}-{kind}'":
                    patterns.append("".join(parts))
    assert len(patterns) > 5
    return re.compile("|".join(patterns))


@cache
def units() -> frozenset[str]:
    """Units that the product brings along, or speaks of to systemctl and journalctl."""
    brought = {Path(path).name for path in of_the_product(".service", ".timer", ".socket")}
    brought |= set(re.findall(r"/etc/systemd/system/([\w.-]+?\.(?:service|timer|socket))\b", product()))
    brought |= set(re.findall(r"[\"/](tailrack-[\w-]+\.(?:service|timer|socket))\"", product()))
    brought |= set(re.findall(r"^tailrack-[a-z-]+\.service$", product(), re.MULTILINE))
    spoken = re.findall(
        r"(?:systemctl (?:-q )?[a-z-]+(?: -q)?(?: --[a-z=-]+)*|journalctl -u) +([a-z][\w.-]+)", product()
    )
    mount = str(keys_of(Storage)["mount"].info.default).strip("/").replace("/", "-")
    found = {*brought, *spoken, f"{mount}.mount", *OF_THE_SYSTEM}
    return frozenset(unit.removesuffix(".service") for unit in found)


@cache
def keys() -> dict[str, bool]:
    """Every key of the config and what it lies in, lists as `[]`; whether it is a mapping of the user's own words."""
    found: dict[str, bool] = {}
    for written, kind in re.findall(r"^(tailrack:[^(\n]*[^( \n]).*\n {4}(.*);", reference(), re.MULTILINE):
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


def test_a_log_that_a_page_names_is_the_log_of_a_step() -> None:
    logs = named(r"/var/log/tailrack/([^\s/'`]+)\b", r"(?<![\w/.<>-])([\w<>-]+)\.log\b")
    wrong = {(page, log) for page, log in logs if not steps().fullmatch(log.removesuffix(".log"))}
    # One that no step writes is written out where it is made.
    wrong = {(page, log) for page, log in wrong if f"/var/log/tailrack/{log}" not in product()}
    assert {(page, log) for page, log in wrong if log != "STEP.log"} == set()


def test_a_unit_that_a_page_names_is_one_of_the_product() -> None:
    spoken = named(
        r"(?:systemctl [a-z-]+|journalctl -u) +([a-z][\w.@-]+)", r"^([a-z][\w-]+\.(?:service|timer|socket))$"
    )
    assert {(page, unit) for page, unit in spoken if unit.removesuffix(".service") not in units()} == set()


def test_a_program_that_a_page_names_is_one_of_the_product() -> None:
    programs = {name for _, name in named(r"(?<![\w.$/~-])(tailrack-[a-z][a-z-]*[a-z])\b")} - OF_THE_USER
    assert {name for name in programs if not re.search(rf"(?<![\w-]){name}(?![\w-])", product())} == set()


def test_a_file_on_a_machine_that_a_page_names_is_one_that_the_product_writes() -> None:
    # Up to where a name of the user's begins.
    places = named(r"(/(?:etc|run|var/lib|usr/local)/[\w./-]*tailrack[\w./-]*)")
    assert {(page, place) for page, place in places if place.rstrip("./-") not in product()} == set()


def test_a_file_of_the_project_that_a_page_names_is_there() -> None:
    files = named(r"(?<![\w/.~<>$-])((?:[\w.-]+/)+[\w.-]+\.(?:py|sh|lua|csv|yaml|json|j2|mod))\b")
    folders = {path.partition("/")[0] for path in tracked() if "/" in path}
    ours = {(page, file) for page, file in files if file.partition("/")[0] in folders}
    assert {(page, file) for page, file in ours if not (PROJECT / file).is_file()} == set()


def test_a_key_of_the_config_that_a_page_names_is_one() -> None:
    # `tailrack:cluster:HeadNode` is a type of Pulumi's.
    written = named(r"tailrack:[a-z_]+(?:\[[^]]*\])?(?:\.[a-z_]+(?:\[[^]]*\])?)*(?![\w:{])(?!: )")
    assert {(page, key) for page, key in written if not is_key(key)} == set()


def test_yaml_on_a_page_has_keys_of_the_config_alone() -> None:
    unknown, pages = set(), set()
    for page in PAGES:
        for code in code_of(page):
            lines = [line for line in code.splitlines() if line.strip() and line.strip() != "config:"]
            if not lines or not re.match(r"tailrack:\w+:(?: |$)", lines[0].strip()):
                continue
            edge = len(lines[0]) - len(lines[0].lstrip())
            own = [line[edge:] for line in lines if line[:edge].isspace() or not edge]
            # A block may go on with a command.
            text = "\n".join(line for line in own if line[0] in " #-}" or line.startswith("tailrack:"))
            pages.add(page_name(page))
            for name, value in yaml.safe_load(text.replace("...]", "]")).items():
                unknown |= {(page_name(page), path) for path in paths_in(value, name) if not is_key(path)}
    assert unknown == set()
    assert {"README.md", "docs/config.md", "docs/pools.md", "docs/data.md", "docs/day-2.md"} <= pages


def test_a_make_command_that_a_page_names_has_a_target_and_variables_of_the_makefile() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    commands = {(page, *said.split()) for page, said in named(r"\bmake((?: +[A-Za-z][\w-]*(?:=\S*)?)+)")}
    assert {command for command in commands if command[1][0].islower() and command[1] not in targets} == set()
    variables = {word.partition("=")[0] for _, *words in commands for word in words if re.match("[A-Z_]+=", word)}
    assert {name for name in variables if name not in makefile} == set()
    assert {"up", "test", "down"} <= {command[1] for command in commands if command[0] == "README.md"}


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


def test_make_refuses_variables_and_values_without_meaning_before_it_does_anything() -> None:
    refused = {"stack=prod": "write STACK=prod", "CLUSTER=x": "write CLUSTER=gone", "ONCE=no": "write ONCE=yes"}
    for given, problem in {**refused, "STACK=../x": "'../x' is not a stack's name"}.items():
        done = subprocess.run(["make", "down", given], cwd=PROJECT, capture_output=True, text=True, check=False)
        assert problem in done.stderr, given
