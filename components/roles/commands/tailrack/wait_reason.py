"""Explain in sentences why a job waits, and name the next command. Pure: reads slurmctld's data on jobs and nodes."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from components.roles.commands.tailrack.elastic import Status, at_limit
from components.roles.commands.tailrack.out_reason import why_out
from components.roles.slurm.slurm.jobs import read_cause
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node

# The reservation while nodes change to another Slurm release (components/roles/slurm/slurm_release/reservations.py).
OLDER = "tailrack-older"
MOST_NAMED = 8
# Flags of a node in a reservation.
_RESERVED = frozenset({"RESERVED", "MAINTENANCE"})


@dataclass(frozen=True)
class Why:
    """An explanation for a person: sentences, and the next command; empty if there is nothing to do."""

    sentences: tuple[str, ...]
    next: str = ""


_SOON = "It can start again after two minutes."


def why_it_waits(
    job: Job,
    nodes: Sequence[Node],
    expand: Callable[[str], Sequence[str]],
    pools: Sequence[Status] = (),
    *,
    names: Collection[str] = (),
) -> Why:
    """Return why a job has not started yet.

    nodes    all nodes of the cluster, or at least those that take no jobs
    expand   turns Slurm's short form of node names into names
    pools    reports of elastic pools
    names    the names of all nodes, if `nodes` has some of them only
    """
    why = _why(job, nodes, expand, names or {node.name for node in nodes})
    if job.reason in ("Resources", "Priority", "ReqNodeNotAvail", "NodeDown"):
        return replace(why, sentences=(*why.sentences, *at_limit(nodes, pools)))
    return why


def _why(job: Job, nodes: Sequence[Node], expand: Callable[[str], Sequence[str]], names: Collection[str]) -> Why:
    text = f"{job.reason} {job.description}".lower()
    if "launch failed" in text:
        return Why(
            ("It is held because a node could not start it.", "It waits in the queue until somebody releases it."),
            f"run tailrack nodes and fix the problem; then scontrol release {job.title}",
        )
    if gone := [name for name in expand(job.needs) if name not in names] if job.needs else []:
        return Why(
            (f"It requests {', '.join(gone[:MOST_NAMED])} by name, and the cluster has no such node now.",),
            f"scontrol update jobid={job.title} reqnodelist=, or scancel {job.title} and submit it without --nodelist",
        )
    # The reason can also be Resources or Priority, with the nodes in the description.
    if "ReqNodeNotAvail" in f"{job.reason} {job.description}":
        return _unavailable(job, nodes, expand)
    if job.reason in ("Resources", "Priority", "NodeDown"):
        return _resources(job, nodes)
    if job.reason == "BeginTime" and job.restarts:
        requeued = f"It went back to the queue, {_counted(job.restarts, 'time')} so far"
        if cause := read_cause(job.admin_comment):
            return Why((f"{requeued}: {cause}. {_SOON}",))
        if job.failed_node:
            return Why(
                (f"{requeued}: its node {job.failed_node} was lost. {_SOON}",), f"tailrack nodes {job.failed_node}"
            )
        # slurmctld does not distinguish `scontrol requeue`, a lost node, a failed prolog and preemption.
        cause = (
            "its user or an administrator requeued it, its node was lost or could not start it, or another job took it"
        )
        return Why((f"{requeued}: {cause}. {_SOON}",))
    if why := _REASONS.get(job.reason):
        return Why(tuple(sentence.format(job=job) for sentence in why.sentences), why.next.format(job=job))
    if limit := _limit(job):
        return limit
    reason = " ".join(part for part in (job.reason, job.description) if part and part != "None")
    return Why((f"Slurm's reason: {reason or 'none'}.",), "see JOB REASON CODES in 'man squeue'")


_REASONS = {
    "JobHeldUser": Why(("It is held by its user.",), "scontrol release {job.title}"),
    "JobHeldAdmin": Why(("It is held by an administrator, or its priority is 0.",), "ask your administrator"),
    "JobHoldMaxRequeue": Why(
        ("It is held because it was requeued too often, each time after a node could not run it.",),
        "run tailrack nodes and fix the problem; then scontrol release {job.title}",
    ),
    "Dependency": Why(("It waits for other jobs: {job.dependency}.",), "'squeue' shows these jobs"),
    "DependencyNeverSatisfied": Why(
        ("It never starts: a job that it depends on did not end as required ({job.dependency}).",),
        "scancel {job.title}, or scontrol update jobid={job.title} dependency=",
    ),
    "JobArrayTaskLimit": Why(
        ("Its array already runs as many tasks at once as allowed (the number after % in --array).",)
    ),
    "BeginTime": Why(("It waits for the time that its --begin sets.",)),
    "BadConstraints": Why(
        ("No node can provide what it requests: {job.resources}, features '{job.features}', nodes '{job.needs}'.",),
        "sinfo -o '%N %c %m %G %f' shows what nodes have; scancel {job.title} and request less",
    ),
    "PartitionDown": Why(
        ("Partition {job.partition} starts no jobs now. This takes about a minute while the munge key is changed.",),
        "if it takes longer, an administrator has closed it: scontrol update partitionname={job.partition} state=up",
    ),
    "PartitionInactive": Why(("An administrator has closed partition {job.partition}.",), "choose another partition"),
    "PartitionTimeLimit": Why(
        ("It requests more time than partition {job.partition} allows.",),
        "scontrol update jobid={job.title} timelimit=..., or another partition ('sinfo -o \"%P %l\"')",
    ),
    "PartitionNodeLimit": Why(
        ("It requests more nodes than partition {job.partition} has or allows.",),
        "'sinfo -s' shows the nodes of each partition",
    ),
    "PartitionConfig": Why(
        ("Partition {job.partition} no longer accepts its account '{job.account}', its QOS or its user.",),
        "scontrol show partition {job.partition}; choose another partition",
    ),
    "Licenses": Why(("It waits for licenses that other jobs use.",), "scontrol show licenses"),
    "Reservation": Why(("It waits for its reservation '{job.reservation}' to start.",), "scontrol show reservation"),
    "Cleaning": Why(("Its previous run is being cleaned up; it starts again after that.",)),
    "InvalidAccount": Why(
        ("slurmdbd does not know its account '{job.account}'.",), "sacctmgr show assoc user={job.user}"
    ),
    # Slurm also sets this reason for users outside the groups of the partition.
    "AccountNotAllowed": Why(
        ("Its user, or its account '{job.account}', may not use partition {job.partition}.",),
        "choose another partition",
    ),
    "InvalidQOS": Why(("slurmdbd does not know its QOS '{job.qos}'.",), "sacctmgr show qos"),
    "QOSNotAllowed": Why(("Its QOS '{job.qos}' is not allowed here.",), "sacctmgr show assoc user={job.user}"),
    "None": Why(("slurmctld has not considered it since its last change. It does so within two minutes.",)),
    "SchedDefer": Why(("slurmctld is busy and will consider it in a moment.",)),
}

# Examples: AssocGrpGRESMinutes, QOSMaxJobsPerUserLimit.
_LIMIT = re.compile(r"(Association|Assoc|QOS)(Grp|Max|Min|Job|Resource|Time|Usage)(\w*)")


def _limit(job: Job) -> Why | None:
    match = _LIMIT.fullmatch(job.reason)
    if not match:
        return None
    owner = f"QOS '{job.qos}'" if match[1] == "QOS" else f"account '{job.account}'"
    limit = f"{match[2]}{match[3]}"
    if "Minutes" in limit:
        hours = "GPU hours" if "GRES" in limit else "hours"
        used = f"the {hours} of {owner} are used up, or running jobs will use them"
        return Why((f"A limit holds it ({job.reason}): {used}.",), "ask for more, or use another account or QOS")
    if match[2] == "Min":
        sentence = f"It requests less than the minimum of {owner} ({job.reason})."
        return Why((sentence,), "request more, or use another QOS")
    cause = "the job itself exceeds it" if "PerJob" in limit or "PerNode" in limit else "running jobs have reached it"
    return Why(
        (f"A limit of {owner} holds it ({job.reason}): {cause}.",),
        f"sacctmgr show assoc user={job.user}; sacctmgr show qos",
    )


def _unavailable(job: Job, nodes: Sequence[Node], expand: Callable[[str], Sequence[str]]) -> Why:
    match = re.search(r"UnavailableNodes:(\S+)", job.description)
    named = set(expand(match[1])) if match else set(expand(job.needs)) if job.needs else set()
    wanted = [node for node in nodes if node.name in named]
    if out := [node for node in wanted if node.out]:
        return Why(("Nodes that it requests or could use take no jobs:", *_node_lines(out)), "tailrack nodes")
    reserved = "Reserved for maintenance" in job.description or any(node.flags & _RESERVED for node in wanted)
    if not wanted or reserved:
        return _reserved()
    names = ", ".join(node.name for node in wanted[:MOST_NAMED]) + (", ..." if len(wanted) > MOST_NAMED else "")
    return Why(
        (
            f"It requests {names} by name: other jobs run there, or a job ahead of it gets them first.",
            "They are in no reservation.",
        ),
        f"squeue -w {job.needs or names.replace(', ', ',')} shows these jobs; without --nodelist any free node will do",
    )


def _reserved() -> Why:
    return Why(
        (
            "Nodes that it requests or could use are reserved for maintenance or for others.",
            f"Reservation {OLDER} exists while nodes change to another Slurm release, one after the other.",
        ),
        "scontrol show reservation",
    )


def _resources(job: Job, nodes: Sequence[Node]) -> Why:
    needs = (
        f"It waits for {_counted(job.node_count, 'node')} with {job.resources or 'the requested resources'} in total"
    )
    if "DOWN, DRAINED or reserved" in job.description:
        first = f"{needs}: the nodes that it can use have other jobs or are out."
    else:
        first = f"{needs}; other jobs are ahead of it." if job.reason == "Priority" else f"{needs}, and is next."
    idle = sum("IDLE" in node.flags and not node.out for node in nodes)
    sentences = [first, f"{idle} of {_counted(len(nodes), 'node')} {'is' if idle == 1 else 'are'} idle now."]
    if job.switches and job.node_count > 1:
        sentences.append(
            f"All its nodes must be in {_counted(job.switches, 'site')}, because only the tailnet connects sites. "
            f"--switches={job.switches + 1} lets a job span more."
        )
    if out := [node for node in nodes if node.out]:
        sentences += [f"{_counted(len(out), 'node')} out:", *_node_lines(out)]
    command = "tailrack nodes" if out else "squeue --start shows when Slurm expects to start it"
    return Why(tuple(sentences), command)


def _node_lines(out: Sequence[Node]) -> list[str]:
    lines = []
    for node in out[:MOST_NAMED]:
        why = why_out(node)
        lines.append(f"  {node.name} ({node.state}): {why.reason if why else 'no reason given'}")
    if len(out) > MOST_NAMED:
        lines.append(f"  and {len(out) - MOST_NAMED} more")
    return lines


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
