"""Run ClusterMAX's audit on a head node as a user, and print one JSON object: graded checks, refused calls, values.

Usage: audit_on_head.py FOLDER. The folder contains the tool and its packages; the audit's files go there too.
The audit asks ipinfo.io for the cluster's place by curl, and has no switch against that. So curl, wget and Python's
resolver are replaced here, also in the audit's jobs: they write down the call and fail. Calls to addresses pass: the
audit queries the cluster's Prometheus without a log-in.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = '#!/bin/sh\necho "{name} $*" >>{calls}\nexit 7\n'
RESOLVER = """import ipaddress
import socket

resolve = socket.getaddrinfo


def refuse(host, *rest, **named):
    try:
        ipaddress.ip_address(host)
        return resolve(host, *rest, **named)
    except ValueError:
        pass
    with open({calls!r}, "a") as file:
        file.write(f"python {{host}}\\n")
    raise OSError("the audit makes no outgoing call")


socket.getaddrinfo = refuse
"""
GRADE = """import json, sys
from cmax import audit_report, security

checks = audit_report.evaluate(json.load(sys.stdin), security.find_runtime_root(None), harness="slurm")
names = ("key", "status", "observed", "assessment")
print(json.dumps([{name: str(getattr(check, name)) for name in names} for check in checks]))
"""


def main() -> None:
    """Replace the programs that call, run the audit, and grade its values as its own report does."""
    folder = Path(sys.argv[1]).resolve()
    calls, programs, runs = folder / "calls", folder / "programs", folder / "runs"
    programs.mkdir(exist_ok=True)
    for name in ("curl", "wget"):
        (programs / name).write_text(PROGRAM.format(name=name, calls=calls))
        (programs / name).chmod(0o755)
    (folder / "sitecustomize.py").write_text(RESOLVER.format(calls=str(calls)))
    calls.write_text("")
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CLUSTERMAX_RUNS_ROOT": str(runs),
    }
    words = [sys.executable, "-m", "cmax.cli", "audit", "slurm", "--yes"]
    audit = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if audit.returncode:
        sys.exit(f"cmax audit: exit {audit.returncode}\n{audit.stdout}\n{audit.stderr}")
    values = max(runs.glob("*/*/audit/audit.values.json")).read_text()
    words = [sys.executable, "-c", GRADE]
    grade = subprocess.run(words, env=environment, input=values, stdout=subprocess.PIPE, text=True, check=True)
    result = {"checks": json.loads(grade.stdout), "calls": calls.read_text().splitlines(), "values": json.loads(values)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
