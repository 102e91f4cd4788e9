"""Settings of every test: no example of a property test fails for being slow on a busy machine."""

from hypothesis import settings

settings.register_profile("tailrack", deadline=None)
settings.load_profile("tailrack")
