"""The section `health`: automatic checks of nodes, and the user's own scripts."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints

from components.settings.section import Section, key, number, yes_no
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
            refuse(
                f"has {name[:60]!r}, which is not two digits, '-' and lowercase letters, digits and hyphens",
                "the order of scripts would be unclear, because they run in the order of their names",
                "write a name such as 50-scratch",
            )
        if name in OURS:
            refuse(f"has {name!r}, the name of tailrack's own script", "tailrack's would not run", "rename yours")
        if not re.match(r"#! ?/\S", text):
            refuse(f"has {name!r}, whose first line names no interpreter", None, "start it with #!/bin/bash")
        if "\0" in text or len(text.encode()) > MOST_BYTES:
            refuse(
                f"has {name!r}, which is not a text of at most {MOST_BYTES} bytes",
                "every step would send it to every machine",
                "let a short script call a program on the machines",
            )
    return dict(sorted(scripts.items()))


_Text = Annotated[str, StringConstraints(strict=True)]
Scripts = Annotated[dict[_Text, _Text], AfterValidator(_scripts)]


def _scripts_key(description: str) -> Any:
    return key(
        description,
        wants="a mapping from a name such as 50-scratch to the text of a script",
        breaks="the scripts would not run",
        fix="write 50-scratch: | and the script below it, indented",
        default={},
    )


class DeepCheck(Section):
    """The benchmark check: idle nodes are measured at intervals."""

    every_hours: Whole = number(
        "hours between two checks of a node; a check starts only when the node is idle",
        1,
        8760,
        breaks="nodes would be measured all the time",
        default=24,
    )
    at_once: Whole = number("nodes checked at the same time", 1, 64, breaks="no node would be checked", default=1)
    minutes: Whole = number(
        "time limit of each check job, in minutes; another job waits at most this long for the node",
        2,
        240,
        breaks="Slurm would kill the check at once",
        default=15,
    )
    dcgm_level: Whole = number(
        "level of `dcgmi diag` on nodes that have it (2: minutes; 3: a quarter of an hour, which needs more "
        "`minutes`); 0: off",
        0,
        3,
        breaks="dcgmi would reject it",
        default=2,
    )


class Health(Section):
    """Automatic checks of nodes."""

    enabled: bool = yes_no(
        "run scripts before and after each job, and check every node every two minutes; both drain an unhealthy node",
        True,
    )
    prolog: Scripts = _scripts_key(
        "your own scripts, by a name that sets their order. Root runs them on a node before each job; one that fails "
        "drains the node, and the job runs elsewhere"
    )
    epilog: Scripts = _scripts_key("your own scripts that root runs on a node after each job, as in `prolog`")
    deep_check: DeepCheck | None = key(
        "measure idle nodes again, one by one, as at their first measurement, and drain a node that has become slow; "
        "default: off",
        wants="a mapping",
        breaks="no node would be measured again",
        fix="write {every_hours: 24}",
        default=None,
    )
