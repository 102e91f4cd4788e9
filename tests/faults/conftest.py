"""Fixtures of tests/lab for tests that only `make test-faults` runs: minutes each, each file with its own cluster."""

from tests.lab.conftest import found, images, make_cluster, pytest_runtest_makereport, pytest_sessionfinish

__all__ = ["found", "images", "make_cluster", "pytest_runtest_makereport", "pytest_sessionfinish"]
