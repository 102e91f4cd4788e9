"""tailrack: config -> sites -> cluster -> outputs."""

from __future__ import annotations

import asyncio

import pulumi

from stacks import PROJECT, bugs
from stacks.cluster import cluster_stack
from stacks.config import ConfigError, PoolConfig, load
from stacks.pool import pool_stack
from stacks.runtime_tuning import tuned_runtime


async def main() -> None:
    """Build the stack that the config describes. Raises RunError alone, which Pulumi shows without a traceback."""
    try:
        with tuned_runtime():
            await build()
    except pulumi.RunError:
        raise
    except ModuleNotFoundError as missing:  # only stacks that need a provider have its package
        setup = f"make setup STACK={pulumi.get_stack()}"
        raise pulumi.RunError(f"this stack needs {missing.name}, which is not installed; run: {setup}") from None
    except Exception as error:  # noqa: BLE001 - the last net: nobody who edits a config is helped by a traceback
        raise pulumi.RunError(bugs.report(error, PROJECT / ".tailrack")) from None
    # One turn of the event loop: every registration has begun then, and the runtime waits for one after the other. Of
    # one that has not begun it does not know, and waits for any of all Outputs, once for each that comes: with a
    # thousand hosts that alone took minutes.
    await asyncio.sleep(0)


async def build() -> None:
    """Build the stack; RunError for a config that cannot be used."""
    try:
        config = load(
            pulumi.runtime.config.get_config_env(),
            pulumi.runtime.config.get_config_secret_keys_env(),
            PROJECT,
            pulumi.log.warn,
        )
    except ConfigError as error:
        # Only the message: where in the program it was found helps nobody who edits a config.
        raise pulumi.RunError(error.words(pulumi.get_stack())) from None
    stack = pulumi.get_stack()
    made = await (pool_stack(config, stack) if isinstance(config, PoolConfig) else cluster_stack(config, stack))
    for name, value in made.outputs.items():
        pulumi.export(name, value)


pulumi.run(main)
