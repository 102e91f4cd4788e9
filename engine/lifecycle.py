"""What happens to each resource: create, update, replace, delete or nothing, as the CLI and its provider decide."""

from __future__ import annotations

import graphlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from engine.commands import STREAMS, CommandError, Commands
from engine.events import EngineError, Event, Failure, Summary
from engine.state import Resource, State
from engine.values import HIDDEN, UNKNOWN, as_secret, is_secret, is_unknown, mask, plain, secret_texts


class Lifecycle:
    """One pass over a stack's resources. `commands` is None in a preview: then nothing runs and nothing is saved."""

    def __init__(
        self, state: State, commands: Commands | None, parallel: int, on_event: Callable[[Event], None]
    ) -> None:
        self.summary = Summary()
        self.stopped = threading.Event()
        self._state, self._commands, self._parallel, self._on_event = state, commands, parallel, on_event
        self._before = dict(state.live)
        self._registered: set[str] = set()
        self._unusable: set[str] = set()  # failed, or skipped for what failed
        self._deleting: set[str] = set()  # what is `deleted_with` one of these needs no delete of its own
        self._replaced: set[str] = set()
        self._deleted_early: set[str] = set()  # made again when the program comes to it
        self._lock = threading.Lock()

    def register(self, goal: Resource, delete_first: bool) -> Resource | None:
        """Bring a resource to its goal and return it as it now is; None where that failed or was skipped."""
        with self._lock:
            if goal.urn in self._registered:
                raise EngineError(f"Duplicate resource URN '{goal.urn}'; try giving it a unique name")
            self._registered.add(goal.urn)
        old = None if goal.urn in self._deleted_early else self._state.live.get(goal.urn)
        if broken := sorted(self._unusable & goal.needs()):
            return self._skip(goal, f"needs {', '.join(urn.rpartition('::')[2] for urn in broken)}")
        if self.stopped.is_set():
            return self._skip(goal, "the run was stopped")
        if not old:
            operation = "replace" if goal.urn in self._deleted_early else "create"
        elif goal.custom and (
            goal.deleted_with in self._replaced
            or any(goal.inputs.get(key) != old.inputs.get(key) for key in goal.replace_on)
        ):
            operation = "replace"
        else:
            operation = "update" if goal.custom and goal.inputs != old.inputs else "same"
        self._replaced |= {goal.urn} if operation == "replace" else set()
        if operation == "replace" and old and delete_first:
            if not self._delete_for(old):
                return self._skip(goal, "what it replaces could not be deleted")
            old = None
        made: list[Resource] = []

        def action() -> None:
            made.append(self._make(operation, goal, old))
            if self._commands:
                self._state.put(made[0], old if operation == "replace" else None)

        if not self._step(operation, goal, action):
            self._unusable.add(goal.urn)
        return made[0] if made else None

    def delete_unregistered(self) -> None:
        """Delete what the program did not register and what was replaced: dependents first, the rest at once.

        Where a step failed, what it needs stays for the next run, and so does what needs it: the program may not
        have come to it.
        """
        kept = self._closure(self._unusable, lambda urn: self._before[urn].needs())
        kept |= self._closure(self._unusable, self._dependents)
        doomed = [r for r in self._state.condemned if r.urn not in kept]
        doomed += [r for r in self._state.live.values() if r.urn not in self._registered | kept | self._deleted_early]
        self._deleting |= {resource.urn for resource in doomed}
        order: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
        for index, resource in enumerate(doomed):
            order.add(index)
            for urn in resource.needs():
                # A replaced resource knew the old one by this URN, a live one knows the new one.
                same = [i for i, other in enumerate(doomed) if other.urn == urn and i != index]
                old = [i for i in same if doomed[i] is not self._state.live.get(urn)]
                new = [i for i in same if i not in old]
                live = resource is self._state.live.get(resource.urn)
                for other in (new or old) if live else (old or new):
                    order.add(other, index)
        order.prepare()
        running: dict[Future[bool], int] = {}
        with ThreadPoolExecutor(self._parallel) as pool:
            while order.is_active():
                running |= {pool.submit(self._delete, doomed[i]): i for i in order.get_ready()}
                if not running:
                    break  # what is left is needed by something that could not be deleted
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index = running.pop(future)
                    if future.result():
                        order.done(index)

    def _step(self, operation: str, resource: Resource, action: Callable[[], None], counted: bool = True) -> bool:
        """Run one step and tell of it. A failure is recorded, not raised."""
        begun = time.monotonic()
        if operation != "same" and self._commands:
            self._tell("start", operation, resource)
        try:
            action()
        except CommandError as error:
            hidden = set(resource.secret_outputs)
            if any(is_secret(resource.inputs.get(key)) for key in ("create", "update", "delete")):
                hidden.add("command")
            text = _without_secrets(error.text(hidden, HIDDEN), resource)
            self.summary.failures.append(Failure(resource.urn, text))
            self._tell("failed", operation, resource, time.monotonic() - begun, text)
            return False
        with self._lock:
            self.summary.counts[operation] += counted
        self._tell("done", operation, resource, time.monotonic() - begun)
        return True

    def _make(self, operation: str, goal: Resource, old: Resource | None) -> Resource:
        """Return the resource made from `goal`: its command run, or in a preview what is known without running it."""
        if not goal.custom:
            return goal
        kept = old if operation in ("same", "update") else None
        identity = kept.id if kept else ""
        printed = kept.outputs if kept else dict.fromkeys(STREAMS, "")
        if operation != "same" and not self._commands:
            printed = dict.fromkeys(STREAMS, UNKNOWN)
        elif operation != "same" and self._commands:
            if is_unknown(goal.inputs):
                raise CommandError("its inputs depend on something that is not known")
            identity = identity or goal.name + secrets.token_hex(4)
            inputs = plain(goal.inputs)
            if command := (operation == "update" and inputs.get("update")) or inputs.get("create"):
                printed = self._commands.run(goal.type, command, inputs, plain(printed))
                self._log(goal, printed)
        outputs = {key: as_secret(text) if key in goal.secret_outputs else text for key, text in printed.items()}
        return replace(goal, id=identity, outputs=outputs)

    def _delete_for(self, old: Resource) -> bool:
        """Delete `old` to make it anew, after what cannot outlive it: what is `deleted_with` it or has its
        outputs in what replaces it (triggers), and so on."""
        graph = {urn: resource.needs() & self._before.keys() for urn, resource in self._before.items()}
        doomed = [old]
        for urn in graphlib.TopologicalSorter(graph).static_order():
            resource, gone = self._before[urn], {other.urn for other in doomed}
            changed = {u for key in resource.replace_on for u in resource.property_dependencies.get(key, [])}
            tied = resource.deleted_with in gone or changed & gone
            if resource.custom and tied and urn not in self._registered | self._deleted_early:
                doomed.append(resource)
        self._deleting |= {resource.urn for resource in doomed}
        for resource in reversed(doomed):
            if not self._delete(resource, counted=False):
                return False
            if resource is not old:
                self._deleted_early.add(resource.urn)
        return True

    def _delete(self, resource: Resource, counted: bool | None = None) -> bool:
        if self.stopped.is_set():
            return False

        def action() -> None:
            command = plain(resource.inputs.get("delete"))
            spared = resource.retain_on_delete or resource.deleted_with in self._deleting
            if self._commands and command and not spared:
                self._commands.run(resource.type, command, plain(resource.inputs), plain(resource.outputs))
            if self._commands:
                self._state.remove(resource)

        live = self._state.live.get(resource.urn) is resource
        return self._step("delete", resource, action, live if counted is None else counted)

    def _skip(self, goal: Resource, reason: str) -> Resource | None:
        self._unusable.add(goal.urn)
        self._tell("skipped", "", goal, text=reason)
        return None

    def _log(self, resource: Resource, printed: dict[str, str]) -> None:
        wanted = plain(resource.inputs.get("logging", "stdoutAndStderr")).lower()
        for stream in STREAMS:
            if stream in wanted and printed[stream] and stream not in resource.secret_outputs:
                self._tell("message", "", resource, text=_without_secrets(printed[stream], resource))

    def _tell(self, kind: str, operation: str, resource: Resource, seconds: float = 0.0, text: str = "") -> None:
        self._on_event(Event(kind, operation, resource.urn, resource.name, resource.type, seconds, text))

    def _dependents(self, urn: str) -> Iterable[str]:
        return [other for other, resource in self._before.items() if urn in resource.needs()]

    def _closure(self, urns: set[str], onward: Callable[[str], Iterable[str]]) -> set[str]:
        found: set[str] = set()
        rest = list(urns)
        while rest:
            urn = rest.pop()
            if urn in self._before and urn not in found:
                found.add(urn)
                rest += onward(urn)
        return found


def _without_secrets(text: str, resource: Resource) -> str:
    # All of a connection is marked as secret, and hiding words such as its user's name would spoil every message.
    return mask(text, secret_texts({key: value for key, value in resource.inputs.items() if key != "connection"}))
