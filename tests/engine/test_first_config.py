"""What a first user meets before anything runs: one sentence with the key and the remedy, the same by either engine."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cli.commands import main
from cli.pulumi.find_engine import IN_PROCESS
from tests.engine.conftest import needs_cli

PROJECT = Path(__file__).parents[2]
EXAMPLES = sorted((PROJECT / "examples" / "stacks").glob("*.yaml"))
ENGINES = (IN_PROCESS, pytest.param("cli", marks=needs_cli))
Preview = Callable[[str, Path], str]


@pytest.fixture
def preview(
    own_home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Preview:
    """Run `make preview` of a file by an engine, which has to refuse it; returns the last line for people."""
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open sesame")

    def run(engine: str, file: Path) -> str:
        stack = file.name.split(".")[1]
        where = ["--stack", stack, "--config-file", str(file), "--state-dir", str(tmp_path / "state")]
        assert main([*where, "--engine", engine, "preview"]) == 1
        assert not (tmp_path / "state/stacks" / stack / "engine").exists(), "nothing was begun by either engine"
        return capsys.readouterr().err.splitlines()[-1]

    return run


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_names_its_missing_secret(engine: str, example: Path, tmp_path: Path, preview: Preview) -> None:
    for beside in example.parent.glob("*.csv"):
        shutil.copy(beside, tmp_path)
    file = tmp_path / f"Pulumi.{example.stem}.yaml"
    shutil.copy(example, file)
    config = yaml.safe_load(example.read_text(encoding="utf-8"))["config"]
    mappings = ((section, value) for section, value in config.items() if isinstance(value, dict))
    key = next(f"{section}.{name}" for section, value in mappings for name in value if isinstance(value[name], dict))
    command = f"pulumi config set --stack {example.stem} --path --secret {key}"
    assert preview(engine, file) == (
        f"tailrack: {file.name}: config value {key} is not a secret that Pulumi encrypted with a passphrase "
        f"(examples have a placeholder there); set it (docs/first-cluster.md, The config): {command}"
    )


SALT = "encryptionsalt: v1:yPMDXJwF/NI=:v1:tjlfwJ5eU+zHDwcR:h4TZUDY18I2Z5RsG6jgPL4unP7KtNA==\n"
SECRET = "config: {tailrack:sites: [{a: {secure: 'v1:tjlfwJ5eU+zHDwcR:h4TZUDY18I2Z5RsG6jgPL4unP7KtNA=='}}]}\n"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("encryptionsalt: foo\n", ["encryptionsalt", "restore the old line", "pulumi config set --stack trial"]),
        ("config: {tailrack:a: .nan}\n", ["line 1", "tailrack:a", "'.nan'", "write a number with all its digits"]),
        (SALT + SECRET, ["tailrack:sites[0].a", "PULUMI_CONFIG_PASSPHRASE_FILE"]),
        (SECRET, ["tailrack:sites[0].a", "no encryptionsalt", shlex.quote("tailrack:sites[0].a")]),
    ],
)
def test_a_preview_adds_remedies(engine: str, text: str, parts: list[str], tmp_path: Path, preview: Preview) -> None:
    file = tmp_path / "Pulumi.trial.yaml"
    file.write_text(text)
    told = preview(engine, file)
    assert file.name in told
    assert all(part in told for part in parts), told


@needs_cli
def test_a_config_too_large_for_the_cli_names_the_file_that_holds_hosts(tmp_path: Path, preview: Preview) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMSVLZ6TLbACJ34qY3ZT6Smxhd48oFhjI7rw38cnmZ8Y"
    hosts = [{"name": f"n{i}", "address": f"10.0.{i // 250}.{i % 250}", "host_key": key} for i in range(1, 1000)]
    file = tmp_path / "Pulumi.trial.yaml"
    file.write_text(yaml.safe_dump({"config": {"tailrack:sites": [{"name": "rack", "kind": "hosts", "hosts": hosts}]}}))
    told = preview("cli", file)
    assert "the config has " in told
    assert "'tailrack:sites'" in told
    assert "hosts_file" in told
