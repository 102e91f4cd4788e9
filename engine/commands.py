"""Run the commands of pulumi-command's resources, on a host by SSH or here as a process, and copy their folders.

A connection costs about ten round trips. Unlike the provider, a run keeps them, and its commands on a host share one. A
server that allows fewer sessions per connection gets more connections.
"""

import asyncio
import io
import json
import os
import shlex
import tarfile
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import asyncssh
from pulumi.runtime.rpc import UNKNOWN

LOCAL, REMOTE = "command:local:Command", "command:remote:Command"
CONNECTION_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.1, 1.5, 5.0  # seconds between two dials, as in the provider
# A host is lost if it has answered neither of two questions when the third is due, after 45 to 60 s.
KEEPALIVE_SECONDS, KEEPALIVE_QUESTIONS = 15, 2
# Seconds to read a command's streams after its end, seconds between two checks for its end, bytes of each stream.
AFTER_END_SECONDS, LOOK_SECONDS = 10.0, 1.0
MOST_OUTPUT = 2**27
SESSIONS = 8  # at once over one connection; OpenSSH allows ten by default
STREAMS = ("stdout", "stderr")
# Unpack a tar archive of $2 bytes in the folder $1, once all of it has arrived.
UNPACK = (  # one line: csh ends a quoted text with its line
    """set -e; mkdir -p "$1"; cd "$1"; all=$(mktemp .all.XXXXXX); trap 'rm -f "$all"' EXIT; cat >"$all"; """
    """[ "$(wc -c <"$all")" -eq "$2" ] || { echo 'the files did not arrive whole' >&2; exit 1; }; tar -xof "$all\""""
)


class CommandError(Exception):
    """A command that failed or could not run: the reason, then the command and its output, which may have secrets."""


@dataclass(eq=False)
class _Shared:
    """A connection with what closes it and its proxy; the sessions that use it, and the most that its host allows.

    early   no command has waited for it from its beginning: if it fails, the first one tries again
    """

    opening: asyncio.Task[tuple[asyncssh.SSHClientConnection, AsyncExitStack]]
    sessions: int = 0
    most: int = SESSIONS
    early: bool = False


class _Process(asyncssh.SSHClientProcess[bytes]):
    """A command on a host. Its stdin follows it at once: waiting for the host's answer would cost a round trip."""

    def __init__(self, stdin: bytes) -> None:
        super().__init__()
        self._given, self.begun = stdin, False

    def connection_made(self, chan: Any) -> None:
        """Send the stdin as soon as the command, which comes next, is sent."""
        super().connection_made(chan)
        self.begun = True
        asyncio.get_running_loop().call_soon(self._send, chan)

    def _send(self, chan: Any) -> None:
        chan.write(self._given)
        chan.write_eof()


