"""Know a node as a pod on the head node, and run the service that brings jobs' folders there."""

import re

from components.node import files, systemd
from components.node.failure import Failure
from components.node.run import run
from components.node.step.step import Step
from components.roles.pods.pod_staging.record import ON_HEAD, PODS, RECORDS, UNITS, records, remove_record
from components.roles.slurm.slurm.folders import BASE, CONF, POD_JOBS

_VERSION = re.compile(r"^rsync +version v?([0-9]+)\.([0-9]+)\.([0-9]+)")
_SAFE = (3, 2, 7)
_OURS = re.compile(r"^((?:Prolog|Epilog)Slurmctld)=", re.MULTILINE | re.IGNORECASE)


def pod_register(step: Step, node_name: str) -> None:
    """Add the pod."""
    # slurmctld has a single program of each kind.
    if found := _OURS.search(files.read(f"{BASE}/slurm.conf") or ""):
        raise Failure(
            f"tailrack:slurm.settings has {found[1]}, which brings the files of jobs to pods",
            f"remove {found[1]} from tailrack:slurm.settings, then run up again",
        )
    _require_rsync(step.host)
    files.make_folder(PODS)
    files.write(f"{PODS}/{node_name}", "")
    if step.changed and files.exists(f"{CONF}/job_submit.lua"):
        # slurmctld reads the part of its submit script that checks jobs for pods again: it looks at the script's time.
        run("touch", f"{CONF}/job_submit.lua")
    # systemd reads the template of the service with each new instance.
    systemd.reload(UNITS[0])
    systemd.enable(UNITS[0], now=True)


def _require_rsync(host: str) -> None:
    """Raise Failure for an rsync that a pod could make write files that the head node did not ask for."""
    found = _VERSION.search(run("rsync", "--version"))
    version = tuple(map(int, found.groups())) if found else _SAFE
    if version < _SAFE:
        raise Failure(
            f"rsync {'.'.join(map(str, version))} on {host} writes files that a pod sends unasked (CVE-2022-29154)",
            f"update rsync to {'.'.join(map(str, _SAFE))} or newer on {host}, then run up again",
        )


def pod_forget(_: Step, node_name: str) -> None:
    """Forget the pod and the jobs whose folder is there. After the last one, the head node has nothing of this role.

    A node that is no pod may be forgotten too (composition.expire_program).
    """
    files.remove(f"{PODS}/{node_name}")
    for record in records():
        if node_name in record.nodes:
            remove_record(record.job)
    if files.names_in(PODS):
        return
    systemd.retire(*UNITS)
    for folder in (PODS, RECORDS):
        files.remove_folder(folder)
    for path in (*ON_HEAD, POD_JOBS):
        files.remove(path)
