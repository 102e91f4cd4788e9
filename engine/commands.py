"""Runs the commands of pulumi-command's resources: on a host by SSH, here as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any

import asyncssh

LOCAL, REMOTE = "command:local:Command", "command:remote:Command"
Output = list[tuple[str, bytes]]
"""What a command printed, as (stream, bytes) in the order it came."""
CONNECTION_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.1, 1.5, 5.0  # seconds between two dials, as the provider waits
KEEPALIVE_SECONDS = 30  # a host that is silent for three of these counts as lost


class CommandError(Exception):
    """A command that could not be run, or failed."""

    def __init__(self, reason: str, command: str = "", output: Output | None = None) -> None:
        super().__init__(reason)
        self.command, self.output = command, output or []

    def text(self, hidden: set[str], replacement: str) -> str:
        """The provider's message; the command or a stream that is in `hidden` does not show."""
        if not self.command:
            return str(self)
        command = replacement if "command" in hidden else json.dumps(self.command, ensure_ascii=False)
        printed = b"".join(data for stream, data in self.output if stream not in hidden).decode(errors="replace")
        withheld = sorted({stream for stream, _ in self.output if stream in hidden})
        return f"{self}: running {command}:\n{printed}" + "".join(f"{s}: {replacement}\n" for s in withheld)


class _Session(asyncssh.SSHClientSession[bytes]):
    """Collects what a remote command prints, in the order it arrives."""

    def __init__(self) -> None:
        self.output: Output = []
        self.lost: Exception | None = None

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self.output.append(("stderr" if datatype else "stdout", data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc


class Commands:
    """A context in which commands run: an event loop of its own, at most `parallel` commands at once."""

    def __init__(self, parallel: int, directory: str) -> None:
        self._slots = threading.BoundedSemaphore(parallel)
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._running: set[Future[Any]] = set()

    def __enter__(self) -> Commands:
        threading.Thread(target=self._loop.run_forever, name="commands", daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def stop(self) -> None:
        """End the commands that run now: they fail."""
        for future in list(self._running):
            future.cancel()

    def run(self, kind: str, command: str, inputs: dict[str, Any], previous: dict[str, Any]) -> dict[str, Any]:
        """Run a command with a resource's plain inputs; `previous` is its last stdout and stderr.

        Blocks. Returns stdout and stderr, one newline at the end cut off; CommandError when it failed.
        """
        extra = {}
        if inputs.get("addPreviousOutputInEnv", True):
            extra = {f"PULUMI_COMMAND_{stream.upper()}": text for stream, text in previous.items() if text}
        with self._slots:
            work: Coroutine[Any, Any, Output]
            work = (_remote if kind == REMOTE else self._local)(command, inputs, extra)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._running.add(future)
            try:
                output = future.result()
            except asyncio.CancelledError:
                raise CommandError("stopped") from None
            finally:
                self._running.discard(future)
        return {
            stream: b"".join(data for name, data in output if name == stream)
            .decode(errors="replace")
            .removesuffix("\n")
            for stream in ("stdout", "stderr")
        }

    async def _local(self, command: str, inputs: dict[str, Any], extra: dict[str, str]) -> Output:
        # The program's config is in this process's environment while it runs; it is not the command's business.
        ours = {key: text for key, text in os.environ.items() if not key.startswith("PULUMI_CONFIG_SECRET")}
        ours.pop("PULUMI_CONFIG", None)
        output: Output = []
        try:
            process = await asyncio.create_subprocess_exec(
                *(inputs.get("interpreter") or ["/bin/sh", "-c"]),
                command,
                stdin=asyncio.subprocess.PIPE if inputs.get("stdin") else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=inputs.get("dir") or self._directory,
                env={**ours, **inputs.get("environment", {}), **extra},
                start_new_session=True,  # Ctrl-C at the terminal is for the engine, which lets steps finish
            )
        except OSError as error:
            raise CommandError(str(error), command) from None

        async def collect(stream: str, pipe: asyncio.StreamReader | None) -> None:
            while pipe and (data := await pipe.read(65536)):
                output.append((stream, data))

        async def feed() -> None:
            if process.stdin:
                process.stdin.write(inputs["stdin"].encode())
                process.stdin.close()

        try:
            await asyncio.gather(feed(), collect("stdout", process.stdout), collect("stderr", process.stderr))
            code = await process.wait()
        except asyncio.CancelledError:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if code:
            reason = f"exit status {code}" if code > 0 else f"signal: {signal.strsignal(-code)}".lower()
            raise CommandError(reason, command, output)
        return output


async def _remote(command: str, inputs: dict[str, Any], extra: dict[str, str]) -> Output:
    async with await _dial(inputs["connection"]) as connection:
        channel, session = await connection.create_session(_Session, command, env=extra, encoding=None)
        if text := inputs.get("stdin"):
            channel.write(text.encode())
        channel.write_eof()
        await channel.wait_closed()
        code, killed = channel.get_exit_status(), channel.get_exit_signal()
    if killed:
        raise CommandError(f"Process exited with status 1 from signal {killed[0]}", command, session.output)
    if code is None or code < 0:
        reason = session.lost or "remote command exited without exit status or exit signal"
        raise CommandError(f"wait: {reason}", command, session.output)
    if code:
        raise CommandError(f"Process exited with status {code}", command, session.output)
    return session.output


async def _dial(
    settings: dict[str, Any], tunnel: asyncssh.SSHClientConnection | None = None
) -> asyncssh.SSHClientConnection:
    """Connect with the provider's settings, retries and pauses. The host must show the key it is known by."""
    if proxy := settings.get("proxy"):
        tunnel = await _dial(proxy)
    limit, pause, failed = int(settings["dialErrorLimit"]), FIRST_PAUSE, 0
    try:
        known = asyncssh.import_public_key(settings["hostKey"])
        keys = [settings["privateKey"]] if settings.get("privateKey") else None
        own = [asyncssh.import_private_key(key, settings.get("privateKeyPassword")) for key in keys or []]
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise CommandError(f"cannot use the keys for {settings['host']}: {error}") from None
    options: dict[str, Any] = {}
    if "agentSocketPath" in settings or own or settings.get("password"):
        options["agent_path"] = settings.get("agentSocketPath")
    while True:
        try:
            return await asyncssh.connect(
                settings["host"],
                int(settings["port"]),
                tunnel=tunnel or (),
                username=settings["user"],
                password=settings.get("password"),
                client_keys=own or None,
                known_hosts=([known], [], []),
                connect_timeout=int(settings["perDialTimeout"]) or None,
                keepalive_interval=KEEPALIVE_SECONDS,
                config=None,
                **options,
            )
        except (OSError, asyncssh.Error, TimeoutError) as error:
            failed += 1
            if -1 < limit < failed:
                where = f"{settings['user']}@{settings['host']}:{int(settings['port'])}"
                raise CommandError(f"after {limit} failed attempts: {where}: {error or 'timed out'}") from None
        await asyncio.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
