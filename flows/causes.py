"""Why something ended, in words for people."""

from rl_core.redaction import redact


def cause_of(error: BaseException | None) -> str:
    """The message alone for what a person can change; its kind too for what nobody expected. Without secrets."""
    expected = isinstance(error, ValueError | OSError) or type(error).__module__.startswith("rl_core.")
    return redact(f"{error}" if expected else f"{type(error).__name__}: {error}")
