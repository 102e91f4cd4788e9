"""A host to run commands on: an SSH server on loopback that hands them to bash and keeps what it was asked."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh


@dataclass(frozen=True)
class Asked:
    """One command as it arrived, and what came with it on stdin and in the environment; `sftp` for files."""

    command: str
    stdin: str
    environment: tuple[tuple[str, str], ...]


@dataclass
class SshHost:
    """`asked` is every command in the order it was started, `connections` every connection; keys are OpenSSH text."""

    port: int
    private_key: str
    host_key: str
    folder: Path
    asked: list[Asked] = field(default_factory=list)
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)

    def connection(self, **changed: object) -> dict[str, object]:
        """The connection of remote.Command to this host."""
        keys = {"private_key": self.private_key, "host_key": self.host_key}
        return {"host": "127.0.0.1", "port": self.port, "user": "root", **keys, "dial_error_limit": 1, **changed}

    def take(self) -> list[Asked]:
        """What was asked since the last call."""
        taken, self.asked[:] = self.asked[:], []
        return taken


class _Server(asyncssh.SSHServer):
    """Also a bastion: it connects on to wherever it is asked to."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._host.connections.append(conn)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True


@contextmanager
def serve(folder: Path, sftp: bool = True) -> Iterator[SshHost]:
    """Serve one host, its commands run in `folder`, and files put there where it has `sftp`."""
    client = asyncssh.generate_private_key("ssh-ed25519")
    keys = [asyncssh.generate_private_key("ssh-rsa", key_size=2048), asyncssh.generate_private_key("ssh-ed25519")]
    host = SshHost(0, client.export_private_key().decode(), keys[1].export_public_key().decode().strip(), folder)
    loop = asyncio.new_event_loop()

    async def handle(process: asyncssh.SSHServerProcess[bytes]) -> None:
        stdin = await process.stdin.read()
        environment = {str(key): str(value) for key, value in process.env.items()}
        asked = Asked(process.command or "", stdin.decode(errors="replace"), tuple(sorted(environment.items())))
        # The engine copies folders by a command, the provider by SFTP.
        host.asked.append(Asked("sftp", "", ()) if "tar -xof" in asked.command else asked)
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            "bash", "-c", process.command or "", cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe
        )
        stdout, stderr = await child.communicate(stdin)
        process.stdout.write(stdout)
        process.stderr.write(stderr)
        process.exit(child.returncode or 0)

    def files(channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        host.asked.append(Asked("sftp", "", ()))
        return asyncssh.SFTPServer(channel, chroot=str(folder).encode())

    async def start() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Server(host),
            server_host_keys=keys,
            authorized_client_keys=asyncssh.import_authorized_keys(client.export_public_key().decode()),
            process_factory=handle,
            sftp_factory=files if sftp else None,
            encoding=None,
        )

    acceptor = loop.run_until_complete(start())
    host.port = acceptor.get_port()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield host
    finally:
        loop.call_soon_threadsafe(acceptor.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
