"""Connections through bastions, and local addresses of bastions that are behind another one."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncssh

from cli.pulumi.workspace import CliError
from stacks.sites.hosts.bastions import FORWARDED, LOCAL_PORT, hops_of, local_address
from stacks.sites.hosts.ssh_types import PASSPHRASE

LIMIT = 15  # seconds for each bastion
BUSY_LIMIT, PAUSE = 120.0, 0.2  # seconds for a local address to be free


@asynccontextmanager
async def through(
    hops: Sequence[Mapping[str, Any]], base_dir: Path
) -> AsyncIterator[asyncssh.SSHClientConnection | None]:
    """Yield a connection to the last of these bastions, each reached through the one before; None without any."""
    async with AsyncExitStack() as connections:
        tunnel = None
        for hop in hops:
            connecting = asyncssh.connect(
                str(hop["address"]),
                int(hop.get("port", 22)),
                username=str(hop["user"]),
                known_hosts=([asyncssh.import_public_key(str(hop["host_key"]))], [], []),
                config=None,
                tunnel=tunnel,
                connect_timeout=LIMIT,
                keepalive_interval=LIMIT,
                **_own_key(hop, base_dir),
            )
            tunnel = await connections.enter_async_context(connecting)
        yield tunnel


def _own_key(hop: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    if hop.get("agent") is True:
        return {"agent_path": os.environ.get("SSH_AUTH_SOCK", "")}
    file = base_dir / Path(str(hop["private_key_file"])).expanduser()
    return {"client_keys": [asyncssh.read_private_key(file, hop.get(PASSPHRASE))], "agent_path": None}


async def _binds(connection: Any, ends: tuple[str, int, str, int], may_be_busy: bool) -> bool:
    """Forward between two ends; return whether it does, and not another command."""
    try:
        await connection.forward_local_port(*ends)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not may_be_busy:
            raise
        return False
    return True


@contextmanager
def forwarded(sites: Sequence[Mapping[str, Any]], stack: str, base_dir: Path, alone: bool) -> Iterator[None]:
    """Forward from the local addresses of bastions that are behind others. Raises CliError if an outer one fails.

    alone   wait for another command on this stack that forwards, such as `make status`, instead of using its forward
    """
    loop, connections = asyncio.new_event_loop(), AsyncExitStack()

    def wait(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    async def listen(site: Mapping[str, Any]) -> None:
        *outer, inner = hops_of(site)
        try:
            connection = await connections.enter_async_context(through(outer, base_dir))
            assert connection is not None  # noqa: S101 - there is an outer one
            ends = (local_address(stack, str(site["name"])), LOCAL_PORT, str(inner["address"]), inner.get("port", 22))
            until = time.monotonic() + BUSY_LIMIT
            while not await _binds(connection, ends, not alone or time.monotonic() < until) and alone:
                await asyncio.sleep(PAUSE)
        except (OSError, asyncssh.Error, ValueError, KeyError) as error:
            names = " and ".join(str(hop.get("address")) for hop in outer)
            raise CliError(f"site {site.get('name')}: no connection to its bastion {names}: {error}") from None

    threading.Thread(target=loop.run_forever, daemon=True).start()
    try:
        for site in sites:
            wait(listen(site))
        os.environ[FORWARDED] = "1"
        yield
    finally:
        os.environ.pop(FORWARDED, None)
        wait(connections.aclose())
        loop.call_soon_threadsafe(loop.stop)
