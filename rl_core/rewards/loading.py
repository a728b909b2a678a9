"""Loading reward functions, which happens in scoring processes only."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_core.rewards.messages import PARSER, RewardSpec
from rl_core.rewards.sample import RewardSample
from rl_core.user_code.modules import import_file


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A loaded reward function with its keyword arguments bound; it takes one sample, one dict or a list of dicts, by
    `spec.style`. The values that it returns are not checked here. `parse` is the module's function that reads the
    answer from a response."""

    spec: RewardSpec
    function: Callable[..., object]
    parse: Callable[[str], str | None] | None

    def score(self, sample: RewardSample) -> object:
        """Call the function with one sample. What it returns may be an awaitable."""
        return self.function(sample if self.spec.style == "sample" else easyr1_input(sample))

    def score_batch(self, samples: Sequence[RewardSample]) -> object:
        """Call a function of style `batch` with all samples."""
        return self.function([easyr1_input(sample) for sample in samples])


def easyr1_input(sample: RewardSample) -> dict[str, Any]:
    """The dict that EasyR1 passes to a reward function (`workers/reward/function.py`)."""
    return {
        "response": sample.response,
        "response_length": sample.response_length,
        "ground_truth": sample.ground_truth,
    }


def load_scorer(spec: RewardSpec) -> Scorer:
    """Import the module of a function, unless it was imported before, and bind the keyword arguments. Raises anything
    that the module raises, AttributeError when it does not define the function, and TypeError when what it defines
    cannot be called."""
    module = import_file(spec.source) if isinstance(spec.source, Path) else importlib.import_module(spec.source)
    if not hasattr(module, spec.function):
        raise AttributeError(f"{spec.source} defines no `{spec.function}` when it is imported")
    function = getattr(module, spec.function)
    if not callable(function):
        raise TypeError(f"`{spec.function}` of {spec.source} is {type(function).__name__}, not a function")
    bound = partial(function, **spec.kwargs)
    return Scorer(spec=spec, function=bound, parse=getattr(module, PARSER) if spec.has_parser else None)
