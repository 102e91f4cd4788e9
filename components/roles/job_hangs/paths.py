"""Paths and names of role job_hangs."""

from components.node.locks import PRIVATE
from components.roles.ssh_trust.ask import ANSWERS

# On a node: the minutes of the config. Slurm's TaskProlog gives jobs a RAS port of their own where it exists.
MINUTES = "/etc/tailrack/job-hangs"
# One file per job: its name is the job's id, its content the user's uid (the prolog, role health).
OWNERS = f"{PRIVATE}/jobs"
# One file per job: how long its GPUs have waited, and what RAS answered, in JSON.
STALLS = f"{PRIVATE}/job-hangs"
ASK_RAS = "/usr/local/lib/tailrack/ask-ras"
ANSWER = f"{ANSWERS}/job-hangs"
# On the head node: the minutes, and a line `number start` for each job whose user got the message.
LIMITS = "/etc/tailrack/job-hangs-limits"
REPORTED = f"{PRIVATE}/job-hangs-reported"
FINDER = "/usr/local/lib/tailrack/job-hangs"
# The RAS port of job N is FIRST_PORT + N % PORTS: below the ports that Linux and srun give out. The TaskProlog has the
# same numbers.
FIRST_PORT, PORTS = 21000, 10000
