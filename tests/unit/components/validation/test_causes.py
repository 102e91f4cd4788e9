"""A job that failed names its cause where what it printed has one; the first error, and not the last farewell.

The samples are lines of CUDA, NCCL, Open MPI, the linker and Slurm as public issues and logs have them.
"""

import dataclasses
from typing import Any

import pytest
import yaml

from components.validation.verdict import judge
from components.validation.wording import cause_of, first_error
from tests.unit.components.validation.test_verdict import ASKED, FIXTURES, REAL, report

CHAIN = "".join(
    f" .. a pid 62767: Test failure common.cu:{line}\n" for line in (519, 532, 704, 718, 1368, 893, 12, 5, 9)
)
FAREWELL = (
    "srun: error: a: task 0: Exited with exit code 2\n"
    "slurmstepd: error: *** STEP 17.0 ON a CANCELLED AT 2026-11-26T08:00:00 ***\n"
    "srun: error: b: task 1: Terminated\nsrun: Terminating StepId=17.0\n"
)


def reason(output: str = "", **changes: Any) -> str:
    return judge(ASKED, report(output, state="FAILED", exit_code=143, **changes))["reason"]


@pytest.mark.parametrize(
    ("line", "cause", "remedy"), yaml.safe_load((FIXTURES / "causes.yaml").read_text(encoding="utf-8"))
)
def test_a_known_cause_keeps_its_remedy_despite_any_output_after_it(line: str, cause: str, remedy: str) -> None:
    said = reason(f"# nThread 1\n{line}\n{CHAIN}{FAREWELL}")
    assert "Cause: " in said
    assert cause in said
    assert remedy in said
    assert line[:100] in said


def test_a_cause_in_nccls_own_log_is_found_and_so_is_the_process_that_has_the_gpu() -> None:
    said = reason(
        "a: Test NCCL failure common.cu:1005 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'\n",
        log="a:18:30 [0] alloc.h:5 NCCL WARN Cuda failure 2 'out of memory'\n",
        beside=["a: GPU 0000:18:00.0 is 0 % busy with 143000 MiB in use by 4711 train.py (142000 MiB)\n"],
    )
    assert "a GPU had no memory left" in said
    assert "4711 train.py (142000 MiB)" in said


def test_an_unknown_cause_quotes_the_first_error_and_no_exit_message() -> None:
    assert first_error(f"all is well\nfoo: invalid widget 7\n{CHAIN}{FAREWELL}") == "foo: invalid widget 7"
    assert first_error(FAREWELL + CHAIN) == ""
    assert "First error: foo: invalid widget 7." in reason(f"foo: invalid widget 7\n{CHAIN}{FAREWELL}")


@pytest.mark.parametrize(
    "text",
    [
        "a:1:1 [0] NCCL INFO misc: out of memory is what this looks for\n",
        "# Out of bounds values : 0 OK\n",
        "a:1:1 [0] NCCL INFO Could not find /dev/shm/x: failed once\n",
        FAREWELL,
        "",
    ],
)
def test_output_without_an_error_has_no_cause(text: str) -> None:
    assert cause_of(text) == ""


@pytest.mark.parametrize(("floor", "verdict"), [(9999.0, "FAIL"), (None, "UNJUDGED")])
def test_the_circumstances_of_a_figure_are_named_without_our_settings(floor: float | None, verdict: str) -> None:
    log = (
        "# tailrack sets NCCL_SOCKET_IFNAME==eth0\n# tailrack sets NCCL_IB_DISABLE=1\n"
        "a:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
        "a:1:1 [0] NCCL INFO NCCL_RAS_ADDR set by environment to localhost:21007\n"
        "a:1:1 [0] NCCL INFO NCCL_DEBUG set by environment to INFO\n"
        "a:1:1 [0] NCCL INFO NCCL_PROTO set by environment to simple\n"
        "b:1:1 [0] NCCL INFO NCCL_PROTO set by environment to simple\n"
        "a:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Trie.\n"
        'a:1:1 [0] tuner.cc:9 NCCL WARN Unrecognized element token "Trie" when parsing "Trie"\n'
    )
    output = REAL.replace("nccl-library=22809", "nccl-library=22708")
    told = report(output, log=log, beside=["a: GPU 0 is 98 % busy with 9 MiB in use by 77 python (9 MiB)\n"])
    result = judge(dataclasses.replace(ASKED, floor_gb_per_s=floor), told)
    reason = result["reason"]
    assert result["verdict"] == verdict
    assert 'NCCL warns: \'Unrecognized element token "Trie" when parsing "Trie"\'.' in reason
    sources = "the job's environment, its image, /etc/nccl.conf or ~/.nccl.conf"
    assert f"NCCL has settings from {sources}: NCCL_" in reason
    assert "NCCL_PROTO=simple, NCCL_ALGO=Trie" in reason
    assert "Other use of the GPUs: a: GPU 0 is 98 % busy" in reason
    assert not any(name in reason for name in ("NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_RAS"))
