"""The end of a node's turn to get another release of Slurm, which take_turn.sh takes."""

from __future__ import annotations

from components.node import files
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.run import attempt
from components.roles.slurm.configuration import with_configuration

_TURN = "tailrack-release"
_MINUTES = 15
_LIMIT = 20
# A copy of the configuration of this machine's commands. It exists while the machine has a turn.
_CONFIGURATION = f"{PRIVATE}/slurm-turn"


def end_turn(host: str) -> None:
    """End this node's turn, if it has one."""
    if not files.is_folder(_CONFIGURATION):
        return
    environment = with_configuration(_CONFIGURATION)
    shown = attempt("scontrol", "-o", "show", "reservation", _TURN, limit=_LIMIT, environment=environment, quiet=True)
    # The turn may have ended on its own, and another node may have one now.
    if f" Nodes={host} " in shown.output:
        ended = attempt("scontrol", "delete", f"reservationname={_TURN}", limit=_LIMIT, environment=environment)
        if not ended.ok:
            note(f"the turn of {host} ends on its own after {_MINUTES} minutes")
    files.remove_folder(_CONFIGURATION)
