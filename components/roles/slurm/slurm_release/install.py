"""Replace the machine's Slurm packages by those of a release, in one transaction."""

import os
from collections.abc import Sequence
from pathlib import Path

from components.node import files, packages, services, systemd
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.fetch import fetch_failure
from components.node.log import STATE_DIR, note
from components.node.passwd import make_daemon_account
from components.node.run import Ended, attempt, run
from components.node.step.step import Step
from components.roles.slurm.slurm.folders import CONTROLLER_STATE, INSTALLED
from components.roles.slurm.slurm_release.release import PACKAGES, Release
from components.roles.slurm.slurm_release.reservations import hold_older_nodes, take_turn

# Packages that were built here.
BUILT = f"{STATE_DIR}/slurm-releases"
_COPIES = f"{STATE_DIR}/slurm-install"
# Space for the packages and their dependencies.
_ROOM_MB = 200
# Slurm's daemons, in the order in which a new release starts them; they stop in reverse order.
_DAEMONS = ("slurmdbd", "slurmctld", "slurmd")
# Slurm's account, with Debian's number.
_ACCOUNT, _NUMBER = "slurm", 64030
# Seconds, and the largest size of slurmctld's state, in bytes.
_SAVE_LIMIT, _STATE_MOST = 900, 100_000_000_000
# Unlike other transactions it may remove packages; the removals are checked before.
_APT_GET = (
    *("apt-get", "-o", "Acquire::Retries=3", "-o", "Dpkg::Options::=--force-confold", "-y", "-q"),
    *("--no-install-recommends", "--allow-change-held-packages"),
)
_PIN_TEXT = """# Written by tailrack: the cluster installs its own release of Slurm.
Package: src:slurm-wlm
Pin: release *
Pin-Priority: -1"""
# Keeps apt from installing the distribution's Slurm during upgrades.
PIN = "/etc/apt/preferences.d/tailrack-slurm"
OURS = "slurm-smd"
# Debian's and Ubuntu's, by the current and the former name of their source.
DISTRIBUTIONS = ("slurm-wlm", "slurm-llnl")


def install_release(step: Step, release: Release, folder: str, names: Sequence[str]) -> None:
    """Install packages of a folder. Slurm's daemons stop first, and their own steps start them again; jobs continue."""
    installed = installed_packages()
    old = [name for source in DISTRIBUTIONS for name in installed.get(source, [])]
    if _installed_release() == release.folder_name and not packages.missing_of(names) and not old:
        return
    # All packages of a release have one version, so also replace installed ones of another version.
    more = (name for name in installed.get(OURS, []) if name in PACKAGES)
    wanted = list(dict.fromkeys([*names, *more]))
    _Installation(step, release, wanted, old).run(folder)


def _installed_release() -> str:
    return (files.read(INSTALLED) or "").strip()


