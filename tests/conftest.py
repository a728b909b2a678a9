"""Settings of every test."""

from hypothesis import settings

# A deadline measures the machine, not the code: these tests run beside others on few cores.
settings.register_profile("sightline", deadline=None)
settings.load_profile("sightline")
