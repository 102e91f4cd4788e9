"""The controller of an elastic pool: it compares slurmctld's placeholders with the stack, and runs the pool's `up`.

Slurm could call programs that rent machines, but the head node, which users log in to, would then have the cloud's key,
a waiting program blocks slurmctld, and a failed request leaves a node `down~` for ever. So ResumeProgram and
SuspendProgram are `/bin/true`. All placeholders (`State=CLOUD`) are in slurm.conf for good: while they come and go,
slurmctld reconfigures and refuses jobs. The controller asks for *names*, because with a count e2 cannot go while e1
runs a job. SuspendTimeout is 18 hours: after a short one a job starts on a machine that is being deleted. A node's
first slurmd starts with `-b`; without it slurmctld ignores a container, whose uptime is its host's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cli.elastic.plan import Placeholder, Plan, after_failures, decide
from cli.elastic.run import Run
from cli.head.answer import as_root, ask_head
from cli.output.terminal import one_line
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import node_of
from components.roles.commands.tailrack.elastic import Attempts, Status
from components.roles.commands.tailrack.host import COMMAND
from components.validation.untrusted import read

# Seconds between two questions to the head node, and after an error.
EVERY_SECONDS, AFTER_ERROR_SECONDS = 5, 30
# Seconds after which a run that still goes on is ended, if a job asks for another machine meanwhile.
PATIENCE_SECONDS = 300
NO_REPORT = Status("", (), 0)


class Controller:
    """One elastic pool.

    start   starts a run of the pool's `up` with these machines
    say     prints a line
    """

    def __init__(
        self, deployment: Deployment, start: Callable[[Sequence[str]], Run], say: Callable[[str], None]
    ) -> None:
        self._deployment, self._start, self._say = deployment, start, say
        # The machines of a run that was cut off: they may exist without being in the stack's state.
        self._marker = deployment.workspace.folder / "renting"
        self._began: dict[str, float] = {}
        self._failed: dict[str, Attempts] | None = None
        self._replaced = 0.0
        self._answer = Answer((), 0)
        self._read_stack()

    def _read_stack(self) -> None:
        """Read the stack's outputs and resources. Raises CliError for a stack that is not an elastic pool in use."""
        make = self._deployment.make
        if not self._deployment.written.elastic:
            raise CliError("the config has no tailrack:elastic, so jobs bring no machines (docs/pools.md)")
        outputs, resources = self._deployment.outputs(), self._deployment.made()
        elastic, cluster = outputs.get("elastic"), outputs.get("cluster")
        if not isinstance(elastic, dict) or not isinstance(cluster, dict):
            raise CliError(f"the pool's placeholders are not in Slurm yet: run {make('up')} first")
        self._places: dict[str, str] = dict(elastic["places"])
        self._limit, self._kept = str(elastic["limit"]), list(elastic["kept"])
        self._replaces_sick = elastic.get("replace_sick") is True
        # The nodes that have resources in the stack.
        self._made = {node_of(made.name, self._places) for made in resources} - {""}
        self._complete = self._made & {str(node["name"]) for node in cluster.get("nodes", ())}
        self._head, self._pool, self._resources = str(cluster["head"]), str(elastic["pool"]), resources

    def watch(self, *, once: bool) -> None:
        """Work until interrupted; with `once`, until nothing is left to do."""
        while True:
            try:
                busy = self.work()
            except CliError as error:
                if once:
                    raise
                self._say(f"{error}; trying again in {AFTER_ERROR_SECONDS} s")
                time.sleep(AFTER_ERROR_SECONDS)
                continue
            if not busy and once:
                return
            if not busy:
                time.sleep(EVERY_SECONDS)

    def work(self) -> bool:
        """Do one round, and return whether there was something to do."""
        if self._is_busy():
            return False
        self._read_stack()
        answer = self.exchange()
        if self._failed is None:
            last = answer.last
            self._failed, self._began, self._replaced = dict(last.failed), dict(last.renting), last.replaced
        plan = self._plan(answer)
        answer = self._answer = self._carry_out(plan, answer)
        lost = self._lost()
        machines = plan.machines | lost
        unfinished = any(node.awaited and node.name in machines - self._complete for node in answer.nodes)
        if machines == self._made and not unfinished and not lost:
            return bool(plan.down or plan.resume or plan.power_up or plan.replace)
        self._run(machines, lost)
        return True

    def _plan(self, answer: Answer) -> Plan:
        plan = decide(
            answer.nodes,
            made=self._made,
            complete=self._complete,
            kept=self._kept,
            failed=self._failed or {},
            now=answer.now,
            replaced=self._replaced if self._replaces_sick else None,
        )
        for node in answer.nodes:
            if node.name in plan.replace:
                self._replaced = answer.now
                self._say(f"{node.name}: its machine goes back, because a check drained it: {node.reason}")
        return plan

    def _lost(self) -> set[str]:
        """Return nodes of a run that was cut off whose machines may exist: the next run takes them into the state.

        A node with some resources in the state counts too: its machine may not be one of them.
        """
        renting = self._marker.read_text(encoding="utf-8").split() if self._marker.exists() else []
        return {name for name in renting if name in self._places} - self._complete

    def _is_busy(self) -> bool:
        """Return whether another run of the stack is active, such as that of a controller that was killed."""
        try:
            with self._deployment.workspace.exclusive():
                return False
        except CliError:
            return True

    def _status(self, answer: Answer) -> Status:
        awaited = {node.name for node in answer.nodes if node.awaited}
        self._began = {name: self._began.get(name, answer.now) for name in awaited}
        return Status(
            self._deployment.workspace.stack,
            list(self._places),
            0,
            self._limit,
            self._began,
            self._places,
            self._failed or {},
            self._replaced,
        )

    def _run(self, machines: frozenset[str], lost: set[str]) -> None:
        """Bring the stack to these machines, and give up those that do not come.

        lost   those of them that are only taken into the state
        """
        for name in sorted(machines - self._made):
            self._say(f"renting {name} at {self._places[name]}")
        for name in sorted(self._made - machines):
            self._say(f"returning {name}")
        self._marker.write_text("\n".join(sorted(machines - self._complete)), encoding="utf-8")
        run = self._start(sorted(machines))
        try:
            while not run.ended():
                time.sleep(1)
                if run.seconds % EVERY_SECONDS < 1:
                    self._look(run, lost)
        finally:
            while not run.ended():
                run.end()
                time.sleep(0.5)
        failures = run.failures()
        if failures is None and run.was_ended:
            return
        if failures is None:
            raise CliError("the run of the pool's up could not start, or was killed (see above)")
        self._marker.unlink(missing_ok=True)
        # A site without capacity may be only a warning of the run.
        self._read_stack()
        missing = dict.fromkeys(machines - self._made - lost, "the run brought no machine")
        if failures or missing:
            self._give_up({**missing, **failures})
        if left := sorted(self._made - machines):
            raise CliError(f"{', '.join(left)} could not be returned (see above)")

    def _look(self, run: Run, lost: set[str]) -> None:
        """Report while a run goes on; end it if a machine is not wanted any more, or another one has waited long."""
        if run.was_ended:
            return
        try:
            answer = self._answer = self.exchange(None, self._status(self._answer))
        except CliError as error:
            self._say(str(error))
            return
        states = {node.name: node for node in answer.nodes}
        new = run.machines - self._made - lost
        late = [name for name in sorted(new) if name in states and not states[name].wanted]
        waiting = [node.name for node in answer.nodes if node.awaited and node.name not in run.machines | self._made]
        if late and run.seconds > EVERY_SECONDS:
            self._say(f"Slurm no longer waits for {', '.join(late)}: ending this run")
            run.end()
        elif waiting and run.seconds > PATIENCE_SECONDS:
            self._say(f"jobs wait for {', '.join(waiting)}: starting again with them")
            run.end()

    def _give_up(self, failures: dict[str, str]) -> None:
        for name, cause in failures.items():
            self._say(f"{name or 'the run'} failed: {cause}")
        answer = self.exchange()
        self._carry_out(after_failures(answer.nodes, failures, self._failed or {}, answer.now), answer)

    def _carry_out(self, plan: Plan, answer: Answer) -> Answer:
        """Apply a plan, say which nodes get no machine, and return the states after it."""
        self._failed = dict(plan.failed)
        for name, reason in plan.down.items():
            self._say(f"{name}: {reason}")
        return self.exchange(plan, self._status(answer))

    def exchange(self, plan: Plan | None = None, status: Status | None = None) -> Answer:
        """Apply a plan's states and record a report on the head node, and return the states there. Raises CliError."""
        states = asdict(plan or Plan(frozenset()))
        changes = {name: states[name] for name in ("down", "resume", "power_up", "replace")}
        changes["status"] = asdict(status) if status else None
        words = ["elastic", "--json", *(["--apply", json.dumps(changes)] if plan or status else []), self._pool]
        return _read(ask_head(self._deployment, self._resources, self._head, as_root(COMMAND, *words)))


@dataclass(frozen=True)
class Answer:
    """The placeholders in slurmctld, the time there, and the last report."""

    nodes: Sequence[Placeholder]
    now: float
    last: Status = NO_REPORT


def _read(text: str) -> Answer:
    try:
        data: Mapping[str, Any] = json.loads(text)
        status = read(Status, {"stack": "", "nodes": (), "seen": 0, **(data["status"] or {})})
        return Answer([read(Placeholder, row) for row in data["nodes"]], float(data["now"]), status)
    except (ValueError, KeyError, TypeError):
        raise CliError(f"the head node did not report its placeholders: {one_line(text[-200:]) or 'nothing'}") from None
