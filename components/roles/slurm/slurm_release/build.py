"""Build Slurm's packages from its source, with the packaging in that source.

The build runs in a clean root of the distribution's packages, so that nothing of the machine gets in and nothing stays
on it. A separate account without a network runs the build, and every process that it starts ends with it.

mmdebstrap uses apt's sources and proxies, unlike debootstrap; it is unpacked beside the root, never installed.
systemd-nspawn fails in containers; unshare and chroot work there too. A build of 24.11.5 takes 7.5 minutes on two
cores.

Parts of the packaging that no one needs here are left out: the desktop program, the REST daemon, HTML pages, and static
libraries, which are half of the compiler's work. PMIx is added as these distributions have it, and the distributions'
Slurm libraries are replaced, whose files the packages contain too.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from components.node import files, kernel, packages
from components.node import run as running
from components.node.failure import Failure
from components.node.fetch import fetch_failure
from components.node.log import LOG_DIR, STATE_DIR, note
from components.node.packages import os_release
from components.node.passwd import make_daemon_account, user_named
from components.node.run import attempt, attempt_logged, exists, run, succeeds
from components.node.waiting import wait_until
from components.roles.slurm.slurm.versions import NEEDED
from components.roles.slurm.slurm_release.release import PACKAGES, RECIPE, Release, publish

BUILD = f"{STATE_DIR}/slurm-build"
_TOOL = f"{BUILD}/tool"
# The source and the packages: before the root exists, and in it.
_MADE_BEFORE, MADE = f"{BUILD}/made", f"{BUILD}/root/made"
BUILD_USER = "tailrack-build"
LOG = f"{LOG_DIR}/slurm-build.log"
# Seconds, each for the root and for the compiler.
_LIMIT = 3600
_ROOM_MB = 4000
_MOST_LOG = 100_000_000
_END_SECONDS = 20
_PROGRESS_SECONDS = 30
# Memory of a compiler, in kB.
_COMPILER_KB = 700_000
_LAST_LINES, _REASON_LINES = 12, 40
# Bytes at the end of the log that have these lines.
_TAIL = 65536
# Other options of apt belong to the machine.
_APT_OPTIONS = re.compile(r"Acquire::(http|https|ForceIPv)")
# Other package sources differ between machines of one kind.
_TARGETS = ("--format", "$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)", "Created-By: Packages")
# Leave out debugger symbols and the distribution's build options.
_COMPILE = """mount -t proc proc /proc && cd /made/slurm && exec setpriv --reuid "$1" --regid "$2" --clear-groups \
--no-new-privs env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/made LC_ALL=C.UTF-8 DEB_CFLAGS_STRIP=-g \
DEB_BUILD_OPTIONS="nocheck noautodbgsym optimize=-lto parallel=$3" dpkg-buildpackage -b -uc -us"""
_UNWANTED = re.compile(r"Package: slurm-smd-(sview|slurmrestd|openlava|torque|doc)\n")
_DEPENDENCIES = re.compile(r"^ (libgtk2\.0-dev|man2html-base),\n", re.MULTILINE)
_LIBRARIES = ", ".join(f"libslurm{number}, libslurm{number}t64" for number in range(36, 61))
_ADAPTED = re.compile(r"--disable-static .*--with-pmix=/usr/lib/")


def build_release(release: Release, source: str, target: str) -> None:
    """Build packages for this kind of machine from the archive of the source. Steps change a machine one at a time."""
    note(f"building Slurm {release.version} for {release.built_name}; it takes minutes on many cores, longer on few")
    clear_build(release.host)
    files.make_folder(BUILD, 0o700)
    with os.fdopen(files.open_to_write(LOG, 0o644), "wb", buffering=0) as log:
        Build(release, log).run(source, target)


def clear_build(host: str) -> None:
    """Remove an earlier build.

    An interrupted build may still run; ending all processes of its account also removes its network and mounts.
    """
    if user_named(BUILD_USER):
        if succeeds("pkill", "-KILL", "-u", BUILD_USER):
            wait_until(lambda: not succeeds("pgrep", "-u", BUILD_USER), _END_SECONDS)
        if not attempt("userdel", BUILD_USER).ok:
            raise Failure(
                f"cannot remove the account {BUILD_USER}, which builds Slurm", f"see 'ps -u {BUILD_USER}' on {host}"
            )
    # Not by `files`: a mount may be left.
    run("rm", "-rf", "--one-file-system", files.on_disk(BUILD), limit=_LIMIT)


class Build:
    """A build, and its log."""

    def __init__(self, release: Release, log: BinaryIO) -> None:
        self._release = release
        self._host = release.host
        self._log = log

    def run(self, source: str, target: str) -> None:
        """Build the packages and publish them as the target folder."""
        room = shutil.disk_usage(files.on_disk(BUILD)).free // 2**20
        if room < _ROOM_MB:
            raise self.failure(
                f"it needs {_ROOM_MB} MB, and {STATE_DIR} has {room}",
                f"make room there on {self._host}, then run up again",
            )
        packages.refresh_lists(self._host)
        self.fetch_bootstrap()
        self.unpack(source)
        self.make_root()
        make_daemon_account(BUILD_USER)
        run("chown", "-R", f"{BUILD_USER}:{BUILD_USER}", files.on_disk(MADE))
        if not self.compile():
            raise self.failure(
                "the compiler or the packaging failed",
                f"see {LOG} on {self._host}; set another tailrack:slurm.release, or repair the cause, then run up "
                "again",
            )
        # From now on, the build account cannot place a link here.
        run("chown", "root:root", files.on_disk(MADE))
        note("built; publishing")
        self.publish(MADE, target)
        clear_build(self._host)

    def failure(self, problem: str, remedy: str) -> Failure:
        """Remove everything except the log, and return the failure."""
        note(f"the last lines of {LOG}:")
        sys.stderr.write("".join(f"{line}\n" for line in _last_lines(_LAST_LINES)))
        clear_build(self._host)
        name = self._release.built_name
        return Failure(f"Slurm {self._release.version} cannot be built for {name}: {problem}", remedy)

    def _fetch_failure(self, problem: str, remedy: str) -> Failure:
        """Return the failure of a download; its program logged the reason last."""
        failure = fetch_failure(problem, "\n".join(_last_lines(_REASON_LINES)), remedy, self._host)
        return self.failure(failure.reason, failure.remedy)

    def _logged(self, *arguments: str, environment: Mapping[str, str] | None = None) -> bool:
        ended = attempt_logged(*arguments, log=self._log, limit=_LIMIT, most=_MOST_LOG, environment=environment)
        return ended.ok

    def fetch_bootstrap(self) -> None:
        """Download the tool that makes the root and the packages that it and the source need but small images lack.

        These are a part of perl, and bzip2, which unpacks SchedMD's sources. Nothing is installed; the build folder
        contains it all.
        """
        perl = run("perl", "-e", 'printf "%vd", $^V').rpartition(".")[0]
        names = ["mmdebstrap", f"perl-modules-{perl}", f"libperl{perl}", *([] if exists("bzip2") else ["bzip2"])]
        files.make_folder(_TOOL)
        folder = files.on_disk(_TOOL)
        if not self._logged("env", "-C", folder, "apt-get", "-q", "download", *names) or not all(
            self._logged("dpkg", "-x", f"{folder}/{package}", folder)
            for package in files.names_in(_TOOL)
            if package.endswith(".deb")
        ):
            raise self._fetch_failure(
                "cannot download mmdebstrap, which makes a clean root",
                f"see 'apt-cache policy mmdebstrap' on {self._host} (on Ubuntu it is in universe), then run up again",
            )

    def unpack(self, archive: str) -> None:
        """Unpack the source, and adapt its packaging."""
        source, version = f"{_MADE_BEFORE}/slurm", self._release.version
        files.make_folder(source)
        tool = files.on_disk(_TOOL)
        words = ("-xf", files.on_disk(archive), "-C", files.on_disk(source), "--strip-components=1", "--no-same-owner")
        if not self._logged("tar", *words, environment={"PATH": f"{running.PATH}:{tool}/usr/bin:{tool}/bin"}):
            raise self.failure(
                "its source cannot be unpacked",
                "set tailrack:slurm.release_source to another archive, then run up again",
            )
        rows = (line.split() for line in files.lines(f"{source}/META"))
        found = next((row[1] for row in rows if row[:1] == ["Version:"] and len(row) > 1), "")
        if found != version:
            raise self.failure(
                f"its source contains {found or 'something else'}",
                f"write the checksum of slurm-{version} as tailrack:slurm.release_sha256, or {found or 'its release'} "
                "as tailrack:slurm.release; then run up again",
            )
        if not adapt_packaging(source):
            raise self.failure(
                "its source has no packaging that tailrack can use",
                f"set tailrack:slurm.release to {NEEDED} or newer "
                "(docs/day-2.md, One Slurm release), then run up again",
            )

    def make_root(self) -> None:
        """Make a root with the compiler and the build dependencies of the source."""
        dumped = attempt("apt-config", "dump", "--no-empty").output.splitlines()
        files.write(f"{BUILD}/proxies", "\n".join(line for line in dumped if _APT_OPTIONS.match(line)))
        sources = distribution_sources()
        if not sources:
            raise self.failure(
                "apt has no package source of the distribution on this machine",
                f"add it on {self._host}, then run up again",
            )
        files.write(f"{BUILD}/sources", "\n".join(sources))
        note("making a clean root")
        build, tool = files.on_disk(BUILD), files.on_disk(_TOOL)
        made = self._logged(
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", f"{tool}/usr/bin/mmdebstrap"),
            *("--quiet", "--mode=root", "--variant=minbase", "--format=directory"),
            *("--include=build-essential,fakeroot", f"--aptopt={build}/proxies", '--aptopt=APT::Sandbox::User "root"'),
            "--dpkgopt=force-unsafe-io",
            f'--customize-hook=mkdir -p "$1/made/slurm" && cp -a \'{build}/made/slurm/debian\' "$1/made/slurm/"',
            '--customize-hook=chroot "$1" apt-get -q -y --no-install-recommends build-dep /made/slurm',
            *("", f"{build}/root", f"{build}/sources"),
            environment={"TMPDIR": build, "PERL5LIB": ":".join(map(files.on_disk, _perl_folders()))},
        )
        if not made:
            raise self._fetch_failure(
                "cannot make a clean root with its build dependencies",
                f"see 'apt-get update' on {self._host} (universe on Ubuntu), then run up again",
            )
        files.remove_folder(MADE)
        files.rename(_MADE_BEFORE, MADE)

    def compile(self) -> bool:
        """Compile in the build's root, as the build account, and return whether that succeeded."""
        count, last = files_ending_in(".c"), time.monotonic()

        def progress() -> None:
            nonlocal last
            if time.monotonic() - last >= _PROGRESS_SECONDS:
                last = time.monotonic()
                note(f"compiled {files_ending_in('.o')} of about {count} files")

        note(f"compiling Slurm {self._release.version}, about {count} files; its output is in {LOG}")
        uid, gid = files.numbers_of(BUILD_USER)
        spaces = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")
        chroot = ("chroot", files.on_disk(f"{BUILD}/root"), "/bin/sh", "-c", _COMPILE, "sh")
        return attempt_logged(
            *("nice", "-n", "10", "unshare", *spaces, *chroot, str(uid), str(gid), str(parallel_jobs())),
            log=self._log,
            limit=_LIMIT,
            most=_MOST_LOG,
            meanwhile=progress,
        ).ok

    def publish(self, made: str, target: str) -> None:
        """Move the built packages into a folder, which gets its name when it is complete."""
        fresh, folder = f"{target}.new", target.rpartition("/")[0]
        for path in (fresh, target):
            files.remove_folder(path)
        files.make_folder(fresh)
        try:
            for package in PACKAGES:
                names = [name for name in files.names_in(made) if re.fullmatch(rf"{package}_.*\.deb", name)]
                descriptor = files.open_to_read(f"{made}/{names[0]}") if len(names) == 1 else None
                if descriptor is None:
                    raise Failure(f"the packaging made no {package}")
                target_file = files.open_to_write(f"{fresh}/{names[0]}", 0o644)
                with os.fdopen(descriptor, "rb") as built, os.fdopen(target_file, "wb") as copy:
                    shutil.copyfileobj(built, copy)
            publish(target, {name: files.sha256(f"{fresh}/{name}") for name in files.names_in(fresh)})
        except (Failure, OSError) as error:
            files.remove_folder(fresh)
            problem = error.reason if isinstance(error, Failure) else f"cannot write its packages into {folder}"
            remedy = f"see above and 'df -h {folder}' on {self._host}, then run up again"
            raise self.failure(problem, remedy) from error


