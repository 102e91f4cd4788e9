"""What `make` installs: running takes less than checking, and whichever was first, nothing is installed twice."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.pulumi.providers import main

PROJECT = Path(__file__).parents[3]
RUNNING = ("__main__.py", "stacks", "components", "cli", "engine", "lab")
# Sent to machines, which have packages of their own.
ON_MACHINES = {"mpi4py", "numpy", "fusepy", "mlflow", "sqlalchemy", "uvicorn"}
COME_WITH = {"google", "pydantic_core", "markupsafe"}  # of pulumi, pydantic and jinja2, in what these hand out
IMPORT = r"^ *(?:import (\w+)(?:[.,]| as |$)|from (\w+)[\w.]* import )"
MODULES = {"pyyaml": "yaml"} | {f"pulumi-{name}": f"pulumi_{name}" for name in ("command", "aws", "tailscale")}
# `python3 -m venv .venv` makes a Python that says what pip is asked for. UV says that of uv, and what it was told of
# pip's settings. .venv/break stands for an index that is away, no-uv and uv-breaks for a uv that is not there or that
# does not manage.
PYTHON = r"""#!/bin/bash
case "$*" in
"-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
*cli.pulumi.providers*) [ ! -e Pulumi.dev.yaml ] || { cd "$PROJECT" && exec "$REAL" "$@"; } ;;
"-m pip config list") cat pip-settings 2>/dev/null || true ;;
*requirements/setup.txt) [ ! -e .venv/break ] && [ ! -e no-uv ] && cp uv .venv/bin/uv ;;
*install*) [ ! -e .venv/break ] && printf '%s\n' "${@##*=}" | grep '^requirements' | paste -sd' ' >>installed ;;
esac
"""
UV = r"""#!/bin/bash
[ ! -e .venv/break ] && [ ! -e uv-breaks ] || exit 2
env | grep -E '^(UV_|SSL_|ALL_PROXY)' | sort >uv-told
printf '%s\n' "${@##*=}" | grep '^requirements' | paste -sd' ' >>installed
"""


@pytest.fixture
def setup(tmp_path: Path) -> Callable[..., list[str]]:
    """Run cli/setup.sh in a checkout with a Python that installs nothing; returns what pip was asked for, in all."""
    (tmp_path / "cli").mkdir()
    shutil.copy(PROJECT / "cli/setup.sh", tmp_path / "cli")
    (tmp_path / "requirements").mkdir()
    for name in ("", "/dev", "/aws", "/tailscale"):
        (tmp_path / f"requirements{name}.txt").write_text(f"a{name}==1\n")
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    promtool = tmp_path / ".tailrack/tools/usr/bin/promtool"
    promtool.parent.mkdir(parents=True)
    empty = [promtool, python.with_name("setfacl"), python.with_name("lua5.4")]
    for program, text in [(python, PYTHON), (tmp_path / "uv", UV), *((program, "") for program in empty)]:
        program.write_text(text)
        program.chmod(0o755)

    def run(*words: str, rc: int = 0) -> list[str]:
        told = subprocess.run(
            ["bash", tmp_path / "cli/setup.sh", *words],
            env={"PATH": f"{python.parent}:/usr/bin:/bin", "PROJECT": str(PROJECT), "REAL": sys.executable},
            capture_output=True, text=True,
        )  # fmt: skip
        assert told.returncode == rc, told.stderr
        installed = tmp_path / "installed"
        return installed.read_text().splitlines() if installed.exists() else []

    return run


RUN, CHECK = "requirements.txt", "requirements.txt requirements/dev.txt"


def test_a_setup_installs_no_check_packages_and_is_repeated(setup: Callable[..., list[str]], tmp_path: Path) -> None:
    assert setup() == [RUN]
    assert setup() == [RUN], "once is enough"
    (tmp_path / ".venv/break").touch()
    assert setup("dev", rc=1) == [RUN]
    assert setup() == [RUN], "what runs is there"
    (tmp_path / ".venv/break").unlink()
    assert setup("dev") == [RUN, CHECK]


def test_a_stack_has_the_packages_of_its_providers(setup: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  tailrack:sites: [{kind: 'aws'}]\n")
    for _ in range(2):
        assert setup("dev") == [CHECK, f"{CHECK} requirements/aws.txt"], "once is enough"


def test_providers_are_found_however_the_config_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for config, name in (
        ('"tailrack:sites": [{"name": "a", "kind":   "aws"}]', "aws"),
        ("tailrack:tailnet: {'kind': tailscale}", "tailscale"),
        ("tailrack:tailnet: {'api_key': {secure: x}}", "tailscale"),
        ("tailrack:tailnet: {kind: control_url, auth_key: {secure: x}} # kind: aws", ""),
        ("tailrack:sites: [{kind: lab}, {kind: [aws]}, 5]", ""),
        ("tailrack:sites: [", ""),
    ):
        (tmp_path / "Pulumi.dev.yaml").write_text(f"config:\n  {config}\n")
        main(tmp_path / "Pulumi.dev.yaml")
        assert capsys.readouterr().out.split() == name.split(), config


@pytest.mark.parametrize("why", ["no-uv", "uv-breaks"])
def test_pip_installs_the_same_packages_without_uv(setup: Callable[..., list[str]], tmp_path: Path, why: str) -> None:
    (tmp_path / why).touch()
    assert setup("dev") == [CHECK]
    assert not (tmp_path / "uv-told").exists()


def test_uv_uses_the_package_index_of_pip(setup: Callable[..., list[str]], tmp_path: Path) -> None:
    settings = {
        ":env:.index-url": "https://index.example/mine",
        "global.index-url": "https://index.example/ours",
        "global.cert": "/etc/our.pem",
        "global.timeout": "180",
        "install.find-links": "/srv/a /srv/b",
        "install.extra-index-url": "https://more.example/simple",
    }
    (tmp_path / "pip-settings").write_text("".join(f"{name}={value!r}\n" for name, value in settings.items()))
    setup()
    told = dict(line.split("=", 1) for line in (tmp_path / "uv-told").read_text().splitlines())
    own = {"UV_LINK_MODE": "copy", "UV_NO_CONFIG": "1", "SSL_CERT_FILE": "/etc/our.pem"}
    indexes = {"UV_DEFAULT_INDEX": "https://index.example/mine", "UV_INDEX": "https://more.example/simple"}
    assert told == {**own, **indexes, "UV_FIND_LINKS": "/srv/a,/srv/b"}


@pytest.mark.parametrize(
    "setting",
    [
        "global.index-url='https://ada:secret@index.example'",
        ":env:.trusted-host='index.example'",
        "install.no-index='1'",
    ],
)
def test_settings_unfit_for_uv_leave_it_to_pip(setup: Callable[..., list[str]], tmp_path: Path, setting: str) -> None:
    (tmp_path / "pip-settings").write_text(f"{setting}\n")
    assert setup() == [RUN]
    assert not (tmp_path / "uv-told").exists()


def test_the_program_imports_no_package_that_only_the_checks_install() -> None:
    files = [file for name in RUNNING for file in [PROJECT / name, *(PROJECT / name).rglob("*.py")] if file.is_file()]
    found = [re.findall(IMPORT, file.read_text(encoding="utf-8"), re.MULTILINE) for file in files]
    imported = {name for names in found for pair in names for name in pair if name}

    def named(kind: str) -> set[str]:
        text = (PROJECT / f"requirements{kind}.in").read_text(encoding="utf-8")
        return {MODULES.get(name, name) for name in re.findall(r"^[a-z][\w-]*", text, re.MULTILINE)}

    there = named("") | named("/aws") | named("/tailscale") | COME_WITH | ON_MACHINES
    assert {"pulumi", "yaml", "jinja2", "docker"} <= imported
    assert imported - there - set(RUNNING) - sys.stdlib_module_names == set()
