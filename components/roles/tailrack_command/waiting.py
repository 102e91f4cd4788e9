"""Why a job waits, in sentences, and what to do: pure, from what slurmctld says of it and of the nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.owners import why_out
from components.validation.slurm_nodes import Node

# That the release of Slurm is being changed on its nodes (components/roles/slurm_release/wait_for_packages.sh).
OLDER = "tailrack-older"
MOST_NAMED = 8
# Flags of a node that is in a reservation.
_RESERVED = frozenset({"RESERVED", "MAINTENANCE"})


@dataclass(frozen=True)
class Why:
    """What a person is told: sentences, and what to do next, where there is anything to do."""

    sentences: tuple[str, ...]
    next: str = ""


_SOON = "It may begin again after two minutes."


def why_it_waits(job: Job, nodes: Sequence[Node], expand: Callable[[str], Sequence[str]]) -> Why:
    """Return why a job that has not begun waits.

    nodes    all of the cluster
    expand   makes names of Slurm's short form of them
    """
    words = f"{job.reason} {job.description}".lower()
    if "launch failed" in words:
        return Why(
            ("It is held: a node could not start it.", "Slurm gave it back to the queue, and waits for a person."),
            f"tailrack nodes, for what is wrong there; then scontrol release {job.title}",
        )
    # Slurm's word may be Resources or Priority where what it adds names nodes.
    if "ReqNodeNotAvail" in f"{job.reason} {job.description}":
        return _unavailable(job, nodes, expand)
    if job.reason in ("Resources", "Priority", "None", "NodeDown"):
        return _resources(job, nodes)
    if job.reason == "BeginTime" and job.restarts:
        again = f"It went back to the queue, {_counted(job.restarts, 'time')} so far"
        if job.failed_node:
            return Why(
                (f"{again}: node {job.failed_node} of it was lost. {_SOON}",), f"tailrack nodes {job.failed_node}"
            )
        # Slurm says no more of `scontrol requeue`, of a prolog that failed, or of preemption.
        whose = "its user or an administrator requeued it, a node could not start it, or another job took its nodes"
        return Why((f"{again}: {whose}. No node of it was lost. {_SOON}",))
    for word, why in _REASONS.items():
        if job.reason == word:
            return Why(tuple(each.format(job=job) for each in why.sentences), why.next.format(job=job))
    if limit := _limit(job):
        return limit
    said = " ".join(part for part in (job.reason, job.description) if part and part != "None")
    return Why((f"Slurm says: {said or 'nothing'}.",), "see JOB REASON CODES in 'man squeue'")


_REASONS = {
    "JobHeldUser": Why(("It is held: its user asked for that.",), "scontrol release {job.title}"),
    "JobHeldAdmin": Why(("It is held by an administrator, or its priority is 0.",), "ask who looks after the cluster"),
    "JobHoldMaxRequeue": Why(
        ("It is held: it went back to the queue too often, each time because a node could not run it.",),
        "tailrack nodes, for what is wrong; then scontrol release {job.title}",
    ),
    "Dependency": Why(("It waits for other jobs: {job.dependency}.",), "squeue shows those"),
    "DependencyNeverSatisfied": Why(
        ("It waits for a job that has ended in another way than it asks for: {job.dependency}. It never begins.",),
        "scancel {job.title}, or scontrol update jobid={job.title} dependency=",
    ),
    "JobArrayTaskLimit": Why(("Its array runs as many tasks at once as it may (the number after % in --array).",)),
    "BeginTime": Why(("It may not begin yet: that is what its own --begin says.",)),
    "BadConstraints": Why(
        ("No node can ever have what it asks for: {job.asked}, features '{job.features}', nodes '{job.needs}'.",),
        "sinfo -o '%N %c %m %G %f' shows what there is; scancel {job.title} and ask for less",
    ),
    "PartitionDown": Why(
        ("Partition {job.partition} starts no jobs now. For a minute that is so while the munge key is changed.",),
        "if it stays so, an administrator has closed it: scontrol update partitionname={job.partition} state=up",
    ),
    "PartitionInactive": Why(("An administrator has closed partition {job.partition}.",), "choose another partition"),
    "PartitionTimeLimit": Why(
        ("It asks for more time than partition {job.partition} gives a job.",),
        "scontrol update jobid={job.title} timelimit=..., or another partition ('sinfo -o \"%P %l\"')",
    ),
    "PartitionNodeLimit": Why(
        ("It asks for more nodes than partition {job.partition} has or gives.",), "'sinfo -s' shows what there is"
    ),
    "PartitionConfig": Why(
        ("Partition {job.partition} is not open to it any more: to its account '{job.account}', its QOS or its user.",),
        "scontrol show partition {job.partition}; choose another partition",
    ),
    "Licenses": Why(("It waits for licenses that other jobs have.",), "scontrol show licenses"),
    "Reservation": Why(("It waits for its reservation '{job.reservation}' to begin.",), "scontrol show reservation"),
    "Cleaning": Why(("Its last run is being cleaned up; it begins anew after that.",)),
    "InvalidAccount": Why(("Its account '{job.account}' is not in the books.",), "sacctmgr show assoc user={job.user}"),
    # Of users too, by their groups.
    "AccountNotAllowed": Why(
        ("Its user, or its account '{job.account}', may not use partition {job.partition}.",), "another partition"
    ),
    "InvalidQOS": Why(("Its QOS '{job.qos}' is not in the books.",), "sacctmgr show qos"),
    "QOSNotAllowed": Why(("Its QOS '{job.qos}' may not be used here.",), "sacctmgr show assoc user={job.user}"),
    "SchedDefer": Why(("slurmctld is busy and looks at it in a moment.",)),
}

# As in AssocGrpGRESMinutes or QOSMaxJobsPerUserLimit.
_LIMIT = re.compile(r"(Association|Assoc|QOS)(Grp|Max|Min|Job|Resource|Time|Usage)(\w*)")


def _limit(job: Job) -> Why | None:
    found = _LIMIT.fullmatch(job.reason)
    if not found:
        return None
    whose = f"QOS '{job.qos}'" if found[1] == "QOS" else f"account '{job.account}'"
    what = f"{found[2]}{found[3]}"
    if "Minutes" in what:
        hours = "GPU hours" if "GRES" in what else "hours"
        ends = f"the {hours} of {whose} are used up, or jobs that run will use them"
        return Why((f"A limit holds it ({job.reason}): {ends}.",), "more of them, or another account or QOS")
    if found[2] == "Min":
        return Why((f"It asks for less than {whose} wants at least ({job.reason}).",), "ask for more, or another QOS")
    kind = "its own size" if "PerJob" in what or "PerNode" in what else "what runs already"
    return Why(
        (f"A limit of {whose} holds it ({job.reason}): it is {kind} that reaches it.",),
        f"sacctmgr show assoc user={job.user}; sacctmgr show qos",
    )


def _unavailable(job: Job, nodes: Sequence[Node], expand: Callable[[str], Sequence[str]]) -> Why:
    found = re.search(r"UnavailableNodes:(\S+)", job.description)
    named = set(expand(found[1])) if found else set(expand(job.needs)) if job.needs else set()
    theirs = [node for node in nodes if node.name in named]
    if out := [node for node in theirs if node.out]:
        return Why(("Nodes that it could have, or asks for, take no jobs:", *_told(out)), "tailrack nodes")
    reserved = "Reserved for maintenance" in job.description or any(node.flags & _RESERVED for node in theirs)
    if not theirs or reserved:
        return _reserved()
    names = ", ".join(node.name for node in theirs[:MOST_NAMED]) + (", ..." if len(theirs) > MOST_NAMED else "")
    return Why(
        (
            f"It asks by name for {names}: there are other jobs there, or one that is before it gets them.",
            "They are in no reservation.",
        ),
        f"squeue -w {job.needs or names.replace(', ', ',')} shows those; without --nodelist it takes any that are free",
    )


def _reserved() -> Why:
    return Why(
        (
            "Nodes that it could have, or asks for, are reserved for maintenance or for others.",
            f"Reservation {OLDER} is there while the release of Slurm is changed, one node after the other.",
        ),
        "scontrol show reservation",
    )


def _resources(job: Job, nodes: Sequence[Node]) -> Why:
    asks = f"It waits for {_counted(job.node_count, 'node')} with {job.asked or 'what it asks for'} in all"
    if "DOWN, DRAINED or reserved" in job.description:
        first = f"{asks}: the nodes that it may use have other jobs, or are out."
    else:
        first = f"{asks}, and others are before it." if job.reason == "Priority" else f"{asks}, and is next."
    idle = sum("IDLE" in node.flags and not node.out for node in nodes)
    sentences = [first, f"Of {_counted(len(nodes), 'node')} {idle} {'is' if idle == 1 else 'are'} idle now."]
    if job.switches and job.node_count > 1:
        sentences.append(
            f"All its nodes have to be in {_counted(job.switches, 'site')}: between sites there is only the tailnet. "
            f"--switches={job.switches + 1} lets a job span more."
        )
    if out := [node for node in nodes if node.out]:
        sentences += [f"{_counted(len(out), 'node')} out:", *_told(out)]
    todo = "tailrack nodes" if out else ""
    return Why(tuple(sentences), todo or "squeue --start shows when Slurm expects it to begin")


def _told(out: Sequence[Node]) -> list[str]:
    told = []
    for node in out[:MOST_NAMED]:
        why = why_out(node)
        told.append(f"  {node.name} ({node.state}): {why.reason if why else 'no reason given'}")
    if len(out) > MOST_NAMED:
        told.append(f"  and {len(out) - MOST_NAMED} more")
    return told


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