def _perl_folders() -> list[str]:
    """Return the folders of the tool's Perl modules."""
    libraries = [f"{_TOOL}/usr/lib/{name}" for name in files.names_in(f"{_TOOL}/usr/lib")]
    folders = [f"{_TOOL}/usr/share/perl", *(f"{folder}/perl" for folder in libraries if files.is_folder(folder))]
    return [f"{folder}/{name}" for folder in folders for name in files.names_in(folder) if name.startswith("5")]


def _last_lines(count: int) -> list[str]:
    """Return the last lines of the log, which may be large."""
    descriptor = files.open_to_read(LOG)
    if descriptor is None:
        return []
    with os.fdopen(descriptor, "rb") as log:
        log.seek(max(0, os.fstat(descriptor).st_size - _TAIL))
        return log.read().decode("utf-8", "replace").splitlines()[-count:]


def files_ending_in(ending: str) -> int:
    """Return the number of the build's files with an ending. Names are counted, and no file is opened."""
    return sum(name.endswith(ending) for _, _, names in os.walk(files.on_disk(MADE)) for name in names)


def parallel_jobs() -> int:
    """Return the number of compilers: one per CPU, if memory allows."""
    available = re.search(r"^MemAvailable:\s+(\d+)", kernel.read("/proc/meminfo"), re.MULTILINE)
    count = int(available[1]) // _COMPILER_KB if available else 1
    return max(1, min(count, len(os.sched_getaffinity(0))))


