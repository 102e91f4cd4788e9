"""Runs the commands of pulumi-command's resources: on a host by SSH, here as a process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import asyncssh

LOCAL, REMOTE = "command:local:Command", "command:remote:Command"
CONNECTION_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.1, 1.5, 5.0  # seconds between two dials, as the provider waits
KEEPALIVE_SECONDS = 30  # a host that is silent for three of these counts as lost
STREAMS = ("stdout", "stderr")

Output = list[tuple[str, bytes]]
"""What a command printed, as (stream, bytes) in the order it came."""


class CommandError(Exception):
    """A command that could not be run, or failed."""

    def __init__(self, reason: str, command: str = "", output: Output | None = None) -> None:
        super().__init__(reason)
        self.command, self.output = command, output or []

    def text(self, hidden: set[str], instead: str) -> str:
        """The provider's message, with `instead` for what is in `hidden`: "command", "stdout", "stderr"."""
        if not self.command:
            return str(self)
        command = instead if "command" in hidden else json.dumps(self.command, ensure_ascii=False)
        parts = [f"{instead}\n".encode() if stream in hidden else data for stream, data in self.output]
        return f"{self}: running {command}:\n" + b"".join(parts).decode(errors="replace")


class Commands:
    """Runs commands in an event loop of its own, at most `parallel` at once; local ones in `directory`."""

    def __init__(self, parallel: int, directory: str) -> None:
        self._slots = threading.BoundedSemaphore(parallel)
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._running: set[concurrent.futures.Future[Output]] = set()

    @contextlib.contextmanager
    def started(self) -> Iterator[Commands]:
        """Have the loop run."""
        thread = threading.Thread(target=self._loop.run_forever, name="commands", daemon=True)
        thread.start()
        yield self
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
        self._loop.close()

    def stop(self) -> None:
        """End the commands that run now: they fail."""
        for future in list(self._running):
            future.cancel()

    def run(self, kind: str, command: str, inputs: dict[str, Any], previous: dict[str, Any]) -> dict[str, Any]:
        """Run a command with a resource's plain inputs; `previous` is its last stdout and stderr.

        Blocks. Returns stdout and stderr, one newline at the end cut off; CommandError when it failed.
        """
        added = {}
        if inputs.get("addPreviousOutputInEnv", True):
            added = {f"PULUMI_COMMAND_{stream.upper()}": text for stream, text in previous.items() if text}
        with self._slots:
            work = (_remote if kind == REMOTE else self._local)(command, inputs, added)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._running.add(future)
            try:
                output = future.result()
            except concurrent.futures.CancelledError:
                raise CommandError("stopped", command) from None
            except (OSError, asyncssh.Error) as error:
                raise CommandError(str(error), command) from None
            finally:
                self._running.discard(future)
        texts = {name: b"".join(data for stream, data in output if stream == name) for name in STREAMS}
        return {name: text.decode(errors="replace").removesuffix("\n") for name, text in texts.items()}

    async def _local(self, command: str, inputs: dict[str, Any], added: dict[str, str]) -> Output:
        # The program's config is in this process's environment while it runs; it is not the command's business.
        mine = {k: v for k, v in os.environ.items() if k not in ("PULUMI_CONFIG", "PULUMI_CONFIG_SECRET_KEYS")}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(inputs.get("interpreter") or ["/bin/sh", "-c"]),
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=inputs.get("dir") or self._directory,
            env={**mine, **inputs.get("environment", {}), **added},
            start_new_session=True,  # Ctrl-C at the terminal is for the engine, which lets steps finish
        )
        try:
            return await _talk(process, command, inputs.get("stdin"), "exit status")
        except asyncio.CancelledError:
            os.killpg(process.pid, signal.SIGKILL)
            raise


async def _remote(command: str, inputs: dict[str, Any], added: dict[str, str]) -> Output:
    async with await _dial(inputs["connection"]) as connection:
        process = await connection.create_process(command, env=list(added.items()), encoding=None)
        output = await _talk(process, command, inputs.get("stdin"), "Process exited with status")
    return output  # noqa: RET504 - inside the block, mypy would miss a return after it


async def _talk(process: Any, command: str, text: str | None, failed: str) -> Output:
    """Give a process its stdin, collect what it prints until it ends. Processes here and by SSH are used alike."""
    output: Output = []

    async def collect(stream: str) -> None:
        while data := await getattr(process, stream).read(65536):
            output.append((stream, data))

    process.stdin.write((text or "").encode())
    process.stdin.write_eof()
    await asyncio.gather(*map(collect, STREAMS))
    await process.wait()
    if process.returncode is None:
        raise CommandError("wait: remote command exited without exit status or exit signal", command, output)
    if process.returncode < 0:
        killer = signal.Signals(-process.returncode).name
        raise CommandError(f"{failed} {128 - process.returncode} from signal {killer}", command, output)
    if process.returncode:
        raise CommandError(f"{failed} {process.returncode}", command, output)
    return output


async def _dial(settings: dict[str, Any]) -> asyncssh.SSHClientConnection:
    """Connect with the provider's settings, retries and pauses. The host must show the key it is known by."""
    tunnel = await _dial(settings["proxy"]) if settings.get("proxy") else ()
    where = f"{settings['user']}@{settings['host']}:{int(settings['port'])}"
    try:
        known = asyncssh.import_public_key(settings["hostKey"])
        keys = [settings["privateKey"]] if settings.get("privateKey") else []
        own = [asyncssh.import_private_key(key, settings.get("privateKeyPassword")) for key in keys]
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise CommandError(f"{where}: its hostKey or privateKey cannot be used: {error}") from None
    limit, pause, failed = int(settings["dialErrorLimit"]), FIRST_PAUSE, 0
    while True:
        try:
            return await asyncssh.connect(
                settings["host"],
                int(settings["port"]),
                tunnel=tunnel,
                username=settings["user"],
                password=settings.get("password"),
                client_keys=own or None,
                # A stale agent in the environment must not spoil what a key or a password opens.
                agent_path=settings.get("agentSocketPath", None if own or settings.get("password") else ()),
                known_hosts=([known], [], []),
                connect_timeout=int(settings["perDialTimeout"]) or None,
                keepalive_interval=KEEPALIVE_SECONDS,
                config=None,
            )
        except (OSError, asyncssh.Error, TimeoutError) as error:
            failed += 1
            if -1 < limit < failed:
                raise CommandError(f"after {limit} failed attempts: {where}: {error or 'timed out'}") from None
        await asyncio.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
