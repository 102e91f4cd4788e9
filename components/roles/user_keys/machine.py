"""Write the keys of the config, and remove others that tailrack wrote."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.user_keys.keys import CONF, FOLDER, KeysValues, let_sshd_read, write_keys


def machine(step: Step, values: KeysValues) -> None:
    """Write the files first: a removed key must open nothing, even if sshd cannot be configured."""
    keys = values.by_user
    if keys or files.exists(FOLDER) or files.exists(CONF):
        write_keys(keys)
        let_sshd_read(keys, step.host)