def distribution_sources() -> list[str]:
    """Return the distribution's package sources as one-line entries."""
    name = os_release()["ID"]
    listed = run("apt-get", "indextargets", *_TARGETS, f"Origin: {name[:1].upper()}{name[1:]}")
    entries = []
    for line in sorted(set(listed.splitlines())):
        uri, release, component, key = [*line.split(maxsplit=3), "", "", "", ""][:4]
        keyring = key if key.startswith("/") else f"/usr/share/keyrings/{name}-archive-keyring.gpg"
        entries.append(f"deb [signed-by={keyring}] {uri} {release} {component}")
    return entries


def adapt_packaging(source: str) -> bool:
    """Adapt the packaging of an unpacked source; return whether it is one that tailrack knows."""
    folder = f"{source}/debian"
    control, rules, changelog = (files.read(f"{folder}/{name}") or "" for name in ("control", "rules", "changelog"))
    adapted = "\n".join(_rules(rules))
    files.write(f"{folder}/control", _control(control))
    files.write(f"{folder}/rules", adapted, 0o755)
    files.write(f"{folder}/changelog", changelog.replace(")", f"+tailrack{RECIPE})", 1))
    return bool(_ADAPTED.search(adapted))


def _control(text: str) -> str:
    paragraphs = (part for part in re.split(r"\n{2,}", text.strip("\n")) if not _UNWANTED.match(part))
    kept = _DEPENDENCIES.sub("", "".join(f"{part}\n\n" for part in paragraphs))
    replaced = f"Package: slurm-smd\nReplaces: {_LIBRARIES}\nBreaks: {_LIBRARIES}"
    return re.sub(r"^Package: slurm-smd$", replaced, kept, flags=re.MULTILINE)


def _rules(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        if "slurmrestd" not in line or "dh_auto_configure" in line:
            line = line.replace("--with-slurmrestd ", "--disable-slurmrestd --disable-static ", 1)
            yield re.sub(r"--with-pmix( |$)", "--with-pmix=/usr/lib/$(DEB_HOST_MULTIARCH)/pmix2 ", line, count=1)
        if number == 0:
            yield "include /usr/share/dpkg/architecture.mk"
