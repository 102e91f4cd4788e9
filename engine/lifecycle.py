"""What happens to each resource: create, update, replace, delete or nothing, as the CLI and its provider decide."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any

from pulumi.runtime.rpc import is_rpc_secret

from engine.commands import STREAMS, CommandError, Commands
from engine.copies import COPY, comparable, moved
from engine.events import EngineError, Event, Failure, Summary, Tell, command_of
from engine.state import Resource, State
from engine.values import HIDDEN, as_secret, convert, is_unknown, plain, secret_lines


class Lifecycle:
    """One pass over a stack's resources. With `commands` of a dry run nothing runs, and the outputs are unknown."""

    def __init__(self, state: State, commands: Commands, stopped: threading.Event, on_event: Tell) -> None:
        self.summary, self.secrets = Summary(), set[str]()  # lines that no message may show
        self._state, self._commands, self._stopped, self._on_event = state, commands, stopped, on_event
        self._lock, self._registered = threading.Lock(), dict[str, Resource]()
        # URNs. Unusable: failed, or skipped for what failed. Early: deleted, and made again when the program is there.
        # What is `deleted_with` one that is in deleting needs no delete of its own.
        self._unusable, self._replaced, self._deleted_early, self._deleting = (set[str]() for _ in range(4))
        # URNs that were in the state before this pass. Aliases that were found there: new URN to old one.
        self._before, self.aliases = frozenset(state.live), dict[str, str]()

    def register(self, goal: Resource, delete_first: bool, aliases: Iterable[str] = ()) -> Resource | None:
        """Bring a resource to its goal and return it as it now is; None where that failed or was skipped.

        aliases   URNs by which the state may still know it
        """
        if self._registered.setdefault(goal.urn, goal) is not goal:
            raise EngineError(f"Duplicate resource URN '{goal.urn}'; try giving it a unique name")
        alias = self._alias(goal, aliases)
        # All of a connection is marked as secret, and hiding words such as its user's name would spoil every message.
        self.secrets |= secret_lines({key: value for key, value in goal.inputs.items() if key != "connection"})
        old, made = self._state.live.get(alias or goal.urn), None
        operation, reason = self._operation(goal, old), self._obstacle(goal)
        if not reason and operation == "replace":
            self._replaced.add(goal.urn)
            if old and delete_first:
                reason, old = "" if self._delete_first(old) else "what it replaces could not be deleted", None
        if reason:
            self.tell(replace(_event(goal), kind="skipped", text=reason))
        else:
            made = self._step(operation, goal, lambda: self._make(operation, goal, old), old)
        self._unusable |= set() if made else {goal.urn}
        return made

    def delete_rest(self) -> None:
        """Delete what was replaced, and what the program did not register.

        Not after a failure: the program may not have come to it, so that waits for a run in which nothing fails.
        """
        if not self.summary.failures and not self._stopped.is_set():
            gone = [resource for urn, resource in self._state.live.items() if urn not in self._registered]
            self._delete_all(self._state.condemned + gone)

    def _alias(self, goal: Resource, aliases: Iterable[str]) -> str:
        """Return the URN by which the state knows a resource; empty where that is its own, or where it is new."""
        with self._lock:
            taken = {old: new for new, old in self.aliases.items()}
            if goal.urn in taken:
                conflict = f"conflicting with alias on resource with URN '{taken[goal.urn]}'"
                raise EngineError(f"Duplicate resource URN '{goal.urn}' {conflict}")
            alias = next((urn for urn in (goal.urn, *aliases) if urn in self._before), goal.urn)
            if alias == goal.urn:
                return ""
            if alias in taken or alias in self._registered:
                conflict = f"conflicting with resource with URN '{taken.get(alias, alias)}'"
                raise EngineError(
                    f"Duplicate resource alias '{alias}' applied to resource with URN '{goal.urn}' {conflict}"
                )
            self.aliases[goal.urn] = alias
        self._deleted_early |= {goal.urn} if alias in self._deleted_early else set()
        return alias

    def fail(self, urn: str, message: str, command: str = "") -> None:
        """Record a failure, without secrets."""
        self.summary.failures.append(Failure(urn, self._hide(message), self._hide(command)))

    def tell(self, event: Event, counts: bool = False) -> None:
        """Pass an event on, one at a time, without secrets. Where it counts, it is of the summary."""
        with self._lock:
            self.summary.counts.update({event.operation: self.summary.counts[event.operation] + 1} if counts else {})
            self._on_event(replace(event, text=self._hide(event.text), command=self._hide(event.command)))

    def _hide(self, text: str) -> str:
        for line in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(line, HIDDEN)
        return text

    def _operation(self, goal: Resource, old: Resource | None) -> str:
        if not old:
            return "replace" if goal.urn in self._deleted_early else "create"
        if goal.inputs.get("triggers") != old.inputs.get("triggers") or goal.deleted_with in self._replaced:
            return "replace"
        return "update" if comparable(goal.inputs) != comparable(old.inputs) else "same"

    def _obstacle(self, goal: Resource) -> str:
        """Return why a resource cannot be made now, or nothing."""
        if broken := sorted(self._unusable & {*goal.needs}):
            return f"needs {', '.join(urn.rpartition('::')[2] for urn in broken)}"
        unknown = not self._commands.dry_run and is_unknown(goal.inputs)
        return "the run was stopped" if self._stopped.is_set() else "an input is not known" if unknown else ""

    def _make(self, operation: str, goal: Resource, old: Resource | None) -> Resource:
        kept = old if operation in ("same", "update") else None
        identity = kept.id if kept else "" if self._commands.dry_run else f"{goal.name}{secrets.token_hex(4)}"
        streams = STREAMS if goal.custom and goal.type != COPY else ()
        printed = kept.outputs if kept else dict.fromkeys(streams, "")
        if goal.type == COPY and (kept is None or moved(kept.inputs, goal.inputs)):
            self._commands.copy(plain(goal.inputs))
        command = (operation == "update" and goal.inputs.get("update")) or goal.inputs.get("create")
        if operation != "same" and command and goal.custom:
            printed = self._commands.run(goal.type, plain(command), plain(goal.inputs), plain(printed))
        outputs = {key: as_secret(text) if key in goal.secret_outputs else text for key, text in printed.items()}
        made = replace(goal, id=identity, outputs=outputs)
        self._state.put(made, old if operation == "replace" else None, self.aliases.get(goal.urn, ""))
        return made

    def _delete_first(self, old: Resource) -> bool:
        """Delete `old` to make it anew, with what cannot outlive it: `deleted_with` it, or triggered by its outputs."""
        doomed, registered = [old], {*self._registered, *self.aliases.values()}
        for gone in doomed:  # grows on the way
            rest = [r for r in list(self._state.live.values()) if r not in doomed and r.urn not in registered]
            doomed += [resource for resource in rest if gone.urn in (resource.deleted_with, *resource.triggered_by)]
        self._deleted_early |= {resource.urn for resource in doomed}
        return self._delete_all(doomed)

    def _delete_all(self, doomed: list[Resource]) -> bool:
        """Delete resources, dependents first and the rest at once. What a failed one needs stays, and it is False."""
        self._deleting |= {resource.urn for resource in doomed}
        graph = {resource: [other for other in doomed if resource.urn in other.needs] for resource in doomed}
        done: dict[Resource, Future[bool]] = {}
        with ThreadPoolExecutor(len(doomed) or 1) as pool:
            for resource in TopologicalSorter(graph).static_order():
                done[resource] = pool.submit(self._delete, resource, [done[other] for other in graph[resource]])
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
        """Run one step and tell of it, and what it changes of `old`. A failure is recorded, not raised."""
        # The delete of what is replaced is a part of the replacement.
        again = resource.urn in {*self._registered, *self._deleted_early} or resource in self._state.condemned
        event, begun = replace(_event(resource), operation=operation), time.monotonic()
        before = resource if operation == "delete" else old
        self.tell(
            event
            if operation == "same"
            else replace(
                event,
                before=shown(before.inputs) if before else {},
                after=shown(resource.inputs) if operation != "delete" else {},
                outputs=shown(before.outputs) if before else {},
            )
        )
        try:
            done = action()
        except CommandError as error:
            marked = [key for key, value in resource.inputs.items() if is_rpc_secret(value)] + resource.secret_outputs
            reason, *parts = error.args
            hidden = [not {"create", "update", "delete"}.isdisjoint(marked), *(stream in marked for stream in STREAMS)]
            text = reason + "".join(
                "\n[secret]\n" if hide and part else part for hide, part in zip(hidden, parts, strict=False)
            )
            self.fail(resource.urn, text, event.command)
            self.tell(replace(event, kind="failed", seconds=time.monotonic() - begun, text=text))
            return None
        self.tell(replace(event, kind="done", seconds=time.monotonic() - begun), operation != "delete" or not again)
        return done


def _event(resource: Resource) -> Event:
    """Return the start of a step of a resource, its operation still to be said."""
    return Event("start", "", resource.urn, resource.name, resource.type, command=command_of(resource.inputs))


def shown(values: dict[str, Any]) -> dict[str, Any]:
    """Return inputs or outputs with every secret hidden."""
    return dict(convert(values, lambda _secret: HIDDEN))
