"""Install Debian packages. A new machine is often busy with its own packages: each wait has a limit and is logged."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache

from components.node import files, kernel, run
from components.node.failure import Failure
from components.node.fetch import fetch_failure
from components.node.locks import PRIVATE, Lock
from components.node.log import note
from components.node.run import Ended, attempt, exists
from components.node.step.step import STATE_DIR
from components.node.waiting import now, sleep

_STATUS, _UPDATES = "/var/lib/dpkg/status", "/var/lib/dpkg/updates"
_FORMAT = "${Package} ${db:Status-Status} ${Version}\\n"
# A removed package that left its configuration has another state, and a version too.
_INSTALLED = "installed"


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the given packages that are installed, by name."""
    names = tuple(names)
    # dpkg keeps updates beside the file while it works, and after it was killed.
    whole = "" if files.names_in(_UPDATES) else files.read(_STATUS)
    versions = _versions(whole) if whole else _ask(names)
    return {name: versions[name] for name in names if name in versions}


# Most calls of a step find the same text.
@lru_cache(maxsize=1)
def _versions(status: str) -> Mapping[str, str]:
    versions = {}
    for package in status.split("\n\n"):
        if _field(package, "Status").endswith(f" {_INSTALLED}"):
            versions[_field(package, "Package")] = _field(package, "Version")
    return versions


def _field(package: str, name: str) -> str:
    """Return a field's first line. Other lines begin with a space."""
    return f"\n{package}".partition(f"\n{name}: ")[2].partition("\n")[0].strip()


def _ask(names: tuple[str, ...]) -> Mapping[str, str]:
    if not names:
        return {}
    rows = map(str.split, attempt("dpkg-query", "-W", f"-f={_FORMAT}", *names, quiet=True).output.splitlines())
    return {row[0]: row[2] if len(row) > 2 else "" for row in rows if row[1:2] == [_INSTALLED]}


def os_release() -> Mapping[str, str]:
    """Return the values of /etc/os-release."""
    lines = files.lines(files.followed("/etc/os-release"))
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {name: value.strip("\"'") for name, value in pairs}


def architecture() -> str:
    """Return the architecture of packages, such as amd64."""
    return run.run("dpkg", "--print-architecture").strip()


# Seconds to wait for cloud-init, and for the locks of apt and dpkg.
CLOUD_INIT_SECONDS = 600
APT_SECONDS = 600
# Seconds for all package sources: without DNS apt would try each of them for minutes.
LISTS_SECONDS = 300
# Seconds for an installation.
_INSTALL_SECONDS = 1800
# Seconds for which package lists count as new.
_FRESH_SECONDS = 15 * 60
_READ = f"{PRIVATE}/package-lists"
_LISTS_LOCK = "package-lists"
_POLICY = "/usr/sbin/policy-rc.d"
_POLICY_TEXT = "#!/bin/sh\n# tailrack: removed after the installation\nexit 101"
_PINS = "/etc/apt/preferences.d/tailrack"
# Packages that came with the cluster: when the machine leaves, it lists them.
RECORD = f"{STATE_DIR}/packages"
# Packages whose files dpkg may not have put on the disk: it exists only while they are installed, or after a power cut.
UNSAFE = f"{STATE_DIR}/packages-unsafe"
_UNSAFE_LOCK = "packages-unsafe"
# Remove nothing, keep configuration files that somebody changed.
_APT_GET = (
    *("apt-get", "-o", "Acquire::Retries=3", "-o", "APT::Get::Remove=false", "-o", "Dpkg::Options::=--force-confold"),
    *("-y", "-q"),
)
# A source gets 20 s to answer. Descriptions in other languages would be a third of the download.
_UPDATE = (
    *("apt-get", "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20"),
    *("-o", "Acquire::Languages=none", "-o", "APT::Get::List-Cleanup=false", "-y", "-q", "update"),
)
_LOCKED = re.compile(r"^.*(?:Could not get lock|Unable to (?:lock|acquire)|was locked by).*$", re.MULTILINE)


