"""What the user writes about a cluster, and where its machines come from."""

from pathlib import Path

PROJECT = Path(__file__).parents[1]
