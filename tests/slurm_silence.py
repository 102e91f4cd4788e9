"""How long slurmctld takes a node that says nothing for one that is alive, by slurmctld's own arithmetic.

From its source, alike in 24.11.5 and 26.05 (src/slurmctld: controller.c, _slurmctld_background; ping_nodes.c):

- A round of questions begins every third of SlurmdTimeout, up to a second late, once the one before has ended.
- A round leaves out a node whose last answer is younger than such a third. An answer to one round is just that at the
  next: a node is asked in every other round, and its last answer may be two thirds old when it falls silent.
- A round takes a node for DOWN whose last answer was older than SlurmdTimeout when the round *before* began.

So from the moment at which a node falls silent, it is DOWN after two thirds to five thirds of SlurmdTimeout. With a
reconfiguration of slurmctld (a node joins or leaves) rounds begin anew, and the first takes nobody for DOWN: that may
be a third later then, and is never before the two thirds. The product needs but one number of it (SLURMD_TIMEOUT of
components/roles/slurm/slurm/slurm_conf.py).
"""

from dataclasses import dataclass

# Seconds that a question to a machine that is gone may take: the threads of slurmctld's agent (agent.c, _wdog).
AGENT_LIMIT = 30


@dataclass(frozen=True)
class Silence:
    """Seconds after a node has fallen silent.

    noticed    slurmctld calls it silent (NOT_RESPONDING, a star in sinfo) by then
    harmless   no job of it is lost before then
    down       it is DOWN by then, and its jobs are back in the queue
    """

    noticed: int
    harmless: int
    down: int


def silence(slurmd_timeout: int) -> Silence:
    """Return what comes of a SlurmdTimeout, in seconds."""
    third = slurmd_timeout // 3
    between_rounds = max(third + 1, AGENT_LIMIT)
    return Silence(2 * between_rounds + AGENT_LIMIT, 2 * third, slurmd_timeout + 2 * between_rounds)
