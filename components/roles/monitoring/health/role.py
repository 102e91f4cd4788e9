"""Node health: scripts before and after each job, and a health check of each node every two minutes."""

from __future__ import annotations

from components.node.locks import PRIVATE
from components.node.minute import Task
from components.node.systemd import UNITS
from components.roles.cluster_settings import ClusterSettings
from components.roles.monitoring.health.gpu_records import FINDINGS
from components.roles.monitoring.health.host import (
    BOOT_CHECK,
    BOOT_UNIT,
    BOOT_UNIT_TEXT,
    CHECKS,
    DEEP_CHECK_SETTINGS,
    HEALTH_CHECK,
    LIB,
    MADE,
    SHARE_MOUNTED,
)
from components.roles.monitoring.health.settings import EPILOG, PROLOG
from components.roles.pods.pod.library import library_path
from components.roles.program import command_line, launcher
from components.roles.role import File, Role, SlurmKey, template
from components.roles.storage.scratch.sweep import CACHES, SCRATCH

BOOT_RESULT = f"{PRIVATE}/boot-check.json"
DEEP_CHECK = "/usr/local/sbin/tailrack-deep-check"
# Each node's check has its own limits; a check that is stopped restores its node.
_DEEP_CHECK = Task(
    "deep-check", (DEEP_CHECK,), seconds=600, settings=("TimeoutStopSec=120",), needs=DEEP_CHECK_SETTINGS
)
# slurm/templates/tailrack-prolog gives each script 20 s; slurmd gives up after this time if no signal ends a script.
SCRIPTS_SECONDS = 120
CHECK_SECONDS = 120
# The scripts of pods: these end what a job leaves behind, which nothing else does there.
_ON_PODS = ("prolog-10-job", "prolog-30-health", "epilog-10-job", "epilog-20-leftovers", "epilog-30-shared-memory")


def role(settings: ClusterSettings) -> Role:
    """Return the role. If the config turns it off, its files are removed and slurm.conf does not name them."""
    health = settings.health
    scripts = tuple(
        File(f"{LIB}/{kind}.d/{name}", text, "0755")
        for kind, texts in (("prolog", health.prolog), ("epilog", health.epilog))
        for name, text in texts.items()
    )
    deep_check = (
        File(DEEP_CHECK, launcher("deep-check"), "0755"),
        File(DEEP_CHECK_SETTINGS, mode="0600", needs="head_deep_check"),
    )
    on_boot = "" if health.on_boot == "none" else health.on_boot + (" reboot" if health.on_boot_reboot else "")
    boot_check = (
        File(BOOT_CHECK, launcher("boot-check"), "0755"),
        File(f"{UNITS}/{BOOT_UNIT}", BOOT_UNIT_TEXT.format(arguments=on_boot)),
    )
    compute = (*_files(), *scripts, *(boot_check if on_boot else ()))
    return Role(
        "health",
        after=("gpu", "share", "enroot_pyxis", "pod"),
        values={"enabled": health.enabled, "on_boot": on_boot},
        packages={"services": ("python3",)} if health.deep_check else {},
        files={
            **({"compute": compute, "pod": (*_files_of_pods(), *scripts)} if health.enabled else {}),
            **({"services": deep_check} if health.deep_check else {}),
        },
        made={
            **({"compute": (*MADE, *((BOOT_RESULT,) if on_boot else ())), "pod": MADE} if health.enabled else {}),
            **({"services": (str(FINDINGS),)} if health.deep_check else {}),
        },
        tasks={"services": (_DEEP_CHECK,)} if health.deep_check else {},
        slurm_conf=_SLURM_CONF if health.enabled else {},
        # The reference figures of nodes, and which drains the benchmark check set.
        state=("/var/lib/tailrack/deep-check",) if health.deep_check else (),
    )


def _script(kind: str, name: str) -> File:
    path = f"{LIB}/{kind}.d/{name}"
    if name.endswith("-scratch"):
        # No Python starts on a node without scratch folders.
        program = launcher("scratch-clean", "begin" if kind == "prolog" else "end")
        return File(path, program.replace("\n", f"\n[ -e {SCRATCH} ] || [ -e {CACHES} ] || exit 0\n", 1), "0755")
    # After these lines of bash; a lock that they took stays until the program ends.
    command = {"20-gpus": "gpus-in-use", "20-leftovers": "leftovers"}.get(name)
    program = f'\nexec {command_line(command)} "${{SLURM_JOB_GPUS:-}}"' if command else ""
    return File(path, template("health", f"{kind}-{name}") + program, "0755")


def _files_of_pods() -> tuple[File, ...]:
    # slurmd runs the health check without an environment.
    library = library_path(template("pod", "tailnet.c"))
    health_check = launcher("health-check").replace("\n", f"\nexport LD_PRELOAD={library}\n", 1)
    return (
        *(_script(*script.split("-", 1)) for script in _ON_PODS),
        File(CHECKS, launcher("node-checks"), "0755"),
        File(HEALTH_CHECK, health_check, "0755"),
    )


def _files() -> tuple[File, ...]:
    scripts = [_script(kind, name) for kind, names in (("prolog", PROLOG), ("epilog", EPILOG)) for name in names]
    return (
        *scripts,
        File(CHECKS, launcher("node-checks"), "0755"),
        File(HEALTH_CHECK, launcher("health-check"), "0755"),
        File(SHARE_MOUNTED, needs="share_mount"),
    )


_OFF = "; set tailrack:health.enabled to false to use only your scripts"
_SLURM_CONF = {
    "Prolog": SlurmKey(
        "tailrack-prolog", f"nodes would not be checked before jobs; put your script in tailrack:health.prolog{_OFF}"
    ),
    "Epilog": SlurmKey(
        "tailrack-epilog", f"nothing would clean up after jobs; put your script in tailrack:health.epilog{_OFF}"
    ),
    "PrologEpilogTimeout": SlurmKey(
        str(SCRIPTS_SECONDS), f"a script that does not end would block its node for another time{_OFF}"
    ),
    "HealthCheckProgram": SlurmKey(HEALTH_CHECK, f"unhealthy nodes would not be drained{_OFF}"),
    "HealthCheckInterval": SlurmKey(str(CHECK_SECONDS), f"unhealthy nodes would not be drained{_OFF}"),
    "HealthCheckNodeState": SlurmKey("ANY,CYCLE", f"drained nodes would not be resumed{_OFF}"),
    # After a failed prolog Slurm requeues the job instead of holding it.
    "SchedulerParameters": SlurmKey("nohold_on_prolog_fail", ""),
}