class Ahead:
    """Packages of a later step, which this step installs at its end, or earlier with its own packages."""

    names: tuple[str, ...] = ()


# The background process of this step that reads the lists.
_reading: list[subprocess.Popen[bytes]] = []


def ensure(host: str, *names: str) -> None:
    """Install the given packages that are missing, in one transaction. Raises Failure."""
    _repair_after_power_cut(host)
    missing = missing_of(names)
    if not missing:
        return
    words = " ".join(missing)
    note(f"installing {words}")
    remedy = f"see 'apt-get update' and 'apt-get install {words}' on {host}, then run up again"
    if files.exists(_PINS):
        remedy += f"; {_PINS} holds packages at the versions that the cluster was tested with (docs/day-2.md, updates)"
    # A run that was cut off can leave packages unpacked but not configured.
    if not when_unlocked(host, "dpkg", "--configure", "-a").ok:
        note("some packages of this machine cannot be configured; continuing")
    if (said := refresh_lists(host, missing)) is not None:
        if "resolving" in said:
            remedy = f"names do not resolve on {host}: see /etc/resolv.conf and 'resolvectl dns' there; {remedy}"
        for name in without_candidate(missing):
            raise fetch_failure(f"no readable package source has {name}", said, remedy, host)
    for name in missing:
        files.add_line(RECORD, name)
    simulated = attempt("apt-get", "-s", "install", "--no-install-recommends", *missing).output
    ended = _install(host, missing, simulated)
    if not ended.ok:
        note("apt-get failed")
    # apt-get also fails for other packages that it could not configure. Only ours matter.
    if not missing_of(missing):
        return
    removed = [line.split()[1] for line in simulated.splitlines() if line.startswith("Remv ")]
    if removed:
        raise Failure(
            f"installing {words} would remove {' '.join(removed)}",
            f"if they are not needed on {host}, remove them yourself, then run up again",
        )
    raise fetch_failure(f"apt-get could not install {words}", ended.errors, remedy, host)


def _install(host: str, missing: Sequence[str], simulated: str) -> Ended:
    """Install packages, and put all of their files on the disk at once: dpkg alone waits for the disk at each file."""
    command = (*_APT_GET, "install", "--no-install-recommends", *missing)
    rows = [line.split() for line in simulated.splitlines() if line.startswith("Inst ")]
    # A machine may not start with half of an upgraded package; it does not need new ones for that.
    if not rows or any(row[2].startswith("[") for row in rows):
        return unstarted(host, *command)
    with Lock(_UNSAFE_LOCK, seconds=APT_SECONDS):
        with files.written_at_once():
            files.write(UNSAFE, "\n".join(row[1] for row in rows))
        ended = unstarted(host, *command, "-o", "Dpkg::Options::=--force-unsafe-io")
        files.sync()
        files.remove(UNSAFE)
    return ended


def _repair_after_power_cut(host: str) -> None:
    """Install packages again whose files may be empty. Raises Failure."""
    if not files.exists(UNSAFE):
        return
    # The step that has the lock still installs them.
    with Lock(_UNSAFE_LOCK, seconds=APT_SECONDS):
        if not (names := files.lines(UNSAFE)):
            return
        words = " ".join(names)
        note(f"this machine went off while packages were installed; installing again {words}")
        when_unlocked(host, "dpkg", "--configure", "-a")
        refresh_lists(host)
        if not unstarted(host, *_APT_GET, "install", "--reinstall", "--no-install-recommends", *names).ok:
            raise Failure(
                f"a power cut may have damaged packages, and apt-get could not install them again: {words}",
                f"see 'apt-get install --reinstall {words}' on {host}, then run up again",
            )
        files.remove(UNSAFE)


