"""Runs the commands of pulumi-command's resources: on a host by SSH, here as a process."""

import asyncio
import functools
import os
import signal
import threading
from concurrent.futures import CancelledError
from typing import Any

import asyncssh
from pulumi.runtime.rpc import UNKNOWN

LOCAL, REMOTE = "command:local:Command", "command:remote:Command"
CONNECTION_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.1, 1.5, 5.0  # seconds between two dials, as the provider waits
KEEPALIVE_SECONDS = 30  # a host that is silent for three of these counts as lost
STREAMS = ("stdout", "stderr")


class CommandError(Exception):
    """A command that could not be run, or failed: why, and its words and output, which may hold secrets."""


class Commands:
    """Runs commands, at most `parallel` at once; local ones in `directory`. A dry run knows no output of them."""

    def __init__(self, parallel: int, directory: str, dry_run: bool) -> None:
        self.dry_run, self.stopped = dry_run, threading.Event()
        self._slots, self._directory = threading.BoundedSemaphore(parallel), directory

    def stop(self) -> None:
        """Let no more steps start. The second time also end the commands that run: they fail."""
        if self.stopped.is_set():
            _loop().call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(_loop())])
        self.stopped.set()

    def run(self, kind: str, command: str, inputs: dict[str, Any], previous: dict[str, Any]) -> dict[str, str]:
        """Run a command with a resource's plain inputs; `previous` is its last stdout and stderr.

        Blocks. Returns stdout and stderr, one newline at the end cut off; CommandError when it failed.
        """
        if self.dry_run:
            return dict.fromkeys(STREAMS, UNKNOWN)
        with self._slots:
            work = self._run(kind, command, inputs, previous)
            try:
                return asyncio.run_coroutine_threadsafe(work, _loop()).result()
            except CancelledError:
                raise CommandError("stopped") from None
            except (OSError, asyncssh.Error) as error:
                raise CommandError(str(error)) from None

    async def _run(self, kind: str, command: str, inputs: dict[str, Any], previous: dict[str, Any]) -> dict[str, str]:
        stdin, added = (inputs.get("stdin") or "").encode(), {}
        if inputs.get("addPreviousOutputInEnv", True):
            added = {f"PULUMI_COMMAND_{stream.upper()}": text for stream, text in previous.items() if text}
        if kind == REMOTE:
            code, stdout, stderr = await _remote(command, inputs["connection"], stdin, added)
        else:
            words = [*(inputs.get("interpreter") or ["/bin/sh", "-c"]), command]
            environment = {**os.environ, **inputs.get("environment", {}), **added}
            code, stdout, stderr = await _local(words, inputs.get("dir") or self._directory, stdin, environment)
        out, err = stdout.decode(errors="replace"), stderr.decode(errors="replace")
        if code != 0:
            # A negative one is the number of a signal.
            status = "no exit status: the connection was lost" if code is None else f"exited with status {code}"
            raise CommandError(f"Process {status}", f': running "{command}":\n{out}{err}')
        return {"stdout": out.removesuffix("\n"), "stderr": err.removesuffix("\n")}


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="commands", daemon=True).start()
    return loop


async def _local(words: list[str], folder: str, stdin: bytes, environment: dict[str, str]) -> tuple[Any, bytes, bytes]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", *STREAMS), asyncio.subprocess.PIPE)
    # A session of its own: Ctrl-C at the terminal is for the engine, which lets steps finish.
    process = await asyncio.create_subprocess_exec(*words, cwd=folder, env=environment, start_new_session=True, **pipes)
    try:
        stdout, stderr = await process.communicate(stdin)
    except asyncio.CancelledError:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, stdout, stderr


async def _remote(command: str, to: dict[str, Any], stdin: bytes, added: dict[str, str]) -> tuple[Any, bytes, bytes]:
    async with await _dial(to) as host:
        process = await host.create_process(command, env=added, encoding=None)
        process.stdin.write(stdin)
        process.stdin.write_eof()
        stdout, stderr = await process.communicate()
    return process.returncode, stdout, stderr


async def _dial(settings: dict[str, Any]) -> asyncssh.SSHClientConnection:
    """Connect with the provider's settings, retries and pauses. The host must show the key it is known by."""
    where, limit = "{user}@{host}:{port}".format(**settings), settings["dialErrorLimit"]
    try:
        known = asyncssh.import_public_key(settings["hostKey"])
        own = asyncssh.import_private_key(settings["privateKey"])
    except asyncssh.KeyImportError as error:
        raise CommandError(f"{where}: its hostKey or privateKey cannot be used: {error}") from None
    options = asyncssh.SSHClientConnectionOptions(
        username=settings["user"],
        client_keys=[own],
        agent_path=None,  # a stale agent in the environment must not spoil what the key opens
        known_hosts=([known], [], []),
        connect_timeout=settings["perDialTimeout"] or None,
        keepalive_interval=KEEPALIVE_SECONDS,
        config=None,
    )
    pause, failed = FIRST_PAUSE, 0
    while True:
        try:
            return await asyncssh.connect(settings["host"], settings["port"], options=options)
        except (OSError, asyncssh.Error, TimeoutError) as error:
            failed += 1
            if -1 < limit < failed:
                raise CommandError(f"after {limit} failed attempts: {where}: {error or 'timed out'}") from None
        await asyncio.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
