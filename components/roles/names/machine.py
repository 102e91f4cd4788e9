"""Set the machine's host name to its node's name, and make the cluster's names resolve (names.py)."""

from __future__ import annotations

from socket import gethostname

from components.node import files, systemd
from components.node.run import run
from components.node.step.step import STATE_DIR, Step
from components.roles.names.names import NAME_BEFORE, NODE_NAME, write_names

NAMES, FOLLOW = "tailrack-names.service", "tailrack-names-follow.service"
RESOLVED = "systemd-resolved.service"
RESOLVED_CONF = "/etc/systemd/resolved.conf.d/tailrack.conf"
CLOUD_CONF = "/etc/cloud/cloud.cfg.d/99-tailrack.cfg"


def machine(step: Step) -> None:
    """Set the names, and keep them up to date."""
    if not files.exists(NAME_BEFORE):
        files.write(NAME_BEFORE, gethostname())
    files.write(NODE_NAME, step.host)
    # Users must be able to read names; other files here have their own modes.
    files.make_folder(STATE_DIR, 0o711)
    if files.is_folder("/etc/cloud"):
        files.write(CLOUD_CONF, "preserve_hostname: true")
    systemd.reload(NAMES, FOLLOW)
    systemd.enable(NAMES, FOLLOW)
    # Do its work instead of restarting the unit, because Slurm's daemons require the unit and would restart with it. A
    # failure is reported here; the unit would retry forever.
    write_names()
    run("systemctl", "start", NAMES)
    run("systemctl", "restart" if step.changed else "start", FOLLOW)
    if systemd.is_active(RESOLVED):
        _disable_llmnr()


def _disable_llmnr() -> None:
    """Disable LLMNR. With it, a name without a dot that does not exist is asked of every machine in the provider's
    network: any of them could answer, and a failure takes seconds.
    """
    # Restart, because systemd 257 forgets its DNS servers on a reload until /etc/resolv.conf changes. Wait for it: the
    # next action may install packages.
    if files.write(RESOLVED_CONF, "[Resolve]\nLLMNR=no"):
        run("systemctl", "restart", RESOLVED)
