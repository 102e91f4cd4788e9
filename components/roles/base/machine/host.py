"""Check a machine, refuse invalid answers of another one, and remove the last files of the cluster when it leaves."""

import os
import re
import stat
from collections.abc import Iterator
from functools import partial

from components.node import files, folders, kernel, packages, passwd, services, systemd
from components.node.declared import remove_all
from components.node.failure import Failure, do_each
from components.node.kernel import cpu_limit, memory_limit_mb
from components.node.log import LOG_DIR, STATE_DIR
from components.node.packages import RECORD, missing_of, wait_for_cloud_init
from components.node.run import attempt, exists
from components.node.step.step import Step
from components.node.systemd import UNITS, retire
from components.roles.pods.pod.saved import PACKAGES, READY, STATE, VOLUME, require_room, restore, save

_LIST = f"{LOG_DIR}/left"
_PROGRAMS = "/usr/local/sbin"
_DROP_INS = ("tailrack.conf", "tailrack-restart.conf", "tailrack-protect.conf")
# Folders for drop-ins that the cluster created: these two, and those of units.
_FOLDERS = ("/etc/systemd/resolved.conf.d", "/etc/exports.d")
_KEPT_FOLDERS = {
    "/var/lib/slurm/accounting": "job usage, the database of Slurm's accounting: /var/lib/slurm/accounting",
    "/var/lib/tailrack-mlflow": (
        "the database of MLflow: /var/lib/tailrack-mlflow; its artifacts are on the share, in mlflow"
    ),
    f"{STATE_DIR}/backup": f"files from before the cluster, which it moved away: {STATE_DIR}/backup",
}
# Image builders delete packages after their installation. A new container installs these without a network.
_KEEP = "/etc/apt/apt.conf.d/99tailrack"
_KEEP_TEXT = f"""// Written by tailrack: keep the packages for the next start of this pod.
Dir::Cache::archives "{PACKAGES}";
APT::Keep-Downloaded-Packages "true";
Binary::apt-get::APT::Keep-Downloaded-Packages "true";"""


def check(step: Step) -> None:
    """Refuse a machine that cannot be a node, and wait until it has started."""
    if not passwd.is_root():
        raise Failure(
            "the login is not root, and sudo did not give root",
            f"give the user password-less sudo (NOPASSWD:ALL) on {step.host}",
        )
    if not files.is_folder("/run/systemd/system"):
        _refuse_without_systemd(step.host)
    if not exists("apt-get"):
        raise Failure("this is not Debian or Ubuntu: there is no apt-get")
    wait_for_cloud_init(step.host)
    report_size(step)


def report_size(step: Step) -> None:
    """Report the processors and the memory that this machine may use."""
    cpus = len(os.sched_getaffinity(0))
    step.result("cpus", min(cpus, cpu_limit() or cpus))
    step.result("memory_mb", _memory_mb())


def _refuse_without_systemd(host: str) -> None:
    if not kernel.exists("/dev/net/tun"):
        raise Failure(
            "this is a container without systemd and without a TUN device, such as the pods of some clouds: the steps "
            "of other machines cannot set it up",
            f"write pods: true and accept_pod_risk: true for the site of {host}, after reading "
            "docs/pods.md; or rent a virtual machine or bare metal instead",
        )
    raise Failure(
        "systemd does not run here, and a node's daemons are systemd units",
        "use a machine or a container with systemd as its first process",
    )


