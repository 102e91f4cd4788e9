"""Which engine runs the program: the Pulumi CLI wherever it can be had, the in-process engine where it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import requests
from pulumi.automation import PulumiCommand
from semver import VersionInfo

from cli.pulumi.workspace import ROOT, CliError

# The oldest CLI the program was tried with.
MINIMUM = VersionInfo.parse("3.200.0")
INSTALL_ROOT = ROOT / "pulumi"
INSTALL_SOURCE = "https://get.pulumi.com/install.sh"
# Seconds without an answer before a download is given up, and seconds a download that answers may take.
ANSWER_LIMIT = 15
DOWNLOAD_LIMIT = 300
PLUGIN_LIMIT = 120

IN_PROCESS = "inprocess"
COMMAND_PLUGIN = "command"


@dataclass(frozen=True)
class Found:
    """The engine taken: the CLI's command object, or None for the in-process engine; `why` is one line for people."""

    cli: PulumiCommand | None
    why: str


def find_engine(asked: str = "") -> Found:
    """Look for the CLI on PATH, then for one installed earlier, then download it, then do without.

    asked   the value of ENGINE: `inprocess`, `cli`, or empty. Raises CliError for another one, and when the CLI is
            asked for and cannot be had.
    """
    if asked not in ("", "cli", IN_PROCESS):
        raise CliError(f"ENGINE={asked} is no engine; use ENGINE=cli or ENGINE={IN_PROCESS}, or leave it out")
    if asked == IN_PROCESS:
        return Found(None, "engine: in-process, as asked (for trying out and tests)")
    on_path, too_old = _on_path()
    if on_path:
        return Found(on_path, f"engine: Pulumi CLI {on_path.version} on PATH")
    if (INSTALL_ROOT / "bin" / "pulumi").is_file():
        installed = PulumiCommand(root=str(INSTALL_ROOT), skip_version_check=True)
        return Found(installed, f"engine: Pulumi CLI {installed.version} installed by an earlier run")
    problem = _download()
    if not problem:
        downloaded = PulumiCommand(root=str(INSTALL_ROOT), skip_version_check=True)
        return Found(downloaded, f"engine: Pulumi CLI {downloaded.version}, downloaded to {INSTALL_ROOT}")
    reason = "; ".join(filter(None, (too_old, problem)))
    if asked == "cli":
        raise CliError(
            f"no Pulumi CLI: {reason}; install it (https://www.pulumi.com/docs/install) or use another ENGINE"
        )
    return Found(None, f"engine: in-process (for trying out and tests), because there is no Pulumi CLI: {reason}")


def _on_path() -> tuple[PulumiCommand | None, str]:
    """Return the CLI on PATH if it can be used, and what is wrong with it if it cannot."""
    if shutil.which("pulumi") is None:
        return None, ""
    try:
        command = PulumiCommand(skip_version_check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return None, f"the one on PATH does not run ({error})"
    if command.version is None or command.version < MINIMUM:
        return None, f"the one on PATH is {command.version}, older than {MINIMUM}"
    return command, ""


def _download() -> str:
    """Install the CLI and its command plugin below INSTALL_ROOT; return why not, or an empty text."""
    if os.environ.get("PULUMI_DOWNLOAD", "yes") == "no":
        return "no download, as PULUMI_DOWNLOAD=no asks"
    # The installer waits for ever where packets are dropped, so the source is asked first.
    try:
        requests.head(INSTALL_SOURCE, timeout=ANSWER_LIMIT, allow_redirects=True).raise_for_status()
    except requests.RequestException as error:
        return f"the download does not answer ({type(error).__name__})"
    install = f"from pulumi.automation import PulumiCommand; PulumiCommand.install(root={str(INSTALL_ROOT)!r})"
    try:
        subprocess.run([sys.executable, "-c", install], check=True, capture_output=True, timeout=DOWNLOAD_LIMIT)
        subprocess.run(
            [str(INSTALL_ROOT / "bin" / "pulumi"), "plugin", "install", "resource", COMMAND_PLUGIN],
            check=True,
            capture_output=True,
            timeout=PLUGIN_LIMIT,
            env={**os.environ, "PATH": f"{INSTALL_ROOT / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        )
    except (subprocess.SubprocessError, OSError) as error:
        # A half installed CLI must not be found by the next run.
        shutil.rmtree(INSTALL_ROOT, ignore_errors=True)
        return f"the download failed ({type(error).__name__})"
    return ""
