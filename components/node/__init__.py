"""The program that runs on hosts: the standard library of Python 3.10 or newer, and no other part of tailrack."""
