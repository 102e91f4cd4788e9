"""Find the engine that runs the program: the Pulumi CLI if possible, otherwise the in-process engine."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import requests
from pulumi.automation import PulumiCommand
from semver import VersionInfo

from cli.pulumi.workspace import ROOT, CliError

# The oldest supported CLI.
MINIMUM = VersionInfo.parse("3.200.0")
INSTALL_ROOT = ROOT / "pulumi"
INSTALL_SOURCE = "https://get.pulumi.com/install.sh"
# Seconds to wait for the download server's answer, and for the whole download.
ANSWER_LIMIT = 15
DOWNLOAD_LIMIT = 300
PLUGIN_LIMIT = 120

IN_PROCESS = "inprocess"


@dataclass(frozen=True)
class Found:
    """The chosen engine: the CLI's command object, or None for the in-process engine; `why` is one line for people."""

    cli: PulumiCommand | None
    why: str


def find_engine(requested: str = "") -> Found:
    """Find the CLI on PATH, or one installed earlier, or download it, or use the in-process engine.

    requested   the value of ENGINE: `inprocess`, `cli`, or empty. Raises CliError for another value, or if the CLI is
                requested and not available.
    """
    if requested not in ("", "cli", IN_PROCESS):
        raise CliError(f"ENGINE={requested} is not an engine; use ENGINE=cli or ENGINE={IN_PROCESS}, or leave it out")
    if requested == IN_PROCESS:
        return Found(None, "engine: in-process, as requested (for trials and tests)")
    on_path, too_old = _on_path()
    if on_path:
        return Found(on_path, f"engine: Pulumi CLI {on_path.version} on PATH")
    earlier = (INSTALL_ROOT / "bin" / "pulumi").is_file()
    problem = "" if earlier else _download()
    if not problem:
        installed = PulumiCommand(root=str(INSTALL_ROOT), skip_version_check=True)
        origin = " installed by an earlier run" if earlier else f", downloaded to {INSTALL_ROOT}"
        return Found(installed, f"engine: Pulumi CLI {installed.version}{origin}")
    reason = "; ".join(filter(None, (too_old, problem)))
    if requested == "cli":
        raise CliError(
            f"no Pulumi CLI: {reason}; install it (https://www.pulumi.com/docs/install) or use another ENGINE"
        )
    return Found(None, f"engine: in-process (for trials and tests), because there is no Pulumi CLI: {reason}")


def _on_path() -> tuple[PulumiCommand | None, str]:
    """Return the CLI on PATH if it is usable, otherwise None and the reason."""
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
    """Install the CLI and its command plugin below INSTALL_ROOT; return the reason if that failed, else ""."""
    if os.environ.get("PULUMI_DOWNLOAD", "yes") == "no":
        return "no download, because of PULUMI_DOWNLOAD=no"
    # The installer waits forever if packets are dropped, so check first that the server answers.
    try:
        requests.head(INSTALL_SOURCE, timeout=ANSWER_LIMIT, allow_redirects=True).raise_for_status()
    except requests.RequestException as error:
        return f"the download does not answer ({type(error).__name__})"
    install = f"from pulumi.automation import PulumiCommand; PulumiCommand.install(root={str(INSTALL_ROOT)!r})"
    try:
        subprocess.run([sys.executable, "-c", install], check=True, capture_output=True, timeout=DOWNLOAD_LIMIT)
        subprocess.run(
            [str(INSTALL_ROOT / "bin" / "pulumi"), "plugin", "install", "resource", "command"],
            check=True,
            capture_output=True,
            timeout=PLUGIN_LIMIT,
            env={**os.environ, "PATH": f"{INSTALL_ROOT / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        )
    except (subprocess.SubprocessError, OSError) as error:
        # The next run must not find a partly installed CLI.
        shutil.rmtree(INSTALL_ROOT, ignore_errors=True)
        return f"the download failed ({type(error).__name__})"
    return ""
