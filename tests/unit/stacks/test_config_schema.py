"""The config's schema and its keys' help: editors and `make config-help` know what `parse` accepts."""

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no types

from cli.init import CONFIG
from components.settings.section import keys_of
from stacks.config.model import PoolConfig, StackConfig
from stacks.config.reference import reference
from stacks.config.schema import FILE, schema, sections, text
from stacks.sites import KINDS

PROJECT = Path(__file__).parents[3]
STACKS = [*sorted(PROJECT.glob("examples/stacks/*.yaml")), *sorted(PROJECT.glob("Pulumi.dev*.yaml"))]
SCHEMA = Draft202012Validator(schema())


def test_the_schema_file_is_what_make_schema_writes() -> None:
    assert (PROJECT / FILE).read_text(encoding="utf-8") == text(), "run: make schema"
    assert r"\n" not in text()


def test_every_stack_of_the_project_names_the_schema_and_fits_it() -> None:
    assert len(STACKS) > 5
    written = {path.name: path.read_text(encoding="utf-8") for path in [*STACKS, CONFIG]}
    for name, content in written.items():
        assert content.startswith("# yaml-language-server: $schema="), name
        errors = [
            f"{list(error.absolute_path)}: {error.message}" for error in SCHEMA.iter_errors(yaml.safe_load(content))
        ]
        assert not errors, name


def test_editors_refuse_a_number_outside_its_bounds() -> None:
    validation = {"warmup": -1, "nccl": {"iterations": 100_001}, "floors_gb_per_s": {"one": 0}}
    messages = {error.message for error in SCHEMA.iter_errors({"config": {"tailrack:validation": validation}})}
    assert "-1 is less than the minimum of 0" in messages
    assert "100001 is greater than the maximum of 100000" in messages
    assert "0 is less than or equal to the minimum of 0" in messages


def test_editors_accept_numbers_and_lists_that_the_config_reads_as_a_text_and_understand_all_patterns() -> None:
    partition = {"name": "long", "sites": ["one"], "max_time": 60}
    slurm = {"settings": {"SlurmdTimeout": 300}, "partitions": [partition]}
    sites = [{"name": "one", "kind": "lab", "rdma": ["mlx5_0", "mlx5_3:1"]}]
    errors = SCHEMA.iter_errors({"config": {"tailrack:slurm": slurm, "tailrack:sites": sites}})
    assert [error.message for error in errors if list(error.absolute_path) != ["config"]] == []
    assert '"pattern": "(?' not in text(), "JavaScript has no flags in a pattern"


def test_the_help_of_a_key_has_it_and_the_keys_below_with_type_default_and_an_example() -> None:
    told = reference("storage.mounts")
    assert told.startswith("tailrack:storage.mounts\n    a list of mounts; default: none\n")
    assert 'Write [{path: /data, source: "10.0.0.5:/export", sites: [rack]}]' in " ".join(told.split())
    assert "tailrack:storage.mounts[].read_only\n    true or false; default: false" in told
    assert "storage.path" not in told
    every = sections(StackConfig) | sections(PoolConfig)
    assert keys_of(StackConfig)["sites"].sections == {name: kind.model for name, kind in KINDS.items()}
    silent = [f"{one.__name__}.{name}" for one in every for name, key in keys_of(one).items() if not key.description]
    assert silent == []
    assert "a size in bytes such as 64K, 4M or 8G; default: 4M" in reference("validation.max_bytes")
    assert "from 1000 up; default: the uid" in reference("users.gid")
    assert "a stack of kind pool" in reference("tailrack:elastic.max")
    with pytest.raises(KeyError, match="did you mean"):
        reference("storage.mount_point")
