"""Containers for jobs: Enroot, Pyxis, and staged images."""
