"""Relay connections to played hosts with a delay, as if the hosts were far away.

It delays bytes and loses none: TCP would hide a loss behind another delay.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)


async def _accept(
    port: int, delay: float, accepted: Counter[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    accepted[port] += 1
    # TCP's handshake.
    await asyncio.sleep(2 * delay)
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_forward(reader, far_writer, delay), _forward(far_reader, writer, delay))


@contextmanager
def relayed(ports: Sequence[int], round_trip: float) -> Iterator[tuple[list[int], Counter[int]]]:
    """Open a port for each given one that leads to it; bytes take half of `round_trip` seconds in each direction.

    Yields these ports, and the number of connections to each given one.
    """
    accepted = Counter[int]()
    loop = asyncio.new_event_loop()

    async def listen() -> list[int]:
        servers = [
            await asyncio.start_server(partial(_accept, port, round_trip / 2, accepted), "127.0.0.1", 0)
            for port in ports
        ]
        return [server.sockets[0].getsockname()[1] for server in servers]

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(listen(), loop).result(), accepted
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
