"""What the engine cannot run is refused by name, before anything is touched, with the way to get what can."""

import pytest

from cli.run_events import EngineError
from tests.engine.stack_under_test import Stack

BEFORE = 'step("fine", "echo fine")\n'
REFUSED = {
    "aws:s3/bucket:Bucket logs: this type of resource": """
pulumi.CustomResource("aws:s3/bucket:Bucket", "logs", {})
""",
    "pulumi:providers:command mine: this type of resource": """
import pulumi_command
pulumi_command.Provider("mine")
""",
    "command:remote:CopyToRemote copy: a source that is no folder here": """
remote.CopyToRemote("copy", connection=HOST, remote_path="/x", source=pulumi.FileAsset("host.json"))
""",
    "command:remote:CopyToRemote nowhere: a source that is no folder here": """
remote.CopyToRemote("nowhere", connection=HOST, remote_path="/x", source=pulumi.FileArchive("nowhere"))
""",
    "command:remote:CopyToRemote unpinned: connection without hostKey": """
there = {key: value for key, value in HOST.items() if key != "host_key"}
remote.CopyToRemote("unpinned", connection=there, remote_path="/x", source=pulumi.FileArchive("."))
""",
    "ReadResource command:local:Command other": """
local.Command.get("other", "id")
""",
    "Invoke command:local:run": """
pulumi.export("ran", local.run(command="true").stdout)
""",
    "option protect": """
step("kept", "true", options=dict(protect=True))
""",
    "option ignore_changes of triggers[0]": """
step("kept", "true", options=dict(ignore_changes=["triggers[0]"]))
""",
    "option replace_on_changes of environment.A": """
local.Command("kept", create="true", opts=Options(replace_on_changes=["environment.A"]))
""",
    "option import_id": """
step("kept", "true", options=dict(import_="id"))
""",
    "connection without hostKey": """
step("open", "true", connection=dict(host_key=None))
""",
    "proxy without hostKey": """
step("far", "true", connection=dict(proxy={**HOST, "host_key": None}))
""",
    "proxy with password": """
step("far", "true", connection=dict(proxy={**HOST, "password": "x"}))
""",
    "connection with agentSocketPath": """
step("open", "true", connection=dict(agent_socket_path="x"))
""",
    "input environment": """
step("env", "true", environment=dict(A="b"))
""",
    "input assetPaths": """
local.Command("assets", create="true", asset_paths=["*"])
""",
}


@pytest.mark.parametrize("named", REFUSED)
def test_it_is_refused_by_name_before_anything_is_touched(stack: Stack, named: str) -> None:
    stack.write(BEFORE + REFUSED[named])
    for operation in (stack.engine().preview, stack.engine().up):
        with pytest.raises(EngineError) as refused:
            operation()
        assert named in str(refused.value)
        assert "https://www.pulumi.com/docs/install/" in str(refused.value)
    assert stack.host.take() == []
    assert not stack.state_file.exists()


def test_everything_refused_is_named_at_once(stack: Stack) -> None:
    stack.write('for name in "xyz":\n    pulumi.CustomResource("tailscale:index/tailnetKey:TailnetKey", name, {})')
    with pytest.raises(EngineError) as refused:
        stack.up()
    assert all(f"TailnetKey {name}: this type" in str(refused.value) for name in "xyz")
