"""Config files that are none: each is one sentence with the file, the place and the remedy, never a traceback."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.stack_config.stack_file import LARGEST, ConfigSecrets, check_for_cli, load_config, passphrase
from stacks.config import ConfigError, load
from stacks.yaml_file import FileError, read_yaml

HOSTILE = {
    "a list": (b"config: [1]\n", ("config is a list",)),
    "a word": (b"config: yes please\n", ("config is a text",)),
    "a section beside config": (b"tailrack:monitoring: {}\n", ("'tailrack:monitoring' is not below config:",)),
    "a range without quotes": (b"config: {a: {name: n[1-2], b: c}}\n", ("brackets or a comma", "needs quotes")),
    "a number": (b"config: 5\n", ("config is a number",)),
    "a file that is a list": (b"- 1\n", ("is a list, not a mapping",)),
    "bytes that are not UTF-8": (b"config:\n  a: \xff\n", ("line 2", "UTF-8")),
    "a control character": (b"config: \x00\n", ("control characters",)),
    "a tab": (b"config:\n\ttailrack:a: 1\n", ("line 2", "a tab", "no tabs")),
    "no YAML": (b"config:\n  a:a: 'x\n", ("line 3", "not YAML", "quoted scalar from line 2")),
    "an alias to itself": (b"config: &x\n  tailrack:a: *x\n", ("line 1", "recursive")),
    "an alias to nothing": (b"config: *x\n", ("line 1", "undefined alias")),
    "a mapping with a list's tag": (b"config: !!seq {a: b}\n", ("line 1", "has the tag '!!seq'")),
    "nesting 3,000 deep": (b"config: " + b"[" * 3000 + b"]" * 3000, ("line 1", "nested more than")),
    "nesting 100,000 deep": (b"config: " + b"[" * 100_000, ("line 1", "nested more than")),
    "a file of a size that none has": (b"config: {}" + b" " * LARGEST, (str(LARGEST), "bytes")),
    "aliases of aliases": (
        b"config:\n  tailrack:a0: &a0 [x]\n"
        + b"".join(b"  tailrack:a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)),
        ("1,000,000 values", "an alias"),
    ),
    "350,000 users": (
        b"config:\n  tailrack:users:\n" + b"".join(b"  - {name: u%d, uid: %d}\n" % (n, n) for n in range(350_000)),
        ("bytes",),
    ),
    "a key that is a number": (b"config:\n  tailrack:slurm: {settings: {5: 6}}\n", ("line 2", "a key is a number")),
    "a key that is null": (b"config:\n  tailrack:a: {~: 6}\n", ("line 2", "a key is nothing")),
    "a key that is a date": (b"config:\n  tailrack:a: {2001-01-01: 6}\n", ("line 2", "a key is a date")),
    "a key that is true": (b"config:\n  tailrack:a: {on: 6}\n", ("line 2", "a key is a truth value")),
    "a key that is a list": (b"config: {[1]: 2}\n", ("line 1", "a key is a list")),
    "a number of 5,000 digits": (b"config:\n  tailrack:a: " + b"9" * 5000, ("line 2", "'tailrack:a'", "at most 18")),
    "a date": (b"config:\n  tailrack:a: {b: 2026-11-23}\n", ("line 2", "'b' is '2026-11-23', a date", "in quotes")),
    "a date in a list": (b"config:\n  tailrack:a: [2026-11-23]\n", ("line 2", "an item of a list is", "a date")),
    "bytes": (b"config:\n  tailrack:a: !!binary aGk=\n", ("line 2", "'tailrack:a'", "!!binary", "write the text")),
    "yes": (b"config:\n  tailrack:a: {b: yes}\n", ("line 2", "'b' is 'yes'", "write true or false", "in quotes")),
    "Off in a list": (b"config:\n  tailrack:a: [Off]\n", ("line 2", "'Off'", "write true or false")),
    "an octal number": (b"config:\n  tailrack:a: {b: 0o17}\n", ("line 2", "'b' is '0o17'", "no 0 before")),
    "an octal number of old": (b"config:\n  tailrack:a: {b: 017}\n", ("line 2", "'b' is '017'", "no 0 before")),
    "an octal number that is none": (b"config:\n  tailrack:a: {b: 08}\n", ("line 2", "'b' is '08'", "no 0 before")),
    "a number to the power": (b"config:\n  tailrack:a: {b: 1e3}\n", ("line 2", "'b' is '1e3'", "all its digits")),
    "a number of 19 digits": (b"config: {a: 1234567890123456789}\n", ("line 1", "'a' is '1234", "at most 18")),
    "a number of 19 signs": (b"config: {a: 123456789.123456789}\n", ("line 1", "'a' is '1234", "at most 18")),
    "a date that is none": (b"config: {a: 2001-99-99}\n", ("line 1", "a date")),
    "a text with a tag": (b"config: {a: !!str [b]}\n", ("line 1", "'a' has the tag '!!str'", "without the tag")),
    "a tag": (b"config: !!python/object:os.system x\n", ("line 1", "tag")),
    "two documents": (b"config: {}\n---\nconfig: {}\n", ("line 2", "another document")),
    "a section twice": (b"config:\n  tailrack:a: 1\n  tailrack:a: 2\n", ("line 3", "'tailrack:a'", "first in line 2")),
    "a key twice": (b"config:\n  tailrack:a: {b: 1, b: 2}\n", ("line 2", "'b'", "second time")),
    "a merge of a number": (b"config: {<<: 5}\n", ("line 1", "a mapping or list of mappings for merging")),
    "no namespace": (b"config: {cluster: {name: a}}\n", ("'cluster'", "no namespace", "'tailrack:cluster'")),
    "an empty namespace": (b"config: {':cluster': 1}\n", ("no namespace",)),
    "a salt that is a list": (b"encryptionsalt: [1]\nconfig: {a:a: {secure: v1:YQ==:YQ==}}\n", ("encryptionsalt",)),
    "a secure value that is a list": (b"encryptionsalt: v1:YQ==:x\nconfig: {a:a: {secure: [1]}}\n", ("a:a",)),
    "a secure value of no parts": (b"encryptionsalt: v1:YQ==:x\nconfig: {tailrack:a: {secure: x}}\n", ("tailrack:a",)),
    "odd letters": ("encryptionsalt: v1:YQ==:x\nconfig: {a:a: {secure: 'v1:é:é'}}\n".encode(), ("a:a",)),
    "a secure value without a salt": (b"config: {a:a: {secure: v1:YQ==:Yg==}}\n", ("a:a", "no encryptionsalt")),
    "a number without an end": (b"config: {tailrack:a: {b: [1, -.inf]}}\n", ("line 1", "'-.inf'", "all its digits")),
    "a set": (b"config: {tailrack:a: !!set {b, c}}\n", ("line 1", "'tailrack:a' has the tag '!!set'")),
    "a number that is none": (b"config: {tailrack:a: !!int x}\n", ("line 1", "'tailrack:a' is 'x'", "all its digits")),
    "a placeholder of a secret": (b"config: {tailrack:a: {b: {secure: v1:x-y}}}\n", ("tailrack:a.b", "placeholder")),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: tailrack\n")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "x")
    return tmp_path


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "Pulumi.trial.yaml"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_sentence_with_its_place_and_remedy(project: Path, name: str) -> None:
    content, parts = HOSTILE[name]
    with pytest.raises(FileError) as refused:
        load_config(project, file_of(project, content))
    said = str(refused.value)
    assert "Pulumi.trial.yaml" in said
    assert all(part in said for part in parts), said
    assert "; " in said, "what is wrong, and what to do"
    assert len(said.splitlines()) == 1
    assert len(said) < 400


def test_all_ambiguous_values_of_a_file_are_reported_at_once_up_to_twenty(project: Path) -> None:
    content = b"config:\n  tailrack:a: {b: yes, c: [017, 1]}\n  tailrack:a: &a 0o7\n  tailrack:b: *a\n"
    content += b"".join(b"  tailrack:k%d: yes\n" % key for key in range(18))
    with pytest.raises(FileError) as refused:
        load_config(project, file_of(project, content))
    *lines, more = str(refused.value).splitlines()
    assert [line.split(": ")[0].split()[-1] for line in lines] == [*"2233", *map(str, range(5, 21))]
    assert all(part in line for part, line in zip(("'yes'", "'017'", "second time", "'0o7'"), lines, strict=False))
    assert more == "Pulumi.trial.yaml has 2 more such values"


@pytest.mark.parametrize("text", ["'yes'", "'017'", '"2026-11-23"', "'1e3'", "'12345678901234567890'", "!!str yes"])
def test_an_ambiguous_value_becomes_a_quoted_text(project: Path, text: str) -> None:
    assert read_yaml(file_of(project, f"a: {text}".encode())) == {"a": text.removeprefix("!!str ").strip("'\"")}


def test_a_passphrase_file_that_is_no_text_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "secret").write_bytes(b"\xff")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(project / "secret"))
    with pytest.raises(FileError, match="PULUMI_CONFIG_PASSPHRASE_FILE is not text"):
        passphrase()


@pytest.mark.parametrize("salt", [5, [1], {"a": 1}, "v1", "v2:YQ==:x", "v1:?:x"])
def test_a_salt_of_the_wrong_shape_is_named_and_not_the_value(project: Path, salt: object) -> None:
    with pytest.raises(FileError, match="encryptionsalt") as refused:
        ConfigSecrets(salt, "Pulumi.trial.yaml").open("tailrack:a", "v1:YQ==:c2VjcmV0")
    assert "c2VjcmV0" not in str(refused.value)


PASSPHRASE = {"PULUMI_BACKEND_URL": "file:///state", "PULUMI_CONFIG_PASSPHRASE": "x"}


@pytest.mark.parametrize(("characters", "taken"), [(131_024, True), (131_025, False)])
def test_the_cli_gets_no_more_than_fits_into_a_variable(project: Path, characters: int, taken: bool) -> None:
    """Its name, its one key, quotes and the byte at its end are 48 more; 128 KiB are Linux's limit."""
    file = file_of(project, f"config: {{tailrack:longest-of-them-x: {'a' * characters}}}\n".encode())
    if taken:
        check_for_cli(file, PASSPHRASE)
        return
    with pytest.raises(FileError, match=r"129 KiB, most of it in 'tailrack:longest-of-them-x'.*at most 128"):
        check_for_cli(file, PASSPHRASE)


