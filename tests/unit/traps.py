"""What an account puts in the place of something that is its own, and the folder of root's that it is after."""

import subprocess

from tests.unit.shell import Shell

KEY = "k" * 64

TRAPS = {
    "a link to a folder of root's": "ln -s {outside} {path}",
    "a link to a file of root's": "ln -s {outside}/file {path}",
    "a link to nothing": "ln -s {outside}/new {path}",
    "a FIFO": "mkfifo {path}",
}


def guarded(shell: Shell) -> Shell:
    """Give a machine a folder of root's that is no one else's, with a file that has the key's text."""
    shell.write("/root/outside/file", f"{KEY}\n").chmod(0o600)
    shell.path("/root/outside").chmod(0o711)
    return shell


def trap(shell: Shell, kind: str, path: str) -> None:
    """Put something in the place of a path."""
    shell.path(path).parent.mkdir(parents=True, exist_ok=True)
    command = TRAPS[kind].format(path=shell.path(path), outside=shell.path("/root/outside"))
    subprocess.run(["sh", "-c", command], check=True)


def outside(shell: Shell) -> list[tuple[str, int, str]]:
    """What lies in the folder of root's."""
    folder = shell.path("/root/outside")
    return [(path.name, path.stat().st_mode, path.read_text() if path.is_file() else "") for path in
            sorted([folder, *folder.iterdir()])]  # fmt: skip


def changed(shell: Shell) -> list[str]:
    """Calls that would give something to an account by a path that leads outside."""
    return [call for call in shell.calls if call.startswith("chown") and "/root/outside" in call]
