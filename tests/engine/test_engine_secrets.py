"""Secrets and config: what the state file and the output hold, and what the program is given."""

import base64
import json
import stat

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from cli.pulumi.workspace import CliError
from cli.run_events import EngineError
from tests.engine.conftest import PASSPHRASE
from tests.engine.stack_under_test import Stack

SECRET = "hunter-two-and-a-half"
SALT = bytes(range(8))
NONCE = bytes(range(12))


def secure(text: str) -> dict[str, str]:
    """A config value as `pulumi config set --secret` writes it."""
    key = PBKDF2HMAC(SHA256(), 32, SALT, 1_000_000).derive(PASSPHRASE.encode())
    sealed = AESGCM(key).encrypt(NONCE, text.encode(), None)
    return {"secure": f"v1:{base64.b64encode(NONCE).decode()}:{base64.b64encode(sealed).decode()}"}


ENCRYPTION_SALT = f"v1:{base64.b64encode(SALT).decode()}:v1:unused:unused"

HOLDING = """
config = pulumi.Config()
secret = config.require_secret("token")
both = ["stdout", "stderr"]
a = step("a", pulumi.Output.concat("echo ", secret, "; echo ", secret, " >&2{fail}"),
         options=dict(additional_secret_outputs=both))
b = local.Command("b", create="cat", stdin=secret, opts=Options(additional_secret_outputs=both, depends_on=[a]))
c = local.Command("c", create=pulumi.Output.concat("cat >/dev/null; echo ", secret), environment=dict(T=secret),
                  triggers=[secret], stdin=a.stdout, opts=Options(additional_secret_outputs=both))
d = local.Command("d", create="cat; echo out; exit 9", stdin=secret)
pulumi.log.info(f"said too much: {{config.get('token')}}")
print("printed", config.get("token")[:4])
pulumi.export("a", a.stdout)
pulumi.export("wrapped", dict(inner=[secret, "x"]))
pulumi.export("connection", a.connection)
{end}
"""


@pytest.mark.parametrize(("fail", "end"), [("", ""), ("; exit 3", ""), ("", "raise ValueError(config.get('token'))")])
def test_no_secret_is_in_the_state_or_the_output(stack: Stack, fail: str, end: str) -> None:
    config = {"token": secure(SECRET)}
    stack.write(HOLDING.format(fail="", end=""), config, ENCRYPTION_SALT)
    stack.up()
    stack.write(HOLDING.format(fail=fail, end=end), config, ENCRYPTION_SALT)
    run = stack.start_up()
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    if not end:  # else the program fails in the preview, and d never runs
        assert "[secret]out\n" in output
    told = "".join(f"{event}" for event in stack.events) + output
    written = {path.name: path.read_text() for path in stack.state_file.parent.iterdir()}
    assert {"dev.json", "dev.json.lock"} == set(written)
    lines = [SECRET, *(line for line in stack.host.private_key.splitlines() if "-----" not in line)]
    for place, text in {**written, "what was told": told}.items():
        for line in lines:
            for form in (line, base64.b64encode(line.encode()).decode()):
                assert form not in text, place
    assert any(SECRET in asked.stdin for asked in stack.host.asked), "the secret never got to the host"
    shown = stack.engine().outputs(show_secrets=True)
    assert (shown["a"], shown["wrapped"]["inner"]) == (SECRET, [SECRET, "x"])
    assert shown["connection"]["privateKey"] == stack.host.private_key
    hidden = stack.engine().outputs()
    assert (hidden["a"], hidden["connection"]) == ("[secret]", "[secret]")


def test_state_files_are_for_their_owner_alone_and_an_unchanged_run_leaves_the_state_as_it_is(stack: Stack) -> None:
    stack.write('pulumi.export("a", step("a", pulumi.Output.secret("echo a")).stdin)')
    stack.up()
    before = stack.state_file.read_bytes(), stack.state_file.stat().st_ino
    assert stack.up().counts["same"] == 2
    assert (stack.state_file.read_bytes(), stack.state_file.stat().st_ino) == before
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in stack.state_file.parent.glob("dev.json*")}
    assert len(modes) > 1
    assert {*modes.values()} == {0o600}, modes