@pytest.mark.parametrize(
    ("more", "backend"), [("secretsprovider: awskms://x\n", "s3://state"), ("", "https://api.pulumi.com")]
)
def test_secrets_of_another_provider_are_left_to_the_cli(project: Path, more: str, backend: str) -> None:
    config = "config: {tailrack:a: {secure: AAABAO==}}\n"
    with pytest.raises(FileError, match="tailrack:a"):
        check_for_cli(file_of(project, config.encode()), {**PASSPHRASE, "PULUMI_BACKEND_URL": "file:///state"})
    check_for_cli(file_of(project, f"{more}{config}".encode()), {**PASSPHRASE, "PULUMI_BACKEND_URL": backend})


words = [*"{}[]\n", *("tailrack:", "sites", "config:", "- ", "&a ", "*a", "<<: ", ": ", "  ")]
words += ["!!int x", "!!set", "!!str ", "!!seq ", "!!float ", "0x", "9" * 5000, "2001-13-01"]
junk = st.lists(st.sampled_from(words) | st.text(max_size=4)).map("".join)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    junk.map(str.encode)
    | st.binary(max_size=60)
    | junk.map(lambda text: f"config:\n  tailrack:users: {text}\n".encode())
)
def test_any_bytes_are_read_or_refused_with_a_sentence_a_line(project: Path, content: bytes) -> None:
    lines: list[str] = []
    try:
        config = load_config(project, file_of(project, content))
        load(config.values, config.secret_keys, project)
    except FileError as error:
        lines = str(error).splitlines()
        assert len(lines) == 1 or all(line.startswith("Pulumi.trial.yaml ") for line in lines)
    except ConfigError as error:
        lines = error.problems[0].text.splitlines()
        assert len(lines) == 1
    assert lines
