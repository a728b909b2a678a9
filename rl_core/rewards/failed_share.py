"""The bound on the share of responses that get no score because the reward failed."""

from collections.abc import Sequence


class TooManyFailedRewards(RuntimeError):
    """More rewards failed than `reward.max_failed_share` allows; the message has the first reasons."""


def check_failed_share(errors: Sequence[str], total: int, *, max_failed_share: float, of: str = "rewards") -> None:
    """Raises TooManyFailedRewards if there are `errors` for more than `max_failed_share` of `total` samples. The rest
    of an evaluation may be another sample of the rows: where a judge refuses long responses, these are missing."""
    if len(errors) > max_failed_share * total:
        first = "\n  ".join(errors[:5])
        raise TooManyFailedRewards(
            f"{len(errors)} of {total} {of} failed, more than reward.max_failed_share = {max_failed_share}; "
            f"fix the reward function, then start the run again to continue. First reasons:\n  {first}"
        )
