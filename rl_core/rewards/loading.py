"""Loading reward functions, in a scoring process and nowhere else."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import PARSER, RewardSpec
from rl_core.user_code.modules import import_file


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A loaded reward function with its keyword arguments. What it returns is not yet checked.

    Attributes:
        spec: What was loaded.
        function: Takes what its style asks for.
        parse: The answer it reads from a response; None where the source offers no `parse`.
    """

    spec: RewardSpec
    function: Callable[..., object]
    parse: Callable[[str], str | None] | None

    def score(self, sample: RewardSample) -> object:
        """Call it with one sample; an awaitable is handed on."""
        return self.function(sample if self.spec.style == "sample" else easyr1_input(sample))

    def score_batch(self, samples: Sequence[RewardSample]) -> object:
        """Call a function of style `batch` with all of them."""
        return self.function([easyr1_input(sample) for sample in samples])


def easyr1_input(sample: RewardSample) -> dict[str, Any]:
    """What EasyR1 hands to a reward function (its `workers/reward/function.py`), key by key."""
    return {
        "response": sample.response,
        "response_length": sample.response_length,
        "ground_truth": sample.ground_truth,
    }


def load_scorer(spec: RewardSpec) -> Scorer:
    """Import the source, unless another function of it was loaded before, and bind the keyword arguments.

    Raises:
        BaseException: whatever the file raises while it is imported.
        AttributeError: it does not define the function after all.
        TypeError: what it defines by that name cannot be called.
    """
    module = import_file(spec.source) if isinstance(spec.source, Path) else importlib.import_module(spec.source)
    if not hasattr(module, spec.function):
        raise AttributeError(f"{spec.source} defines no `{spec.function}` when it is imported")
    function = getattr(module, spec.function)
    if not callable(function):
        raise TypeError(f"`{spec.function}` of {spec.source} is {type(function).__name__}, no function")
    bound = partial(function, **spec.kwargs)
    return Scorer(spec=spec, function=bound, parse=getattr(module, PARSER) if spec.has_parser else None)
