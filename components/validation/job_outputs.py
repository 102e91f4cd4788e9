"""Read the files and the output that a measuring job left."""

from collections.abc import Mapping
from typing import Any

from components.validation.figures import REDUCED
from components.validation.nccl_output import distinct
from components.validation.nccl_tests import parse
from components.validation.slurm_jobs import without_middle

LOG_LIMIT = 200_000  # characters of NCCL's log


def with_tables(report: Mapping[str, Any], collective: str) -> dict[str, Any]:
    """Return a job's report for JobReport, with tables and NCCL's log from the job's files if they exist.

    After a failure the rest of the output stays behind the first table, because it has the reason.
    """
    files = report.get("files", {})
    tables = [_table(files, name, collective) for name in sorted(files) if name.startswith("table.")]
    logs = [files[name] for name in sorted(files) if name.startswith("log.")]
    result = {key: value for key, value in report.items() if key != "files"}
    result["beside"] = [files[name] for name in sorted(files) if name.startswith("beside.")]
    if tables:
        failed = report["state"] != "COMPLETED" or report["exit_code"]
        result["output"] = tables[0] + (report["output"] if failed else "")
        result["repeats"] = tables[1:]
    log = distinct("".join(logs))
    result["log"] = log if len(log) <= LOG_LIMIT else without_middle(log[: LOG_LIMIT // 2], log[-LOG_LIMIT // 2 :])
    return result


def _table(files: Mapping[str, str], name: str, collective: str) -> str:
    """Return a run's table: the exact one if it exists and is complete (rank.sh), else the printed one."""
    printed, exact = files[name], files.get(name.replace("table", "figures"), "")
    if not exact or parse(exact, collective=collective).problems:
        return printed
    return exact + "".join(line for line in printed.splitlines(keepends=True) if line.startswith(REDUCED))
