"""tailrack-deep-check: on the head node, as root, by a timer: idle nodes measured by themselves, slow ones drained.

Usage: tailrack-deep-check [NODE ...]            check idle nodes that are due; or these, due or not
       tailrack-deep-check --forget NODE ...     hold these against their next figure, as after another GPU or adapter

A node that jobs are on, or that Slurm keeps for one, is left alone, and so is every drain but its own. The measuring
itself is an exclusive job of the cluster's first user (measuring.py), never root's. A node that it has drained gets no
job at all, so that is taken back under a reservation for that user, measured, and drained again where it is as slow as
before.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.roles.health import joined, measuring
from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.slurm import SlurmError
from components.validation.became_slow import Measured, Record, against, better, reason, remembered
from components.validation.preflight.node_checks import load, save
from components.validation.slurm_nodes import Node

TOLD = Path("/etc/tailrack/deep-check.json")
KEPT = Path("/var/lib/tailrack/deep-check")
PRIVATE = Path("/run/tailrack-private")
RESERVATION = "tailrack-deep-check-"
# After a check that gave no figure.
AGAIN_SECONDS = 3600
# What a node may be called besides, whatever it does.
_ANY = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
# What the config says, a node, a reservation or nothing, and whether dcgmi is asked too.
Measure = Callable[[Mapping[str, Any], Node, str, bool], Mapping[str, Any] | None]


class DeepCheck:
    """All checks of one run. `told` is what the config says, see components/measurement/deep_check.py."""

    def __init__(self, told: Mapping[str, Any], measure: Measure | None = None, kept: Path = KEPT) -> None:
        self.told, self.kept = told, kept
        self.measure = measure or measuring.by_the_user

    def record(self, node: Node) -> Record:
        """What is remembered of a node, with what it gave when it joined."""
        of = {"address": joined.address_of(node.name), "gpus": node.gpus, "asked": measuring.asked_of(self.told, node)}
        record = Record.read(load(self.kept / f"{node.name}.json")).about(of)
        if record.reference is None:
            record = joined.with_figure(record, node)
        return record

    def save(self, node: Node, record: Record) -> None:
        """Keep it, root's alone."""
        save(self.kept / f"{node.name}.json", record.plain())

    def settle(self, node: Node) -> Record:
        """Return the record of a node after what has happened to it since: a check that broke off, or a person."""
        record = before = self.record(node)
        if record.trying:
            self._give_up(node)
            node = slurm.nodes(node.name)[0]
            record = replace(record, trying=False)
            if record.own and not node.out:
                record = self._drain(node, record, record.own[0])
        elif record.own and not is_own_drain(node, record):
            # Who gives it work again knows of it; who drains it for another reason takes it over.
            record = replace(record, own=None) if node.out else record.taken_back()
        if record != before or not (self.kept / f"{node.name}.json").exists():
            self.save(node, record)
        return record

    def check(self, name: str) -> None:
        """Check a node, where that is possible now."""
        (node,) = slurm.nodes(name)
        record = self.settle(node)
        (node,) = slurm.nodes(name)
        if is_idle(node):
            found = self._found(node, "", record)
            self._judge(node, record, found)
        elif is_own(node, record):
            self._try_again(node, record)
        else:
            say(f"{name}: not checked, it is {node.state}{f' ({node.reason})' if node.reason else ''}")

    def _found(self, node: Node, reservation: str, record: Record) -> Measured:
        """What a check has found; made twice where it speaks against the node."""
        found = self._measured(node, reservation, dcgm=True)
        if not against(found, record) or found.gb_per_s is None:
            return found
        say(f"{node.name}: {against(found, record)}; once more")
        return better(found, self._measured(node, reservation, dcgm=False))

    def _measured(self, node: Node, reservation: str, *, dcgm: bool) -> Measured:
        return measuring.read(self.told, node, self.measure(self.told, node, reservation, dcgm))

    def _judge(self, node: Node, record: Record, found: Measured) -> None:
        words = against(found, record)
        after = self._remembered(found, record)
        # Somebody may have drained it meanwhile: that drain stays.
        if words and not slurm.nodes(node.name)[0].out:
            after = self._drain(node, after, reason(words))
        self._said(node, record, found, words)
        self.save(node, after)

    def _try_again(self, node: Node, record: Record) -> None:
        """Check a node that was drained here."""
        own = record.own[0] if record.own else ""
        self.save(node, replace(record, trying=True))
        after = record
        try:
            self._reserve(node)
            slurm.scontrol("update", f"nodename={node.name}", "state=undrain")
            found = self._found(node, RESERVATION + node.name, record)
            words = against(found, record)
            after = self._remembered(found, record)
            self._said(node, record, found, words)
            if not words and found.gb_per_s is not None:
                after = replace(after, own=None)
                say(f"{node.name}: taken back")
            else:
                own = reason(words) if words else own
        finally:
            if after.own and not slurm.nodes(node.name)[0].out:
                after = self._drain(node, after, own)
            self._give_up(node)
            self.save(node, replace(after, trying=False))

    def _remembered(self, found: Measured, record: Record) -> Record:
        hours = self.told["every_hours"] * 3600
        return remembered(found, record, time.time() + (min(hours, AGAIN_SECONDS) if found.gb_per_s is None else hours))

    def _said(self, node: Node, record: Record, found: Measured, words: str) -> None:
        figure = "no figure" if found.gb_per_s is None else f"{found.gb_per_s:.4g} GB/s"
        before = "" if record.reference is None else f", {record.reference:.4g} {record.since}"
        doubt = f": UNJUDGED: {found.doubt}" if found.gb_per_s is None else ""
        say(f"{node.name}: {figure}{before}{doubt}{f'; drained: {words}' if words else ''}")

    def _drain(self, node: Node, record: Record, text: str) -> Record:
        slurm.scontrol("update", f"nodename={node.name}", "state=drain", f"reason={text}")
        told = slurm.nodes(node.name)[0]
        # Whose it is nobody could say later where somebody was quicker: a person takes it back.
        return replace(record, own=(told.reason, told.since) if told.reason == text else None)

    def _reserve(self, node: Node) -> None:
        self._give_up(node)
        # It ends by itself, after all that the check may take.
        minutes = 2 * measuring.limit_seconds(self.told) // 60 + 1
        slurm.scontrol(
            "create", "reservation", f"reservationname={RESERVATION}{node.name}", f"users={self.told['user']}",
            f"nodes={node.name}", "starttime=now", f"duration={minutes}", "flags=ignore_jobs",
        )  # fmt: skip

    def _give_up(self, node: Node) -> None:
        try:
            slurm.scontrol("delete", f"reservationname={RESERVATION}{node.name}")
        except SlurmError as error:
            # There was none; or a job is in it still, and it ends by itself.
            if "not exist" not in str(error) and "nvalid" not in str(error):
                say(str(error))


