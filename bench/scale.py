"""Cost of many hosts: `preview` of 64, 250 and 1,000, and `up` of 64 that answer at once, on loopback.

For each preview: wall seconds, CPU seconds and the largest memory of all its processes together, and which of them had
the CPU. For the program: where its CPU time went. For each `up`: wall seconds, and what of them is left when
the hosts' own work is taken off; the same with a host that refuses connections, and with one that accepts and says
nothing. Wall seconds are worth something on a machine with nothing else to do: the load is printed. Nothing is judged.
"""

import cProfile
import os
import pstats
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh

from cli.pulumi.workspace import PROJECT, Workspace, prepare_home
from cli.stack_config.stack_file import load_config
from engine.engine import Engine
from tests.engine.played_hosts import Played, play, write_config

STACK = "large"
COUNTS = (64, 250, 1000)
ENDPOINTS = 64
PROFILED = 250
PARALLEL = 64
LOOK_SECONDS = 0.2  # between two looks at the processes
INPROCESS = "import sys; from bench.scale import {0}; {0}(sys.argv[1])"
PARTS = ("pulumi", "google/protobuf", "asyncio", "stacks", "components", "engine")


class Watched:
    """Run a command and sum the use of all its processes: `wall` and `cpu` seconds, `peak` bytes, `by_program`."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.peak, self._seconds, self._ended = 0, dict[int, tuple[str, float]](), threading.Event()
        begun, before = time.monotonic(), _children_seconds()
        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            ) as process,
        ):
            watcher = threading.Thread(target=self._watch, args=(process.pid,))
            watcher.start()
            self.status = process.wait()
            self._ended.set()
            watcher.join()
            output.seek(0)
            self.output = output.read().decode(errors="replace")
        self.wall, self.cpu = time.monotonic() - begun, _children_seconds() - before
        self.by_program: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self._seconds.values():
            self.by_program[name] += seconds

    def _watch(self, root: int) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            memory = 0
            for pid, name, seconds, resident in _tree(root):
                memory += resident
                self._seconds[pid] = (name, seconds)
            self.peak = max(self.peak, memory)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree(root: int) -> Iterator[tuple[int, str, float, int]]:
    """Number, name, CPU seconds and resident bytes of a process and of all that come of it."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    parents: dict[int, list[int]] = {}
    rows: dict[int, tuple[str, float, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        fields = rest.split()
        rows[int(folder.name)] = (name, (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * page)
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += parents.get(pid, [])
        if pid in rows:
            yield (pid, *rows[pid])


def engines() -> list[str]:
    """The engines that there are here."""
    cli = shutil.which("pulumi") and shutil.which("pulumi-resource-command")
    return ["cli", "inprocess"] if cli else ["inprocess"]


@contextmanager
def workspace(addresses: Sequence[tuple[str, int]], private_key: str, host_key: str) -> Iterator[Workspace]:
    """A stack of hosts, gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stack = Workspace(PROJECT, STACK, write_config(folder, addresses, private_key, host_key), folder / "state")
        stack.prepare()
        prepare_home(folder / "home", folder / "own")
        yield stack


def environment_of(stack: Workspace) -> dict[str, str]:
    """Variables for a process that works on it."""
    home = str(stack.root.parent / "home")
    return {**os.environ, **stack.environment(), "PULUMI_HOME": home, "PYTHONPATH": str(PROJECT)}


def preview_here(name: str) -> None:
    """`preview` of the stack in the folder of this name, in this process."""
    folder = Path(name)
    config = load_config(PROJECT, folder / f"Pulumi.{STACK}.yaml")
    state_files, on_event = (lambda stack: folder / f"{stack}.json"), (lambda event: None)
    summary = Engine(PROJECT, STACK, state_files, config, on_event, PARALLEL).preview()
    if not summary.ok:
        sys.exit("\n".join(failure.message for failure in summary.failures))


def previews() -> None:
    """Measure previews of stacks that are not there yet."""
    login, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    private, public = login.export_private_key().decode(), " ".join(host.export_public_key().decode().split()[:2])
    for count in COUNTS:
        addresses = [(f"10.9.{number // 250}.{number % 250}", 22) for number in range(count)]
        with workspace(addresses, private, public) as stack:
            environment = environment_of(stack)
            for engine in engines():
                command = [sys.executable, "-c", INPROCESS.format("preview_here"), str(stack.folder)]
                if engine == "cli":
                    options: dict[str, Any] = {"cwd": stack.folder, "env": environment, "capture_output": True}
                    subprocess.run(["pulumi", "stack", "init", STACK, "--non-interactive"], check=False, **options)
                    command = ["pulumi", "preview", "--stack", STACK, "--non-interactive", "--parallel", str(PARALLEL)]
                tell_preview(count, engine, Watched(command, stack.folder, environment))
            if count == PROFILED:
                command = [sys.executable, "-c", INPROCESS.format("profile_here"), str(stack.folder)]
                subprocess.run(command, cwd=PROJECT, env=environment, check=False)


def tell_preview(count: int, engine: str, run: Watched) -> None:
    """Print the cost of a preview."""
    by_program = sorted(run.by_program.items(), key=lambda one: -one[1])[:3]
    most = ", ".join(f"{name} {seconds:.1f}" for name, seconds in by_program if seconds >= 0.1)
    failed = f"  FAILED: {run.output[-300:]}" if run.status else ""
    print(
        f"  {count:5} hosts  {engine:9} {run.wall:6.1f} s  CPU {run.cpu:6.1f} s ({most})  "
        f"{run.peak / 1e6:6.0f} MB  load {os.getloadavg()[0]:.1f}{failed}",
        flush=True,
    )


def profile_here(folder: str) -> None:
    """Run `preview` in this process and print where its CPU seconds go. The profiler slows it down."""
    profile = cProfile.Profile()
    profile.runcall(preview_here, folder)
    spent: defaultdict[str, float] = defaultdict(float)
    calls = Counter[str]()
    for (file, _, name), (_, count, own_seconds, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        part = next((part for part in PARTS if f"/{part}/" in file), "the rest of Python")
        spent[part] += own_seconds
        calls[name] += count
    whole = sum(spent.values())
    shares = ", ".join(
        f"{part} {seconds / whole:.0%}" for part, seconds in sorted(spent.items(), key=lambda one: -one[1])
    )
    print(f"  the program at {PROFILED} hosts, by where its CPU seconds go: {shares};")
    print(f"  {calls['register_resource']} registrations, {calls['_track']} Outputs")


def ups() -> None:
    """Measure `up` of hosts that answer at once, all of them well, and with a dead one among them."""
    for kind in ("all well", "one refuses", "one says nothing"):
        for engine in engines():
            dead = kind != "all well"
            with (
                play(ENDPOINTS - dead) as played,
                socket.create_server(("127.0.0.1", 0), backlog=64) as silent,
            ):
                addresses = [("127.0.0.1", port) for port in played.ports]
                if dead:
                    addresses.insert(5, silent.getsockname())
                if kind == "one refuses":
                    silent.close()
                with workspace(addresses, played.private_key, played.host_key) as stack:
                    run = up_stack(engine, stack)
            tell_up(kind, engine, run, played)


def up_stack(engine: str, stack: Workspace) -> Watched:
    """Run `up` of a stack with the command line."""
    command = [sys.executable, "-m", "cli", "--stack", STACK, "--engine", engine]
    command += ["--config-file", str(stack.config_file), "--state-dir", str(stack.root), "up"]
    return Watched(command, PROJECT, environment_of(stack))


def tell_up(kind: str, engine: str, run: Watched, played: Played) -> None:
    """Print the cost of an `up` and the number of nodes that reached their last step."""
    done = sum(name.endswith("-node") for name, _, _ in played.asked)
    print(
        f"  {kind:16} {engine:9} {run.wall:6.1f} s  without the hosts' own {played.busy_seconds:4.1f} s "
        f"{run.wall - played.busy_seconds:6.1f} s  CPU {run.cpu:6.1f} s  {run.peak / 1e6:5.0f} MB  "
        f"{done} nodes of {ENDPOINTS - 1} done  load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    print(f"preview, three sites, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}:", flush=True)
    previews()
    print(f"up of {ENDPOINTS} hosts on loopback that answer at once:", flush=True)
    ups()


if __name__ == "__main__":
    main()
