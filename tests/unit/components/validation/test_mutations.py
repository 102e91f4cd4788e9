"""Real outputs, damaged: none of them passes with a figure that was not measured, and none makes a traceback.

They are 1,000, the same ones each time, and 10,000 others in each `make test-faults`.

Broken is an output from which what the program measured cannot be read any more. Damage to a line of NCCL's log, to a
comment or to a field that no figure depends on breaks nothing, and neither does another last digit of a time, where the
printed bandwidths leave it open. So the rule is about figures. Whatever was done to an output:

- nothing is raised, and the result is JSON;
- the figure is the one that was measured, to a thousandth, or there is none;
- PASS is said only where all rows are there with what was measured, all ranks and all hosts.

What is broken for certain does not pass, and where it is cut off, foreign or two tables in one it has no figure at all.
The job's state says COMPLETED throughout: the output alone has to tell.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from components.validation.model import Measurement
from components.validation.nccl_tests import Table, parse
from components.validation.verdict import Result, judge
from tests.chance import SEED
from tests.chance import dice as dice_of
from tests.unit.components.validation.test_verdict import ASKED, FIXTURES, MIB, report

SUMMARY = "# Avg bus bandwidth"
FOREIGN = (
    "",
    "\n\n\n",
    "srun: error: Unable to create step for job 17: Invalid generic resource (gres) specification\n",
    "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nImportError: No module named 'numpy'\n",
    '{"busbw": 365.08, "verdict": "PASS"}\n',
    "<html><head><title>502 Bad Gateway</title></head><body>502 365.08 365.08 0</body></html>\n",
    "|  0  NVIDIA H200   On | 00000000:18:00.0 Off |  0 |\n| N/A   34C   P0   77W / 700W | 4MiB / 143771MiB |\n",
    "     8388608  2097152  float  sum  -1  61.66  136.04  204.06  0  61.66  136.05  204.07  0\n",
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 316.196 \n",
    "\x00\x01\x02\udcff\ud800" * 40,
)
NOISE = "0123456789.-+e# \t\n\r\x00\x1b[31m:/abcNCLFAILEDOKN/A,;\u0663\u00b2\ufeff\udcff\U0001f600"


@dataclass(frozen=True)
class Sample:
    """A real output, what was asked of it, and how many of the 10,000 it is given: long ones take longer to read."""

    name: str
    share: int
    asked: Measurement
    text: str

    @property
    def table(self) -> Table:
        return parse(self.text)

    @property
    def row_lines(self) -> list[str]:
        sizes = {str(size) for size in self.asked.sizes()}
        return [line for line in self.text.splitlines(keepends=True) if line.split()[:1] and line.split()[0] in sizes]


def sample(name: str, share: int, sizes: tuple[int, int], ranks: int, nodes: int, before: str = "") -> Sample:
    least, most = sizes
    asked = replace(
        ASKED, min_bytes=least, max_bytes=most, gate_bytes=most, ranks=ranks, nodes=nodes, floor_gb_per_s=0.001
    )
    return Sample(name, share, asked, before + (FIXTURES / f"{name}.txt").read_text())


# This sample has the table alone; its rank lines are put back in front of it.
RANK_LINES = "".join(
    f"#  Rank {n:2d} Group  0 Pid   2208 on          c device  {n} [0000:00:06] NVIDIA H200\n" for n in range(4)
)
SAMPLES = (
    sample("nccl-tests-2.19-4xH200-nvlink-nvls-off", 2400, (8 * MIB, 8192 * MIB), 4, 1, RANK_LINES),
    sample("mpi-cpu-2x1-tcp-eth0", 1600, (MIB // 16, 4 * MIB), 2, 2),
    sample("tcp-cpu-2x1-lan0", 1600, (MIB // 16, 4 * MIB), 2, 2),
    sample("nccl-tests-2.19-2x1-H200-socket-eth0", 1600, (MIB, 256 * MIB), 2, 2),
    sample("nccl-tests-2.19-2x1-H200-socket-tailscale0", 1300, (MIB, 256 * MIB), 2, 2),
    sample("nccl-tests-2.19-2x1-H200-slurm-eth0", 600, (MIB, 1024 * MIB), 2, 2),
    sample("nccl-tests-2.19-2x1-H200-slurm-tailscale0", 400, (MIB, 256 * MIB), 2, 2),
    sample("nccl-tests-2.19-2x1-H200-socket-two-interfaces", 300, (64 * MIB, 256 * MIB), 2, 2),
    sample("nccl-tests-2.19-1x2-H200-nvlink-nvls-off", 200, (8 * MIB, 8192 * MIB), 2, 1),
)


def judged(asked: Measurement, output: str) -> Result:
    return judge(asked, report(output))


# What may leave the figures as they were


def garbled(text: str, dice: random.Random) -> str:
    at = place(text, dice)
    noise = "".join(dice.choice(NOISE) for _ in range(dice.randint(1, 12)))
    return text[:at] + noise + text[at + dice.choice((0, len(noise))) :]


def without_a_piece(text: str, dice: random.Random) -> str:
    at = place(text, dice)
    return text[:at] + text[at + dice.randint(1, 200) :]


def with_a_piece_twice(text: str, dice: random.Random) -> str:
    at = place(text, dice)
    end = at + dice.randint(1, 400)
    return text[:end] + text[at:end] + text[end:]


def with_a_piece_elsewhere(text: str, dice: random.Random) -> str:
    at, length, to = place(text, dice), dice.randint(1, 200), place(text, dice)
    rest = text[:at] + text[at + length :]
    return rest[:to] + text[at : at + length] + rest[to:]


def with_another_digit(text: str, dice: random.Random) -> str:
    places = [at for at, letter in enumerate(text) if letter in "0123456789"]
    at = dice.choice(places[-400:] if dice.random() < 0.8 else places)
    return text[:at] + dice.choice("0123456789") + text[at + 1 :]


def with_foreign_lines(text: str, dice: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    lines.insert(dice.randint(0, len(lines)), dice.choice(FOREIGN))
    return "".join(lines)


def with_a_line_twice(text: str, dice: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at = dice.choice(range(len(lines))) if dice.random() < 0.5 else -dice.randint(1, min(12, len(lines)))
    lines.insert(dice.randint(0, len(lines)), lines[at])
    return "".join(lines)


def place(text: str, dice: random.Random) -> int:
    """Anywhere, more often in the table at the end than in a long log before it."""
    return dice.randint(0, len(text)) if dice.random() < 0.3 else dice.randint(max(0, len(text) - 1300), len(text))


# What is broken for certain


def cut_off(of: Sample, dice: random.Random) -> str:
    """Anywhere before the summary is at its end."""
    end = of.text.index("\n", of.text.index(SUMMARY))
    return of.text[: dice.randint(0, end)]


def foreign(of: Sample, dice: random.Random) -> str:
    return "".join(dice.choices(FOREIGN, k=dice.randint(1, 3)))


def of_two_tables(of: Sample, dice: random.Random) -> str:
    other = dice.choice(SAMPLES).text
    return "".join(dice.sample([of.text, other], 2))


def with_a_row_twice(of: Sample, dice: random.Random) -> str:
    row = dice.choice(of.row_lines)
    return of.text.replace(row, row * dice.randint(2, 3), 1)


def without_a_row(of: Sample, dice: random.Random) -> str:
    return of.text.replace(dice.choice(of.row_lines), "", 1)


def without_the_header(of: Sample, dice: random.Random) -> str:
    header = next(line for line in of.text.splitlines(keepends=True) if line.split()[:2] == ["#", "size"])
    return of.text.replace(header, dice.choice(("", "#\n", header.upper())), 1)


def contradicting_itself(of: Sample, dice: random.Random) -> str:
    """A row with another bandwidth than its time and size give, by more than rounding can take or give."""
    row = dice.choice(of.row_lines)
    words = row.split()
    at = dice.choice((6, 7, 10, 11))
    printed = float(words[at])
    words[at] = f"{printed + 0.02 + 0.001 * printed + dice.choice((0.01, 0.1, 1.0, 25.0)):.2f}"
    return of.text.replace(row, "  ".join(words) + "\n", 1)


def of_wrong_data(of: Sample, dice: random.Random) -> str:
    row = dice.choice(of.row_lines)
    words = row.split()
    words[dice.choice((8, 12))] = str(dice.randint(1, 10**6))
    return of.text.replace(row, "  ".join(words) + "\n", 1)


ANY: tuple[Callable[[str, random.Random], str], ...] = (
    *[garbled] * 3,
    without_a_piece,
    with_a_piece_twice,
    with_a_piece_elsewhere,
    *[with_another_digit] * 2,
    with_foreign_lines,
    with_a_line_twice,
)
BROKEN: tuple[Callable[[Sample, random.Random], str], ...] = (
    *[cut_off] * 2,
    foreign,
    of_two_tables,
    with_a_row_twice,
    without_a_row,
    without_the_header,
    contradicting_itself,
    of_wrong_data,
)


@pytest.mark.parametrize("real", SAMPLES, ids=lambda real: real.name)
def test_the_sample_itself_passes(real):
    assert judged(real.asked, real.text)["verdict"] == "PASS"
    assert len(real.row_lines) == len(real.asked.sizes())


@pytest.mark.parametrize("real", SAMPLES, ids=lambda real: real.name)
def test_no_damaged_output_gives_a_figure_that_was_not_measured(real):
    dice = dice_of(real.name)
    clean, right = real.table, judged(real.asked, real.text)
    for number in range(real.share if SEED else real.share // 10):
        certain = dice.random() < 0.4
        break_it, damage = dice.choice(BROKEN), dice.choice(ANY)
        output = break_it(real, dice) if certain else damage(real.text, dice)
        if not certain and dice.random() < 0.2:
            output = dice.choice(ANY)(output, dice)
        result = judged(real.asked, output)
        how = (break_it if certain else damage).__name__
        what = f"number {number}, {how}: {result['verdict']} {result['reason'][:200]}"
        json.dumps(result)
        assert result["busbw_gb_per_s"] in (None, pytest.approx(right["busbw_gb_per_s"], rel=1e-3)), what
        if result["verdict"] == "PASS":
            assert not certain, what
            assert_the_same(parse(output), clean, what)
        elif certain and break_it in (cut_off, foreign, of_two_tables):
            keys = ("busbw_gb_per_s", "algbw_gb_per_s", "peak_busbw_gb_per_s", "average_busbw_gb_per_s")
            assert [result[key] for key in keys] == [None] * 4, what


def assert_the_same(found: Table, clean: Table, what: str) -> None:
    assert (found.ranks, len(found.hosts), found.out_of_bounds) == (clean.ranks, len(clean.hosts), 0), what
    rows = sorted(found.rows, key=lambda row: row.size_bytes)  # a row that has moved says what it said
    assert [row.size_bytes for row in rows] == [row.size_bytes for row in clean.rows], what
    for row, right in zip(rows, clean.rows, strict=True):
        for half, right_half in ((row.out_of_place, right.out_of_place), (row.in_place, right.in_place)):
            assert (half.wrong, half.checked) == (0, True), what
            assert half.busbw_gb_per_s == pytest.approx(right_half.busbw_gb_per_s, rel=1e-3), what