def is_idle(node: Node) -> bool:
    """Whether it takes work and has none, nor is kept for any: not planned, reserved, completing, about to reboot."""
    return node.flags - _ANY == {"IDLE"}


def is_own_drain(node: Node, record: Record) -> bool:
    """Whether it is drained, and by us."""
    return "DRAIN" in node.flags and record.own == (node.reason, node.since)


def is_own(node: Node, record: Record) -> bool:
    """Whether it is drained by us, answers, and nothing runs on it any more."""
    return is_own_drain(node, record) and node.flags - _ANY == {"IDLE", "DRAIN"}


def say(words: str) -> None:
    """Write to the journal."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def batches(names: Sequence[str], at_once: int) -> list[Sequence[str]]:
    """Names in groups of so many."""
    return [names[at : at + at_once] for at in range(0, len(names), at_once)]


def run(checks: DeepCheck, names: Sequence[str]) -> int:
    """Check these nodes, or all that are due; 1 where one could not be checked for an error."""
    chosen = list(names)
    if not names:
        known = {node.name: checks.settle(node) for node in slurm.nodes()}
        now = time.time()
        due = [node for node in slurm.nodes() if node.name in known and known[node.name].due <= now]
        able = [node.name for node in due if is_idle(node) or is_own(node, known[node.name])]
        chosen = sorted(able, key=lambda name: known[name].due)
    status = 0
    for batch in batches(chosen, checks.told["at_once"]):
        with (PRIVATE / "measure.lock").open("a") as lock:
            # A measurement of `up` and this would find each other's nodes busy.
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                say("a measurement goes on; the rest is checked next time")
                return status
            with ThreadPoolExecutor(len(batch)) as pool:
                for name, done in [(name, pool.submit(checks.check, name)) for name in batch]:
                    if error := done.exception():
                        say(f"{name}: {error}")
                        status = 1
        # Who waits for the lock has it now.
        time.sleep(1)
    return status


def main(words: Sequence[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser(
        prog="tailrack-deep-check",
        description="Idle nodes measured by themselves; one that has become slow since it joined is drained.",
    )
    parser.add_argument("--forget", action="store_true", help="hold these nodes against their next figure")
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="these, due or not; left out, all that are due")
    arguments = parser.parse_args(list(words))
    if os.geteuid() != 0:
        sys.stderr.write("tailrack-deep-check: only root can; next: sudo tailrack-deep-check\n")
        return 2
    # Ended by systemd, what it has begun is put in order all the same; the measuring program ends its own jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    PRIVATE.mkdir(mode=0o700, exist_ok=True)
    KEPT.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        checks = DeepCheck(json.loads(TOLD.read_text(encoding="utf-8")))
        with (PRIVATE / "deep-check.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                sys.stderr.write("tailrack-deep-check: another one is at work; next: wait until it has ended\n")
                return 1
            names = [node.name for node in slurm.nodes(*arguments.nodes)] if arguments.nodes else []
            if not arguments.forget:
                return run(checks, names)
            for name in names:
                forget(checks, name)
            return 0
    except SlurmError as error:
        sys.stderr.write(f"tailrack-deep-check: {error}\n")
        return 1


def forget(checks: DeepCheck, name: str) -> None:
    """Have a node's next figure be the one that it is held against. Its drain stays ours."""
    (node,) = slurm.nodes(name)
    record = checks.settle(node)
    checks.save(node, Record(of=record.of, own=record.own, last=record.last, forgotten=True))
    say(f"{name}: its next figure is what it is held against")
