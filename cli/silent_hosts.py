"""Hosts that accept connections and say nothing: the CLI would wait for their steps without an end.

Its provider (pulumi-command 1.2.1) bounds the TCP connect alone, not the handshake. So a run is looked at in which
nothing begins or ends any more and all that is under way is on hosts: each host is asked for its SSH banner, and where
none has one, the run is ended. A host that speaks is not asked again while its step is under way.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pulumi.automation.events import EngineEvent, StepEventMetadata

REMOTE = "command:remote:"
# Seconds in which nothing has begun or ended. Hosts that refuse or drop connections are given up within them: six dials
# of at most 10 s. The program is never so long between two steps.
QUIET_SECONDS = 60.0
# An sshd says its banner at once, before it looks anything up; each try is a connection of its own.
BANNER_SECONDS, TRIES = 10.0, 3
LOOK_SECONDS = 1.0  # between two looks at whether it is quiet


class Place(NamedTuple):
    """Where the connection of a step leads to first; `what` is empty, or `bastion ` where that is not its host."""

    host: str
    port: int
    what: str = ""

    def __str__(self) -> str:
        return f"{self.what}{self.host}:{self.port}"


class SilentHosts:
    """Hears the events of a run and, entered, watches it; `found` is the places that it was ended for, by step's URN.

    places     tells where steps under way are, by URN; called outside of the event loop, and raises nothing
    end        ends the run, once; is given an event that is set when the CLI has said that it stops
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
        """Take one event of the CLI."""
        if event.resource_pre_event:
            self._begun(event.resource_pre_event.metadata)
        elif ended := event.res_outputs_event or event.res_op_failed_event:
            self._ended(ended.metadata.urn)
        elif event.stdout_event:  # in which the CLI says that it was interrupted, and nothing else
            self._stopping.set()

    def text(self, urn: str, machine: str) -> str:
        """What is wrong with the host of a step that the run was ended for."""
        place = self.found[urn]
        return (
            f"{f'{machine} ({place})' if machine else place} accepts connections and says nothing "
            f"(no SSH banner in {BANNER_SECONDS:g} s, {TRIES} times)"
        )

    async def look(self) -> None:
        """End the run where it waits for nothing but silent hosts, and has done so for a while."""
        with self._lock:
            waited_for, changed = {**self._under_way}, self._changed
        if not waited_for or self._now() - max(changed, self._asked) < QUIET_SECONDS:
            return
        if self._spoken or not all(type_.startswith(REMOTE) for type_ in waited_for.values()):
            return
        known = await asyncio.to_thread(self._places)
        answers: dict[Place, bool | None] = {}
        if waited_for.keys() <= known.keys():
            places = list({known[urn] for urn in waited_for})  # many steps may be on one host
            answers = dict(zip(places, await asyncio.gather(*map(_speaks, places)), strict=True))
        with self._lock:
            self._asked = self._now()
            if not answers or self._changed != changed:
                return
            self._spoken = {urn for urn in waited_for if answers[known[urn]]}
            if any(answer is not False for answer in answers.values()):
                return
            self.found = {urn: known[urn] for urn in waited_for}
        await asyncio.to_thread(self._end, self._stopping)

    def _begun(self, metadata: StepEventMetadata) -> None:
        state = metadata.new or metadata.old
        if state and state.custom:  # a component has no work of its own, and no end
            with self._lock:
                self._under_way[metadata.urn] = metadata.type
                self._changed = self._now()

    def _ended(self, urn: str) -> None:
        with self._lock:
            self._under_way.pop(urn, None)
            self._spoken.discard(urn)
            self._changed = self._now()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._watching)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())

    async def _watch(self) -> None:
        while not self.found:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()


def place_of(inputs: Mapping[str, Any]) -> Place | None:
    """Where a step's connection leads to first, by its inputs as the CLI shows them with secrets; None for no way."""
    connection = inputs.get("connection")
    if isinstance(connection, dict) and isinstance(connection.get("plaintext"), str):
        connection = json.loads(connection["plaintext"])
    if not isinstance(connection, dict):
        return None
    proxy = connection.get("proxy")
    first = proxy or connection
    return Place(first["host"], int(first["port"]), "bastion " if proxy else "")


async def _speaks(place: Place) -> bool | None:
    """Whether a host says anything to who connects; None where it takes no connection, or closes it."""
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
