"""The parts of the CPU program that need no other rank: sizes, number format, what it says of the network."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

PROGRAM = Path(__file__).parents[4] / "components" / "validation" / "all_reduce_perf_cpu.py"


@pytest.fixture
def program():
    """The program's names."""
    return SimpleNamespace(**runpy.run_path(str(PROGRAM)))


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (4524.53, 7, "4524.53"),
        (36110.44, 7, "36110.4"),
        (144330.4, 7, " 144330"),
        (9999999.0, 7, "9999999"),
        (12345678.0, 7, "1.2e+07"),
        (0.2317, 6, "  0.23"),
        (1234.567, 6, "1234.6"),
    ],
)
def test_a_number_is_printed_as_nccl_tests_prints_it(program, value, width, text):
    assert program.fixed(value, width) == text


@pytest.mark.parametrize(
    ("include", "found"),
    [
        ("lo", ("lo", "tcp interface lo 127.0.0.1")),
        ("nosuch0", ("", "unknown, no IPv4 address on interface 'nosuch0': No such device")),
        # A network is the interface that has an address of it.
        ("127.0.0.0/8", ("lo", "tcp interface lo 127.0.0.1")),
        ("203.0.113.0/24", ("", None)),
    ],
)
def test_the_interface_it_names_is_one_that_the_node_has(program, monkeypatch, include, found):
    monkeypatch.delenv("OMPI_MCA_pml", raising=False)
    monkeypatch.setenv("OMPI_MCA_btl", "tcp,self")
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_include", include)
    name, words = program.mpi_interface()
    assert (name, found[1] and words) == found


@pytest.mark.parametrize(("pml", "btl"), [("", ""), ("", "tcp,self,sm"), ("ucx", "tcp,self")])
def test_the_cpu_program_names_no_interface_if_mpi_may_use_another(program, monkeypatch, pml, btl):
    monkeypatch.setenv("OMPI_MCA_pml", pml)
    monkeypatch.setenv("OMPI_MCA_btl", btl)
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_include", "lo")
    name, words = program.mpi_interface()
    assert name == ""
    assert words.startswith("unknown, MPI is not restricted to tcp")


def wrong_elements(program, all_reduce):
    """The number of wrong elements that the program counts in a reduction of 100."""
    world = SimpleNamespace(rank=0, ranks=1, barrier=lambda: None, allgather=lambda value: [value])
    world.all_reduce = all_reduce
    buffers = np.empty(100, np.float32), np.empty(100, np.float32)
    return program.measure(world, SimpleNamespace(w=1, n=2), *buffers)[1]


@pytest.mark.parametrize("damaged", [(), (0,), (3, 17)])
def test_every_element_that_is_not_the_sum_is_counted(program, damaged):
    def all_reduce(source, receive):
        receive[:] = source
        receive[list(damaged)] += 1

    assert wrong_elements(program, all_reduce) == len(damaged)


def test_a_result_that_is_left_from_before_is_wrong(program):
    calls: list[int] = []

    def all_reduce(source, receive):
        calls.append(len(calls))
        if len(calls) < 4:  # the fourth is the one that is checked
            receive[:] = source

    assert wrong_elements(program, all_reduce) == 100
