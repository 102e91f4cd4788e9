"""Rent machines from clouds by their HTTP APIs: clients, and programs that rent and return. Standard library only.

The programs run where you create and destroy the stack, also without the packages of tailrack (`python3 -m ...`).
"""
