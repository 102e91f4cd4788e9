"""The sections `health`, with the user's own scripts, and `job_hangs`."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, StringConstraints

from components.settings.problems import Report, Stack
from components.settings.rules import check_on
from components.settings.section import Help, Section, key
from components.settings.types import Whole, refuse

# Every machine's step contains all scripts.
MOST_BYTES = 32_768
MOST_SCRIPTS = 20
# tailrack's own scripts: templates/prolog-10-job and so on.
PROLOG = ("10-job", "20-gpus", "30-health", "40-enroot", "45-scratch")
EPILOG = ("10-job", "20-leftovers", "30-shared-memory", "40-enroot", "90-scratch")
OURS = frozenset({*PROLOG, *EPILOG})


def _scripts(scripts: dict[str, str]) -> dict[str, str]:
    if len(scripts) > MOST_SCRIPTS:
        refuse(f"has more than {MOST_SCRIPTS} scripts", "a job would wait for all of them", "join some of them")
    for name, text in scripts.items():
        if not re.fullmatch(r"[0-9]{2}-[a-z0-9][a-z0-9-]{0,39}", name):
            problem = f"has {name[:60]!r}, which is not two digits, '-' and lowercase letters, digits and hyphens"
            refuse(problem, "their order would be unclear", "write a name such as 50-scratch")
        if name in OURS:
            refuse(f"has {name!r}, the name of tailrack's own script", "tailrack's would not run", "rename yours")
        if not re.match(r"#! ?/\S", text):
            refuse(f"has {name!r}, whose first line names no interpreter", None, "start it with #!/bin/bash")
        if "\0" in text or len(text.encode()) > MOST_BYTES:
            problem = f"has {name!r}, which is not a text of at most {MOST_BYTES} bytes"
            refuse(problem, "every step would send it to every machine", "let it call a program on the machines")
    return dict(sorted(scripts.items()))


_Text = Annotated[str, StringConstraints(strict=True)]
Scripts = Annotated[
    dict[_Text, _Text],
    AfterValidator(_scripts),
    Help("a mapping from a name such as 50-scratch to a script", "write 50-scratch: | and the script, indented"),
]


class DeepCheck(Section):
    """The benchmark check: measure idle nodes again, one by one, and drain a node that has become slow."""

    every_hours: Whole = key(ge=1, le=8760, default=24)
    """Hours between two checks of a node; a check starts only when the node is idle."""
    at_once: Whole = key(ge=1, le=64, default=1)
    """Nodes checked at the same time."""
    minutes: Whole = key(ge=2, le=240, default=15)
    """Time limit of each check job, in minutes; another job waits at most this long for the node."""
    dcgm_level: Whole = key(ge=0, le=3, default=2)
    """Level of `dcgmi diag` on nodes with it (2: minutes; 3: a quarter of an hour, needs more `minutes`); 0: off."""


class Health(Section):
    """Automatic checks of nodes."""

    enabled: bool = True
    """Run scripts before and after each job, and check every node every two minutes; both drain an unhealthy node."""
    prolog: Scripts = key(default={})
    """Your scripts, in the order of their names. Root runs them before each job; one that fails drains the node."""
    epilog: Scripts = key(default={})
    """Your own scripts that root runs on a node after each job, as in `prolog`."""
    on_boot: Literal["none", "quick", "dcgm"] = "none"
    """The check at each boot, before jobs: `none`; `quick`, that of every two minutes with the GPUs' fresh state; or
    `dcgm`, this and `dcgmi diag -r 2` (minutes)."""
    on_boot_reboot: bool = False
    """Restart a machine once if its check at boot finds an error that lasts."""
    deep_check: DeepCheck | None = key(fix="write {every_hours: 24}", default=None)

    def check(self, stack: Stack, report: Report) -> None:
        if self.on_boot == "none" and self.on_boot_reboot:
            fix = "write on_boot: quick or dcgm, or remove it"
            report.add((self, "on_boot_reboot"), "is true without on_boot", "no check could find an error", fix)
        elif self.on_boot != "none":
            check_on((self, "on_boot"), "health", self.enabled, "nothing would drain the node", report)


class JobHangs(Section):
    """A search for jobs that hang."""

    minutes: Whole = key(ge=5, le=1440, default=5)
    """Report a job without progress of NCCL for so many minutes; longer than a checkpoint by one rank takes."""

    def check(self, stack: Stack, report: Report) -> None:
        check_on((self,), "health", stack.config.health.enabled, "no job's GPUs would be sampled", report)
