"""Rent machines from clouds by their HTTP APIs: clients, and programs that rent and return.

The programs run where you create and destroy the stack (`python3 -m ...`), with the package `requests` alone.
"""
