"""What tests choose by chance: the same in every `make test`, something new in every `make test-faults`."""

import os
import random

SEED = os.environ.get("FAULTS_SEED", "")
"""As `make test-faults` prints it; empty where nothing is explored."""


def dice(what: str) -> random.Random:
    """Return the dice of one test, which fall as the seed and its name say."""
    return random.Random(f"{SEED} {what}")  # noqa: S311 - it keeps no secret
