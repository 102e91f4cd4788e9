"""Where a stack's state, passphrase and config copy live: `.tailrack/` of the checkout, which git ignores."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import yaml

from cli.pulumi.home import prepare_home
from cli.pulumi.locks import Lock, absolute, backend_folder, locks_in
from engine.locks import locked
from stacks.yaml_file import FileError

PROJECT = Path(__file__).resolve().parents[2]
ROOT = PROJECT / ".tailrack"

_SALT = "encryptionsalt"
_GOGC = "300"  # percent; Go's own default is 100


class CliError(FileError):
    """Something the person at the keyboard has to know and can repair; the message says what and how."""


@dataclass(frozen=True)
class Workspace:
    """Files of one stack.

    project      the checkout with the program
    stack        the stack's name
    config_file  the user's Pulumi.<stack>.yaml; read, and written by `make floors` alone
    root         folder of everything that is made here
    """

    project: Path
    stack: str
    config_file: Path
    root: Path = ROOT

    @property
    def folder(self) -> Path:
        """Folder of this stack: a Pulumi.yaml that leads to the program, a copy of the config, its in-process state."""
        return self.root / "stacks" / self.stack

    @property
    def in_process_state(self) -> Path:
        """The stack's state where the in-process engine runs it."""
        return self.folder / "inprocess-state.json"

    @property
    def backend(self) -> Path:
        """The state of all stacks here that the CLI runs: in one place, so that one can reference another."""
        return self.root / "backend"

    @property
    def pulumi_home(self) -> Path:
        """The CLI's home folder: the user's, without a log of every run."""
        return self.root / "pulumi-home"

    @property
    def backend_url(self) -> str:
        """Where the CLI keeps the state of the stacks here: where the caller says, else in a folder here."""
        return absolute(os.environ.get("PULUMI_BACKEND_URL") or "") or self._own_backend_url

    @property
    def _own_backend_url(self) -> str:
        return f"file://{self.backend}"

    def locks(self) -> list[Lock]:
        """Return the CLI's locks of this stack: one of each run that is at work, or was killed.

        None where the backend is no folder: the CLI names those when it meets them.
        """
        own = self.backend_url == self._own_backend_url
        folder = self.backend if own else backend_folder(self.backend_url)
        return locks_in(folder, self._name, self.stack) if folder else []

    @property
    def _name(self) -> str:
        """The project's."""
        return str(yaml.safe_load((self.project / "Pulumi.yaml").read_text(encoding="utf-8"))["name"])

    @property
    def passphrase_file(self) -> Path:
        """The generated passphrase of all stacks here, mode 0600."""
        return self.root / "passphrase"

    def prepare(self) -> None:
        """Make the folder, the passphrase, and fresh copies of the project file and the config.

        The CLI writes the salt of its encryption into the config it is given. It gets a copy, so that running a
        stack does not change a file under version control. Raises CliError when there is no config.
        """
        if not self.config_file.is_file():
            known = ", ".join(sorted(path.name for path in self.config_file.parent.glob("Pulumi.*.yaml")))
            raise CliError(f"stack {self.stack!r} has no {self.config_file.name}; there is {known or 'none at all'}")
        self._refuse_elsewhere()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.backend.mkdir(exist_ok=True)
        self.root.chmod(0o700)
        # Earlier versions gave each stack a backend of its own.
        if (own := self.folder / ".pulumi").is_dir():
            shutil.copytree(own, self.backend / ".pulumi", dirs_exist_ok=True)
            shutil.rmtree(own)
        if not self.passphrase_file.is_file():
            write_private(self.passphrase_file, secrets.token_urlsafe(32) + "\n")
        project = yaml.safe_load((self.project / "Pulumi.yaml").read_text(encoding="utf-8"))
        project["main"] = str(self.project)
        project["runtime"]["options"]["virtualenv"] = str(self.project / ".venv")
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
        copy = self.config_copy
        text = self.config_file.read_text(encoding="utf-8")
        salt = _salt_line(copy.read_text(encoding="utf-8")) if copy.is_file() else ""
        if salt and not _salt_line(text):
            text = text.rstrip("\n") + f"\n{salt}\n"
        write_private(copy, text)

    def _refuse_elsewhere(self) -> None:
        """Raise CliError where earlier versions left a state in the stack's folder, where its CLI is run."""
        given = os.environ.get("PULUMI_BACKEND_URL") or ""
        before, now = backend_folder(given, self.folder), backend_folder(given)
        if before and now and before != now and (before / ".pulumi").is_dir():
            raise CliError(
                f"PULUMI_BACKEND_URL={given} means {now}, and an earlier version of tailrack kept the state in "
                f"{before}; move it: mv {before}/.pulumi {now}/"
            )

    def prepare_pulumi_home(self) -> None:
        """Make the CLI's home folder, unless the caller has named one."""
        if (home := _users_pulumi_home()) is not None:
            prepare_home(self.pulumi_home, home)

    @property
    def config_copy(self) -> Path:
        """The copy of the config that the engine reads."""
        return self.folder / f"Pulumi.{self.stack}.yaml"

    def environment(self) -> dict[str, str]:
        """Variables for the CLI: state in a folder here, and a passphrase, unless the caller set their own."""
        wanted = {
            "PULUMI_BACKEND_URL": self.backend_url,
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "SSH_AUTH_SOCK": _agent(),
            # Of a preview of many hosts the look for garbage was a quarter of what the CLI and its provider do.
            "GOGC": os.environ.get("GOGC") or _GOGC,
        }
        if "PULUMI_CONFIG_PASSPHRASE" not in os.environ and "PULUMI_CONFIG_PASSPHRASE_FILE" not in os.environ:
            wanted["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(self.passphrase_file)
        if self.pulumi_home.is_dir() and _users_pulumi_home() is not None:
            wanted["PULUMI_HOME"] = str(self.pulumi_home)
        return wanted

    def forget(self) -> None:
        """Remove what belongs to this stack alone; called when nothing of it is left.

        A backend that the caller names is the caller's: the CLI's history and backups stay there. The folder here may
        have another stack of this name then, with resources.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.backend_url != self._own_backend_url:
            return
        for path in self.backend.glob(f".pulumi/**/{self._name}/{self.stack}.json*"):
            path.unlink()
        for path in self.backend.glob(f".pulumi/**/{self._name}/{self.stack}"):
            shutil.rmtree(path)

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the stack for one run. Raises CliError when another run holds it."""
        busy = f"another run of stack {self.stack!r} is at work; wait for it, or end it with Ctrl-C there"
        return locked(self.folder / "running", CliError(busy))


def _users_pulumi_home() -> Path | None:
    """The CLI's home folder unless one is named, which is taken as it is, or there is no home at all."""
    if os.environ.get("PULUMI_HOME"):
        return None
    try:
        return Path("~/.pulumi").expanduser()
    except RuntimeError:
        return None


def _agent() -> str:
    """The socket of the caller's ssh-agent; empty where none answers: a stale one fails every remote command."""
    path = os.environ.get("SSH_AUTH_SOCK", "")
    with socket.socket(socket.AF_UNIX) as agent:
        try:
            agent.connect(path)
        except OSError:
            return ""
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    fresh = path.with_suffix(path.suffix + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def _salt_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(_SALT)), "")
