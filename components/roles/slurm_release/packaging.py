"""Adapt SchedMD's packaging of Slurm.

Leave out parts that no one needs here: the desktop program, the REST daemon, HTML pages, and static libraries, which
are half of the compiler's work. Add PMIx as these distributions have it, and replace their Slurm libraries, whose files
the packages contain too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.node import files
from components.roles.slurm_release.release import RECIPE

_UNWANTED = re.compile(r"Package: slurm-smd-(sview|slurmrestd|openlava|torque|doc)\n")
_DEPENDENCIES = re.compile(r"^ (libgtk2\.0-dev|man2html-base),\n", re.MULTILINE)
_LIBRARIES = ", ".join(f"libslurm{number}, libslurm{number}t64" for number in range(36, 61))
_ADAPTED = re.compile(r"--disable-static .*--with-pmix=/usr/lib/")


def adapt_packaging(source: str) -> bool:
    """Adapt the packaging of an unpacked source; return whether it is one that tailrack knows."""
    folder = f"{source}/debian"
    control, rules, changelog = (files.read(f"{folder}/{name}") or "" for name in ("control", "rules", "changelog"))
    adapted = "\n".join(_rules(rules))
    files.write(f"{folder}/control", _control(control))
    files.write(f"{folder}/rules", adapted, 0o755)
    files.write(f"{folder}/changelog", changelog.replace(")", f"+tailrack{RECIPE})", 1))
    return bool(_ADAPTED.search(adapted))


def _control(text: str) -> str:
    paragraphs = (part for part in re.split(r"\n{2,}", text.strip("\n")) if not _UNWANTED.match(part))
    kept = _DEPENDENCIES.sub("", "".join(f"{part}\n\n" for part in paragraphs))
    replaced = f"Package: slurm-smd\nReplaces: {_LIBRARIES}\nBreaks: {_LIBRARIES}"
    return re.sub(r"^Package: slurm-smd$", replaced, kept, flags=re.MULTILINE)


def _rules(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        if "slurmrestd" not in line or "dh_auto_configure" in line:
            line = line.replace("--with-slurmrestd ", "--disable-slurmrestd --disable-static ", 1)
            yield re.sub(r"--with-pmix( |$)", "--with-pmix=/usr/lib/$(DEB_HOST_MULTIARCH)/pmix2 ", line, count=1)
        if number == 0:
            yield "include /usr/share/dpkg/architecture.mk"
