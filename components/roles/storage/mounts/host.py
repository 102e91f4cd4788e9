"""Mount other file systems on nodes, and watch them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from components.node import files, packages
from components.node.failure import Failure, do_each
from components.node.log import note
from components.node.run import exists
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.access.users.accounts import Account, UsersValues
from components.roles.access.users.host import make_homes
from components.roles.slurm.slurm.node_state import FEATURES
from components.roles.storage.mounts import units, watch
from components.roles.storage.mounts.probe import NodeList, Problem, Wanted, check_all, write_list
from components.roles.storage.mounts.units import INSTALLED, PROGRAM, remove_watch
from components.roles.storage.mounts.watch import ROLE
from components.roles.storage.share.exports import export_file, own_exports
from components.roles.storage.share.mount import start
from components.settings.network_names import NFS

# Seconds for all mounts of a node together.
_WAIT_SECONDS = 20
Make = Callable[[], None] | None


@dataclass(frozen=True)
class MountsValues:
    """The mounts of all sites, and what this node needs to choose and check its own.

    mounts_program   the text of the program
    """

    mounts_table: list[Wanted]
    mounts_program: str
    share_mount: str
    share_path: str
    node_site: str
    users_lines: list[Account]


def compute(step: Step, values: MountsValues) -> None:
    """Mount them, and unmount those that the config does not have any more.

    Raises Failure for a mount that is required.
    """
    _mount(step, values, [mount for mount in values.mounts_table if mount.is_at(values.node_site)])


login = compute


def release(step: Step, node_name: str, share_node: str) -> None:
    """Let a storage node leave only as the last machine that has the share, before anything on it is undone."""
    others = [path for path in own_exports() if path != export_file(node_name)]
    if node_name == share_node and others:
        raise Failure(
            f"{node_name} has the share with the users' files, and {len(others)} other machines need it",
            f"write {node_name} into the config again, and as tailrack:storage.node; 'make down' ends the cluster",
        )


def head(step: Step, values: MountsValues, users: UsersValues, head_computes: bool) -> None:
    """Mount the homes, and make those that are missing. A head node that runs no jobs has no other mounts."""
    wanted = [mount for mount in values.mounts_table if mount.home or (head_computes and mount.is_at(values.node_site))]
    if users.users_homes or not head_computes:
        _mount(step, values, wanted, lambda: make_homes(users, step.host))


def _mount(step: Step, values: MountsValues, wanted: list[Wanted], make: Make = None) -> None:
    """Bring this node to its mounts. `make` makes the homes, once they are mounted."""
    if not wanted and not any(map(files.exists, INSTALLED)):
        return
    with watch.lock():
        problems = _apply(step, values, wanted, make)
    for path, problem in problems.items():
        note(f"mount {path} {problem.text}; next: {problem.remedy}")
    required = [mount.path for mount in wanted if mount.required and mount.path in problems]
    if required:
        text = "; ".join(f"the required mount {path} {problems[path].text}" for path in required)
        raise Failure(text, f"{'; '.join(problems[path].remedy for path in required)}; then run up again")


def _apply(step: Step, values: MountsValues, wanted: list[Wanted], make: Make) -> Mapping[str, Problem]:
    """Return the problems by path."""
    ours = [mount for mount in wanted if mount.type == NFS]
    if ours and not exists("mount.nfs4"):
        packages.ensure(step.host, "nfs-common")
    failures = {mount.path: failure for mount in ours if (failure := _write(mount, values)) is not None}
    possible = tuple(mount for mount in wanted if mount.path not in failures)
    node_list = NodeList(values.users_lines[0].name, possible)
    write_list(NodeList(node_list.user, tuple(wanted)))
    start(*(mount.path for mount in ours if mount in possible))
    for path in watch.finish(node_list):
        note(f"mount {path} is in use, and changes within a minute after its jobs end")
    # Without any mount in the config these are empty, and the installed ones finish what waits for jobs.
    if values.mounts_program:
        files.write(PROGRAM, values.mounts_program, 0o755)
    # slurmd registers this node only later in the step.
    step.later.append(lambda: _report(step.host, NodeList(node_list.user, tuple(wanted))))
    # The first use of a mount may take a while.
    wait_until(lambda: not check_all([mount for mount in possible if mount.type == NFS]), _WAIT_SECONDS)
    homes = [mount for mount in possible if mount.home]
    if make and homes and not check_all(homes):
        make()
    return {**watch.problems_of(node_list, write=True), **failures}


def _write(mount: Wanted, values: MountsValues) -> Problem | None:
    """Write a mount's units. Return its problem if that is impossible."""
    for folder in (values.share_mount, values.share_path):
        # The config of a pool does not know the cluster's share.
        if PurePosixPath(mount.path).is_relative_to(folder) or PurePosixPath(folder).is_relative_to(mount.path):
            return Problem(f"is inside or around {folder}, the cluster's share", "write another path for it")
    try:
        units.write_units(mount)
    except Failure as failure:
        return Problem(f"cannot be mounted: {failure.reason}", failure.remedy or "write another path for it")
    return None


def _report(host: str, wanted: NodeList) -> None:
    """Set the node's features, now that Slurm has it."""
    with watch.lock():
        watch.check(host, wanted)


def leave(step: Step) -> None:
    """Unmount lazily, so that a process that is still there keeps its open files."""
    do_each(*(lambda path=path: units.take_away(path, lazily=True) for path in units.recorded()), remove_watch)
    files.remove(f"{FEATURES}/{ROLE}")
    files.remove_if_empty(FEATURES)