def try_ensure(host: str, *names: str) -> None:
    """Install packages that a distribution may lack. A failure is logged and stops nothing."""
    try:
        ensure(host, *names)
    except Failure as failure:
        note(f"continuing without {' '.join(names)}: {failure.reason}")


def missing_of(names: Sequence[str]) -> list[str]:
    """Return the packages that are not installed. Usually all are."""
    plain = {name: name.partition(":")[0] for name in names}
    there = installed(plain.values())
    return [name for name in plain if plain[name] not in there]


def without_candidate(names: Sequence[str]) -> list[str]:
    """Return the packages that no source has. It makes one call, because each call reads all lists."""
    candidates = _candidates(attempt("apt-cache", "policy", *names, quiet=True).output)
    return [name for name in names if name not in candidates]


def candidate_of(name: str) -> str:
    """Return the version of a package that could be installed; empty if no source has it."""
    return _candidates(attempt("apt-cache", "policy", name, quiet=True).output).get(name, "")


def versions_of(names: Sequence[str], alternatives: Sequence[str]) -> dict[str, str]:
    """Return the versions of packages: the installed ones, or those that could be installed.

    alternatives   more names; if one of these is installed, no source is asked for the others
    """
    there = installed((*names, *alternatives))
    wanted = names if there.keys() & {*alternatives} else (*names, *alternatives)
    others = [name for name in wanted if name not in there]
    shown = attempt("apt-cache", "policy", *others, quiet=True).output if others else ""
    return {**_candidates(shown), **there}


def _candidates(policy: str) -> dict[str, str]:
    """Return the versions of packages that could be installed, from the output of `apt-cache policy`."""
    found: dict[str, str] = {}
    name = ""
    for line in policy.splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif line.split()[:1] == ["Candidate:"] and line.split()[1:] != ["(none)"]:
            found[name] = line.split()[1]
    return found


def when_unlocked(host: str, *command: str, limit: float = _INSTALL_SECONDS) -> Ended:
    """Run a command of apt or dpkg, and repeat it while other processes have a lock.

    None of their options waits for all locks. Raises Failure if a lock stays.
    """
    return _when_unlocked(host, lambda: _run(*command, limit=limit))


def _run(*command: str, limit: float = _INSTALL_SECONDS) -> Ended:
    # Jobs may run, so needrestart must restart nothing.
    return attempt(*command, limit=limit, environment={"NEEDRESTART_SUSPEND": "1"}, keep_errors=True)


def _when_unlocked(host: str, command: Callable[[], Ended]) -> Ended:
    end = now() + APT_SECONDS
    last = ""
    while True:
        ended = command()
        sys.stderr.write(ended.output)
        holder = "" if ended.ok else _holder_of_lock(ended.errors)
        if not holder:
            sys.stderr.write(ended.errors)
            return ended
        if now() >= end:
            raise Failure(
                f"another process has used the package manager for {APT_SECONDS}s: {holder}",
                f"wait until that process ends, or find out why it does not, on {host}; then run up again",
            )
        if holder != last:
            note(f"waiting, at most {APT_SECONDS}s: {holder}")
        last = holder
        sleep(1)


def _holder_of_lock(errors: str) -> str:
    """Return the holder of a lock from the errors of apt or dpkg, which gives no name; empty for other errors."""
    found = _LOCKED.search(errors)
    if not found:
        return ""
    line = found[0].partition(": ")[2] or found[0]
    pid = re.search(r"with pid (\d+)", line)
    if not pid:
        return line
    name = kernel.read(f"/proc/{pid[1]}/comm").strip() or "gone"
    return f"{line} ({name})"


def unstarted(host: str, *command: str) -> Ended:
    """Run a command of apt without starting daemons: the step starts them when it has written their configuration."""
    return _when_unlocked(host, lambda: _run_unstarted(*command))


def _run_unstarted(*command: str) -> Ended:
    # Not while the step waits for a lock: the process that has it may start daemons.
    if not files.exists(_POLICY):
        files.write(_POLICY, _POLICY_TEXT, 0o755)
    try:
        return _run(*command)
    finally:
        if "# tailrack:" in (files.read(_POLICY) or ""):
            files.remove(_POLICY)


