"""Prove that containers run here (tailrack-containers). If the node is busy, a task tries again."""

from components.node import files
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.run import LIMIT_SECONDS, attempt_bounded
from components.node.step.step import Step
from components.roles.access.users.accounts import Account

_PROVEN, _UNDECIDED = 0, 3


def compute(step: Step, users_lines: list[Account]) -> None:
    """Run the job, and report whether containers run."""
    files.write(f"{STATE_DIR}/containers/smoke", f"user={users_lines[0].name}")
    ended = attempt_bounded("/usr/local/sbin/tailrack-containers", "prove", limit=LIMIT_SECONDS)
    message = ended.errors.strip()
    note(message)
    if ended.status not in (_PROVEN, _UNDECIDED):
        raise Failure(
            f"containers do not run here, and the node is drained: {message.rpartition(chr(10))[2]}",
            f"see 'journalctl -u slurmd' and run 'tailrack-containers prove' on {step.host}, then run up again",
        )
    step.result("containers", "proven" if ended.status == _PROVEN else "not proven yet: busy")
