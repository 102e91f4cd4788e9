"""`make trust`: look at the host keys of machines whose key nobody has written down, ask, and keep them.

A key that comes over the network proves nothing: the fingerprints are shown, to be compared with what the provider's
console or the machine itself says, and nothing is kept without a yes.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
from rich.console import Console

from cli.output.terminal import one_line
from stacks.sites.hosts.inventory import PASSPHRASE
from stacks.sites.hosts.known_hosts import TRUSTED
from stacks.sites.hosts.unknown_host_keys import UnverifiedHost, unverified_hosts
from stacks.yaml_file import FileError

AT_ONCE = 32  # machines asked at a time
LIMIT = 15  # seconds for one of them


def trust(raw: Mapping[str, object], base_dir: Path, console: Console, ask: bool) -> int:
    """Show the keys of all strangers in a stack's raw config, ask, and add them to their sites' known_hosts files.

    ask   whether somebody is there to be asked; nothing is kept where nobody is. Returns the exit status.
    """
    strangers = unverified_hosts(raw, base_dir)
    if not strangers:
        console.print("Every host has a host key, in the config or in its site's known_hosts_file.")
        return 0
    found = asyncio.run(_look_at(strangers, base_dir))
    for line in _lines(found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    shown = [one for one in found if one.key]
    if not shown:
        return 1
    console.print(
        "Compare each with what the provider's console shows, or with "
        "'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub' on the machine itself.",
        markup=False,
    )
    if not ask:
        console.print("Nobody is there to be asked, so nothing is kept: run it at a terminal.", style="red")
        return 1
    if console.input(f"Keep these {len(shown)} keys? Write yes: ").strip().lower() != "yes":
        console.print("Nothing is kept.")
        return 1
    for file in {one.file for one in shown}:
        _add(file, [one.line for one in shown if one.file == file])
        console.print(f"{file} has them now. It is no secret: keep it with the config.", markup=False)
    return 0 if len(shown) == len(found) else 1


async def _look_at(strangers: Sequence[UnverifiedHost], base_dir: Path) -> list[UnverifiedHost]:
    room = asyncio.Semaphore(AT_ONCE)

    async def look(one: UnverifiedHost) -> UnverifiedHost:
        async with room:
            try:
                async with asyncio.timeout(LIMIT):
                    return replace(one, key=await _key_of(one, base_dir))
            except (OSError, asyncssh.Error, ValueError, KeyError, TimeoutError) as error:
                return replace(one, why_not=str(error) or f"no answer within {LIMIT} s")

    return list(await asyncio.gather(*map(look, strangers)))


async def _key_of(one: UnverifiedHost, base_dir: Path) -> str:
    how: dict[str, Any] = {"server_host_key_algs": list(TRUSTED), "config": None}
    if one.bastion is None:
        key = await asyncssh.get_server_host_key(one.address, one.port, **how)
    else:
        hop = one.bastion
        async with asyncssh.connect(
            str(hop["address"]),
            int(hop.get("port", 22)),
            username=str(hop["user"]),
            known_hosts=([asyncssh.import_public_key(str(hop["host_key"]))], [], []),
            config=None,
            **_own_key(hop, base_dir),
        ) as bastion:
            key = await asyncssh.get_server_host_key(one.address, one.port, tunnel=bastion, **how)
    if key is None:
        raise ValueError("it showed no host key")
    return " ".join(key.export_public_key().decode().split()[:2])


def _own_key(hop: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """The key for a bastion: of its file, or of the caller's agent."""
    if hop.get("agent") is True:
        return {"agent_path": os.environ.get("SSH_AUTH_SOCK", "")}
    file = base_dir / Path(str(hop["private_key_file"])).expanduser()
    return {"client_keys": [asyncssh.read_private_key(file, hop.get(PASSPHRASE))], "agent_path": None}


def _lines(found: Sequence[UnverifiedHost]) -> Iterator[str]:
    """Give a line a machine. No table: that of a narrow terminal cuts fingerprints, which are there to be compared."""
    names, addresses = [one.name for one in found], [f"{one.address}:{one.port}" for one in found]
    wide, wider = max(map(len, names)), max(map(len, addresses))
    for one, name, address in zip(found, names, addresses, strict=True):
        fingerprint = asyncssh.import_public_key(one.key).get_fingerprint() if one.key else f"none: {one.why_not}"
        # A server chooses the words with which it hangs up.
        yield one_line(f"{name:<{wide}}  {address:<{wider}}  {fingerprint}")


def _add(file: Path, lines: Sequence[str]) -> None:
    """Add lines to a known_hosts file; it is there as a whole at every moment."""
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as new:
            new.write((before if not before or before.endswith("\n") else before + "\n") + "".join(lines))
        made = Path(new.name)
        made.chmod(0o644)
        made.replace(file)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{file.name} cannot be written ({error}); see that it is a file of yours") from None
