"""What the section `health` of the config says: whether nodes look after themselves, and the user's own scripts."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints

from components.settings.section import Section, key, number, yes_no
from components.settings.types import Whole, refuse

# All of them go to each machine with its step.
MOST_BYTES = 32_768
MOST_SCRIPTS = 20
# Our own: templates/prolog-10-job and so on.
PROLOG = ("10-job", "20-gpus", "30-health", "40-enroot", "45-scratch")
EPILOG = ("10-job", "20-leftovers", "30-shared-memory", "40-enroot", "90-scratch")
OURS = frozenset({*PROLOG, *EPILOG})


def _scripts(scripts: dict[str, str]) -> dict[str, str]:
    if len(scripts) > MOST_SCRIPTS:
        refuse(f"has more than {MOST_SCRIPTS} scripts", "a job would wait for all of them", "join some of them")
    for name, text in scripts.items():
        if not re.fullmatch(r"[0-9]{2}-[a-z0-9][a-z0-9-]{0,39}", name):
            refuse(
                f"has {name[:60]!r}, which is not two digits, '-' and lowercase letters, digits and hyphens",
                "nobody would know when it runs: they run in the order of their names",
                "write a name such as 50-scratch",
            )
        if name in OURS:
            refuse(f"has {name!r}, the name of tailrack's own script", "ours would not run", "give it another name")
        if not re.match(r"#! ?/\S", text):
            refuse(f"has {name!r}, whose first line names no interpreter", None, "begin it with #!/bin/bash")
        if "\0" in text or len(text.encode()) > MOST_BYTES:
            refuse(
                f"has {name!r}, which is no text of at most {MOST_BYTES} bytes",
                "it would travel to every machine with each of its steps",
                "have a short script call a program that lies on the machines",
            )
    return dict(sorted(scripts.items()))


_Text = Annotated[str, StringConstraints(strict=True)]
Scripts = Annotated[dict[_Text, _Text], AfterValidator(_scripts)]


def _scripts_key(description: str) -> Any:
    return key(
        description,
        wants="a mapping from a name such as 50-scratch to the text of a script",
        breaks="they would not run",
        fix="write 50-scratch: | and the script below it, indented",
        default={},
    )


class DeepCheck(Section):
    """Idle nodes measured by themselves, again and again."""

    every_hours: Whole = number(
        "how long after a check of a node it is checked again, when it is idle next",
        1,
        8760,
        breaks="nodes would be measured without an end",
        default=24,
    )
    at_once: Whole = number(
        "nodes that are checked at the same time", 1, 64, breaks="no node would be checked", default=1
    )
    minutes: Whole = number(
        "limit of each of its jobs: a job that comes meanwhile waits no longer for that node",
        2,
        240,
        breaks="Slurm would end the check as it starts",
        default=15,
    )
    dcgm_level: Whole = number(
        "the level of `dcgmi diag` on nodes that have it (2: minutes, 3: a quarter of an hour, which needs more "
        "`minutes`); 0: none",
        0,
        3,
        breaks="dcgmi would refuse it",
        default=2,
    )


class Health(Section):
    """Nodes that look after themselves."""

    enabled: bool = yes_no(
        "scripts before and after each job, and a look at every node each two minutes; they drain one that is ill",
        True,
    )
    prolog: Scripts = _scripts_key(
        "your own scripts, which root runs on a node before each job there, by the name that orders them; one that "
        "fails drains the node, and the job runs elsewhere"
    )
    epilog: Scripts = _scripts_key("the same, after each job")
    deep_check: DeepCheck | None = key(
        "idle nodes are measured by themselves as they were when they joined, and one that has become slow is drained; "
        "left out, none is",
        wants="a mapping",
        breaks="no node would be measured again",
        fix="write {every_hours: 24}",
        default=None,
    )
