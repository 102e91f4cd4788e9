"""A machine that keeps backups and is no node: an account that lets one key in, and the config's target there."""

import subprocess
from pathlib import Path
from typing import Any

from tests.lab.cluster import ClusterUnderTest
from tests.lab.sealer import sealer_of


def open_vault(cluster: ClusterUnderTest, machine: dict[str, Any], folder: str, keys: Path) -> dict[str, Any]:
    """Let a new key in on a machine of one's own; return the keys of `tailrack:backup` for a target in the folder.

    machine   of own_machine
    keys      the folder of the new key
    """
    key = keys / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = Path(f"{key}.pub").read_text(encoding="utf-8")
    name = str(machine["name"])
    cluster.run(name, f"useradd -m keeper && install -d -o keeper {folder} && install -d -o keeper ~keeper/.ssh")
    cluster.run(name, f"echo '{public}' >~keeper/.ssh/authorized_keys")
    _, sealer = sealer_of(cluster)
    return {
        "target": f"sftp:keeper@{machine['address']}:{folder}/lab",
        "port": machine["port"],
        "host_key": machine["host_key"],
        "private_key": {"secure": sealer.seal(key.read_text(encoding="utf-8"))},
    }