class Commands:
    """A run of commands, at most `parallel` at a time, local ones in `directory`. A dry run runs none."""

    def __init__(self, parallel: int, directory: Path, dry_run: bool = False) -> None:
        self.dry_run, self._directory, self._slots = dry_run, directory, threading.BoundedSemaphore(parallel)
        self._loop = asyncio.new_event_loop()
        self._kept: dict[str, list[_Shared]] = {}  # by the settings of the connection

    def __enter__(self) -> "Commands":
        threading.Thread(target=lambda: (self._loop.run_forever(), self._loop.close()), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the kept connections. No command may be running."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _close(self) -> None:
        for shared in [shared for hosts in self._kept.values() for shared in hosts]:
            shared.opening.cancel()  # unless it is done
            with suppress(asyncio.CancelledError, CommandError, OSError, ValueError, asyncssh.Error):
                await (await shared.opening)[1].aclose()

    def open_early(self, settings: dict[str, Any]) -> None:
        """Begin a connection that later commands will probably need. Does not block."""

        def begin() -> None:
            if not (kept := self._kept.setdefault(json.dumps(settings, sort_keys=True), [])):
                kept.append(_Shared(asyncio.ensure_future(_open(settings)), early=True))

        if not self.dry_run:
            self._loop.call_soon_threadsafe(begin)

    def run(self, kind: str, command: str, inputs: dict[str, Any], previous: dict[str, Any]) -> dict[str, str]:
        """Run a command with a resource's plain inputs and return its stdout and stderr, without the last newline.

        Blocks. Raises CommandError if it fails. In a dry run, both are unknown.

        previous   the resource's last stdout and stderr
        """
        if self.dry_run:
            return dict.fromkeys(STREAMS, UNKNOWN)
        stdin, variables = (inputs.get("stdin") or "").encode(), {}
        if inputs.get("addPreviousOutputInEnv", True):
            variables = {f"PULUMI_COMMAND_{stream.upper()}": text for stream, text in previous.items() if text}
        code, stdout, stderr = self._wait(
            (self._remote if kind == REMOTE else self._local)(command, inputs, stdin, variables)
        )
        out, err = stdout.decode(errors="replace"), stderr.decode(errors="replace")
        if code != 0:
            # A negative status is the number of a signal.
            status = "no exit status: the connection was lost" if code is None else f"exited with status {code}"
            raise CommandError(f"Process {status}", f': running "{command}":\n', out, err)
        return {"stdout": out.removesuffix("\n"), "stderr": err.removesuffix("\n")}

    def copy(self, inputs: dict[str, Any]) -> None:
        """Copy a folder to a host, with a resource's plain inputs. Blocks. Raises CommandError if it fails."""
        if not self.dry_run:
            self._wait(self._copy(inputs["source"]["path"], inputs["remotePath"], inputs))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        with self._slots:
            try:
                return asyncio.run_coroutine_threadsafe(work, self._loop).result()
            except (OSError, ValueError, asyncssh.Error) as error:  # ValueError: not a key
                raise CommandError(str(error)) from None

    async def _local(self, command: str, inputs: dict[str, Any], stdin: bytes, variables: dict[str, str]) -> Any:
        # This process's environment may have the config and the passphrase.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_CONFIG")}
        options: dict[str, Any] = dict.fromkeys(("stdin", *STREAMS), asyncio.subprocess.PIPE)
        options["cwd"] = inputs.get("dir") or self._directory
        options["env"] = {**inherited, **inputs.get("environment", {}), **variables}
        shell = inputs.get("interpreter") or ["/bin/sh", "-c"]
        # In a new session, so that Ctrl-C reaches only the engine, which lets steps finish.
        process: Any = await asyncio.create_subprocess_exec(*shell, command, start_new_session=True, **options)
        try:
            process.stdin.write(stdin)
            process.stdin.write_eof()
            output = await _output(process)
            return await process.wait() if process.returncode is None else process.returncode, *output
        finally:
            process._transport.close()  # stop reading; there is no public way

    async def _remote(self, command: str, inputs: dict[str, Any], stdin: bytes, variables: Any) -> Any:
        async with self._running(inputs["connection"], command, stdin, variables) as process:
            output = await _output(process)
            try:
                async with asyncio.timeout(AFTER_END_SECONDS):
                    await process.wait_closed()
            except (TimeoutError, asyncssh.Error):
                process.channel.abort()
        return process.returncode, *output

    async def _copy(self, folder: str, destination: str, inputs: dict[str, Any]) -> None:
        # Not by SFTP, which costs about twenty round trips.
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, Path(folder).name)
        line = "exec " + shlex.join(["sh", "-c", UNPACK, "sh", destination, str(len(packed.getvalue()))])
        code, _, stderr = await self._remote(line, inputs, packed.getvalue(), {})
        if code != 0:
            raise CommandError(f"cannot copy files to {destination}: {stderr.decode(errors='replace')}")

    @asynccontextmanager
    async def _running(self, settings: Any, command: str, stdin: bytes, variables: Any) -> AsyncIterator[_Process]:
        """Begin a command on a host, over a kept connection if one still works. Yields its process.

        After an error its channel is closed, because the command may still be running.
        """
        kept = self._kept.setdefault(json.dumps(settings, sort_keys=True), [])
        process = None
        while not process:
            free = [shared for shared in kept if shared.sessions < shared.most]
            kept += [] if free else [_Shared(asyncio.ensure_future(_open(settings)))]
            shared = free[0] if free else kept[-1]
            shared.sessions += 1
            try:
                # A step that ends while it waits ends no other one's connection.
                host, _ = await asyncio.shield(shared.opening)
            except BaseException as error:
                shared.sessions -= 1
                if shared.opening.done():
                    kept[:] = [each for each in kept if each is not shared]
                    if shared.early and isinstance(error, Exception):
                        continue
                raise
            try:
                process = await _begin(host, command, stdin, variables)
            except BaseException as error:
                shared.sessions = shared.most = shared.sessions - 1
                # A host that was restarted, or allows no more sessions, gets another connection.
                if not free or not isinstance(error, (OSError, asyncssh.Error)):
                    raise
        try:
            yield process
        except BaseException:
            process.channel.abort()
            raise
        finally:
            shared.sessions -= 1


