"""Capabilities of machines, one folder for each role."""
