"""Runs the commands of pulumi-command's resources, on a host by SSH, here as a process; and copies what they copy."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import asyncssh
from pulumi.runtime.rpc import UNKNOWN

LOCAL, REMOTE = "command:local:Command", "command:remote:Command"
CONNECTION_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.1, 1.5, 5.0  # seconds between two dials, as the provider waits
# A host counts as lost that has answered none of two such questions when the third is due: after 45 to 60 s.
KEEPALIVE_SECONDS, KEEPALIVE_QUESTIONS = 15, 2
# Seconds for which a command's streams are read after its end, and between two looks for it; bytes of each stream.
AFTER_END_SECONDS, LOOK_SECONDS = 10.0, 1.0
MOST_OUTPUT = 2**27
STREAMS = ("stdout", "stderr")


class CommandError(Exception):
    """A command that could not be run, or failed: why, and its words and output, which may hold secrets."""


class Commands:
    """Runs commands, at most `parallel` at once; local ones in `directory`. A dry run knows no output of them."""

    def __init__(self, parallel: int, directory: Path, dry_run: bool) -> None:
        self.dry_run, self._directory, self._slots = dry_run, directory, threading.BoundedSemaphore(parallel)

    def run(self, kind: str, command: str, inputs: dict[str, Any], previous: dict[str, Any]) -> dict[str, str]:
        """Run a command with a resource's plain inputs; `previous` is its last stdout and stderr.

        Blocks. Returns stdout and stderr, one newline at the end cut off; CommandError when it failed.
        """
        if self.dry_run:
            return dict.fromkeys(STREAMS, UNKNOWN)
        stdin, added = (inputs.get("stdin") or "").encode(), {}
        if inputs.get("addPreviousOutputInEnv", True):
            added = {f"PULUMI_COMMAND_{stream.upper()}": text for stream, text in previous.items() if text}
        code, stdout, stderr = self._wait(
            (self._remote if kind == REMOTE else self._local)(command, inputs, stdin, added)
        )
        out, err = stdout.decode(errors="replace"), stderr.decode(errors="replace")
        if code != 0:
            # A negative one is the number of a signal.
            status = "no exit status: the connection was lost" if code is None else f"exited with status {code}"
            raise CommandError(f"Process {status}", f': running "{command}":\n', out, err)
        return {"stdout": out.removesuffix("\n"), "stderr": err.removesuffix("\n")}

    def copy(self, inputs: dict[str, Any]) -> None:
        """Copy a folder into one on a host, with a resource's plain inputs. Blocks; CommandError when it failed."""
        if not self.dry_run:
            self._wait(self._copy(inputs["source"]["path"], inputs["remotePath"], inputs))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        with self._slots:
            try:
                return asyncio.run(work)
            except (OSError, ValueError, asyncssh.Error) as error:  # ValueError: a key that is none
                raise CommandError(str(error)) from None

    async def _local(self, command: str, inputs: dict[str, Any], stdin: bytes, added: dict[str, str]) -> Any:
        # The config and the passphrase, which may be in this process's environment, are not the command's business.
        own = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_CONFIG")}
        how: dict[str, Any] = dict.fromkeys(("stdin", *STREAMS), asyncio.subprocess.PIPE)
        how |= {"cwd": inputs.get("dir") or self._directory, "env": {**own, **inputs.get("environment", {}), **added}}
        shell = inputs.get("interpreter") or ["/bin/sh", "-c"]
        # A session of its own: Ctrl-C at the terminal is for the engine, which lets steps finish.
        process: Any = await asyncio.create_subprocess_exec(*shell, command, start_new_session=True, **how)
        try:
            output = await _output(process, stdin)
            return await process.wait() if process.returncode is None else process.returncode, *output
        finally:
            process._transport.close()  # what is read no more; there is no public way

    async def _remote(self, command: str, inputs: dict[str, Any], stdin: bytes, added: dict[str, str]) -> Any:
        async with _reach(inputs["connection"]) as host:
            process = await host.create_process(command, env=added, encoding=None)
            output = await _output(process, stdin)
            with suppress(TimeoutError, asyncssh.Error):
                async with asyncio.timeout(AFTER_END_SECONDS):
                    await process.wait_closed()
        return process.returncode, *output

    async def _copy(self, folder: str, into: str, inputs: dict[str, Any]) -> None:
        async with _reach(inputs["connection"]) as host, host.start_sftp_client() as files:
            await files.makedirs(into, exist_ok=True)
            await files.put(folder, into, recurse=True)


async def _output(process: Any, stdin: bytes) -> tuple[bytes, bytes]:
    """Give a process its stdin; return its stdout and stderr. CommandError where one of them is too long.

    What a process leaves running may hold its streams open for ever: they are read for a while after its end.
    """

    async def take(stream: Any, into: bytearray) -> None:
        with suppress(asyncssh.Error):  # a connection that breaks: then there is no exit status
            while part := await stream.read(2**16):
                into += part
                if len(into) > MOST_OUTPUT:
                    raise CommandError(f"it printed more than {MOST_OUTPUT} bytes")

    out, err = bytearray(), bytearray()
    process.stdin.write(stdin)
    process.stdin.write_eof()
    reading = asyncio.gather(take(process.stdout, out), take(process.stderr, err))
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


@asynccontextmanager
async def _reach(settings: dict[str, Any]) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """Connect, through the proxy where there is one."""
    if proxy := settings.get("proxy"):
        async with await _dial({**CONNECTION_DEFAULTS, **proxy}) as bastion, await _dial(settings, bastion) as host:
            yield host
    else:
        async with await _dial(settings) as host:
            yield host


@cache
def _opened(key: str, passphrase: str | None) -> asyncssh.SSHKey:
    """The private key; to open one that has a passphrase takes a tenth of a second, on purpose of its format."""
    return asyncssh.import_private_key(key, passphrase)


async def _dial(
    settings: dict[str, Any], tunnel: asyncssh.SSHClientConnection | None = None
) -> asyncssh.SSHClientConnection:
    """Connect with the provider's settings, retries and pauses. The host must show the key it is known by."""
    where, limit = "{user}@{host}:{port}".format(**settings), settings["dialErrorLimit"]
    known, key = asyncssh.import_public_key(settings["hostKey"]), settings.get("privateKey")
    options: dict[str, Any] = {"username": settings["user"], "known_hosts": ([known], [], [])}
    # As the provider: the key alone where there is one, else those of the caller's agent. A stale agent must not spoil
    # what the key opens.
    options["agent_path"] = None if key else os.environ.get("SSH_AUTH_SOCK") or None
    if key:
        options["client_keys"] = [_opened(key, settings.get("privateKeyPassword"))]
    elif not options["agent_path"]:
        raise CommandError(f"{where}: unable to authenticate: no private key, and no ssh-agent at SSH_AUTH_SOCK")
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
                raise CommandError(f"after {limit} failed attempts: {where}: {error or 'timed out'}") from None
        await asyncio.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
