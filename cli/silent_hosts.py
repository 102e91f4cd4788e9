"""Detect hosts that accept connections but send nothing: the CLI would wait for their steps forever.

The CLI's provider (pulumi-command 1.2.1) limits the TCP connect, not the SSH handshake. When no step starts or ends for
a while and all running steps are on hosts, this module reads the SSH banner of each host, and ends the run if none
sends one. It does not ask a host that has answered again while its step runs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pulumi.automation.events import EngineEvent

from cli.pulumi.events import opened

REMOTE = "command:remote:"
# Seconds without a start or an end of a step. Within them the provider gives up hosts that refuse or drop connections
# (six dials of at most 10 s), and the program never pauses so long between two steps.
QUIET_SECONDS = 60.0
# sshd sends its banner at once, before any lookup; each try is a new connection.
BANNER_SECONDS, TRIES = 10.0, 3
LOOK_SECONDS = 1.0  # between two checks for quiet


class Place(NamedTuple):
    """The first host of a step's connection; `prefix` is `bastion ` for a bastion, else empty."""

    host: str
    port: int
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.prefix}{self.host}:{self.port}"


class SilentHosts:
    """A watch over a run's events; `found` has the silent places that ended the run, by URN of the step.

    places     returns the places of running steps by URN; called outside of the event loop; must not raise
    end        ends the run, once; its argument is an event that is set when the CLI reports that it stops
    """

    def __init__(
        self,
        places: Callable[[], Mapping[str, Place]],
        end: Callable[[threading.Event], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.found: dict[str, Place] = {}
        self._places, self._end, self._now = places, end, now
        self._stopping = threading.Event()
        self._under_way: dict[str, str] = {}  # URN to type
        self._spoken: set[str] = set()
        self._changed = self._asked = now()
        self._lock = threading.Lock()

    def __enter__(self) -> SilentHosts:
        self._loop = asyncio.new_event_loop()
        self._watching = self._loop.create_task(self._watch())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._watching.cancel)
        self._thread.join()
        self._loop.close()

    def on_event(self, event: EngineEvent) -> None:
        """Handle one event of the CLI."""
        if begun := event.resource_pre_event:
            state = begun.metadata.new or begun.metadata.old
            if state and state.custom:  # components do nothing, and the CLI reports no end of them
                with self._lock:
                    self._under_way[begun.metadata.urn] = begun.metadata.type
                    self._changed = self._now()
        elif ended := event.res_outputs_event or event.res_op_failed_event:
            with self._lock:
                self._under_way.pop(ended.metadata.urn, None)
                self._spoken.discard(ended.metadata.urn)
                self._changed = self._now()
        elif event.stdout_event:  # the CLI writes to stdout only when it is interrupted
            self._stopping.set()

    def text(self, urn: str, machine: str) -> str:
        """Return the error of a step on a silent host."""
        place = self.found[urn]
        return (
            f"{f'{machine} ({place})' if machine else place} accepts connections but does not answer "
            f"(no SSH banner in {BANNER_SECONDS:g} s, {TRIES} times)"
        )

    async def look(self) -> None:
        """End the run if it has waited for a while for silent hosts only."""
        with self._lock:
            running, changed = {**self._under_way}, self._changed
        if not running or self._now() - max(changed, self._asked) < QUIET_SECONDS:
            return
        if self._spoken or not all(type_.startswith(REMOTE) for type_ in running.values()):
            return
        place_of_step = await asyncio.to_thread(self._places)
        answers: dict[Place, bool | None] = {}
        if running.keys() <= place_of_step.keys():
            places = list({place_of_step[urn] for urn in running})  # many steps may be on one host
            answers = dict(zip(places, await asyncio.gather(*map(_speaks, places)), strict=True))
        with self._lock:
            self._asked = self._now()
            if not answers or self._changed != changed:
                return
            self._spoken = {urn for urn in running if answers[place_of_step[urn]]}
            if any(answer is not False for answer in answers.values()):
                return
            self.found = {urn: place_of_step[urn] for urn in running}
        await asyncio.to_thread(self._end, self._stopping)

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._watching)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())

    async def _watch(self) -> None:
        while not self.found:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()


def place_of(inputs: Mapping[str, Any]) -> Place | None:
    """Return the first host of a step's connection, from inputs exported with secrets; None without a connection."""
    connection = opened(inputs.get("connection"))
    if not isinstance(connection, dict):
        return None
    proxy = connection.get("proxy")
    first = proxy or connection
    return Place(first["host"], int(first["port"]), "bastion " if proxy else "")


async def _speaks(place: Place) -> bool | None:
    """Return whether a host sends anything to a client; None if it refuses or closes the connection."""
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(BANNER_SECONDS):
                reader, writer = await asyncio.open_connection(place.host, place.port)
        except OSError:  # the provider counts these itself
            return None
        try:
            async with asyncio.timeout(BANNER_SECONDS):
                return bool(await reader.read(255)) or None
        except TimeoutError:
            continue
        except OSError:
            return None
        finally:
            writer.close()
    return False
