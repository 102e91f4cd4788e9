"""`make trust`: show unknown host keys of machines, ask, and record them.

A key from the network proves nothing. You compare the fingerprints with the provider's console or the machine itself,
and the program records keys only after a yes.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
from rich.console import Console

from cli.bastions import LIMIT, through
from cli.open_stack import confirmed
from cli.output.terminal import one_line
from cli.pulumi.workspace import write_atomically
from stacks.sites.hosts.known_hosts import TRUSTED
from stacks.sites.hosts.unknown_host_keys import UnverifiedHost, unverified_hosts
from stacks.yaml_file import FileError

AT_ONCE = 32  # machines at a time
NO_ANSWER = (
    "For a machine that does not answer: check that it runs, that its address and port in the config are right, and "
    "that its firewall lets in SSH from here or from the site's bastion. Then run the same command again."
)


def trust(raw: Mapping[str, object], base_dir: Path, console: Console, interactive: bool) -> int:
    """Show the keys of unverified hosts in a raw config, ask, and add them to their sites' known_hosts files.

    interactive   whether a person can answer; otherwise no key is recorded. Returns the exit status.
    """
    unverified = unverified_hosts(raw, base_dir)
    if not unverified:
        console.print("Every host has a host key, in the config or in its site's known_hosts_file.")
        return 0
    hosts = asyncio.run(_look_at(unverified, base_dir))
    for line in _lines(hosts):
        console.print(line, soft_wrap=True)
    answered = [host for host in hosts if host.key]
    if len(answered) < len(hosts):
        console.print(NO_ANSWER, style="red", soft_wrap=True)
    if not answered:
        return 1
    console.print(
        "Compare each fingerprint with the provider's console, or with "
        "'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub' on the machine itself.",
    )
    if not confirmed(console, f"Record these {len(answered)} keys?", interactive):
        return 1
    for file in {host.file for host in answered}:
        _add(file, [host.line for host in answered if host.file == file])
        console.print(f"Recorded in {file}. The file is not secret: keep it with the config.")
    return 0 if len(answered) == len(hosts) else 1


async def _look_at(unverified: Sequence[UnverifiedHost], base_dir: Path) -> list[UnverifiedHost]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def read(host: UnverifiedHost) -> UnverifiedHost:
        async with slots:
            try:
                async with asyncio.timeout(LIMIT):
                    return replace(host, key=await _key_of(host, base_dir))
            except KeyError as key:
                return replace(
                    host, why_not=f"a bastion of its site has no {key.args[0]} in the config; write it there"
                )
            except (OSError, asyncssh.Error, ValueError, TimeoutError) as error:
                return replace(host, why_not=str(error) or f"no answer within {LIMIT} s")

    return list(await asyncio.gather(*map(read, unverified)))


async def _key_of(host: UnverifiedHost, base_dir: Path) -> str:
    options: dict[str, Any] = {"server_host_key_algs": list(TRUSTED), "config": None}
    async with through(host.bastions, base_dir) as bastion:
        key = await asyncssh.get_server_host_key(host.address, host.port, tunnel=bastion, **options)
    if key is None:
        raise ValueError("the machine sent no host key")
    return " ".join(key.export_public_key().decode().split()[:2])


def _lines(hosts: Sequence[UnverifiedHost]) -> Iterator[str]:
    """Give one line per machine. A table would cut fingerprints on a narrow terminal."""
    names, addresses = [host.name for host in hosts], [f"{host.address}:{host.port}" for host in hosts]
    name_width, address_width = max(map(len, names)), max(map(len, addresses))
    for host, name, address in zip(hosts, names, addresses, strict=True):
        fingerprint = asyncssh.import_public_key(host.key).get_fingerprint() if host.key else f"none: {host.why_not}"
        # An error may contain text from the server.
        yield one_line(f"{name:<{name_width}}  {address:<{address_width}}  {fingerprint}")


def _add(file: Path, lines: Sequence[str]) -> None:
    """Add lines to a known_hosts file, and replace it in one step."""
    try:
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, "".join([old, "" if not old or old.endswith("\n") else "\n", *lines]), mode=0o644)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{file.name} cannot be written ({error}); make sure that you own the file") from None
