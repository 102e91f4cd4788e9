"""Do the work of a step: its calls, in order."""

import hashlib
import importlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.node import files, minute, packages, systemd
from components.node.declared import Record
from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import STATE_DIR, Step
from components.node.step.values import arguments

# A call: `["python", MODULE, FUNCTION]`, `["where", PATHS, CALL]` for machines that have one of the paths,
# `["files", [PATH, MODE, OWNER, TEXT, NEEDS]...]`, `["checks", CALL...]`, `["join", NAMES, MODULE, FUNCTION, CALL...]`,
# `["owner", STEP, OWNER, ITEMS]` before those of a role (declared.py), `["tasks", KEY, ROWS]`, `["end_tasks"]`, or one
# of the calls of packages with their names.
Call = Sequence[Any]
# A digest of the last complete join's program, calls and values, and its answer.
JOINED = f"{STATE_DIR}/joined"


@dataclass(frozen=True)
class Plan:
    """The work of a step, and the values that are the same in every cluster.

    calls   the calls of each action (`up`, `down`, `recall`)
    texts   values by name
    """

    calls: Mapping[str, Sequence[Call]]
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Work:
    """A step at work."""

    step: Step
    plan: Plan
    values: Mapping[str, Any]

    def do(self, action: str, *, keep_going: bool = False) -> None:
        """Run the calls of an action, then what phases left for the end.

        Raises Failure; with `keep_going` it is only logged, and the other calls follow.
        """
        self.step.perform = self.perform
        calls = self.plan.calls[action]
        systemd.begin_step()
        try:
            self._begin_record(calls)
            for call in calls:
                try:
                    self._call(call)
                except Exception as error:
                    if not keep_going:
                        raise
                    note(str(error) or type(error).__name__)
            if self.step.record:
                self.step.record.begin("")
            for finish in self.step.later:
                finish()
            systemd.end_step()
        except Exception:
            # Tasks may repair what has failed.
            for call in calls:
                if call[0] == "tasks":
                    self._call(call)
            raise
        finally:
            self._end()

    def _begin_record(self, calls: Sequence[Call]) -> None:
        """Record the files of all roles before the first one is written."""
        declared: dict[str, list[str]] = {}
        step = owner = ""
        for kind, *words in calls:
            if kind == "owner":
                step, owner, items = words
                declared[owner] = [*items]
            elif kind == "files" and owner:
                declared[owner] += [file.path for file in self._files(words)]
        if declared:
            self.step.record = Record(step, declared)

    def _end(self) -> None:
        for cleanup in (systemd.end_step, *self.step.at_end):
            try:
                cleanup()
            except (Failure, OSError) as error:
                note(f"a cleanup failed: {error}")

    def perform(self, action: str, values: Mapping[str, Any]) -> None:
        """Run the calls of another action with some values changed."""
        before = self.values
        self.values = {**before, **values}
        try:
            for call in self.plan.calls[action]:
                self._call(call)
        finally:
            self.values = before

    def _call(self, call: Call) -> None:
        kind, *words = call
        if kind == "python":
            self._python(*words)
        elif kind == "files":
            self.step.changed = files.write_all([*self._files(words)])
        elif kind == "owner" and self.step.record:
            self.step.record.begin(words[1])
        elif kind == "checks":
            self._checks(words)
        elif kind == "where":
            if any(map(files.exists, words[0])):
                self._call(words[1])
        elif kind == "join":
            self._join(*words)
        elif kind == "tasks":
            minute.write_tasks(*words)
        elif kind == "end_tasks":
            # The machine leaves. If that is cut off, the next join must not be taken for done.
            files.remove(JOINED)
            minute.end_tasks()
        elif kind == "packages":
            packages.ensure(self.step.host, *words)
        elif kind == "try_packages":
            packages.try_ensure(self.step.host, *words)
        elif kind == "begin_lists":
            packages.begin_lists(*words)
        elif kind == "remember_ahead":
            packages.Ahead.names = tuple(words)
        else:
            raise ValueError(f"unknown call {kind!r}")
        if kind != "files":
            self.step.changed = False

    def _python(self, module: str, name: str) -> None:
        phase = getattr(importlib.import_module(module), name)
        begin = time.monotonic()
        phase(self.step, *arguments(phase, self.values))
        if (seconds := time.monotonic() - begin) > 1:
            note(f"{module.removeprefix('components.roles.').removesuffix('.host')} {name}: {seconds:.1f}s")

    def _files(self, rows: Iterable[Sequence[str]]) -> Iterator[files.File]:
        for path, mode, owner, text, needs in rows:
            value = self.values[needs] if needs else True
            if value:
                name, _, group = owner.partition(":")
                yield files.File(path, text or (needs and str(value)), int(mode, 8), name, group or name)

    def _checks(self, checks: Sequence[Call]) -> None:
        """Run all checks, and report their problems together."""
        problems = []
        for call in checks:
            try:
                self._call(call)
            except Failure as failure:
                problems.append(failure)
        told = [problem for problem in problems if problem.reason]
        if told:
            raise Failure(_also(problem.reason for problem in told), _also(problem.remedy for problem in told))
        if problems:
            raise problems[0]

    def _join(self, names: Sequence[str], module: str, function: str, *calls: Call) -> None:
        """Run the calls, unless they have run with the same values and the function says that their answer still holds.

        Jobs may run here: then only the last answer is reported.
        """
        values = {name: self.values[name] for name in names}
        inputs = json.dumps([str(Path(__file__).parents[3]), self.step.repair, calls, values], sort_keys=True)
        digest = hashlib.sha256(inputs.encode()).hexdigest()
        last, _, text = (files.read(JOINED) or "").partition("\n")
        answer = json.loads(text) if last == digest else None
        if answer is not None and getattr(importlib.import_module(module), function)(answer):
            note("nothing of the join has changed")
            self.step.results |= answer
            return
        files.remove(JOINED)
        before = {**self.step.results}
        for call in calls:
            self._call(call)
        joined = {name: value for name, value in self.step.results.items() if name not in before}

        def remember() -> None:
            # After a power cut the file is there only if everything else is.
            files.sync()
            files.write(JOINED, f"{digest}\n{json.dumps(joined)}", 0o600)

        self.step.later.append(remember)


def _also(texts: Iterator[str]) -> str:
    return "; also: ".join(text for text in texts if text)


def undone_elsewhere(step: Step, *, here: bool) -> bool:
    """Return whether a step of the same name, local instead of by SSH or the other way round, has replaced this one.

    That happens when a head node becomes local: the old step must not undo the new one's work.
    """
    return files.exists(step.here_file) != here


def remember_how(step: Step, *, here: bool) -> None:
    """Record whether the step is local."""
    if here:
        files.write(step.here_file, "")
    else:
        files.remove(step.here_file)


def read_plan(text: str) -> Plan:
    """Return the plan in a line of JSON."""
    return Plan(**json.loads(text))
