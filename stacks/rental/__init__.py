"""Rent machines from clouds by their HTTP APIs: clients, and programs that rent and return.

The programs run where you create and destroy the stack (`python3 -m ...`), with the package `requests` alone
(docs/decisions/0022-rented-machines-as-commands.md). A failed query changes nothing. A program that loses its engine
rents nothing more; the next run finds a machine of a call that was in progress. EC2 needs more than a bearer token, so
kind `aws` uses Pulumi's package.
"""
