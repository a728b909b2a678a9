"""What a trial of the reward gave, on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from flows.printing import say

if TYPE_CHECKING:
    from rl_core.rewards.trial import TriedForm


def say_trial(table: "Sequence[TriedForm]", console: Console) -> None:
    """Print a line for each form of a response, below the name of its reward where there are several."""
    rewards = dict.fromkeys(form.reward for form in table)
    for reward in rewards:
        if len(rewards) > 1:
            say(console, f"  {reward}")
        for form in table:
            if form.reward == reward:
                mean = "no score" if form.overall is None else f"{form.overall:.2g}"
                say(console, f"  {form.name:28} {form.right} of {form.tried} right, overall {mean}")
