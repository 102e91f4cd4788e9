"""Seconds that each prolog and epilog script takes on a healthy machine, and how long Slurm waits for them.

    python -m bench.job_scripts

Runs the programs of a node in a separate folder (with their paths replaced), for a job
of an account that has no processes, with GPUs 0 to 7. The median of some turns. Nothing is judged.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from components.roles.health.settings import EPILOG, PROLOG
from components.roles.order import roles
from components.roles.role import template
from stacks.config import parse
from tests.unit.configs import LAB

TURNS = 7


def inside(text: str, root: Path) -> str:
    """Return the text with the folder in front of every path except /proc and /dev."""
    for folder in ("/usr/local/lib/tailrack", "/run/tailrack", "/etc/tailrack", "/etc/slurm"):
        text = text.replace(folder, f"{root}{folder}")
    return text


def install(root: Path) -> None:
    """Write the files of role health into the folder."""
    for role in roles(parse(LAB, base_dir=Path())):
        for file in role.files.get("compute", ()) if role.name == "health" else ():
            path = root / file.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(inside(file.text, root) + "\n", encoding="utf-8")
            path.chmod(int(file.mode, 8))
    for kind in ("prolog", "epilog"):
        text = template("slurm", "tailrack-prolog").replace("KIND", kind)
        path = root / f"etc/slurm/tailrack-{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(inside(text, root) + "\n", encoding="utf-8")
        path.chmod(0o755)
    gres = root / "etc/tailrack/gres.conf"
    gres.parent.mkdir(parents=True, exist_ok=True)
    gres.write_text("NodeName=a1 Name=gpu Type=h200 File=/dev/nvidia[0-7]\n", encoding="utf-8")
    (root / "run/tailrack").mkdir(parents=True, exist_ok=True)


def seconds(program: Path, environment: dict[str, str]) -> float:
    """The median of some turns. Raises CalledProcessError where the program fails: the machine is not well."""
    times = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        subprocess.run([program], env=environment, check=True, capture_output=True, timeout=60)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    """Print a line for each script, and one for all of a kind together."""
    processes = sum(path.name.isdecimal() for path in Path("/proc").iterdir())
    print(f"seconds where all is well, the median of {TURNS} ({processes} processes here):")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        install(root)
        environment = {
            "PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_JOB_UID": "60001", "SLURM_JOB_GID": "60001",
            "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7", "SLURMD_NODENAME": "a1",
        }  # fmt: skip
        for kind, names in (("prolog", PROLOG), ("epilog", EPILOG)):
            for script in names:
                path = root / f"usr/local/lib/tailrack/{kind}.d/{script}"
                print(f"  {kind + '.d/' + script:30} {seconds(path, environment):7.3f}")
            whole = seconds(root / f"etc/slurm/tailrack-{kind}", environment)
            print(f"  {'tailrack-' + kind + ', all of them':30} {whole:7.3f}")


if __name__ == "__main__":
    main()
