"""Regular expressions over text that a machine, a job or a user wrote: none takes a time that grows as its square."""

import re
import time
from collections.abc import Callable

import pytest

from cli.output.failures import _REMEDIES
from cli.output.terminal import lines
from cli.preview.comment import _text
from components.roles.commands.tailrack.why import why_it_ended
from components.roles.storage.share.exports import clients
from components.settings.mask_secrets import mask_suspects
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import node_names
from components.steps.command_line import read_request
from components.validation.nccl_tests import parse, separate
from components.validation.preflight.adapters import read_mlxconfig
from components.validation.preflight.drain import cause
from components.validation.preflight.findings import finding
from components.validation.preflight.xids import read_xids
from components.validation.transport import read_transport

TIMES = 30_000
# Of the processor: a text of two megabytes takes a third of it where each character is read a few times, and minutes
# where the time grows as the square.
LIMIT_SECONDS = 5.0


def _remedies(text: str) -> None:
    for remedy in _REMEDIES:
        re.search(remedy["pattern"], text, re.IGNORECASE)


def _job(output: str) -> None:
    why_it_ended(Job(1, "j", "ada", 6001, ("FAILED",)), output)


LOG = "h1:1:1 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (mask_suspects, "-eyJaaaaaaaaaa" * TIMES),
        (mask_suspects, "eyJaaaaaaaaaa.-" * TIMES),
        (mask_suspects, "-----BEGIN PRIVATE KEY----" * TIMES),
        (mask_suspects, "password " * TIMES + " " * TIMES),
        (mask_suspects, "secret=" + " " * TIMES),
        (mask_suspects, ("A" * 119 + " ") * TIMES),
        (node_names, "a[" * TIMES),
        (clients, "a" * TIMES),
        (clients, "a(" * TIMES),
        (_job, "pyxis:" * TIMES),
        (_job, "pyxis: failed to import " + "invalid argument: ./" * TIMES + " "),
        (_remedies, "sudo: " * TIMES),
        (_remedies, ("/" + "a" * 63) * TIMES),
        (_remedies, "connection " * TIMES),
        (lambda text: cause(finding("error", "c", text, "")), "1" * TIMES),
        (lambda text: cause(finding("error", "c", text, "")), "(1" * TIMES),
        (read_mlxconfig, "# 0000:01:00.0\n" + " " * TIMES),
        (read_xids, "NVRM: Xid (PCI:" * TIMES),
        (separate, "".join(f"h{n}:1:1 [0] NCCL INFO x\n" for n in range(1, 5000)) + "h9x\n" * TIMES),
        (separate, f"{LOG}x\n" + "h1:1:1 [0] " * TIMES),
        (parse, "# Rank 0 Pid 1 " * TIMES + "\n"),
        (lambda text: read_transport(text, 2), LOG + " via NET/x" * TIMES + "\n"),
        (lambda text: read_transport(text, 2), LOG + "NET/IB : Using " + "[1]a" * TIMES + "\n"),
        (lambda text: read_transport(text, 2), LOG + "Pattern 4, " + " type A" * TIMES + "\n"),
        (read_request, '{"values":' * TIMES),
        (read_request, "[" * TIMES + "\n\n" + '{"a":' * TIMES),
        (_text, "www.@" * TIMES),
        (lines, "\x1b[" * TIMES),
    ],
)
def test_a_long_line_made_to_slow_a_reader_down_is_read_at_once(read: Callable[[str], object], text: str) -> None:
    begun = time.process_time()
    read(text)
    assert time.process_time() - begun < LIMIT_SECONDS