class _Installation:
    """One transaction.

    wanted   names of packages of the release
    old      names of the distribution's packages
    """

    def __init__(self, step: Step, release: Release, wanted: Sequence[str], old: Sequence[str]) -> None:
        self._step = step
        self._host = step.host
        self._release = release
        self._name = f"Slurm {release.version}"
        self._wanted = wanted
        self._old = old

    def run(self, folder: str) -> None:
        """Check and install copies, which no other account can change afterwards. Download before stopping anything."""
        arguments = ("install", *self._copy(folder), *(f"{name}-" for name in self._old))
        removed = self._check(arguments)
        fetched = packages.when_unlocked(self._host, *_APT_GET, "--download-only", *arguments)
        if not fetched.ok:
            raise self._apt_failed(f"apt cannot download what {self._name} needs", fetched, "'apt-get update'")
        # Debian's packages create it, but these do not.
        make_daemon_account(_ACCOUNT, _NUMBER)
        self._take_turn()
        note(f"installing {self._name}{f' instead of {chr(32).join(removed)}' if removed else ''}")
        running = [unit for unit in _DAEMONS if systemd.is_active(unit)]
        for unit in reversed(running):
            services.stop(unit)
        self._save_state(running)
        for name in self._wanted:
            files.add_line(packages.RECORD, name)
        ended = packages.unstarted(self._host, *_APT_GET, *arguments)
        if not ended.ok or packages.missing_of(self._wanted):
            _start(running)
            raise self._apt_failed(f"apt could not install {self._name}", ended, "'apt-get -f install'")
        files.remove_folder(_COPIES)
        files.write(PIN, _PIN_TEXT)
        if ours := installed_packages().get(OURS):
            run("apt-mark", "hold", *ours)
        files.write(INSTALLED, self._release.folder_name)
        for name in files.names_in(BUILT):
            if name != self._release.folder_name:
                files.remove_folder(f"{BUILT}/{name}")

    def _copy(self, folder: str) -> list[str]:
        """Copy the packages, and return the paths of the wanted ones."""
        files.remove_folder(_COPIES)
        files.make_folder(_COPIES, 0o700)
        run("cp", "-rLT", folder, _COPIES)
        if not self._release.is_whole(_COPIES):
            raise Failure(
                f"the packages in {folder} are incomplete or do not match the list",
                "run up of the cluster's stack again, which provides them again",
            )
        copies = files.names_in(_COPIES)
        return [f"{_COPIES}/{next(copy for copy in copies if copy.startswith(f'{name}_'))}" for name in self._wanted]

    def _check(self, arguments: Sequence[str]) -> list[str]:
        """Return the packages that apt would remove. Raises Failure if these are others, or there is no room."""
        import shutil

        if not packages.when_unlocked(self._host, "dpkg", "--configure", "-a").ok:
            note("some packages of this machine cannot be configured; continuing")
        packages.refresh_lists(self._host)
        simulated = attempt(*_APT_GET, "-s", *arguments)
        if not simulated.ok:
            raise Failure(
                f"apt cannot install {self._name} here",
                f"see above and 'apt-get update' on {self._host}, then run up again",
            )
        removed = sorted(line.split()[1] for line in simulated.output.splitlines() if line.startswith("Remv "))
        if unexpected := [name for name in removed if name not in self._old]:
            raise Failure(
                f"installing {self._name} would remove {' '.join(unexpected)} too",
                f"remove it yourself if it is not needed on {self._host}, then run up again",
            )
        room = shutil.disk_usage(files.on_disk("/usr")).free // 2**20
        if room < _ROOM_MB:
            raise Failure(
                f"installing {self._name} needs up to {_ROOM_MB} MB, and /usr has {room}",
                f"make room there on {self._host}, then run up again",
            )
        return removed

    def _apt_failed(self, problem: str, ended: Ended, command: str) -> Failure:
        remedy = f"see above and {command} on {self._host}, then run up again"
        return fetch_failure(problem, ended.errors, remedy, self._host)

    def _take_turn(self) -> None:
        """Wait for this node's turn.

        The head node's controller comes first; the steps of nodes run after its step.
        """
        if not systemd.is_active("slurmctld"):
            take_turn(self._step)
        elif not hold_older_nodes(self._host, self._release.version):
            raise Failure(
                f"slurmctld does not reserve the nodes that are older than {self._release.version}",
                f"see 'journalctl -u slurmctld' on {self._host}, then run up again",
            )

    def _save_state(self, running: Sequence[str]) -> None:
        """Save the state of the stopped slurmctld, because no release reads the state of a newer one.

        If that fails, start the daemons again.
        """
        path = f"{STATE_DIR}/slurm/state-before-{self._release.version}.tar"
        # State that this release has written is no state to go back to.
        if _installed_release() == self._release.folder_name or not Path(files.on_disk(CONTROLLER_STATE)).is_dir():
            return
        try:
            with os.fdopen(files.open_to_write(f"{path}.new"), "wb") as stream:
                folder, _, name = CONTROLLER_STATE.rpartition("/")
                tar = ("tar", "-c", "-C", folder, name)
                ended = as_user(_ACCOUNT, *tar, limit=_SAVE_LIMIT, most=_STATE_MOST, into=stream)
                # More was cut off.
                saved = ended.ok and stream.tell() < _STATE_MOST
        except OSError:
            saved = False
        if not saved:
            files.remove(f"{path}.new")
            _start(running)
            raise Failure(
                f"cannot save slurmctld's state as {path}", f"make room there on {self._host}, then run up again"
            )
        files.rename(f"{path}.new", path)
        note(f"saved slurmctld's state as {path}")


def _start(units: Sequence[str]) -> None:
    """Start daemons again with the installed packages."""
    if units and not attempt("systemctl", "start", *units).ok:
        note(f"cannot start {' '.join(units)} again")


def installed_packages() -> dict[str, list[str]]:
    """Return the names of installed packages by source, of all packages of this machine."""
    packages: dict[str, list[str]] = {}
    for line in run("dpkg-query", "-W", "-f=${source:Package} ${db:Status-Status} ${Package}\\n").splitlines():
        source, state, name = line.split()
        if state == "installed":
            packages.setdefault(source, []).append(name)
    return packages
