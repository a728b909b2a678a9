"""Python's collection of garbage, which looks through every object of the process that it has not been told to skip."""

import gc


def collect_and_skip_living() -> None:
    """Free what nothing refers to any more, and let later collections skip all that is left, most of it modules."""
    gc.collect()
    gc.freeze()
