"""A reward of your own: copy this file, edit it, and set `reward.function: path/to/copy.py:score`.

The file is imported in an isolated process, never in the one that trains: it may be slow, leak or crash, and costs no
more than the sample it was judging. Everything a sample knows is described in rl_core/rewards/sample.py.
"""

import re

from rl_core.rewards.sample import RewardSample

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def score(sample: RewardSample, brevity_weight: float = 0.1) -> dict[str, float]:
    """Named numbers; `overall` is the one that is optimised, all of them become metrics.

    Keyword arguments come from `reward.kwargs` in the config.
    """
    accuracy = float(parse(sample.response) == sample.ground_truth_text.strip())
    brevity = 1.0 / (1.0 + sample.response_length / 100)
    return {
        "overall": (1.0 - brevity_weight) * accuracy + brevity_weight * brevity,
        "accuracy": accuracy,  # says whether the response is right (evaluation.accuracy_key)
        "brevity": brevity,
    }


def parse(response: str) -> str | None:
    """Optional: the answer that was read, None where there is none. Evaluation records it and counts the failures."""
    match = ANSWER.search(response)
    return match.group(1).strip() if match else None
