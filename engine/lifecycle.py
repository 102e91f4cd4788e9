"""Create, update, replace, delete or keep each resource, as the CLI and its provider decide."""

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

from pulumi.runtime.rpc import is_rpc_secret

from cli.run_events import EngineError, Event, Failure, Summary, Tell, command_of
from components.settings.mask_secrets import MASK, mask_values
from engine.commands import STREAMS, CommandError, Commands
from engine.copies import COPY, comparable, moved
from engine.state import Resource, State
from engine.values import as_secret, convert, is_unknown, plain, secret_lines


class Lifecycle:
    """One pass over a stack's resources. If `commands` is a dry run, no command runs and new outputs are unknown.

    secrets   lines that no message may show
    aliases   those that were in the state: the new URN of a resource to its old one
    """

    def __init__(self, state: State, commands: Commands, stopped: threading.Event, on_event: Tell) -> None:
        self.summary, self.secrets = Summary(), set[str]()
        self._state, self._commands, self._stopped, self._on_event = state, commands, stopped, on_event
        self._lock, self._registered = threading.Lock(), dict[str, Resource]()
        # URNs. Unusable: failed, or skipped because of a failure. Deleted early: before the program registers it again.
        # A resource that is `deleted_with` one in _deleting is removed without its delete command.
        self._unusable, self._replaced, self._deleted_early, self._deleting = (set[str]() for _ in range(4))
        # URNs in the state before this pass; aliases both ways, the second one from old URN to new one.
        self._old_urns, self.aliases, self._renamed = frozenset(state.live), dict[str, str](), dict[str, str]()

    def register(
        self, goal: Resource, delete_first: bool, aliases: Iterable[str] = (), ignored: Iterable[str] = ()
    ) -> Resource | None:
        """Bring a resource to its goal and return it; None if that failed or was skipped.

        aliases   URNs that the resource may have in the state, most likely first
        ignored   inputs that stay as they are in the state, unless the resource is created or replaced
        """
        if self._registered.setdefault(goal.urn, goal) is not goal:
            raise EngineError(f"Duplicate resource URN '{goal.urn}'; try giving it a unique name")
        alias = self._alias(goal, aliases)
        # A connection is secret as a whole. Hiding its user's name would spoil every message.
        self.secrets |= secret_lines({key: value for key, value in goal.inputs.items() if key != "connection"})
        old, result = self._state.live.get(alias or goal.urn), None
        if old and self._operation(goal, old) != "replace":
            goal = replace(
                goal, inputs={**goal.inputs, **{key: old.inputs[key] for key in ignored if key in old.inputs}}
            )
        operation, reason = self._operation(goal, old), self._obstacle(goal)
        if not reason and operation == "replace":
            self._replaced.add(goal.urn)
            if old and delete_first:
                reason, old = "" if self._delete_first(old) else "the old resource could not be deleted", None
        if reason:
            self.tell(replace(_event(goal, ""), kind="skipped", text=reason))
        else:
            result = self._step(operation, goal, lambda: self._make(operation, goal, old), old)
        self._unusable |= set() if result else {goal.urn}
        return result

    def delete_rest(self) -> None:
        """Delete replaced resources and those that the program did not register.

        After a failure, delete nothing: the program may have ended before it registered them.
        """
        if not self.summary.failures and not self._stopped.is_set():
            unregistered = [resource for urn, resource in self._state.live.items() if urn not in self._registered]
            self._delete_all(self._state.condemned + unregistered)

    def _alias(self, goal: Resource, aliases: Iterable[str]) -> str:
        """Return the alias that is the resource's URN in the state; empty if it has its own URN there, or is new."""
        with self._lock:
            if other := self._renamed.get(goal.urn):
                conflict = f"conflicting with alias on resource with URN '{other}'"
                raise EngineError(f"Duplicate resource URN '{goal.urn}' {conflict}")
            alias = next((urn for urn in (goal.urn, *aliases) if urn in self._old_urns), goal.urn)
            if alias == goal.urn:
                return ""
            if alias in self._renamed or alias in self._registered:
                conflict = f"conflicting with resource with URN '{self._renamed.get(alias, alias)}'"
                raise EngineError(
                    f"Duplicate resource alias '{alias}' applied to resource with URN '{goal.urn}' {conflict}"
                )
            self.aliases[goal.urn], self._renamed[alias] = alias, goal.urn
        self._deleted_early |= {goal.urn} if alias in self._deleted_early else set()
        return alias

    def fail(self, urn: str, message: str, command: str = "") -> None:
        """Record a failure, with its secrets masked."""
        self.summary.failures.append(Failure(urn, self._hide(message), self._hide(command)))

    def tell(self, event: Event, counts: bool = False) -> None:
        """Pass on an event, one at a time, with its secrets masked. `counts`: count it in the summary."""
        with self._lock:
            self.summary.counts.update([event.operation] if counts else [])
            self._on_event(replace(event, text=self._hide(event.text), command=self._hide(event.command)))

    def _hide(self, text: str) -> str:
        return mask_values(text, self.secrets)

    def _operation(self, goal: Resource, old: Resource | None) -> str:
        if not old:
            return "replace" if goal.urn in self._deleted_early else "create"
        if goal.inputs.get("triggers") != old.inputs.get("triggers") or goal.deleted_with in self._replaced:
            return "replace"
        return "update" if comparable(goal.inputs) != comparable(old.inputs) else "same"

    def _obstacle(self, goal: Resource) -> str:
        """Return why a resource cannot be brought to its goal now; empty if it can."""
        if broken := sorted(self._unusable & {*goal.needs}):
            return f"needs {', '.join(urn.rpartition('::')[2] for urn in broken)}"
        unknown = not self._commands.dry_run and is_unknown(goal.inputs)
        return "the run was stopped" if self._stopped.is_set() else "an input is unknown" if unknown else ""

    def _make(self, operation: str, goal: Resource, old: Resource | None) -> Resource:
        kept = old if operation in ("same", "update") else None
        identity = kept.id if kept else "" if self._commands.dry_run else f"{goal.name}{secrets.token_hex(4)}"
        streams = STREAMS if goal.custom and goal.type != COPY else ()
        printed = kept.outputs if kept else dict.fromkeys(streams, "")
        if goal.type == COPY and (kept is None or moved(kept.inputs, goal.inputs)):
            if kept is None and (settings := self._busiest):
                self._commands.open_early(settings)
            self._commands.copy(plain(goal.inputs))
        command = (operation == "update" and goal.inputs.get("update")) or goal.inputs.get("create")
        if operation != "same" and command and goal.custom:
            printed = self._commands.run(goal.type, plain(command), plain(goal.inputs), plain(printed))
        outputs = {key: as_secret(text) if key in goal.secret_outputs else text for key, text in printed.items()}
        result = replace(goal, id=identity, outputs=outputs)
        self._state.put(result, old if operation == "replace" else None, self.aliases.get(goal.urn, ""))
        return result

    @cached_property
    def _busiest(self) -> dict[str, Any] | None:
        """Return the connection of most resources in the state: a new host is registered there (a head node)."""
        inputs = [plain(resource.inputs.get("connection")) for resource in list(self._state.live.values())]
        counts = Counter(json.dumps(settings, sort_keys=True) for settings in inputs if settings)
        return json.loads(counts.most_common(1)[0][0]) if counts else None

    def _delete_first(self, old: Resource) -> bool:
        """Delete `old` before its replacement, with the resources that are `deleted_with` it or triggered by it."""
        doomed, registered = [old], {*self._registered, *self.aliases.values()}
        for cause in doomed:  # grows in the loop
            rest = [r for r in list(self._state.live.values()) if r not in doomed and r.urn not in registered]
            doomed += [resource for resource in rest if cause.urn in (resource.deleted_with, *resource.triggered_by)]
        self._deleted_early |= {resource.urn for resource in doomed}
        return self._delete_all(doomed)

    def _delete_all(self, doomed: list[Resource]) -> bool:
        """Delete resources in parallel, dependents first; return whether all are gone. A failed one keeps its needs."""
        self._deleting |= {resource.urn for resource in doomed}
        dependents = {resource: [other for other in doomed if resource.urn in other.needs] for resource in doomed}
        done: dict[Resource, Future[bool]] = {}
        with ThreadPoolExecutor(len(doomed) or 1) as pool:
            for resource in TopologicalSorter(dependents).static_order():
                done[resource] = pool.submit(self._delete, resource, [done[other] for other in dependents[resource]])
        return all(future.result() for future in done.values())

    def _delete(self, resource: Resource, waits_for: list[Future[bool]]) -> bool:
        def action() -> Resource:
            spared = resource.retain_on_delete or resource.deleted_with in self._deleting
            if (command := plain(resource.inputs.get("delete"))) and not spared:
                self._commands.run(resource.type, command, plain(resource.inputs), plain(resource.outputs))
            self._state.remove(resource)
            return resource

        possible = all(future.result() for future in waits_for) and not self._stopped.is_set()
        return possible and self._step("delete", resource, action) is not None

    def _step(
        self, operation: str, resource: Resource, action: Callable[[], Resource], old: Resource | None = None
    ) -> Resource | None:
        """Run one step and send its events. Record a failure and return None."""
        # The delete of a replaced resource is a part of the replacement.
        replaced = resource.urn in {*self._registered, *self._deleted_early} or resource in self._state.condemned
        event, begun = _event(resource, operation), time.monotonic()
        before, after = (resource, None) if operation == "delete" else (old, resource)
        started = event
        if operation != "same":
            inputs = [shown(each.inputs) if each else {} for each in (before, after)]
            started = replace(event, before=inputs[0], after=inputs[1], outputs=shown(before.outputs) if before else {})
        self.tell(started)
        try:
            result = action()
        except CommandError as error:
            marked = [key for key, value in resource.inputs.items() if is_rpc_secret(value)] + resource.secret_outputs
            reason, *parts = error.args
            hidden = [not {"create", "update", "delete"}.isdisjoint(marked), *(stream in marked for stream in STREAMS)]
            text = reason + "".join(
                f"\n{MASK}\n" if hide and part else part for hide, part in zip(hidden, parts, strict=False)
            )
            self.fail(resource.urn, text, event.command)
            self.tell(replace(event, kind="failed", seconds=time.monotonic() - begun, text=text))
            return None
        self.tell(replace(event, kind="done", seconds=time.monotonic() - begun), operation != "delete" or not replaced)
        return result


def _event(resource: Resource, operation: str) -> Event:
    """Return the start event of a resource."""
    return Event("start", operation, resource.urn, resource.name, resource.type, command=command_of(resource.inputs))


def shown(values: dict[str, Any]) -> dict[str, Any]:
    """Return inputs or outputs with every secret masked."""
    return dict(convert(values, lambda _secret: MASK))
