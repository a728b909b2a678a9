"""A judge that is paid for each call, and writes its bill."""

from rl_core.rewards.sample import RewardSample


def score(sample: RewardSample, bill: str) -> dict[str, float]:
    """0 or 1 by the length of the response; a line in the file `bill` for each response that a model gave."""
    if sample.response_ids:
        with open(bill, "a") as file:  # noqa: PTH123 - a short line is appended whole
            file.write(f"{sample.step}\n")
    right = float(len(sample.response) % 2)
    return {"overall": right, "accuracy": right}
