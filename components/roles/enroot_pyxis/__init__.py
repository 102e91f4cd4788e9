"""Containers for jobs: Enroot, Pyxis, and images that are at the nodes before jobs are."""
