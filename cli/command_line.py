"""The words that `python -m cli` takes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from cli.pulumi.workspace import ROOT

_REFRESH = "look at clouds and tailnet first; needs the CLI"


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return what reads the command line; `about` says what it is for."""
    reading = argparse.ArgumentParser(prog="python -m cli", description=about)
    reading.add_argument("--stack", default=os.environ.get("STACK") or "dev")
    reading.add_argument("--config-file", type=Path, help="instead of Pulumi.<stack>.yaml")
    reading.add_argument(
        "--state-dir", type=Path, default=ROOT, help="where stacks, their state and passphrase are kept"
    )
    reading.add_argument("--engine", default=os.environ.get("ENGINE", ""), help="cli or inprocess; else what there is")
    commands = reading.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="set up everything the config says, measure it, and show it")
    up.add_argument("--refresh", action="store_true", help=_REFRESH)
    for name, text in (
        ("outputs", "print the stack's outputs as one JSON object"),
        ("trust", "show the host keys of machines whose key is not written down, ask, and keep them"),
        ("status", "show nodes, jobs and why a node is out"),
        ("diagnose", "write one archive for a bug report: states, reasons and logs of every machine, and no secret"),
        ("report", "write the last measurements and the nodes into one HTML file"),
        ("floors", "write what was measured last as floors into the stack's config"),
        ("images", "show the images of containers and which node has which"),
        ("engine", "say which engine the other commands take"),
        ("sweep", "remove every lab of this checkout, whatever its stack; the last resort"),
    ):
        commands.add_parser(name, help=text)
    commands.add_parser("reap", help="remove a pool that nobody has used for longer than its idle_limit_minutes")
    down = commands.add_parser("down", help="remove everything")
    down.add_argument("--cluster-gone", action="store_true", help="of a pool: its cluster is gone for good")
    preview = commands.add_parser("preview", help="say what up would do")
    preview.add_argument("--comment", type=Path, help="write it as Markdown for a pull request, too")
    preview.add_argument("--refresh", action="store_true", help=_REFRESH)
    preview.add_argument("--expect-no-changes", action="store_true", help="fail where up would change anything")
    shell = commands.add_parser("shell", help="open a shell on a lab node, or run one command there")
    shell.add_argument("--node", required=True)
    shell.add_argument("--run", default="", help="command for bash on the node")
    return reading
