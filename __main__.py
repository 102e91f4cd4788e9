"""tailrack: config -> sites -> cluster -> outputs."""

from __future__ import annotations

import pulumi

from stacks import PROJECT
from stacks.cluster import ClusterStack
from stacks.config import ConfigError, load


def main() -> None:
    """Build the stack that the config describes."""
    try:
        config = load(
            pulumi.runtime.config.get_config_env(),
            pulumi.runtime.config.get_config_secret_keys_env(),
            PROJECT,
        )
    except ConfigError as error:
        # Only the message: where in the program it was found helps nobody who edits a config.
        raise pulumi.RunError(str(error)) from None
    for name, value in ClusterStack(config, pulumi.get_stack()).outputs.items():
        pulumi.export(name, value)


main()
