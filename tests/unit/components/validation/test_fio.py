"""fio's command lines, and the figures in its real output."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from components.validation.fio import LATENCY, READ, WRITE, FioError, read_fio

FIXTURES = Path(__file__).parents[3] / "fixtures" / "fio"


def real(name: str) -> str:
    return (FIXTURES / f"fio-3.33-{name}.json").read_text(encoding="utf-8")


def changed(name: str, **section: Any) -> str:
    report = json.loads(real(name))
    report["jobs"][0]["read"] |= section
    return json.dumps(report)


@pytest.mark.parametrize(("kind", "section"), [(WRITE, "write"), (READ, "read"), (LATENCY, "read")])
def test_rate_and_latency_of_real_output_are_those_that_fio_reports(kind: str, section: str) -> None:
    reported = json.loads(real(kind))["jobs"][0][section]
    reading = read_fio(real(kind), kind)
    assert reading.io_bytes == 64 * 2**20
    assert reading.mb_per_s == pytest.approx(reported["bw_bytes"] / 1e6, rel=0.01)
    assert reading.median_us == reported["clat_ns"]["percentile"]["50.000000"] / 1000
    assert reading.p99_us == reported["clat_ns"]["percentile"]["99.000000"] / 1000


def test_an_error_of_the_file_system_is_raised_as_such() -> None:
    with pytest.raises(OSError, match="No space left on device") as raised:
        read_fio(real("disk-full"), WRITE)
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("output", "errors", "message"),
    [
        ("", "fio: unrecognized option '--randrepeat=0'\n", "fio: unrecognized option '--randrepeat=0'"),
        ("", "", "fio printed no figures"),
        (real("read")[:900], "", "fio printed no figures"),
        ('{"jobs": []}', "", "fio printed no figures"),
        (changed("read", io_bytes=0), "", "fio moved no data in its time"),
        (changed("read", clat_ns=None), "", "fio's output lacks a figure"),
        (changed("read", io_bytes="many"), "", "fio's output lacks a figure"),
        ('{"jobs": [{"error": 0, "read": 5}]}', "", "fio's output lacks a figure"),
        ('{"jobs": [{"error": -1}, 5]}', "", "fio's output lacks a figure"),
    ],
)
def test_output_without_figures_is_refused_with_the_reason(output: str, errors: str, message: str) -> None:
    with pytest.raises(FioError, match=message):
        read_fio(output, READ, errors)
