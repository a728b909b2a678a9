"""Loads a reward function, and gives it what its form takes. Only scoring processes do this."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rl_core.rewards.call_forms import (
    accepted_names,
    easyr1_input,
    trl_arguments,
    verl_arguments,
    verl_batch_arguments,
    verl_result,
)
from rl_core.rewards.components import components_of
from rl_core.rewards.messages import PARSER, CallResult, RewardSpec
from rl_core.rewards.sample import RewardSample
from rl_core.unscored import NOT_FOR_SAMPLE
from rl_core.user_code.modules import import_file
from rl_core.wording import plain_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A loaded reward function with its keyword arguments bound; what it takes depends on `spec.style`. `parse` is the
    module's function that reads the answer from a response; `accepted` are the keywords that are left to give, None if
    it takes any; `answer_names` as in RewardOrder."""

    spec: RewardSpec
    function: Callable[..., object]
    parse: Callable[[str], str | None] | None
    accepted: frozenset[str] | None
    answer_names: Sequence[str]

    def call(self, sample: RewardSample) -> object:
        """What the function returns for one sample, which may be an awaitable."""
        if self.spec.style == "verl":
            return self.function(**verl_arguments(sample, accepted=self.accepted))
        return self.function(sample if self.spec.style == "sample" else easyr1_input(sample))

    def call_all(self, samples: Sequence[RewardSample]) -> object:
        """What a function returns that gets many samples at a time."""
        if self.spec.style == "verl_batch":
            return self.function(**verl_batch_arguments(samples, accepted=self.accepted))
        if self.spec.style == "batch":
            return self.function([easyr1_input(sample) for sample in samples])
        arguments = trl_arguments(
            samples,
            answer_names=self.answer_names,
            reads_messages=self.spec.reads_messages,
            accepted=self.accepted,
        )
        return self.function(**arguments)

    def result(self, sample: RewardSample, returned: object) -> CallResult:
        """The components of what it returned for a sample, and the answer that was read from its response. Raises
        ValueError as `components_of`, and what the user's code raises."""
        one = verl_result(returned) if self.spec.style in ("verl", "verl_batch") else returned
        if one is None:
            return CallResult({}, None, NOT_FOR_SAMPLE)
        return CallResult(components_of(one), self._parsed(sample.response), None)

    def _parsed(self, response: str) -> str | None:
        parsed = self.parse(response) if self.parse else None
        if not isinstance(parsed, str | None):
            raise ValueError(f"`{PARSER}` returned {type(parsed).__name__}, not text or None")
        return None if parsed is None else plain_text(parsed)


def load_scorer(spec: RewardSpec, *, answer_names: Sequence[str] = ()) -> Scorer:
    """Import a function and bind its keyword arguments. Raises anything that the module raises, AttributeError when it
    does not define the function, and TypeError when what it defines cannot be called."""
    module = import_file(spec.source) if isinstance(spec.source, Path) else importlib.import_module(spec.source)
    if not hasattr(module, spec.function):
        raise AttributeError(f"{spec.source} defines no `{spec.function}` when it is imported")
    function = getattr(module, spec.function)
    if not callable(function):
        raise TypeError(f"`{spec.function}` of {spec.source} is {type(function).__name__}, not a function")
    accepted = accepted_names(function)
    return Scorer(
        spec=spec,
        function=partial(function, **spec.kwargs),
        parse=getattr(module, PARSER) if spec.has_parser else None,
        accepted=None if accepted is None else accepted - set(spec.kwargs),
        answer_names=answer_names,
    )
