"""The bound on the share of calls of user functions that fail."""

from collections.abc import Sequence


class TooManyFailures(RuntimeError):
    """More calls failed than the section's `max_failed_share` allows; the message has the first reasons."""


def check_failed_share(
    errors: Sequence[str], total: int, *, max_failed_share: float, of: str = "rewards", section: str = "reward"
) -> None:
    """Raises TooManyFailures if there are `errors` for more than `max_failed_share` of `total` calls. The rest of an
    evaluation may be another sample of the rows: where a judge refuses long responses, these are missing."""
    if len(errors) > max_failed_share * total:
        first = "\n  ".join(errors[:5])
        raise TooManyFailures(
            f"{len(errors)} of {total} {of} failed, more than {section}.max_failed_share = {max_failed_share}; "
            f"fix the function, then start the run again to continue. First reasons:\n  {first}"
        )