async def _begin(host: asyncssh.SSHClientConnection, command: str, stdin: bytes, variables: Any) -> _Process:
    """Begin a command on a host. Raises CommandError if it may run: a second try could run beside it."""
    process = _Process(stdin)
    try:
        await host.create_session(lambda: process, command, env=variables, encoding=None)
    except (OSError, asyncssh.Error) as error:
        if process.begun:
            raise CommandError(f"the connection was lost while the command began: {error}") from None
        raise
    return process


async def _open(settings: dict[str, Any]) -> tuple[asyncssh.SSHClientConnection, AsyncExitStack]:
    """Connect to a host, through its proxy if it has one. Return the connection and what closes both."""
    async with AsyncExitStack() as closing:
        proxy = settings.get("proxy")
        bastion = await closing.enter_async_context(await _dial({**CONNECTION_DEFAULTS, **proxy})) if proxy else None
        host = await closing.enter_async_context(await _dial(settings, bastion))
        return host, closing.pop_all()


async def _output(process: Any) -> tuple[bytes, bytes]:
    """Return a process's stdout and stderr. Raises CommandError if one of them is too long.

    A process that it leaves running may keep its streams open for ever, so reading stops a while after its end.
    """

    async def read(stream: Any, output: bytearray) -> None:
        with suppress(asyncssh.Error):  # the connection broke: the process has no exit status
            while part := await stream.read(2**16):
                output += part
                if len(output) > MOST_OUTPUT:
                    raise CommandError(f"it printed more than {MOST_OUTPUT} bytes")

    out, err = bytearray(), bytearray()
    reading = asyncio.gather(read(process.stdout, out), read(process.stderr, err))
    try:
        while not reading.done():
            ended = process.returncode is not None
            await asyncio.wait([reading], timeout=AFTER_END_SECONDS if ended else LOOK_SECONDS)
            if ended:
                break
        if reading.done():
            await reading
    finally:
        reading.cancel()
    return bytes(out), bytes(err)


@cache
def _opened(key: str, passphrase: str | None) -> asyncssh.SSHKey:
    """Return a private key. Opening one with a passphrase takes a tenth of a second, by design of its format."""
    return asyncssh.import_private_key(key, passphrase)


async def _dial(
    settings: dict[str, Any], tunnel: asyncssh.SSHClientConnection | None = None
) -> asyncssh.SSHClientConnection:
    """Connect with the provider's settings, retries and pauses. Only a host with the right host key is accepted."""
    address, limit = "{user}@{host}:{port}".format(**settings), settings["dialErrorLimit"]
    host_key, key = asyncssh.import_public_key(settings["hostKey"]), settings.get("privateKey")
    options: dict[str, Any] = {"username": settings["user"], "known_hosts": ([host_key], [], [])}
    # Like the provider, use only the key if there is one, else the agent. A stale agent must not make the key fail.
    options["agent_path"] = None if key else os.environ.get("SSH_AUTH_SOCK") or None
    if key:
        options["client_keys"] = [_opened(key, settings.get("privateKeyPassword"))]
    elif not options["agent_path"]:
        raise CommandError(f"{address}: unable to authenticate: no private key, and no ssh-agent at SSH_AUTH_SOCK")
    options |= {"connect_timeout": settings["perDialTimeout"] or None}
    options |= {"keepalive_interval": KEEPALIVE_SECONDS, "keepalive_count_max": KEEPALIVE_QUESTIONS}
    options |= {"config": None, "tunnel": tunnel}
    pause, failed = FIRST_PAUSE, 0
    while True:
        try:
            return await asyncssh.connect(settings["host"], settings["port"], **options)
        except (OSError, asyncssh.Error, TimeoutError) as error:
            failed += 1
            if -1 < limit < failed:
                raise CommandError(f"after {limit} failed attempts: {address}: {error or 'timed out'}") from None
        await asyncio.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
