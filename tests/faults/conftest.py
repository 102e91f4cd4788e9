"""Fixtures of tests/lab for tests that only `make test-faults` runs: minutes each, most with their own cluster."""

from tests.lab.conftest import cluster, found, images, make_cluster, pytest_runtest_makereport, pytest_sessionfinish

__all__ = ["cluster", "found", "images", "make_cluster", "pytest_runtest_makereport", "pytest_sessionfinish"]