def test_a_damaged_state_or_that_of_another_stack_is_refused(stack: Stack) -> None:
    stack.write("")
    stack.up()
    moved = json.loads(stack.state_file.read_text()) | {"owner": "other/dev"}
    for text, message in (("{", r"dev\.json is damaged"), (json.dumps(moved), "holds the state of other/dev")):
        stack.state_file.write_text(text)
        with pytest.raises(EngineError, match=message):
            stack.up()


def test_a_wrong_passphrase_is_refused_before_any_change(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.write('step("a", "echo a")')
    stack.up()
    stack.host.take()
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "another")
    with pytest.raises(EngineError, match="the passphrase does not open the state"):
        stack.engine().destroy()
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE")
    with pytest.raises(CliError, match="no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE"):
        stack.up()
    assert stack.host.take() == []


SHOW = """
config = pulumi.Config()
keys = ["token", "count", "share", "on", "none", "nested", "text", "missing"]
pulumi.export("values", {key: config.get(key) for key in keys})
pulumi.export("env", dict(pulumi.runtime.config.get_config_env()))
pulumi.export("secret keys in env", pulumi.runtime.config.get_config_secret_keys_env())
pulumi.export("inherited", local.Command("env", create="env | grep ^PULUMI_CONFIG || echo none").stdout)
pulumi.export("count", config.require_int("count"))
pulumi.export("secret keys", [key for key in keys if pulumi.runtime.config.is_config_secret(f"trial:{key}")])
pulumi.export("token", config.get_secret("token"))
"""


def test_the_program_gets_the_config_as_the_cli_gives_it(stack: Stack) -> None:
    nested = {"b": [1, 2.5, True, None, "x<y é"], "a": {"deep": secure("s3cret-inside")}}
    config = {
        "token": secure(SECRET),
        "count": 3,
        "share": 1.5,
        "on": True,
        "none": None,
        "nested": nested,
        "text": "x",
    }
    stack.write(SHOW, config, ENCRYPTION_SALT)
    assert stack.up().ok
    outputs = stack.engine().outputs(show_secrets=True)
    assert json.loads(outputs["values"].pop("nested")) == {**nested, "a": {"deep": "s3cret-inside"}}
    plain = {"count": "3", "share": "1.5", "on": "true", "none": "", "text": "x", "missing": None}
    assert outputs["values"] == {"token": SECRET, **plain}
    assert outputs["count"] == 3
    assert outputs["env"].keys() == {f"trial:{key}" for key in config}
    assert (outputs["env"]["trial:token"], outputs["env"]["trial:on"]) == (SECRET, "true")
    assert sorted(outputs["secret keys in env"]) == ["trial:nested", "trial:token"]
    assert outputs["inherited"] == "none"
    assert sorted(outputs["secret keys"]) == ["nested", "token"]
    assert stack.engine().outputs()["token"] == "[secret]"


def test_config_that_cannot_be_opened_or_is_in_the_project_file_is_named(stack: Stack) -> None:
    stack.write("", {"token": {"secure": "v1:AAAA:AAAA"}}, ENCRYPTION_SALT)
    with pytest.raises(CliError, match="config value trial:token"):
        stack.up()
    stack.write("", {"token": secure("x")})
    with pytest.raises(CliError, match="trial:token is encrypted, but the file has no encryptionsalt"):
        stack.up()
    stack.write("", {"other": 1})
    with (stack.folder / "Pulumi.yaml").open("a") as file:
        file.write("config: {token: {type: string}}\n")
    with pytest.raises(CliError, match=r"Pulumi\.yaml has 'config'"):
        stack.up()
