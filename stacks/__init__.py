"""The stack config, the kinds of sites, and the programs of the stack kinds."""

from pathlib import Path

PROJECT = Path(__file__).parents[1]
