"""A host behind two bastions, under both engines. The inner one is the host itself."""

import json
import socket
from pathlib import Path

import pytest
import yaml

from cli.pulumi.workspace import CliError
from stacks.sites.hosts.bastions import LOCAL_PORT, local_address
from tests.engine.conftest import PASSPHRASE, Deploy
from tests.engine.ssh_host import SshHost, serve
from tests.engine.stack_under_test import Stack
from tests.lab.sealer import Sealer

LOCAL = (local_address("dev", "rack"), LOCAL_PORT)
PROGRAM = f"""
proxy = remote.ProxyConnectionArgs(**{{**HOST, "host": {LOCAL[0]!r}, "port": {LOCAL[1]}}})
step("a", "echo far", connection=dict(proxy=proxy), delete="echo bye")
"""


def test_a_step_goes_through_two_bastions_whose_keys_are_checked(deploy: Deploy, stack: Stack, tmp_path: Path) -> None:
    def hop(host: SshHost, **more: object) -> dict[str, object]:
        (stack.folder / f"key-{host.port}").write_text(host.private_key)
        login = {"address": "127.0.0.1", "user": "root", "private_key_file": f"key-{host.port}"}
        return {**login, "port": host.port, "host_key": host.host_key, **more}

    stack.write(PROGRAM)
    with serve(tmp_path) as outer:
        for key in (stack.host.host_key, outer.host_key):
            chain = hop(stack.host, bastion=hop(outer, host_key=key))
            sites = [{"name": "rack", "kind": "hosts", "bastion": chain}]
            (stack.folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": {"tailrack:sites": sites}}))
            if key != outer.host_key:
                with pytest.raises(CliError, match=r"site rack: no connection .* Host key is not trusted"):
                    deploy("dev", []).up()
        assert deploy("dev", []).up().ok
        assert len(outer.connections) == 2
        assert [asked.stdin for asked in stack.host.take()] == ["echo far"]
        sealer = Sealer(PASSPHRASE)
        sealed = {"config": {"tailrack:sites": {"secure": sealer.seal(json.dumps(sites))}}}
        (stack.folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump(sealed) + sealer.salt_line)
        assert deploy("dev", []).destroy().ok
    assert [asked.command for asked in stack.host.take()] == ["echo bye"]
    assert socket.socket().connect_ex(LOCAL), "nothing listens after a run"