# Package lists.


def refresh_lists(host: str, names: Sequence[str] = ()) -> str | None:
    """Read the package lists once for all steps of an `up`, and again if they lack one of the given packages.

    A source may be new. A broken source is no error here: the other sources may have the packages. Return the errors
    of apt; None if the lists were new, and had the packages.
    """
    # Partial package lists miss most packages.
    while _reading:
        if _reading.pop().wait() != 0:
            note("reading the package lists in the background failed; continuing")
    # The previous step may have started a refresh that still runs.
    with _lists_lock():
        if names and without_candidate(names):
            files.remove(_READ)
        if _are_fresh():
            return None
        note(f"reading the package lists, at most {LISTS_SECONDS}s")
        ended = when_unlocked(host, *_UPDATE, limit=LISTS_SECONDS)
        if ended.ok:
            files.write(_READ, "")
        else:
            first = ended.errors.strip().partition("\n")[0]
            note(
                f"some package sources of this machine cannot be read{f' ({first})' if first else ''}; continuing with "
                "the others"
            )
        return ended.errors


def _are_fresh() -> bool:
    age = files.age_of(_READ)
    return age is not None and age < _FRESH_SECONDS


def _lists_lock() -> Lock | nullcontext[None]:
    try:
        return Lock(_LISTS_LOCK, seconds=APT_SECONDS)
    except Failure:
        note(f"another step has been reading the package lists for {APT_SECONDS}s; continuing without waiting")
        return nullcontext()


def refresh_lists_now(host: str) -> None:
    """Read the package lists even if they are new: a source was added, or they lack something."""
    files.remove(_READ)
    refresh_lists(host)


# Another step may have read them while this one waited for the lock.
_READ_UNLESS_FRESH = (
    'minutes=$1; shift; [ -n "$(find "$0" -mmin "-$minutes" ! -newermt now 2>&-)" ] || { "$@" && : >"$0"; }'
)


def begin_lists(*names: str) -> None:
    """Read the package lists in the background if this step or a later one lacks packages.

    The processes may continue after this step. They have only its log open, and run in a new session, so
    that the end of the connection does not end them.
    """
    if _are_fresh() or not missing_of(names):
        return
    files.make_folder(PRIVATE, 0o700)
    lock, read = (files.on_disk(path) for path in (f"{PRIVATE}/{_LISTS_LOCK}.lock", _READ))
    words = ("flock", "-w", str(APT_SECONDS), lock, "timeout", "-k", "5", str(LISTS_SECONDS))
    _reading.append(run.begin(*words, "sh", "-c", _READ_UNLESS_FRESH, read, str(_FRESH_SECONDS // 60), *_UPDATE))


# A machine that has just started.


def wait_for_cloud_init(host: str) -> None:
    """Wait for cloud-init.

    The SSH server answers while it still writes package sources, makes accounts and installs packages.
    """
    if not exists("cloud-init"):
        return
    status = attempt("cloud-init", "status", quiet=True).output
    if "not run" in status or "not started" in status:
        # It may be disabled here, and waiting for it would never end.
        if attempt("systemctl", "is-system-running").output.strip() != "starting":
            return
    elif "running" not in status:
        return
    note(f"waiting for cloud-init, at most {CLOUD_INIT_SECONDS}s")
    ended = attempt("cloud-init", "status", "--wait", limit=CLOUD_INIT_SECONDS)
    if ended.status == 124:
        raise Failure(
            f"cloud-init has not finished after {CLOUD_INIT_SECONDS}s",
            f"see 'cloud-init status --long' and /var/log/cloud-init-output.log on {host}; run up again when it has "
            "finished",
        )
    if not ended.ok:
        note("cloud-init ended with errors, see 'cloud-init status --long'; continuing")
