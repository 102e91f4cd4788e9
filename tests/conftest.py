"""Settings of every test: chance has a fixed seed but in `make test-faults`, and no example fails for being slow."""

from hypothesis import settings

from tests.chance import SEED

settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("explore" if SEED else "fixed")