def _memory_mb() -> int | None:
    found = re.search(r"^MemTotal: +(\d+)", kernel.read("/proc/meminfo"), re.MULTILINE)
    amounts = [int(found[1]) // 1024] if found else []
    if limit := memory_limit_mb():
        amounts.append(limit)
    return min(amounts, default=None)


def register(step: Step, node_name: str, node_problem: str) -> None:
    """Raise Failure for an invalid answer (components/steps/results.py)."""
    if node_problem:
        raise Failure(
            f"{node_name} cannot register: {node_problem}",
            f"check {node_name}: some program there answers instead of tailrack's steps",
        )


def machine(step: Step) -> None:
    """Let systemd know how to restart the daemons that the join has started, with this step's only reload."""
    systemd.reload_later(step, "tailscaled.service", "munge.service", "ssh.service")


def node(step: Step, head_problem: str) -> None:
    """Raise Failure for an invalid answer (components/steps/results.py)."""
    if head_problem:
        raise Failure(
            f"the head node's answer for {step.host} is invalid: {head_problem}",
            "check the head node: some program there answers instead of tailrack's steps",
        )


def leave(step: Step, node_adopt: bool) -> None:
    """Remove the files. A second run finds fewer, and does not list again what stays.

    node_adopt   no logout from the tailnet follows, which otherwise removes the rest (tailnet/host.py)
    """
    do_each(
        _list_remains,
        remove_all,
        _retire_units,
        _remove_drop_ins,
        lambda: remove_programs(all_of_them=node_adopt),
        lambda: files.remove_folder("/usr/local/lib/tailrack"),
        lambda: files.remove_folder("/etc/tailrack"),
        lambda: remove_state("" if node_adopt else "tailnet"),
    )
    attempt("systemctl", "daemon-reload")
    attempt("systemctl", "reset-failed", "tailrack-*")


def _list_remains() -> None:
    if files.exists(f"{STATE_DIR}/node-name"):
        files.write(_LIST, "\n".join(_remains()))


def _remains() -> Iterator[str]:
    yield f"The cluster has left {(files.read('/etc/hostname') or '').strip()}. Still here:"
    yield f"- the logs of its steps, in {LOG_DIR}, and its scripts, in ~/.tailrack of the login that it used"
    yield "- on a head node, users' files: the directory of the share, owned by their uids"
    for folder, line in _KEPT_FOLDERS.items():
        # Accounts own folders above some of them.
        parts = folders.parts_of(folder)
        if parts and parts[-1].path == folder and stat.S_ISDIR(parts[-1].type):
            yield f"- {line}"
    recorded = sorted(set(files.lines(RECORD)))
    missing = missing_of(recorded) if recorded else []
    if packages := [name for name in recorded if name not in missing]:
        yield f"- packages, whose daemons do not start: apt-get autoremove --purge {' '.join(packages)}"


def _retire_units() -> None:
    retire(*(name for name in _named(UNITS) if not files.is_folder(f"{UNITS}/{name}")))


def _remove_drop_ins() -> None:
    folders = [f"{UNITS}/{name}" for name in files.names_in(UNITS) if name.endswith(".d")]
    for folder in folders:
        for name in _DROP_INS:
            files.remove(f"{folder}/{name}")
    for folder in (*folders, *_FOLDERS):
        files.remove_if_empty(folder)


def remove_programs(*, all_of_them: bool) -> None:
    """Remove the cluster's programs, perhaps without the one that runs this."""
    for name in _named(_PROGRAMS):
        if all_of_them or name != "tailrack-leave":
            files.remove(f"{_PROGRAMS}/{name}")


def remove_state(kept: str) -> None:
    """Remove the records but the backup, and those whose names begin with `kept`."""
    for name in files.names_in(STATE_DIR):
        if name != "backup" and not (kept and name.startswith(kept)):
            files.remove_folder(f"{STATE_DIR}/{name}")
    files.remove_if_empty(STATE_DIR)


def _named(folder: str) -> list[str]:
    return [name for name in files.names_in(folder) if name.startswith("tailrack-")]


def pod_check(step: Step) -> None:
    """Refuse a machine that is no pod, or that has no volume. Restore the cluster's files in a new container.

    munge's package makes a key. Without the restored files, munge's check takes it for the key of another cluster.
    """
    if not passwd.is_root():
        raise Failure("the login is not root, and sudo did not give root", f"set user: root for {step.host}")
    if files.is_folder("/run/systemd/system"):
        raise Failure(
            "this machine has systemd, so it is no pod",
            f"move {step.host} to a site without pods: true, where jobs are confined and the share is mounted",
        )
    if not exists("apt-get"):
        raise Failure(
            "the image is not Debian or Ubuntu: there is no apt-get",
            f"start {step.host} from an image of one of the two",
        )
    if not files.is_folder(VOLUME):
        raise Failure(
            f"there is no folder {VOLUME}, so nothing would outlive a stop of the pod",
            f"start {step.host} with a volume that is mounted at {VOLUME}",
        )
    close_volume(step.host)
    restore()
    report_size(step)


def pod_join(step: Step) -> None:
    """Make the folders, and install runit."""
    require_room(step.host)
    files.make_folder(STATE, 0o700)
    files.make_folder(PACKAGES, 0o700)
    files.make_folder(f"{PACKAGES}/partial", 0o700)
    files.write(_KEEP, _KEEP_TEXT)
    packages.ensure(step.host, *services.PACKAGES, "openssh-server", "rsync")
    step.later.append(partial(save, step.host))


def close_volume(host: str) -> None:
    """Let only root change the volume's top folder, which some providers leave open. Users get their own below it."""
    if not files.is_closed(VOLUME):
        folders.take(VOLUME)
    if not files.is_closed(VOLUME):
        raise Failure(
            f"other accounts than root can change {VOLUME}, which would give them the cluster's keys, and chmod does "
            "not help",
            f"start {host} with a volume of a file system that keeps owners and modes",
        )


def pod_boot(step: Step) -> None:
    """Start them."""
    files.remove(READY)
    services.start_all()


def pod_leave(step: Step) -> None:
    """Remove the files. Packages stay, and users' files on the volume, in /workspace/shared."""
    remove_all()
    remove_programs(all_of_them=False)
    files.remove(_KEEP)
    files.remove_folder("/etc/tailrack")
    remove_state("tailnet")
    files.remove_if_empty(STATE_DIR)
