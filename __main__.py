"""tailrack: config -> sites -> cluster -> outputs."""

from __future__ import annotations

import asyncio

import pulumi

from stacks import PROJECT, unexpected_errors
from stacks.cluster import cluster_stack
from stacks.config import ConfigError, PoolConfig, load, other_stacks_of
from stacks.pool import pool_stack
from stacks.read_outputs import read_other_stacks
from stacks.runtime_tuning import tune_sdk, tuned_python


async def main() -> None:
    """Build the stack that the config describes; raise only RunError, which Pulumi shows without a traceback."""
    try:
        with tuned_python():
            await build()
    except pulumi.RunError:
        raise
    except ModuleNotFoundError as missing:  # `make setup` installs a provider's package only for stacks that need it
        setup = f"make setup STACK={pulumi.get_stack()}"
        raise pulumi.RunError(f"this stack needs {missing.name}, which is not installed; run: {setup}") from None
    except Exception as error:  # noqa: BLE001 - a traceback does not help a reader who edits a config
        raise pulumi.RunError(unexpected_errors.report(error, PROJECT / ".tailrack")) from None
    # Let every registration start, so that the runtime waits for each once. Otherwise it waits for any of all Outputs
    # again each time one resolves, which took minutes with a thousand hosts.
    await asyncio.sleep(0)


async def build() -> None:
    """Build the stack; raise RunError for a config that cannot be used."""
    try:
        values = pulumi.runtime.config.get_config_env()
        config = load(
            values,
            pulumi.runtime.config.get_config_secret_keys_env(),
            PROJECT,
            pulumi.log.warn,
            await read_other_stacks(other_stacks_of(values)),
        )
    except ConfigError as error:
        raise pulumi.RunError(error.message_for(pulumi.get_stack())) from None
    tune_sdk(len(config.nodes()))
    stack = pulumi.get_stack()
    program = await (pool_stack(config, stack) if isinstance(config, PoolConfig) else cluster_stack(config, stack))
    for name, value in program.outputs.items():
        pulumi.export(name, value)


pulumi.run(main)
