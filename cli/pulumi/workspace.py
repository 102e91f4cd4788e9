"""The files of a stack in `.tailrack/` of the checkout, which git ignores: state, passphrase, config copy.

The CLI's home folder there links to the user's, without the log of every run: Pulumi 3.260 writes a compressed,
encrypted log of each command into `logs` of its home, without a setting against it (pkg/logging/encrypted.go). For a
preview of many hosts, that was nearly half of the CLI's work (docs/figures.md). If `logs` is not a folder, the CLI
continues without a log (pkg/cmd/pulumi/pulumi.go).
"""

import os
import secrets
import shutil
import socket
import tempfile
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from cli.file_lock import locked
from cli.pulumi.stack_locks import Lock, absolute, backend_folder, locks_in
from stacks.yaml_file import FileError

PROJECT = Path(__file__).resolve().parents[2]
ROOT = PROJECT / ".tailrack"

_GOGC = "300"  # percent; Go's own default is 100


class CliError(FileError):
    """An error that the user can fix; the message has the problem and the remedy."""


@dataclass(frozen=True)
class Workspace:
    """Files of one stack.

    project      the checkout with the program
    stack        the stack's name
    config_file  the user's Pulumi.<stack>.yaml; read, and written by `make floors` alone
    root         the folder of all generated files
    """

    project: Path
    stack: str
    config_file: Path
    root: Path = ROOT

    @property
    def folder(self) -> Path:
        """Return this stack's folder: a Pulumi.yaml for the program, a copy of the config, the in-process state."""
        return self.root / "stacks" / self.stack

    @property
    def in_process_state(self) -> Path:
        return self.folder / "inprocess-state.json"

    @property
    def backend(self) -> Path:
        """Return the folder of the CLI's state of all stacks here; stacks in one backend can reference each other."""
        return self.root / "backend"

    @property
    def pulumi_home(self) -> Path:
        """Return the CLI's home folder: the user's, without a log of every run."""
        return self.root / "pulumi-home"

    @property
    def backend_url(self) -> str:
        """Return the URL of the CLI's state: the caller's, or that of a folder here."""
        return absolute(os.environ.get("PULUMI_BACKEND_URL") or "") or self._own_backend_url

    @property
    def _own_backend_url(self) -> str:
        return f"file://{self.backend}"

    def locks(self) -> list[Lock]:
        """Return the CLI's locks of this stack: one of each run that is active or was killed.

        Returns none if the backend is not a local folder: the CLI lists those when it meets them.
        """
        is_own = self.backend_url == self._own_backend_url
        folder = self.backend if is_own else backend_folder(self.backend_url)
        return locks_in(folder, self._name, self.stack) if folder else []

    @property
    def state_path(self) -> str:
        """Return the path of the CLI's state of this stack; below the backend's URL if that is no local folder."""
        base = self.backend_url
        folder = backend_folder(base)
        return f"{folder or base}/.pulumi/stacks/{self._name}/{self.stack}.json"

    @property
    def _name(self) -> str:
        return str(yaml.safe_load((self.project / "Pulumi.yaml").read_text(encoding="utf-8"))["name"])

    @property
    def passphrase_file(self) -> Path:
        """Return the path of the generated passphrase of all stacks here, mode 0600."""
        return self.root / "passphrase"

    def prepare(self) -> None:
        """Make the folder, the passphrase, and new copies of the project file and the config.

        The CLI writes its encryption salt into its config file. It gets a copy, so that a run does not change a file
        under version control. Raises CliError if there is no config.
        """
        if not self.config_file.is_file():
            existing = ", ".join(sorted(path.name for path in self.config_file.parent.glob("Pulumi.*.yaml")))
            raise CliError(f"stack {self.stack!r} has no {self.config_file.name}; existing: {existing or 'none'}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.backend.mkdir(exist_ok=True)
        self.root.chmod(0o700)
        make_passphrase(self.passphrase_file)
        project = yaml.safe_load((self.project / "Pulumi.yaml").read_text(encoding="utf-8"))
        project["main"] = str(self.project)
        project["runtime"]["options"]["virtualenv"] = str(self.project / ".venv")
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
        copy = self.config_copy
        text = self.config_file.read_text(encoding="utf-8")
        salt = _salt_line(copy.read_text(encoding="utf-8")) if copy.is_file() else ""
        if salt and not _salt_line(text):
            text = text.rstrip("\n") + f"\n{salt}\n"
        write_atomically(copy, text)

    def prepare_pulumi_home(self) -> None:
        """Make the CLI's home folder, unless the caller set one."""
        if (home := _users_pulumi_home()) is not None:
            prepare_home(self.pulumi_home, home)

    @property
    def config_copy(self) -> Path:
        """Return the path of the config copy that the engine reads."""
        return self.folder / f"Pulumi.{self.stack}.yaml"

    def environment(self) -> dict[str, str]:
        """Return variables for the CLI: state in a folder here and a passphrase, unless the caller set them."""
        variables = {
            "PULUMI_BACKEND_URL": self.backend_url,
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "SSH_AUTH_SOCK": _agent(),
            # In a preview of many hosts, garbage collection took a quarter of the CPU time of CLI and provider.
            "GOGC": os.environ.get("GOGC") or _GOGC,
        }
        if "PULUMI_CONFIG_PASSPHRASE" not in os.environ and "PULUMI_CONFIG_PASSPHRASE_FILE" not in os.environ:
            variables["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(self.passphrase_file)
        if self.pulumi_home.is_dir() and _users_pulumi_home() is not None:
            variables["PULUMI_HOME"] = str(self.pulumi_home)
        return variables

    def forget(self) -> None:
        """Remove the files of this stack; call it when the stack has no resources left.

        The CLI's history and backups stay in a backend that the caller set. The folder here may then contain another
        stack of this name, with resources.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.backend_url != self._own_backend_url:
            return
        for path in self.backend.glob(f".pulumi/**/{self._name}/{self.stack}.json*"):
            path.unlink()
        for path in self.backend.glob(f".pulumi/**/{self._name}/{self.stack}"):
            shutil.rmtree(path)

    def exclusive(self) -> AbstractContextManager[None]:
        """Return a lock of the stack for one run. Raises CliError if another run holds it."""
        busy = f"another run of stack {self.stack!r} is active; wait for it, or end it with Ctrl-C there"
        return locked(self.folder / "running", CliError(busy))


def _users_pulumi_home() -> Path | None:
    """Return the CLI's default home folder; None if PULUMI_HOME is set, or there is no home folder."""
    if os.environ.get("PULUMI_HOME"):
        return None
    try:
        return Path("~/.pulumi").expanduser()
    except RuntimeError:
        return None


def _agent() -> str:
    """Return the socket of the caller's ssh-agent; "" if none answers, as a stale one fails every remote command."""
    path = os.environ.get("SSH_AUTH_SOCK", "")
    with socket.socket(socket.AF_UNIX) as agent:
        try:
            agent.connect(path)
        except OSError:
            return ""
    return path


def make_passphrase(path: Path) -> None:
    """Write a new passphrase, unless the file exists."""
    if not path.exists():
        write_atomically(path, secrets.token_urlsafe(32) + "\n", keep=True)


def write_atomically(path: Path, text: str, *, keep: bool = False, mode: int = 0o600) -> None:
    """Write a file in one step, also while another process writes it.

    keep   a file that exists by then stays as it is
    mode   by default only the file's owner may read it
    """
    # No other account can enter the folder.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        fresh = Path(folder) / path.name
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(mode)
        if not keep:
            fresh.replace(path)
            return
        with suppress(FileExistsError):
            path.hardlink_to(fresh)


def _salt_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("encryptionsalt")), "")


LOGS = "logs"
_WORDS = "This file replaces a folder, so that Pulumi does not log every run (docs/figures.md of tailrack).\n"


def prepare_home(folder: Path, user_home: Path) -> None:
    """Make a home folder with links to each entry of the user's home folder, and a file named `logs`.

    Files that the CLI creates stay in this folder, except plugins, which all projects of the user share.
    """
    (user_home / "plugins").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in user_home.iterdir()} - {LOGS}
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name not in names:
            entry.unlink(missing_ok=True)
    for name in names:
        _link(folder / name, user_home / name)
    if not (folder / LOGS).exists():
        (folder / LOGS).write_text(_WORDS, encoding="utf-8")


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    if link.is_dir() and not link.is_symlink():
        return  # created here before the user's home had this entry
    # Replace the link in one step, because another run may read it.
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
