"""Copy a backup into place.

The machine keeps its SSH host keys, which the config contains. The munge key comes from the stack.
"""

from __future__ import annotations

from components.node import files
from components.node.log import note
from components.node.run import run
from components.node.step.step import STATE_DIR
from components.roles.nfs_exports.foreign import EXPORTS_DIR
from components.roles.restore.archive import is_folder
from components.roles.slurm.folder import CONTROLLER_STATE, mark_restored, take_slurm_folder
from components.roles.slurm.paths import SERVICES
from components.roles.tailnet import tailscale
from components.roles.tailnet.tailscale import STATE_FILE, Tailscale

_DUMPS = f"{STATE_DIR}/dumps"


def place_files(tree: str, *, adopt: bool) -> None:
    """Copy the files of a tree. It can be repeated.

    adopt   whether the machine stays in its tailnet unchanged
    """
    if is_folder(f"{tree}{STATE_DIR}"):
        _copy(f"{tree}{STATE_DIR}", "/var/lib/")
    if is_folder(f"{tree}{CONTROLLER_STATE}"):
        _place_slurm_state(f"{tree}{CONTROLLER_STATE}")
    # Services add their lines to slurm.conf again when they run: a new slurmctld does not start without slurmdbd, which
    # comes later.
    files.remove_folder(SERVICES)
    for name in files.names_in(f"{tree}{EXPORTS_DIR}"):
        text = files.read(f"{tree}{EXPORTS_DIR}/{name}")
        if text is not None and name.startswith("tailrack-") and name.endswith(".exports"):
            files.write(f"{EXPORTS_DIR}/{name}", text)
    if is_folder(f"{tree}/dumps"):
        files.remove_folder(_DUMPS)
        _copy(f"{tree}/dumps", _DUMPS)
    _take_over_identity(files.read(f"{tree}{STATE_FILE}") or "", adopt=adopt)


def _place_slurm_state(source: str) -> None:
    """Restore slurmctld's state. It belongs to root until Slurm's account exists (slurm/folder.py)."""
    fresh = f"{CONTROLLER_STATE}.restored"
    # A backup may be forged. The tree is in a folder of root's.
    run("find", files.on_disk(source), "!", "-type", "f", "!", "-type", "d", "-delete")
    take_slurm_folder()
    files.remove_folder(fresh)
    _copy(source, fresh, "--no-preserve=ownership")
    mark_restored()
    files.remove_folder(CONTROLLER_STATE)
    files.rename(fresh, CONTROLLER_STATE)


def _take_over_identity(state: str, *, adopt: bool) -> None:
    """Take over the lost machine's tailnet identity and address.

    Do not if this machine is a member already, or the state was sealed by the lost machine's TPM.
    """
    if adopt or '"_machinekey"' not in state or Tailscale().has_login:
        note("joining the tailnet as a new machine")
        return
    if tailscale.is_installed():
        run("systemctl", "stop", "tailscaled")
    files.make_folder("/var/lib/tailscale", 0o700)
    files.write(STATE_FILE, state, 0o600)
    note("took over the lost head node's identity in the tailnet")


def _copy(source: str, to: str, *options: str) -> None:
    run("cp", "-a", *options, files.on_disk(source), files.on_disk(to))
